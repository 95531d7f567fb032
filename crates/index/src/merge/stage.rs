//! m-stage: the entries of all merged levels in one order, each old block read once.
//!
//! The fences of a level name the blocks of the next, in order, so reading a block of one level
//! gives the next blocks of the level below. A level whose next block is not known yet waits: its
//! entries are behind the fence that will name it, and that fence is behind everything that the
//! level above has still to deliver.
//!
//! At most t + k + 3 sources take part: comparing their heads one by one is faster than a tree.
//!
//! Invariant: an operation that fails (a block that cannot be read) leaves everything as it was, so
//! that it can be tried again.
//! Invariant: what has been delivered is at or before the current item; a block of a level is
//! *passed* when the first key of the block behind it has been delivered.

mod keep;
mod memory;

use std::collections::VecDeque;

use esker_device::Purpose;
use esker_format::block::{BlockLayout, BlockView};
use esker_format::entry::{Kind, Payload};
use esker_format::ids::Seq;
use esker_format::meta::InputProgress;
use esker_format::ptr::{BlockPtr, Extent};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::memtable::{Leaves, Version};

use crate::build::preserve::Keeper;
use crate::merge::head::Head;
use crate::merge::window::{Needed, READ_AHEAD_BYTES, Window, ahead_bytes};
use crate::run::cursor::{FenceCursor, Target};
use crate::run::fence_index::{FenceIndex, Place};
use crate::run::tree::{BlockReader, Tree};
use keep::Border;
use memory::MemorySource;

/// An entry of the merged order.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// The number.
    pub seq: Seq,
    /// The payload of the entry.
    pub payload: Payload<'a>,
}

/// The next item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An item.
    Item,
    /// A block of the bottom, as it is.
    Block,
    /// Nothing.
    Nothing,
}

/// All sources of one merge.
pub struct Stage {
    reader: BlockReader,
    purpose: Purpose,
    heads: Vec<Head>,
    sources: Vec<Source>,
    current: Option<usize>,
    /// The bottom, where its blocks may stay as they are.
    bottom: Option<usize>,
    /// Sources whose heads are not up to date.
    unsorted: Vec<usize>,
}

enum Source {
    Memory(MemorySource),
    Level(Box<LevelSource>),
    /// Fences to the level below the merge, where no level of the main tree is merged.
    Top {
        fences: Box<FenceIndex>,
        at: Option<Place>,
    },
}

/// One level of a merged tree.
struct LevelSource {
    /// The number of this input in the merge.
    input: usize,
    /// Fences of this level name blocks that the merge does not touch: they are merged too.
    gives_fences: bool,
    children: Children,
    /// The level below waits for the blocks that this one's fences name: they collect here.
    outbox: Option<Outbox>,
    window: Window,
    /// A block whose address is known and which has not been read yet.
    next: Option<BlockPtr>,
    block: Option<(BlockPtr, BlockLayout)>,
    index: usize,
    needed: Needed,
    /// The key after which a resumed merge continues: entries at or before it are merged already.
    after: Option<Vec<u8>>,
    /// Data entries that the level holds, and how many have been merged.
    data_expected: u64,
    data_merged: u64,
    /// The blocks that may stay as they are: finds them, and waits at the border of a block until
    /// the other sources' next keys are known.
    keeper: Option<Box<Keeper>>,
    border: Border,
    /// Blocks of the level, and how many have been read.
    blocks_expected: u64,
    blocks_read: u64,
}

/// Blocks named by the fences read so far, without I2's duplicates.
#[derive(Default)]
struct Outbox {
    names: Vec<BlockPtr>,
    last: Option<BlockPtr>,
}

impl Outbox {
    fn put(&mut self, name: BlockPtr) {
        if self.last.replace(name) != Some(name) {
            self.names.push(name);
        }
    }
}

/// The source of the addresses of a level's blocks.
enum Children {
    /// From fences in memory.
    Held { fences: Box<FenceIndex>, at: Option<Place> },
    /// From the blocks of the level above, read as data by the source before this one.
    Fed(VecDeque<BlockPtr>),
    /// From the blocks of a fence-only level, which are read only for this.
    Read { above: Box<LevelSource>, names: VecDeque<BlockPtr> },
}

