//! An index that stands still: to be checked, to be given up, or to be pinned for a copy.

use std::sync::Arc;

use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::sync::MutexGuard;
use esker_substrate::sync::atomic::Ordering;

use super::Index;
use super::merge::Merge;
use super::tree::Tree;
use super::view::{Part, View};

/// An index whose spills and merges stand still.
#[derive(Debug)]
pub struct Paused<'a> {
    pub(super) tree: &'a Index,
    pub(super) _starting: MutexGuard<'a, ()>,
    pub(super) merge: MutexGuard<'a, Option<Merge>>,
    pub(super) spill: MutexGuard<'a, Option<Merge>>,
}

impl Paused<'_> {
    /// Every extent that is the index's: those of its durable state, its values' included, and
    /// those
    /// that spills and merges have taken besides. What is in quarantine is not among them, nor
    /// what the log alone refers to.
    pub fn extents(&self) -> Vec<Extent> {
        let durable = self.tree.meta();
        let spills = durable.spills.iter().flat_map(|spill| spill.extents());
        let mut extents: Vec<Extent> = durable.main.extents().chain(spills).copied().collect();
        match self.merge.as_ref() {
            // What the record names is part of what the merge has taken.
            Some(merge) => extents.extend(merge.taken()),
            None => extents.extend(durable.merge.iter().flat_map(|merge| merge.new.extents())),
        }
        extents.extend(self.spill.as_ref().into_iter().flat_map(Merge::taken));
        extents.extend(self.taken());
        extents
    }

    /// Keeps everything that the durable state names in its place, whatever merges give up when
    /// they go on, until [`Index::unpin`] is called with the answer.
    pub fn pin(&self) -> u64 {
        self.tree.views.pin()
    }

    /// Gives all extents of a dropped keyspace back. Call when the manifest that dropped it is
    /// durable and nobody writes it; what is still read comes back by [`Index::collect`].
    ///
    /// # Errors
    /// When an extent was free already.
    pub fn release(mut self) -> Result<()> {
        let mut extents = self.extents();
        // Those of the levels are among them already.
        let taken: Vec<Extent> = self.taken();
        extents.retain(|extent| !taken.contains(extent));
        extents.extend(self.take_values()?);
        self.forget();
        self.tree.views.quarantine(&self.tree.env.blocks, extents)?;
        self.tree.collect()
    }

    pub(super) fn forget(&mut self) {
        for slot in [&mut self.merge, &mut self.spill] {
            if let Some(merge) = slot.take() {
                merge.forget();
            }
        }
        let tree = self.tree;
        *tree.slices.lock() = None;
        tree.awaits_resume.store(false, Ordering::Release);
        let main = Part::Run(Arc::new(Tree::default()));
        tree.views.publish(|_| View::new(Arc::default(), vec![main], Arc::default()));
        tree.durable.swap(Arc::default());
        tree.count_memory();
    }
}

impl Index {
    /// Lets go of what [`Paused::pin`] kept, and frees what nothing else keeps.
    ///
    /// # Errors
    /// When an extent was free already.
    pub fn unpin(&self, number: u64) -> Result<()> {
        self.views.unpin(number);
        self.collect()
    }
}
