//! One level or run on its way through a merge: its blocks within some keys, each opened only if it
//! cannot stay as it is.

use esker_device::Purpose;
use esker_format::action::KeyRange;
use esker_format::block::BlockLayout;
use esker_format::entry::{PUT_OVERHEAD_BYTES, Payload};
use esker_format::filter;
use esker_format::ids::Seq;
use esker_format::ptr::{BlockPtr, Extent};
use esker_substrate::budget::{Lease, Part};
use esker_substrate::error::{Error, Result};

use super::output::Output;
use crate::build::insert::Sink;
use crate::build::level_writer::extent_of;
use crate::merge::head::Head;
use crate::merge::window::{Window, ahead_bytes};
use crate::read::versions::Fate;
use crate::run::consumed::Consumed;
use crate::run::cursor::{FenceCursor, OwnedFence, Target};
use crate::run::tree::{BlockReader, Tree};

/// Bytes read ahead of each source at once: a slice may have thirty sources, and half of what it
/// needs of a run is adjacent.
const READ_AHEAD_BYTES: u64 = 64 * 1024;

/// Memory of an allocation in addition to its bytes.
const ALLOCATED_BYTES: usize = 16;

/// Whole blocks of a level or run, next to each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    /// Their fences.
    pub fences: Vec<OwnedFence>,
    /// The fence behind them, if there is one.
    pub behind: Option<OwnedFence>,
}

impl Span {
    /// The memory that the fences take.
    fn memory_bytes(&self) -> u64 {
        let one = |fence: &OwnedFence| {
            size_of::<OwnedFence>() + ALLOCATED_BYTES * 2 + fence.key.len() + fence.filter.len()
        };
        self.fences.iter().map(|fence| one(fence) as u64).sum()
    }

    /// The blocks that may hold `keys`, and more on both sides, until no user key has versions
    /// outside.
    ///
    /// Cost: reads the nodes that lead to them.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub fn of(tree: &Tree, reader: &BlockReader, keys: KeyRange<'_>) -> Result<Self> {
        let mut span = Self::default();
        let Some(level) = tree.height().checked_sub(1) else { return Ok(span) };
        let target = Target::At(keys.begin, Seq::MAX);
        let Some(mut cursor) = FenceCursor::find(tree, reader, level, target)? else {
            return Ok(span);
        };
        while cursor.owned()?.seq != Seq::MAX {
            match cursor.clone().previous()? {
                Some(before) => cursor = before,
                None => break,
            }
        }
        let mut next = Some(cursor);
        while let Some(at) = next {
            let fence = at.owned()?;
            let is_within = keys.end.is_none_or(|end| fence.key.as_slice() < end);
            if !is_within && fence.seq == Seq::MAX {
                span.behind = Some(fence);
                break;
            }
            span.fences.push(fence);
            next = at.next()?;
        }
        Ok(span)
    }

    /// The fence behind block `at`.
    pub fn upper(&self, at: usize) -> Option<&OwnedFence> {
        self.fences.get(at + 1).or(self.behind.as_ref())
    }

    /// The keys that block `at` may hold.
    pub fn keys(&self, at: usize) -> KeyRange<'_> {
        let begin = self.fences.get(at).map_or(&[][..], |fence| &fence.key);
        KeyRange { begin, end: self.upper(at).map(|upper| upper.key.as_slice()) }
    }
}

/// The visible part of a level or run.
#[derive(Clone, Debug)]
pub(super) struct Clip<'a> {
    pub keys: KeyRange<'a>,
    pub gone: Consumed,
}

impl Clip<'_> {
    fn has(&self, key: &[u8]) -> bool {
        self.keys.has(key) && self.gone.at(key).is_none()
    }

    /// Whether all of these keys can be seen.
    fn has_all(&self, keys: KeyRange<'_>) -> bool {
        let within = self.keys.begin <= keys.begin
            && match (keys.end, self.keys.end) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(end), Some(bound)) => end <= bound,
            };
        within && !self.gone.meets(keys)
    }
}

/// A block that has been opened.
#[derive(Clone, Copy)]
pub(super) struct Opened {
    /// Its number in the source.
    at: usize,
    ptr: BlockPtr,
    layout: BlockLayout,
}

/// The entries that were merged one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    pub put_bytes: u64,
    pub tombstone_bytes: u64,
    pub entries: u64,
}