impl LevelSource {
    fn view(&self) -> Option<BlockView<'_>> {
        let (ptr, layout) = self.block.as_ref()?;
        Some(self.window.view(ptr, *layout))
    }

    fn next_child(&mut self, from: Disk<'_>) -> Result<Option<BlockPtr>> {
        match &mut self.children {
            Children::Held { fences, at } => {
                let Some(place) = *at else { return Ok(None) };
                let ptr = fences.get(place).map(|fence| fence.fence.ptr);
                *at = fences.next(place);
                fences.drop_before(place);
                Ok(ptr)
            }
            Children::Fed(queue) => Ok(queue.pop_front()),
            Children::Read { above, names } => {
                while names.is_empty() && above.load_next(from)? {
                    names.extend(above.take_names());
                }
                Ok(names.pop_front())
            }
        }
    }

    /// Loads the level's next block; false when there is none, or none is known yet.
    fn load_next(&mut self, from: Disk<'_>) -> Result<bool> {
        self.block = None;
        self.index = 0;
        if self.next.is_none() {
            self.next = self.next_child(from)?;
        }
        let Some(ptr) = self.next else { return Ok(false) };
        // Fences that name more blocks than the level has could continue for ever.
        if self.blocks_read >= self.blocks_expected {
            return Err(too_many_blocks(&ptr));
        }
        self.window.load(from.reader, &ptr, from.purpose)?;
        let layout = self.window.verify(from.reader, &ptr)?;
        let view = self.window.view(&ptr, layout);
        let names = fence_names(view, self.after.as_deref(), self.outbox.is_some());
        let names = names.map_err(|error| from.reader.damage(&ptr, &error))?;
        let first = view.entry_key(0).map_err(|error| from.reader.damage(&ptr, &error))?;
        self.needed.note(ptr.offset(), [view.prefix(), first.1]);
        if let Some(outbox) = &mut self.outbox {
            names.into_iter().for_each(|name| outbox.put(name));
        }
        self.blocks_read += 1;
        self.block = Some((ptr, layout));
        self.next = None;
        Ok(true)
    }

    /// The names collected since the last call.
    fn take_names(&mut self) -> Vec<BlockPtr> {
        self.outbox.as_mut().map(|outbox| std::mem::take(&mut outbox.names)).unwrap_or_default()
    }

    /// Moves to the level's next entry that takes part in the merge, if one is known.
    fn seek_entry(&mut self, head: &mut Head, from: Disk<'_>) -> Result<()> {
        loop {
            if let (Some(view), Some((ptr, _))) = (self.view(), &self.block) {
                for index in self.index..view.len() {
                    let key = view.entry_key(index);
                    let (kind, suffix, seq) = key.map_err(|e| from.reader.damage(ptr, &e))?;
                    let is_fence = kind == Kind::Fence;
                    if is_fence && !self.gives_fences {
                        continue;
                    }
                    head.set(view.prefix(), suffix, seq, is_fence);
                    if self.after.as_deref().is_some_and(|after| head.key.as_slice() <= after) {
                        head.present = false;
                        continue;
                    }
                    self.index = index;
                    return Ok(());
                }
            }
            if self.keeper.is_some() && self.border != Border::Pass {
                self.block = None;
                self.border = Border::At;
                return Ok(());
            }
            self.border = Border::Within;
            if !self.load_next(from)? {
                return Ok(());
            }
        }
    }
}

/// The blocks that the fences of a block name. Of a block that a resumed merge begins with, those
/// from the one on that leads to the first key behind `after`.
fn fence_names(
    view: BlockView<'_>,
    after: Option<&[u8]>,
    wanted: bool,
) -> esker_format::Result<Vec<BlockPtr>> {
    let mut names = Vec::new();
    if !wanted {
        return Ok(names);
    }
    let start = match after {
        Some(after) => view.fence_index(after, Seq(0))?,
        None => None,
    };
    let mut from = start.unwrap_or(0);
    while let Some(index) = view.fence_from(from)? {
        names.push(view.fence(index)?.ptr);
        from = index + 1;
    }
    Ok(names)
}

