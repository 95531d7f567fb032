//! A paused index: to be checked, to be dropped, or to be pinned for a copy.

use std::sync::Arc;

use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::sync::MutexGuard;
use esker_substrate::sync::atomic::Ordering;

use crate::Index;
use crate::kind::PauseGuard;
use crate::merge::flush::Flush;
use crate::read::source::Run;
use crate::read::view::View;
use crate::run::tree::Tree;

/// An index whose flushes and merges are paused.
#[derive(Debug)]
pub struct Paused<'a> {
    pub(crate) index: &'a Index,
    pub(crate) _rewriting: MutexGuard<'a, ()>,
    pub(crate) _starting: MutexGuard<'a, ()>,
    pub(crate) merges: Box<dyn PauseGuard + 'a>,
    pub(crate) flush: MutexGuard<'a, Option<Flush>>,
}

impl Paused<'_> {
    /// Every extent that the index owns: those of its durable state, including its blobs, and those
    /// that flushes and merges have taken in addition. Without space in quarantine, and without
    /// blobs that only the log refers to.
    pub fn extents(&self) -> Vec<Extent> {
        let durable = self.index.meta();
        let sorted_runs = durable.sorted_runs.iter().flat_map(|flush| flush.extents());
        let mut extents: Vec<Extent> = durable.main.extents().chain(sorted_runs).copied().collect();
        for past in self.index.past_indexes() {
            extents.extend(past.extents());
        }
        match self.merges.taken() {
            // The space that the record names is part of what the merge has taken.
            Some(taken) => extents.extend(taken),
            None => extents.extend(durable.merge.iter().flat_map(|merge| merge.new.extents())),
        }
        extents.extend(self.flush.as_ref().into_iter().flat_map(Flush::taken));
        extents.extend(self.taken());
        extents
    }

    /// Keeps everything that the durable state names in its place, even if merges free it when they
    /// continue, until [`Index::unpin`] is called with the returned number.
    pub fn pin(&self) -> u64 {
        self.index.views.pin()
    }

    /// Frees all extents of a dropped keyspace. Call when the manifest that dropped it is durable
    /// and nothing writes to the keyspace; what is still read is freed by [`Index::collect`].
    ///
    /// # Errors
    /// When an extent was already free.
    pub fn release(mut self) -> Result<()> {
        let mut extents = self.extents();
        // Those of the levels are among them already.
        let taken: Vec<Extent> = self.taken();
        extents.retain(|extent| !taken.contains(extent));
        extents.extend(self.take_values()?);
        self.forget();
        self.index.views.quarantine(&self.index.env.blocks, extents)?;
        self.index.collect()
    }

    pub(crate) fn forget(&mut self) {
        self.merges.forget();
        if let Some(flush) = self.flush.take() {
            flush.forget();
        }
        let index = self.index;
        index.awaits_resume.store(false, Ordering::Release);
        index.disown_all();
        let main = Run::whole(Arc::new(Tree::default()));
        index
            .views
            .publish(|_| View::new(Arc::default(), vec![main], Arc::default(), Arc::default()));
        index.durable.forget();
        index.keep_for_removals();
        index.count_memory();
    }
}

impl Index {
    /// Drops the pin of [`Paused::pin`], and frees the space that has no other pin.
    ///
    /// # Errors
    /// When an extent was already free.
    pub fn unpin(&self, number: u64) -> Result<()> {
        self.views.unpin(number);
        self.collect()
    }
}