/// A source of a merge.
pub(super) struct Input<'a> {
    reader: &'a BlockReader,
    pub span: Span,
    /// The part of the blocks that takes part; `None`: all.
    clip: Option<Clip<'a>>,
    window: Window,
    /// The block that is open, or the next one.
    at: usize,
    block: Option<(BlockPtr, BlockLayout)>,
    index: usize,
    /// The source's position: at an entry of the open block, or at the fence of the next one.
    pub head: Head,
    /// Of the open block, as long as nothing of it has been taken and it may still stay: its last
    /// key.
    last_key: Option<Vec<u8>>,
    /// The blocks that stay as they are.
    pub stayed: Vec<bool>,
    /// The entries of the source that were merged one by one.
    pub read: Read,
    /// The numbers of all that the level or run holds.
    pub seqs: (Seq, Seq),
    /// The memory of the fences, and of those that take their place.
    _counted: Lease,
}

impl<'a> Input<'a> {
    pub fn new(reader: &'a BlockReader, span: Span, clip: Option<Clip<'a>>) -> Self {
        let extents: Vec<Extent> = joined(span.fences.iter().map(|fence| extent_of(&fence.ptr)));
        let stayed = vec![false; span.fences.len()];
        let ahead = ahead_bytes(reader.budget.total_bytes(), READ_AHEAD_BYTES);
        let window = Window::new(&extents, ahead);
        let head = Head::default();
        let counted = reader.budget.lease(Part::Cache, 2 * span.memory_bytes());
        let mut input = Self {
            reader,
            span,
            clip,
            window,
            at: 0,
            block: None,
            index: 0,
            head,
            last_key: None,
            stayed,
            read: Read::default(),
            seqs: (Seq(0), Seq(0)),
            _counted: counted,
        };
        input.arrive();
        input
    }

    /// Moves to the next block of which some keys take part, if there is one.
    fn arrive(&mut self) {
        while self.at < self.span.fences.len() && !self.takes_part(self.at) {
            self.at += 1;
        }
        match self.span.fences.get(self.at) {
            Some(fence) => self.head.set(&fence.key, &[], fence.seq, false),
            None => self.head.present = false,
        }
    }

    /// Whether anything of a block takes part.
    fn takes_part(&self, at: usize) -> bool {
        let Some(clip) = &self.clip else { return true };
        let upper = self.span.upper(at).map(|upper| (upper.key.as_slice(), upper.seq));
        !clip.gone.has_block(self.span.keys(at).begin, upper) && !self.is_outside(at)
    }

    /// The fence of the block that the source is in front of, if that block is not open.
    pub fn at_border(&self) -> Option<&OwnedFence> {
        if self.block.is_some() { None } else { self.span.fences.get(self.at) }
    }

    /// The source's position: nothing before it comes any more.
    pub fn position(&self) -> Option<(&[u8], Seq)> {
        self.head.present.then_some((self.head.key.as_slice(), self.head.seq))
    }

    /// Whether the block that the source is in front of may stay as a whole, as far as this source
    /// is concerned: all its keys take part, no key has versions on both sides of its borders, and
    /// most of its versions are the newest of their keys.
    pub fn may_stay(&self) -> bool {
        self.at_border().is_some() && self.is_whole()
    }

    fn is_whole(&self) -> bool {
        let begins_key = |fence: &OwnedFence| fence.seq == Seq::MAX;
        let fence = self.span.fences.get(self.at);
        let upper = self.span.upper(self.at);
        let keys = self.span.keys(self.at);
        fence.is_some_and(|fence| begins_key(fence) && !has_many_versions(fence))
            && upper.is_none_or(begins_key)
            && self.clip.as_ref().is_none_or(|clip| clip.has_all(keys))
    }

    /// The block that has been opened and of which nothing was taken, with its first and its last
    /// key, if it may still stay as far as this source is concerned. Its fence may have promised
    /// keys that it does not hold.
    pub fn untouched(&self) -> Option<(&OwnedFence, &[u8], &[u8])> {
        let last = self.last_key.as_deref()?;
        Some((self.span.fences.get(self.at)?, self.head.key.as_slice(), last))
    }

    /// The open block does not stay.
    pub fn take(&mut self) {
        self.last_key = None;
    }

    /// The upper end of the keys of the block that the source is in front of.
    pub fn upper(&self) -> Option<&[u8]> {
        self.span.upper(self.at).map(|upper| upper.key.as_slice())
    }

