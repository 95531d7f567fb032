//! The checker: reads every block and reports the first invariant that each damage breaks.
//!
//! Of an FD-tree, which keeps only these, I1 to I3 and what is recorded are checked.
//!
//! - I1: every block of a level is named by exactly one fence of the level above.
//! - I2: in a level above others, every block begins with a fence at or before its fence key.
//! - I3: no level holds more data than its number allows.
//! - I4: the bottom holds more than the level above it may.
//! - I5: a level that leads past missing levels leads to few enough blocks that its fences would
//!   fit the next level.
//! - I6: the recorded N∆ and N∇ equal the actual counts, so that the trigger against underflow is
//!   reliable.
//! - The recorded units of levels with scattered blocks equal the actual ones; they bound the
//!   waste.
//! - Range tombstones are in order and do not overlap, and those of the log are not recorded.
//! - The sequence ranges of runs are disjoint and descending.
//! - No two entries of an index refer to the same space, and the recorded space equals what levels
//!   refer to. During a merge an entry belongs to the new side at or before the wavefront, else to
//!   the old side; both sides lead to the same blocks of the levels below.
//! - Fence contents: filters, counts and fence keys agree with the blocks.

mod sizes;

use esker_device::Purpose;
use esker_format::block::BlockView;
use esker_format::data::Data;
use esker_format::entry::Payload;
use esker_format::filter;
use esker_format::ids::{Generation, Seq};
use esker_format::key;
use esker_format::meta::{IndexMeta, LevelCounts, RemovedRange};
use esker_format::ptr::{BlockPtr, Extent};
use esker_format::value_ref::ValueRef;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::Error;
use esker_substrate::memtable::Place;
use esker_substrate::runs::RunSet;
use esker_substrate::values;

use crate::build::level_writer::extent_of;
use crate::read::moving::Moving;
use crate::read::past::PastIndexes;
use crate::read::source::Reach;
use crate::run::cursor::{FenceCursor, OwnedFence};
use crate::run::tree::Tree;
use crate::{Index, Paused};
pub(crate) use sizes::Units;
use sizes::{check_order, check_order_of_runs};

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The description of the problem.
    pub what: String,
}

/// Collects what a check saw.
#[derive(Clone, Debug, Default)]
pub struct CheckSink {
    /// Blocks read.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Data entries seen.
    pub entries: u64,
    /// Values outside blocks read.
    pub values: u64,
    /// The highest generation that was read.
    pub generation_max: Generation,
    /// Findings.
    pub problems: Vec<Problem>,
}