/// Access to the blocks.
#[derive(Clone, Copy)]
struct Disk<'a> {
    reader: &'a BlockReader,
    purpose: Purpose,
}

impl Stage {
    /// No sources yet.
    pub(crate) const fn new(reader: BlockReader, purpose: Purpose) -> Self {
        Self {
            reader,
            purpose,
            heads: Vec::new(),
            sources: Vec::new(),
            current: None,
            bottom: None,
            unsorted: Vec::new(),
        }
    }

    fn add(&mut self, source: Source) {
        self.unsorted.push(self.sources.len());
        self.sources.push(source);
        self.heads.push(Head::default());
    }

    /// Adds a frozen memtable.
    pub(crate) fn add_memtable(&mut self, leaves: &Leaves) {
        let leaves = leaves.leaves().cloned().collect();
        self.add(Source::Memory(MemorySource { leaves, versions: Vec::new(), at: 0 }));
    }

    /// Adds the upper `levels` levels of a tree, which are the merge's inputs from number
    /// `first_input` on. The fences of the last of them are merged when the tree has levels below.
    /// A resumed merge continues behind `after`, with the progress `done` of each input.
    ///
    /// # Errors
    /// When a block on the way to `after` cannot be read.
    pub(crate) fn add_tree(
        &mut self,
        tree: &Tree,
        levels: usize,
        first_input: usize,
        resume: Option<(&[u8], &[InputProgress])>,
    ) -> Result<()> {
        if let Some((after, _)) = resume {
            // The blocks at the merge's position are looked up now, so that damage on the path to
            // them is reported before anything is done.
            for level in 0..levels.min(tree.height()) {
                let target = Target::At(after, Seq(0));
                let _found = FenceCursor::find(tree, &self.reader, level, target)?;
            }
        }
        self.add_levels(tree, levels, first_input, resume);
        Ok(())
    }

    /// Adds the upper `levels` levels of a tree. No I/O.
    pub(crate) fn add_levels(
        &mut self,
        tree: &Tree,
        levels: usize,
        first_input: usize,
        resume: Option<(&[u8], &[InputProgress])>,
    ) {
        let mut fence_only: Option<LevelSource> = None;
        for level in 0..levels.min(tree.height()) {
            let input = first_input + level;
            let source = self.level_source(tree, level, levels, input, resume, &mut fence_only);
            // A level of nothing but fences is read when the level below asks, unless it waits
            // itself for the level above: then it hands names on as it gets them.
            let asked = !matches!(source.children, Children::Fed(_));
            if asked && source.data_expected == 0 && !source.gives_fences {
                fence_only = Some(source);
            } else {
                self.add(Source::Level(Box::new(source)));
            }
        }
    }

    fn level_source(
        &mut self,
        tree: &Tree,
        level: usize,
        levels: usize,
        input: usize,
        resume: Option<(&[u8], &[InputProgress])>,
        fence_only: &mut Option<LevelSource>,
    ) -> LevelSource {
        let children = match (tree.fences(level), fence_only.take()) {
            (Some(fences), _) => {
                let at = match resume {
                    Some((after, _)) => fences.find(after, Seq(0)),
                    None => fences.first(),
                };
                Children::Held { fences: Box::new(fences.snapshot()), at }
            }
            (None, Some(above)) => {
                let above = Box::new(LevelSource { outbox: Some(Outbox::default()), ..above });
                Children::Read { above, names: VecDeque::new() }
            }
            (None, None) => {
                if let Some(Source::Level(above)) = self.sources.last_mut() {
                    above.outbox = Some(Outbox::default());
                }
                Children::Fed(VecDeque::new())
            }
        };
        let meta = tree.meta.levels.get(level).cloned().unwrap_or_default();
        let ahead = ahead_bytes(self.reader.budget.total_bytes(), READ_AHEAD_BYTES);
        let mut source = LevelSource {
            input,
            gives_fences: level + 1 == levels && level + 1 < tree.height(),
            children,
            outbox: None,
            window: Window::new(&meta.extents, ahead),
            next: None,
            block: None,
            index: 0,
            needed: Needed::default(),
            after: None,
            keeper: None,
            border: Border::Within,
            data_expected: meta.counts.data_entries(),
            data_merged: 0,
            blocks_expected: meta.counts.blocks,
            blocks_read: 0,
        };
        if let Some((after, done)) = resume {
            let done = done.get(input).copied().unwrap_or_default();
            source.after = Some(after.to_vec());
            (source.data_merged, source.blocks_read) = (done.entries, done.blocks);
        }
        source
    }

