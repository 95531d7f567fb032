//! The keys that were changed between two versions, where history is kept.
//!
//! Each change is in the index that was the index of now when it was made, with the number of its
//! commit. A scan for changes merges all indexes that were, from the first of the two versions to
//! the second, and leaves out the levels that are older than the first one.

use esker_format::ids::Seq;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};

use crate::Index;
use crate::job::BackgroundJob;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::scan::{Changed, Clipped, ScanBatch, ScanRequest, Sources};
use crate::read::view::View;
use crate::run::tree::BlockReader;

impl Index {
    /// One batch of the keys that may have been changed after version `since`, up to that of
    /// `request`, each with an empty value: those with an entry or a tombstone of such a number.
    /// With `every`, all keys that have an entry up to then. Both versions are pinned.
    ///
    /// Reads the levels that have newer entries than `since`, within the bounds; all levels where a
    /// range tombstone is as new.
    ///
    /// # Errors
    /// Those of [`Index::scan`]; `Invalid` for a version that has been given up.
    pub fn changed_keys(
        &self,
        request: &ScanRequest<'_>,
        since: Seq,
        every: bool,
    ) -> Result<ScanBatch> {
        let _shared = self.share();
        self.views.load().changed_keys(&self.reader, request, since, every)
    }
}

impl View {
    fn changed_keys(
        &self,
        reader: &BlockReader,
        request: &ScanRequest<'_>,
        since: Seq,
        every: bool,
    ) -> Result<ScanBatch> {
        let up_to = request.at.seq;
        self.past.at(reader, since)?;
        let mut past = self.past.between(reader, since, up_to);
        past.retain(|_| !planted::is(Bug::ChangesOfNow));
        let mut removed: Vec<&RangeTombstones> = past.iter().map(|past| &past.removed).collect();
        let reads_now = self.past.is_now(up_to);
        if reads_now {
            removed.push(&self.removed);
        }
        // A split copies from inputs that stay whole.
        let merge = self.moving(BackgroundJob::Merge).map(|(_, merge)| merge);
        let merge = merge.filter(|merge| reads_now && merge.splits_at.is_none());
        let wavefront = merge.and_then(|merge| merge.wavefront.as_deref());
        let Clipped { request, passed, rest } = request.clipped(wavefront);
        let active = self.memtable.leaves_arc();
        let mut sources = match reads_now {
            true => Sources::new(reader, &active, passed, wavefront.filter(|_| !passed)),
            false => Sources::without_memtable(reader),
        };
        let since = if every { Seq(0) } else { since };
        let was_removed = removed.iter().any(|removed| removed.has_between(since, up_to));
        sources.since = if was_removed { Seq(0) } else { since };
        if reads_now {
            self.parts.iter().for_each(|part| part.scan(&mut sources));
        }
        let parts = past.iter().rev().flat_map(|past| &past.parts);
        parts.for_each(|part| part.scan(&mut sources));
        let mut batch = sources.scan_changed(&request, Changed { since, removed: &removed })?;
        if batch.resume.is_none() {
            batch.resume = rest.map(|bound| bound.map(<[u8]>::to_vec));
        }
        Ok(batch)
    }
}