impl CheckSink {
    pub(crate) fn report(&mut self, offset: u64, what: impl Into<String>) {
        let problem = Problem { file: DATA_FILE.into(), offset, what: what.into() };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// A block is read.
    fn note_block(&mut self, ptr: &BlockPtr) {
        self.blocks += 1;
        self.bytes += ptr.bytes() as u64;
        self.generation_max = self.generation_max.max(ptr.generation);
    }

    fn report_error(&mut self, error: &Error) {
        let problem = match error {
            Error::Corrupt { file, offset, what } => {
                Problem { file: file.clone(), offset: *offset, what: what.clone() }
            }
            Error::Device(device) => Problem {
                file: device.file.clone(),
                offset: device.offset,
                what: device.to_string(),
            },
            other => Problem { file: DATA_FILE.into(), offset: 0, what: other.to_string() },
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// The result of the walk of one level.
#[derive(Default)]
struct Walked<'a> {
    reach: Reach<'a>,
    counts: LevelCounts,
    seqs: Option<(Seq, Seq)>,
    /// The blocks of the level below, in the order of this level's fences, without I2's
    /// duplicates: a digest, so that a level of any size is checked in constant memory.
    children: u64,
    last_child: Option<BlockPtr>,
    complete: bool,
    /// References to values, of the entries that are the tree's own.
    references: Vec<Vec<u8>>,
    /// The level's extents are known: those of a level being written are not.
    knows_extents: bool,
    /// Space of scattered blocks.
    scattered: Vec<Extent>,
}

impl Walked<'_> {
    /// Collects the references of a block.
    fn note_references(&mut self, view: BlockView<'_>) {
        for index in 0..view.len() {
            let Ok(entry) = view.entry(index) else { return };
            let Payload::Reference(content) = entry.payload else { continue };
            let mut key = Vec::new();
            view.append_key(entry.suffix, &mut key);
            if self.reach.has(&key) {
                self.references.push(content.to_vec());
            }
        }
    }
}

fn digest(state: u64, ptr: &BlockPtr) -> u64 {
    let mixed =
        state ^ ptr.sector.rotate_left(17) ^ ptr.generation.0.rotate_left(41) ^ u64::from(ptr.crc);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

impl Paused<'_> {
    /// Reads every block of the keyspace, past the cache, and checks all invariants. Of a flush
    /// or merge under way both sides are checked, as far as they reach.
    pub fn check(&self, sink: &mut CheckSink) {
        self.index.check(sink);
    }
}

impl Index {
    fn check(&self, sink: &mut CheckSink) {
        let mut referred = RunSet::default();
        let found = sink.problems.len();
        self.check_parts(&mut referred, sink);
        self.check_logged_values(&mut referred.clone(), sink);
        if sink.problems.len() == found {
            self.check_taken(&referred, sink);
        }
        let meta = self.meta();
        self.kind.check_levels(self.context(), &meta, sink);
        check_order_of_runs(&meta, sink);
        self.check_removed(&meta, sink);
    }

    /// The order of range tombstones, and that the index's record has only range tombstones for
    /// which the log is not needed.
    fn check_removed(&self, meta: &IndexMeta, sink: &mut CheckSink) {
        let removed = &self.views.load().removed;
        removed.disorder().into_iter().for_each(|what| sink.report(0, what));
        let too_new = |range: &RemovedRange| {
            range.seqs.first().is_none_or(|newest| *newest > meta.log_unneeded_seq())
        };
        if meta.removed.iter().any(too_new) {
            sink.report(0, "a recorded range tombstone is one that only the log may have");
        }
    }

    fn check_parts(&self, referred: &mut RunSet, sink: &mut CheckSink) {
        let mut levels = Vec::new();
        let view = self.views.load();
        for part in &view.parts {
            // The result of a split refers to the same blobs as what it copies.
            let splits = Moving::of(part).is_some_and(|moving| moving.splits_at.is_some());
            for (tree, reach) in part.trees() {
                let mut copied = RunSet::default();
                let is_copy = splits && matches!(reach, Reach::UpTo(_));
                let referred = if is_copy { &mut copied } else { &mut *referred };
                levels.push(self.check_tree(tree, reach, referred, sink));
            }
        }
        self.kind.check_units(&self.meta(), &levels, sink);
        self.check_past(&view.past, referred, sink);
    }

    /// Past indexes, each on its own: later ones have copies of its entries.
    fn check_past(&self, past: &PastIndexes, referred: &mut RunSet, sink: &mut CheckSink) {
        for past in past.all() {
            let mut here = RunSet::default();
            for tree in past.trees() {
                let tree = Tree::past(tree.clone());
                self.check_tree(&tree, Reach::Whole, &mut here, sink);
            }
            here.runs().for_each(|run| referred.include(run));
            check_order(past.trees(), past.until, sink);
        }
    }

    /// The space that the manifest records for blobs is the space that the levels refer to. A
    /// flush or merge under way has moved references since its last record: blobs that it has taken
    /// from the log are not in the manifest yet, and blobs that it has dropped still are.
    fn check_taken(&self, referred: &RunSet, sink: &mut CheckSink) {
        let is_still = !self.is_merging() && !self.is_flushing();
        let mut known = self.taken_runs();
        if is_still {
            for run in known.runs().filter(|run| !referred.contains(run)) {
                let what = "no entry refers to all of this space, which is recorded as values'";
                sink.report(run.offset(), what);
            }
        } else {
            for run in self.logged_runs() {
                if known.insert(run).is_err() {
                    sink.report(run.offset(), "the log alone refers to recorded space");
                }
            }
        }
        for run in referred.runs().filter(|run| !known.contains(run)) {
            sink.report(run.offset(), "an entry refers to space that is not its keyspace's");
        }
    }

    /// Reads the blobs that a level refers to.
    fn check_values(&self, walked: &Walked<'_>, referred: &mut RunSet, sink: &mut CheckSink) {
        walked.references.iter().for_each(|content| self.check_value(content, referred, sink));
    }

    /// Reads the blobs that are in the log, and not in a level yet; `referred` contains those that
    /// levels refer to.
    fn check_logged_values(&self, referred: &mut RunSet, sink: &mut CheckSink) {
        let view = self.views.load();
        let memtable = view.memtable.leaves();
        memtable.iter().for_each(|place| self.check_logged_value(&place, referred, sink));
        for moving in view.parts.iter().filter_map(Moving::of) {
            let left = moving.frozen.iter().flat_map(|frozen| frozen.iter());
            left.filter(|place| !moving.has_passed(place.key()))
                .for_each(|place| self.check_logged_value(&place, referred, sink));
        }
    }

    fn check_logged_value(&self, place: &Place<'_>, referred: &mut RunSet, sink: &mut CheckSink) {
        if let Data::Reference(content) = place.version().data() {
            self.check_value(content, referred, sink);
        }
    }

    /// Reads the blob of a reference, and checks that nothing else refers to its space.
    fn check_value(&self, content: &[u8], referred: &mut RunSet, sink: &mut CheckSink) {
        let Ok(value) = ValueRef::decode(content) else { return };
        sink.values += 1;
        sink.generation_max = sink.generation_max.max(value.generation);
        for run in &value.runs {
            if referred.insert(*run).is_err() {
                sink.report(run.offset(), "two entries refer to the same space");
            }
        }
        match values::verify(&self.reader.blocks, &value, Purpose::Check) {
            Ok(bytes) => sink.bytes += bytes,
            Err(error) => sink.report_error(&error),
        }
    }

    fn check_tree(
        &self,
        tree: &Tree,
        reach: Reach<'_>,
        referred: &mut RunSet,
        sink: &mut CheckSink,
    ) -> Option<Units> {
        self.check_top(tree, sink);
        let mut found = Some(Units::default());
        if tree.is_level() {
            for ptr in &tree.meta.top {
                let _found_twice = referred.insert(extent_of(ptr));
                found = found.map(|found| found.with(extent_of(ptr).units, true));
            }
        }
        let mut above: Option<Walked<'_>> = None;
        for level in 0..tree.height() {
            let walked = self.check_level(tree, level, reach, above.as_ref(), sink);
            self.check_values(&walked, referred, sink);
            for extent in &walked.scattered {
                if referred.insert(*extent).is_err() {
                    sink.report(extent.offset(), "a block overlaps other data");
                }
            }
            let units = walked.scattered.iter().map(|extent| extent.units).sum();
            let is_node = level + 1 < tree.height();
            found = found.filter(|_| walked.complete).map(|found| found.with(units, is_node));
            above = Some(walked);
        }
        found
    }

    fn check_top(&self, tree: &Tree, sink: &mut CheckSink) {
        for ptr in &tree.meta.top {
            self.check_readable(ptr, sink);
            if !tree.is_level() && !tree.meta.top_extents.iter().any(|extent| holds(extent, ptr)) {
                sink.report(ptr.offset(), "block of top fences is outside the tree's extents");
            }
        }
    }

    fn check_readable(&self, ptr: &BlockPtr, sink: &mut CheckSink) {
        sink.note_block(ptr);
        let read = self.reader.blocks.read_uncached(self.reader.keyspace, ptr, Purpose::Check);
        if let Err(error) = read {
            sink.report_error(&error);
        }
    }

    /// A block that contains the merge's position: only a part of it belongs to the tree.
    fn check_passed(&self, ptr: &BlockPtr, walked: &mut Walked<'_>, sink: &mut CheckSink) {
        sink.note_block(ptr);
        match self.reader.blocks.read_uncached(self.reader.keyspace, ptr, Purpose::Check) {
            Err(error) => sink.report_error(&error),
            Ok(block) => walked.note_references(block.view()),
        }
    }

    fn check_level<'a>(
        &self,
        tree: &Tree,
        level: usize,
        reach: Reach<'a>,
        above: Option<&Walked<'_>>,
        sink: &mut CheckSink,
    ) -> Walked<'a> {
        let mut walked = Walked {
            reach,
            complete: reach == Reach::Whole,
            knows_extents: !matches!(reach, Reach::UpTo(_)) && !tree.is_level(),
            ..Walked::default()
        };
        let mut blocks = 0;
        let found = FenceCursor::find(tree, &self.reader, level, reach.first());
        let mut cursor = found.unwrap_or_else(|error| {
            sink.report_error(&error);
            walked.complete = false;
            None
        });
        // The fence that a search finds may be a duplicate (I2), which does not give the begin of
        // its block.
        let mut is_own = !matches!(reach, Reach::Behind(_));
        while let Some(at) = cursor {
            let fence = at.owned();
            let next = at.next();
            let bound = match &next {
                Ok(Some(next)) => next.owned().ok(),
                _ => None,
            };
            match &fence {
                Ok(fence) if reach.is_gone(fence, bound.as_ref()) => {}
                Ok(fence) if reach.has_lost(fence, bound.as_ref()) => {
                    self.check_passed(&fence.ptr, &mut walked, sink);
                }
                Ok(fence) if is_own => {
                    blocks = digest(blocks, &fence.ptr);
                    self.check_block(tree, level, fence, bound.as_ref(), &mut walked, sink);
                }
                Ok(fence) => self.check_passed(&fence.ptr, &mut walked, sink),
                Err(_) => {}
            }
            is_own = true;
            for error in [fence.err(), next.as_ref().err().cloned()].into_iter().flatten() {
                sink.report_error(&error);
                walked.complete = false;
            }
            cursor = next.unwrap_or_default();
        }
        check_recorded(
            tree,
            level,
            &walked,
            above.filter(|_| walked.complete).map(|above| (above, blocks)),
            sink,
        );
        walked
    }

