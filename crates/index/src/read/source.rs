//! The parts of a view: what readers search, newest first.
//!
//! A reader knows nothing of a part but this interface: a run or level of blocks, a part that a
//! flush or a merge is moving, or what a kind of index adds.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use esker_format::action::KeyRange;
use esker_format::ids::Seq;
use esker_format::ptr::BlockPtr;
use esker_substrate::error::Result;

use crate::read::scan::Sources;
use crate::run::consumed::Consumed;
use crate::run::cursor::{OwnedFence, Target};
use crate::run::lookup::{Found, Probe};
use crate::run::tree::{BlockReader, Tree};

/// A part of a view.
pub(crate) type Part = Arc<dyn ReadSource>;

/// What readers and the checker ask of a part.
pub(crate) trait ReadSource: Any + Debug + Send + Sync {
    /// The newest version that `probe` may see here; `None` where there is none.
    ///
    /// # Errors
    /// `Corrupt` when a block that could hold the key cannot be read.
    fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>>;

    /// Adds the blocks that a lookup of `probe` would read, as far as fences in memory tell.
    fn candidates(&self, probe: &Probe<'_>, out: &mut Vec<BlockPtr>);

    /// Adds the sorted sequences of versions that a scan merges, newest first.
    fn scan<'a>(&'a self, sources: &mut Sources<'a>);

    /// The trees, with the part of each that exists and counts.
    fn trees(&self) -> Vec<(&Tree, Reach<'_>)>;
}

/// The newest version in `parts`, which are newest first, that `probe` may see.
///
/// # Errors
/// As for [`ReadSource::get`].
pub(crate) fn find(
    parts: &[Part],
    reader: &BlockReader,
    probe: &Probe<'_>,
) -> Result<Option<Found>> {
    for part in parts {
        if let Some(found) = part.get(reader, probe)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A sorted run, the main tree, or a level with scattered blocks.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub tree: Arc<Tree>,
    /// Keys that it has no more: merges have moved them.
    pub consumed: Consumed,
}

impl Run {
    /// A run that has all of its keys.
    pub fn whole(tree: Arc<Tree>) -> Part {
        Arc::new(Self { tree, consumed: Consumed::default() })
    }

    /// The run that a part is; `None` for another part.
    pub fn of(part: &Part) -> Option<&Self> {
        let part: &dyn Any = &**part;
        part.downcast_ref()
    }
}

impl ReadSource for Run {
    fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        if self.consumed.at(probe.key).is_some() {
            return Ok(None);
        }
        self.tree.get(reader, probe)
    }

    fn candidates(&self, probe: &Probe<'_>, out: &mut Vec<BlockPtr>) {
        if self.consumed.at(probe.key).is_none() {
            self.tree.candidates(probe, out);
        }
    }

    fn scan<'a>(&'a self, sources: &mut Sources<'a>) {
        if self.consumed.is_empty() {
            sources.add_levels(&self.tree, None);
        } else {
            sources.add_rest(&self.tree, &self.consumed);
        }
    }

    fn trees(&self) -> Vec<(&Tree, Reach<'_>)> {
        let is_whole = self.consumed.is_empty();
        let reach = if is_whole { Reach::Whole } else { Reach::Without(&self.consumed) };
        vec![(&*self.tree, reach)]
    }
}

/// The part of a tree that exists.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reach<'a> {
    #[default]
    Whole,
    /// It is being written, up to this key: what the levels below it hold behind that is the old
    /// side's.
    UpTo(Option<&'a [u8]>),
    /// A merge has passed keys up to and including this one.
    Behind(&'a [u8]),
    /// A run that has lost these keys.
    Without(&'a Consumed),
}

impl<'a> Reach<'a> {
    /// Whether a block's space may have been reused: all its keys have been consumed.
    pub fn is_gone(self, fence: &OwnedFence, next: Option<&OwnedFence>) -> bool {
        let Reach::Without(gone) = self else { return false };
        gone.has_block(&fence.key, next.map(|next| (next.key.as_slice(), next.seq)))
    }

    /// Whether some keys of a block have been consumed.
    pub fn has_lost(self, fence: &OwnedFence, next: Option<&OwnedFence>) -> bool {
        let Reach::Without(gone) = self else { return false };
        let end = next.map(|next| next.key.as_slice());
        gone.meets(KeyRange { begin: &fence.key, end }) || next.is_some_and(|n| n.seq != Seq::MAX)
    }

    /// The first fence of a level that leads to existing blocks.
    pub const fn first(self) -> Target<'a> {
        match self {
            Reach::Behind(wavefront) => Target::At(wavefront, Seq(0)),
            Reach::Whole | Reach::UpTo(_) | Reach::Without(_) => Target::At(&[], Seq::MAX),
        }
    }

    /// Whether the tree's entries at a key are its own. Of a merge under way each key is one
    /// side's, although blocks at the border are both sides'.
    pub fn has(self, key: &[u8]) -> bool {
        match self {
            Reach::Whole => true,
            Reach::UpTo(wavefront) => wavefront.is_some_and(|wavefront| key <= wavefront),
            Reach::Behind(wavefront) => key > wavefront,
            Reach::Without(gone) => gone.at(key).is_none(),
        }
    }
}
