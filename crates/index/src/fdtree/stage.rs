//! m-stage: the entries of all merged levels in one order, each old block read once.
//!
//! The fences of a level name the blocks of the next, in order, so reading a block of one level
//! tells which blocks of the next come now. A level whose next block is not known yet waits: its
//! entries lie behind the fence that will name it, and that fence behind everything the level
//! above has still to give.
//!
//! At most t + k + 3 sources take part: comparing their heads one by one beats a tree.

use std::collections::VecDeque;

use esker_device::{AlignedBuf, Purpose};
use esker_format::block::{BlockLayout, BlockView};
use esker_format::entry::{Kind, Payload};
use esker_format::ids::Seq;
use esker_format::key::long_head;
use esker_format::ptr::{BlockPtr, Extent};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::memtable::{Memtable, VersionRef};

use super::fence_index::{FenceIndex, Place};
use super::tree::{BlockReader, Tree};

/// Bytes read ahead at once: large enough that reading is sequential.
const READ_AHEAD_BYTES: u64 = 256 * 1024;

/// An entry of the merged order.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// The number.
    pub seq: Seq,
    /// What it says.
    pub payload: Payload<'a>,
}

/// Where a source stands: everything that is compared, copied out of block or memtable.
#[derive(Debug, Default)]
struct Head {
    long_head: u64,
    key: Vec<u8>,
    seq: Seq,
    is_fence: bool,
    present: bool,
}

impl Head {
    fn set(&mut self, prefix: &[u8], suffix: &[u8], seq: Seq, is_fence: bool) {
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(suffix);
        self.long_head = long_head(&self.key);
        self.seq = seq;
        self.is_fence = is_fence;
        self.present = true;
    }

    /// Key ascending, number descending, a fence before data.
    fn before(&self, other: &Self) -> bool {
        (self.long_head.cmp(&other.long_head))
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| other.seq.cmp(&self.seq))
            .then_with(|| other.is_fence.cmp(&self.is_fence))
            .is_lt()
    }
}

/// All sources of one merge.
pub struct Stage<'a> {
    heads: Vec<Head>,
    sources: Vec<Source<'a>>,
    current: usize,
}