    /// The block that the source is in front of, or that is open and untouched, stays as it is.
    pub fn stay(&mut self) {
        (self.block, self.last_key) = (None, None);
        if let Some(stayed) = self.stayed.get_mut(self.at) {
            *stayed = true;
        }
        self.at += 1;
        self.arrive();
    }

    /// Whether any block goes to the level below as it is.
    pub fn has_moved(&self) -> bool {
        self.stayed.contains(&true)
    }

    /// The number of entries that have been merged or that are in blocks that stay as they are.
    pub fn entries(&self) -> u64 {
        let stayed = self.span.fences.iter().zip(&self.stayed).filter(|(_, stayed)| **stayed);
        let entries = |fence: &OwnedFence| u64::from(fence.puts) + u64::from(fence.tombstones);
        self.read.entries + stayed.map(|(fence, _)| entries(fence)).sum::<u64>()
    }

    /// Opens the block that the source is in front of.
    pub fn open(&mut self) -> Result<()> {
        let Some(ptr) = self.at_border().map(|fence| fence.ptr) else { return Ok(()) };
        self.window.load(self.reader, &ptr, Purpose::Merge)?;
        let layout = self.window.verify(self.reader, &ptr)?;
        self.block = Some((ptr, layout));
        self.index = 0;
        self.seek_entry()?;
        let block = self.block.filter(|_| self.index == 0 && self.is_whole());
        self.last_key = block.map(|(ptr, layout)| self.last_of(ptr, layout)).transpose()?;
        Ok(())
    }

    /// The last key of the open block.
    fn last_of(&self, ptr: BlockPtr, layout: BlockLayout) -> Result<Vec<u8>> {
        let view = self.window.view(&ptr, layout);
        let last = view.entry_key(view.len().saturating_sub(1));
        let (_, suffix, _) = last.map_err(|error| self.reader.damage(&ptr, &error))?;
        Ok([view.prefix(), suffix].concat())
    }

    /// Moves to the first entry from the current position that takes part; after the last one of a
    /// block the source is in front of the next block.
    fn seek_entry(&mut self) -> Result<()> {
        let Some((ptr, layout)) = self.block else { return Ok(()) };
        let view = self.window.view(&ptr, layout);
        while self.index < view.len() {
            let entry = view.entry_key(self.index);
            let (_, suffix, seq) = entry.map_err(|error| self.reader.damage(&ptr, &error))?;
            self.head.set(view.prefix(), suffix, seq, false);
            if self.clip.as_ref().is_none_or(|clip| clip.has(&self.head.key)) {
                return Ok(());
            }
            self.index += 1;
        }
        self.block = None;
        self.at += 1;
        self.arrive();
        Ok(())
    }

    /// The payload of the current entry.
    pub fn payload(&self) -> Result<Payload<'_>> {
        let Some((ptr, layout)) = self.block else { return Err(lost_place()) };
        let entry = self.window.view(&ptr, layout).entry(self.index);
        Ok(entry.map_err(|error| self.reader.damage(&ptr, &error))?.payload)
    }

    /// The block that is open.
    pub fn opened(&self) -> Option<Opened> {
        self.block.map(|(ptr, layout)| Opened { at: self.at, ptr, layout })
    }

    /// The number of entries of the open block before the current one.
    pub const fn taken(&self) -> usize {
        self.index
    }

    /// Whether it has left a block that was open.
    pub const fn is_behind(&self, block: Opened) -> bool {
        self.at > block.at
    }

    /// An entry of the block that was opened last: its payload, and its key in `key`.
    pub fn entry(&self, block: Opened, index: usize, key: &mut Vec<u8>) -> Result<Payload<'_>> {
        let view = self.window.view(&block.ptr, block.layout);
        let entry = view.entry(index).map_err(|error| self.reader.damage(&block.ptr, &error))?;
        key.clear();
        view.append_key(entry.suffix, key);
        Ok(entry.payload)
    }

    /// The first and the last key of the block that was opened last, and its fence.
    pub fn ends(&self, block: Opened) -> Result<(&OwnedFence, Vec<u8>, Vec<u8>)> {
        let mut first = Vec::new();
        self.entry(block, 0, &mut first)?;
        let last = self.last_of(block.ptr, block.layout)?;
        Ok((self.span.fences.get(block.at).ok_or_else(lost_place)?, first, last))
    }

    /// A block that was merged stays after all: what was merged is what was `read_before` it.
    pub fn stay_behind(&mut self, block: Opened, read_before: Read) {
        self.read = read_before;
        if let Some(stayed) = self.stayed.get_mut(block.at) {
            *stayed = true;
        }
    }

    /// Leaves the current entry, which has `content_bytes` bytes of content; `None`: a tombstone.
    pub fn leave(&mut self, content_bytes: Option<usize>) -> Result<()> {
        self.last_key = None;
        let bytes = (self.head.key.len() + PUT_OVERHEAD_BYTES) as u64;
        match content_bytes {
            None => self.read.tombstone_bytes += bytes,
            Some(content) => self.read.put_bytes += bytes + content as u64,
        }
        self.read.entries += 1;
        self.index += 1;
        self.seek_entry()
    }

    /// Whether this source is before the other.
    pub fn is_before(&self, other: &Self) -> bool {
        self.head.present && (!other.head.present || self.head.before(&other.head))
    }
}