    fn check_block(
        &self,
        tree: &Tree,
        level: usize,
        fence: &OwnedFence,
        next: Option<&OwnedFence>,
        walked: &mut Walked<'_>,
        sink: &mut CheckSink,
    ) {
        sink.note_block(&fence.ptr);
        let offset = fence.ptr.offset();
        if tree.is_level() {
            walked.scattered.push(extent_of(&fence.ptr));
        }
        let inside = tree
            .meta
            .levels
            .get(level)
            .is_some_and(|meta| meta.extents.iter().any(|extent| holds(extent, &fence.ptr)));
        if walked.knows_extents && !inside {
            sink.report(offset, "block is outside the extents of its level");
        }
        let block = &self.reader.blocks;
        match block.read_uncached(self.reader.keyspace, &fence.ptr, Purpose::Check) {
            Err(error) => {
                sink.report_error(&error);
                walked.complete = false;
            }
            Ok(block) => {
                let has_below = level + 1 < tree.height();
                walked.note_references(block.view());
                let found = check_entries(block.view(), has_below, fence, next, walked);
                sink.entries += u64::from(fence.puts) + u64::from(fence.tombstones);
                if let Err(what) = found {
                    sink.report(offset, what);
                }
            }
        }
    }
}

/// Checks the result of the walk of a level against the record, and against the level above:
/// `above` has that level, and a digest of the blocks that were found.
fn check_recorded(
    tree: &Tree,
    level: usize,
    walked: &Walked<'_>,
    above: Option<(&Walked<'_>, u64)>,
    sink: &mut CheckSink,
) {
    let Some(meta) = tree.meta.levels.get(level) else { return };
    let offset = meta.extents.first().map_or(0, Extent::offset);
    if let Some((above, blocks)) = above
        && above.complete
        && above.children != blocks
    {
        sink.report(offset, format!("the fences above level {level} name other blocks"));
    }
    let expected =
        LevelCounts { put_bytes: 0, tombstone_bytes: 0, kept_for_snapshots: 0, ..meta.counts };
    if walked.complete && walked.counts != expected {
        let found = walked.counts;
        sink.report(offset, format!("level {level} holds {found:?}, recorded {expected:?}"));
    }
    // Where blocks are scattered they leave a level one by one: its sequence numbers are within the
    // recorded range.
    let seqs = walked.seqs.filter(|_| walked.complete);
    let is_off = |(low, high): (Seq, Seq)| match tree.is_level() {
        true => low < meta.seqs.0 || high > meta.seqs.1,
        false => (low, high) != meta.seqs,
    };
    if seqs.is_some_and(is_off) {
        sink.report(offset, format!("level {level} has other sequence numbers than recorded"));
    }
}

fn holds(extent: &Extent, ptr: &BlockPtr) -> bool {
    let end = ptr.offset().saturating_add(ptr.bytes() as u64);
    extent.offset() <= ptr.offset() && end <= extent.offset().saturating_add(extent.bytes())
}

/// Order, fence key, I2, filter and counts of one block.
fn check_entries(
    view: BlockView<'_>,
    has_below: bool,
    fence: &OwnedFence,
    next: Option<&OwnedFence>,
    walked: &mut Walked<'_>,
) -> Result<(), String> {
    let mut previous: Option<(Vec<u8>, Seq, bool)> = None;
    let (mut puts, mut tombstones, mut fences) = (0u64, 0u64, 0u64);
    let mut outcome = Ok(());
    let mut fail = |what: &str| {
        if outcome.is_ok() {
            outcome = Err(what.to_string());
        }
    };
    for index in 0..view.len() {
        let Ok(entry) = view.entry(index) else { return Err("entry does not decode".into()) };
        let mut user_key = Vec::new();
        view.append_key(entry.suffix, &mut user_key);
        let at = (user_key.as_slice(), entry.seq);
        let is_fence = matches!(entry.payload, Payload::Fence(_));
        if let Some((key, seq, was_fence)) = &previous {
            let order = key::compare((key, *seq), at);
            let fence_before_data = *was_fence && !is_fence;
            if order.is_gt() || (order.is_eq() && !fence_before_data) {
                fail("entries are out of order");
            }
        }
        let own = (fence.key.as_slice(), fence.seq);
        if index == 0 && has_below && (!is_fence || key::compare(at, own).is_gt()) {
            fail("the block does not begin with a fence at or before its fence key");
        }
        if !is_fence && key::compare(at, own).is_lt() {
            fail("fences: an entry is before its block's fence key");
        }
        if next.is_some_and(|next| key::compare(at, (&next.key, next.seq)).is_ge()) && !is_fence {
            fail("fences: an entry is after the next block's fence key");
        }
        match entry.payload {
            Payload::Fence(child) => {
                fences += 1;
                if walked.last_child.replace(child.ptr) != Some(child.ptr) {
                    walked.children = digest(walked.children, &child.ptr);
                }
            }
            Payload::Delete => tombstones += 1,
            _ => puts += 1,
        }
        if !is_fence {
            if !filter::may_contain(&fence.filter, filter::hash(&user_key)) {
                fail("fences: the block's filter denies a key that is there");
            }
            let (low, high) = walked.seqs.unwrap_or((entry.seq, entry.seq));
            walked.seqs = Some((low.min(entry.seq), high.max(entry.seq)));
        }
        previous = Some((user_key, entry.seq, is_fence));
    }
    if (puts, tombstones) != (u64::from(fence.puts), u64::from(fence.tombstones)) {
        fail("fences: the fence counts other entries than the block holds");
    }
    if !has_below && fences > 0 {
        fail("a block of the bottom level has fences");
    }
    walked.counts.blocks += 1;
    walked.counts.sectors += u64::from(fence.ptr.sectors);
    walked.counts.puts += puts;
    walked.counts.tombstones += tombstones;
    walked.counts.fences += fences;
    outcome
}