enum Source<'a> {
    Memory(Option<VersionRef<'a>>),
    Level(Box<LevelSource<'a>>),
    /// Fences to the level below the merge, where no level of the main tree is merged.
    Top {
        fences: &'a FenceIndex,
        at: Option<Place>,
    },
}

/// One level of a merged tree.
struct LevelSource<'a> {
    reader: &'a BlockReader,
    purpose: Purpose,
    /// Fences of this level name blocks that the merge does not touch: they are merged too.
    gives_fences: bool,
    children: Children<'a>,
    /// The level below waits for the blocks that this one's fences name: they collect here.
    outbox: Option<Outbox>,
    window: Window,
    block: Option<(BlockPtr, BlockLayout)>,
    index: usize,
    /// Data entries that the level holds, and how many have been merged.
    data_expected: u64,
    data_merged: u64,
    /// Blocks of the level that have not been read.
    blocks_left: u64,
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

/// Where the names of a level's blocks come from.
enum Children<'a> {
    /// From fences in memory.
    Held { fences: &'a FenceIndex, at: Option<Place> },
    /// From the blocks of the level above, read as data by the source before this one.
    Fed(VecDeque<BlockPtr>),
    /// From the blocks of a fence-only level, read for nothing else.
    Read { above: Box<LevelSource<'a>>, names: VecDeque<BlockPtr> },
}

/// Bytes read ahead.
struct Window {
    extents: Vec<Extent>,
    buffer: AlignedBuf,
    offset: u64,
    length: usize,
}

impl Window {
    fn new(extents: &[Extent]) -> Self {
        let mut extents = extents.to_vec();
        extents.sort_unstable();
        Self { extents, buffer: AlignedBuf::zeroed(0), offset: 0, length: 0 }
    }

    fn range_of(&self, ptr: &BlockPtr) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(ptr.offset().checked_sub(self.offset)?).ok()?;
        let to = from + ptr.bytes();
        (to <= self.length).then_some(from..to)
    }

    /// The end of the extent that holds `ptr`.
    fn extent_end(&self, ptr: &BlockPtr) -> u64 {
        let behind = self.extents.partition_point(|extent| extent.offset() <= ptr.offset());
        let extent = behind.checked_sub(1).and_then(|index| self.extents.get(index));
        extent.map_or(0, |extent| extent.offset() + extent.bytes())
    }

    fn load(&mut self, reader: &BlockReader, ptr: &BlockPtr, purpose: Purpose) -> Result<()> {
        if self.range_of(ptr).is_some() {
            return Ok(());
        }
        let end = self.extent_end(ptr).min(ptr.offset() + READ_AHEAD_BYTES);
        let length = end.saturating_sub(ptr.offset()).max(ptr.bytes() as u64) as usize;
        if self.buffer.len() < length {
            self.buffer = AlignedBuf::zeroed(length);
        }
        self.length = 0;
        let buffer = self.buffer.get_mut(..length).unwrap_or_default();
        reader.blocks.read_raw(ptr.offset(), buffer, purpose)?;
        (self.offset, self.length) = (ptr.offset(), length);
        Ok(())
    }

    fn bytes(&self, ptr: &BlockPtr) -> &[u8] {
        self.range_of(ptr).and_then(|range| self.buffer.get(range)).unwrap_or_default()
    }
}

impl<'a> LevelSource<'a> {
    fn view(&self) -> Option<BlockView<'_>> {
        let (ptr, layout) = self.block.as_ref()?;
        Some(BlockView::new(self.window.bytes(ptr), *layout))
    }

    fn next_child(&mut self) -> Result<Option<BlockPtr>> {
        match &mut self.children {
            Children::Held { fences, at } => {
                let place = *at;
                *at = place.and_then(|place| fences.next(place));
                Ok(place.and_then(|place| fences.get(place)).map(|fence| fence.fence.ptr))
            }
            Children::Fed(queue) => Ok(queue.pop_front()),
            Children::Read { above, names } => {
                while names.is_empty() && above.load_next()? {
                    names.extend(above.take_names());
                }
                Ok(names.pop_front())
            }
        }
    }

    /// Loads the level's next block; false when there is none, or none is known yet.
    fn load_next(&mut self) -> Result<bool> {
        self.block = None;
        self.index = 0;
        let Some(ptr) = self.next_child()? else { return Ok(false) };
        // Fences that name more blocks than the level has could go on for ever.
        let left = self.blocks_left.checked_sub(1);
        self.blocks_left = left.ok_or_else(|| too_many_blocks(&ptr))?;
        self.window.load(self.reader, &ptr, self.purpose)?;
        let bytes = self.window.bytes(&ptr);
        let layout = self.reader.blocks.verify(self.reader.keyspace, &ptr, bytes)?;
        self.block = Some((ptr, layout));
        self.note_fences()?;
        Ok(true)
    }

    /// Puts the names of the blocks below into the outbox, if somebody waits for them.
    fn note_fences(&mut self) -> Result<()> {
        let Some(mut outbox) = self.outbox.take() else { return Ok(()) };
        if let (Some(view), Some((ptr, _))) = (self.view(), &self.block) {
            let damage = |error| self.reader.damage(ptr, &error);
            let mut from = 0;
            while let Some(index) = view.fence_from(from).map_err(damage)? {
                outbox.put(view.fence(index).map_err(damage)?.ptr);
                from = index + 1;
            }
        }
        self.outbox = Some(outbox);
        Ok(())
    }

    /// The names collected since the last call.
    fn take_names(&mut self) -> Vec<BlockPtr> {
        self.outbox.as_mut().map(|outbox| std::mem::take(&mut outbox.names)).unwrap_or_default()
    }
}

impl<'a> Stage<'a> {
    /// No sources yet.
    pub(super) const fn new() -> Self {
        Self { heads: Vec::new(), sources: Vec::new(), current: 0 }
    }

    fn add(&mut self, source: Source<'a>) {
        self.sources.push(source);
        self.heads.push(Head::default());
    }

    /// Adds a memtable.
    pub(super) fn add_memtable(&mut self, memtable: &'a Memtable) {
        self.add(Source::Memory(memtable.lower_bound(&[], Seq::MAX)));
    }