    /// Adds the top fences of a tree of which no level is merged, from behind `after` on.
    pub(crate) fn add_top_fences(&mut self, tree: &Tree, after: Option<&[u8]>) {
        let Some(fences) = tree.fences(0) else { return };
        let mut at = fences.first();
        if let Some(after) = after {
            let last = fences.find(after, Seq(0));
            at = last.and_then(|last| fences.next(last));
        }
        self.add(Source::Top { fences: Box::new(fences.snapshot()), at });
    }

    /// Leaves the current item, if there is one. The next one is chosen by [`Stage::choose`].
    pub(crate) fn leave(&mut self) {
        let Some(current) = self.current.take() else { return };
        match self.sources.get_mut(current) {
            Some(Source::Memory(memory)) => memory.at += 1,
            Some(Source::Level(level)) => {
                let is_fence = self.heads.get(current).is_some_and(|head| head.is_fence);
                level.data_merged += u64::from(!is_fence);
                level.index += 1;
            }
            Some(Source::Top { fences, at }) => *at = at.and_then(|place| fences.next(place)),
            None => {}
        }
        self.unsorted.push(current);
    }

    /// Moves to the next item or block, if there is one.
    ///
    /// # Errors
    /// When a block cannot be read; the call may be repeated.
    pub(crate) fn choose(&mut self) -> Result<Next> {
        loop {
            let best = self.first_item()?;
            let upper = best.and_then(|best| self.heads.get(best)).map(|head| head.key.as_slice());
            let disk = Disk { reader: &self.reader, purpose: self.purpose };
            if let Some(bottom) = self.bottom
                && let Some(Source::Level(level)) = self.sources.get_mut(bottom)
            {
                if level.decide(upper, disk)? {
                    return Ok(Next::Block);
                }
                if level.border == Border::Pass {
                    self.unsorted.push(bottom);
                    continue;
                }
            }
            self.current = best;
            return Ok(if best.is_some() { Next::Item } else { Next::Nothing });
        }
    }