impl Input<'_> {
    /// Writes the entries of the blocks that take no part: whole blocks stay in their place, and
    /// the rest of those at the borders is rewritten. Returns which blocks stay.
    ///
    /// # Errors
    /// When a block cannot be read, or without space.
    pub fn leave_rest(&self, rest: &mut Output) -> Result<Vec<bool>> {
        let mut left = Vec::with_capacity(self.span.fences.len());
        for (at, fence) in self.span.fences.iter().enumerate() {
            let stays = self.is_outside(at);
            left.push(stays);
            if stays {
                rest.stay(fence, self.span.upper(at).map(|upper| upper.key.as_slice()))?;
            } else if !self.is_inside(at) {
                self.leave_block(fence, rest)?;
            }
        }
        Ok(left)
    }

    /// Whether nothing of a block takes part.
    fn is_outside(&self, at: usize) -> bool {
        let Some(clip) = &self.clip else { return false };
        let keys = self.span.keys(at);
        let splits = self.span.upper(at).is_some_and(|upper| upper.seq != Seq::MAX);
        keys.end.is_some_and(|end| end <= clip.keys.begin && !splits)
            || clip.keys.end.is_some_and(|end| end <= keys.begin)
    }

    /// Whether all of a block takes part.
    fn is_inside(&self, at: usize) -> bool {
        let splits = self.span.upper(at).is_some_and(|upper| upper.seq != Seq::MAX);
        self.clip.as_ref().is_none_or(|clip| !splits && clip.has_all(self.span.keys(at)))
    }

    fn leave_block(&self, fence: &OwnedFence, rest: &mut Output) -> Result<()> {
        let block =
            self.reader.blocks.read_uncached(self.reader.keyspace, &fence.ptr, Purpose::Merge)?;
        let (view, damage) = (block.view(), |error| self.reader.damage(&fence.ptr, &error));
        let mut key = Vec::new();
        for index in 0..view.len() {
            let entry = view.entry(index).map_err(damage)?;
            key.clear();
            view.append_key(entry.suffix, &mut key);
            if self.clip.as_ref().is_some_and(|clip| !clip.has(&key)) {
                rest.add_data(&key, entry.seq, &entry.payload, Fate::Newest)?;
            }
        }
        Ok(())
    }
}

/// Bytes of an entry's content, as levels count them; `None` for a tombstone.
pub(super) fn content_bytes(payload: &Payload<'_>) -> Option<usize> {
    match payload {
        Payload::Put(value)
        | Payload::PutUntil(_, value)
        | Payload::Reference(value)
        | Payload::Operand(value) => Some(value.len()),
        Payload::Fence(_) => Some(0),
        Payload::Delete => None,
    }
}

/// Whether a quarter of a block's versions may be of no use any more: its filter has each key once.
fn has_many_versions(fence: &OwnedFence) -> bool {
    let versions = u64::from(fence.puts) + u64::from(fence.tombstones);
    let keys = (fence.filter.len() * 8 / filter::BITS_PER_KEY_MANY) as u64;
    versions.saturating_sub(keys) * 4 >= versions
}

/// Extents in their order, joined where they follow each other.
pub(super) fn joined(extents: impl Iterator<Item = Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = extents.collect();
    all.sort_unstable();
    all.dedup_by(|next, last| {
        let follows = last.end() == next.start;
        if follows {
            last.units += next.units;
        }
        follows
    });
    all
}

fn lost_place() -> Error {
    Error::Invalid { what: "a merge lost its place".into() }
}