    /// Adds the upper `levels` levels of a tree. The fences of the last of them are merged when
    /// the tree has levels below.
    pub(super) fn add_tree(
        &mut self,
        reader: &'a BlockReader,
        tree: &'a Tree,
        levels: usize,
        purpose: Purpose,
    ) {
        let mut fence_only: Option<LevelSource<'a>> = None;
        for level in 0..levels {
            let Some(meta) = tree.meta.levels.get(level) else { break };
            let children = match (tree.fences(level), fence_only.take()) {
                (Some(fences), _) => Children::Held { fences, at: fences.first() },
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
            let source = LevelSource {
                reader,
                purpose,
                gives_fences: level + 1 == levels && level + 1 < tree.height(),
                children,
                outbox: None,
                window: Window::new(&meta.extents),
                block: None,
                index: 0,
                data_expected: meta.counts.data_entries(),
                data_merged: 0,
                blocks_left: meta.counts.blocks,
            };
            // A level of nothing but fences is read when the level below asks, unless it waits
            // itself for the level above: then it hands names on as it gets them.
            let asked = !matches!(source.children, Children::Fed(_));
            if asked && meta.counts.data_entries() == 0 && !source.gives_fences {
                fence_only = Some(source);
            } else {
                self.add(Source::Level(Box::new(source)));
            }
        }
    }

    /// Adds the top fences of a tree of which no level is merged.
    pub(super) fn add_top_fences(&mut self, tree: &'a Tree) {
        if let Some(fences) = tree.fences(0) {
            self.add(Source::Top { fences, at: fences.first() });
        }
    }

    /// Stands on the first entry, if there is one. Call once.
    pub(super) fn start(&mut self) -> Result<bool> {
        for index in 0..self.sources.len() {
            self.settle(index)?;
        }
        Ok(self.choose())
    }

    /// Moves to the next entry.
    pub(super) fn advance(&mut self) -> Result<bool> {
        match self.sources.get_mut(self.current) {
            Some(Source::Memory(at)) => *at = at.take().and_then(|at| at.next()),
            Some(Source::Level(level)) => {
                let is_fence = self.heads.get(self.current).is_some_and(|head| head.is_fence);
                level.data_merged += u64::from(!is_fence);
                level.index += 1;
            }
            Some(Source::Top { fences, at }) => *at = at.and_then(|place| fences.next(place)),
            None => {}
        }
        self.settle(self.current)?;
        Ok(self.choose())
    }

    /// Makes sure that every data entry of every merged level has come through. What a merge
    /// leaves out is gone for good, so this is checked and not believed.
    pub(super) fn verify_complete(&self) -> Result<()> {
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

    /// The current entry. Only between a `true` of start or advance and the next call.
    pub(super) fn item(&self) -> Result<Option<Item<'_>>> {
        let (Some(source), Some(head)) =
            (self.sources.get(self.current), self.heads.get(self.current))
        else {
            return Ok(None);
        };
        let payload = match source {
            Source::Memory(at) => at.as_ref().map(|at| at.payload()),
            Source::Level(level) => match (level.view(), &level.block) {
                (Some(view), Some((ptr, _))) => {
                    let entry = view.entry(level.index);
                    Some(entry.map_err(|error| level.reader.damage(ptr, &error))?.payload)
                }
                _ => None,
            },
            Source::Top { fences, at } => {
                at.and_then(|place| fences.get(place)).map(|fence| Payload::Fence(fence.fence))
            }
        };
        Ok(payload.map(|payload| Item { key: &head.key, seq: head.seq, payload }))
    }

    fn choose(&mut self) -> bool {
        let mut best: Option<(usize, &Head)> = None;
        for (index, head) in self.heads.iter().enumerate().filter(|(_, head)| head.present) {
            if best.is_none_or(|(_, other)| head.before(other)) {
                best = Some((index, head));
            }
        }
        let chosen = best.map(|(index, _)| index);
        self.current = chosen.unwrap_or(usize::MAX);
        chosen.is_some()
    }

    /// Makes `heads[index]` say where the source stands, loading blocks as needed, and hands the
    /// names found in them to the level that waits.
    fn settle(&mut self, index: usize) -> Result<()> {
        let Some(head) = self.heads.get_mut(index) else { return Ok(()) };
        head.present = false;
        let mut names = Vec::new();
        match self.sources.get_mut(index) {
            Some(Source::Memory(Some(at))) => head.set(at.key(), &[], at.seq(), false),
            Some(Source::Top { fences, at: Some(place) }) => {
                if let Some(fence) = fences.get(*place) {
                    head.set(fence.key, &[], fence.seq, true);
                }
            }
            Some(Source::Level(level)) => {
                settle_level(level, head)?;
                names = level.take_names();
            }
            _ => {}
        }
        if names.is_empty() { Ok(()) } else { self.feed(index + 1, names) }
    }

    fn feed(&mut self, below: usize, names: Vec<BlockPtr>) -> Result<()> {
        if let Some(Source::Level(level)) = self.sources.get_mut(below)
            && let Children::Fed(queue) = &mut level.children
        {
            queue.extend(names);
        }
        let waits = self.heads.get(below).is_some_and(|head| !head.present);
        if waits { self.settle(below) } else { Ok(()) }
    }
}

fn too_many_blocks(ptr: &BlockPtr) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: ptr.offset(),
        what: "fences name more blocks than their level has".into(),
    }
}

/// Moves a level to its next entry that takes part in the merge, if one is known.
fn settle_level(level: &mut LevelSource<'_>, head: &mut Head) -> Result<()> {
    loop {
        if let (Some(view), Some((ptr, _))) = (level.view(), &level.block) {
            for index in level.index..view.len() {
                let key = view.entry_key(index);
                let (kind, suffix, seq) = key.map_err(|e| level.reader.damage(ptr, &e))?;
                let is_fence = kind == Kind::Fence;
                if !is_fence || level.gives_fences {
                    head.set(view.prefix(), suffix, seq, is_fence);
                    level.index = index;
                    return Ok(());
                }
            }
        }
        if !level.load_next()? {
            return Ok(());
        }
    }
}