    /// The source of the least item.
    fn first_item(&mut self) -> Result<Option<usize>> {
        while let Some(index) = self.unsorted.last().copied() {
            let names = self.seek_entry(index)?;
            self.unsorted.pop();
            if !names.is_empty() {
                self.feed(index + 1, names);
            }
        }
        let mut best: Option<(usize, &Head)> = None;
        for (index, head) in self.heads.iter().enumerate().filter(|(_, head)| head.present) {
            if best.is_none_or(|(_, other)| head.before(other)) {
                best = Some((index, head));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// Makes sure that every data entry of every merged level has been delivered. What a merge
    /// leaves out is lost for good, so this is checked.
    pub(crate) fn verify_complete(&self) -> Result<()> {
        for source in &self.sources {
            if let Source::Level(level) = source
                && level.data_merged != level.data_expected
            {
                return Err(Error::Corrupt {
                    file: DATA_FILE.into(),
                    offset: level.window.extents.first().map_or(0, Extent::offset),
                    what: format!(
                        "a level of {} data entries gave only {} to a merge: run check",
                        level.data_expected, level.data_merged
                    ),
                });
            }
        }
        Ok(())
    }

    /// The current item, if there is one.
    pub(crate) fn item(&self) -> Result<Option<Item<'_>>> {
        let Some(current) = self.current else { return Ok(None) };
        let (Some(source), Some(head)) = (self.sources.get(current), self.heads.get(current))
        else {
            return Ok(None);
        };
        let payload = match source {
            Source::Memory(memory) => memory.versions.get(memory.at).map(Version::payload),
            Source::Level(level) => match (level.view(), &level.block) {
                (Some(view), Some((ptr, _))) => {
                    let entry = view.entry(level.index);
                    Some(entry.map_err(|error| self.reader.damage(ptr, &error))?.payload)
                }
                _ => None,
            },
            Source::Top { fences, at } => {
                at.and_then(|place| fences.get(place)).map(|fence| Payload::Fence(fence.fence))
            }
        };
        Ok(payload.map(|payload| Item { key: &head.key, seq: head.seq, payload }))
    }

    /// Data entries that have been merged, and how many there are in all. A frozen memtable is
    /// not counted: it is small against a merge that takes long.
    pub(crate) fn done(&self) -> (u64, u64) {
        let levels = self.sources.iter().filter_map(|source| match source {
            Source::Level(level) => Some((level.data_merged, level.data_expected)),
            Source::Memory(_) | Source::Top { .. } => None,
        });
        levels.fold((0, 0), |sum, level| (sum.0 + level.0, sum.1 + level.1))
    }

    /// The progress in each of `inputs` inputs, when the merge is behind `wavefront`: progress for
    /// the record, and the offset of the first block that is still needed (`None`: all are).
    pub(crate) fn positions(&mut self, inputs: usize, wavefront: &[u8]) -> Vec<Position> {
        let mut positions = vec![Position::default(); inputs];
        let mut note = |level: &mut LevelSource| {
            let needed_from = level.needed.behind(wavefront);
            if let Some(position) = positions.get_mut(level.input) {
                position.done.entries = level.data_merged;
                let needed = level.needed.len();
                position.done.blocks = level.blocks_read.saturating_sub(needed);
                position.needed_from = needed_from;
            }
        };
        for source in &mut self.sources {
            let Source::Level(level) = source else { continue };
            note(level);
            let mut above = level.as_mut();
            while let Children::Read { above: next, .. } = &mut above.children {
                note(next);
                above = next;
            }
        }
        positions
    }

    /// Sets `heads[index]` to the source's position, loading blocks as needed; returns the
    /// addresses found in them for the level that waits.
    fn seek_entry(&mut self, index: usize) -> Result<Vec<BlockPtr>> {
        let Some(head) = self.heads.get_mut(index) else { return Ok(Vec::new()) };
        let disk = Disk { reader: &self.reader, purpose: self.purpose };
        head.present = false;
        match self.sources.get_mut(index) {
            Some(Source::Memory(memory)) => {
                if let Some(version) = memory.current() {
                    head.set(version.key(), &[], version.seq(), false);
                }
            }
            Some(Source::Top { fences, at: Some(place) }) => {
                if let Some(fence) = fences.get(*place) {
                    head.set(fence.key, &[], fence.seq, true);
                }
            }
            Some(Source::Level(level)) => {
                level.seek_entry(head, disk)?;
                return Ok(level.take_names());
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn feed(&mut self, below: usize, names: Vec<BlockPtr>) {
        if let Some(Source::Level(level)) = self.sources.get_mut(below)
            && let Children::Fed(queue) = &mut level.children
        {
            queue.extend(names);
        }
        let waits = self.heads.get(below).is_some_and(|head| !head.present);
        if waits && !self.unsorted.contains(&below) {
            self.unsorted.push(below);
        }
    }
}

/// The progress in one input of a merge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// For the progress record.
    pub done: InputProgress,
    /// Offset of the first block that is still needed; `None`: all are.
    pub needed_from: Option<u64>,
}

fn too_many_blocks(ptr: &BlockPtr) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: ptr.offset(),
        what: "fences name more blocks than their level has".into(),
    }
}
