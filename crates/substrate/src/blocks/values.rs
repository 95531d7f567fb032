//! The data file's interface for blobs: uncommitted space, and syncs.

use std::sync::atomic::Ordering;

use esker_device::Purpose;
use esker_format::ptr::Extent;

use super::room::Room;
use super::{BlockStore, DATA_FILE, freed_twice, full};
use crate::error::{Error, Result};
use crate::planted::{self, Bug};
use crate::space::{Overlap, Space};

impl BlockStore {
    /// Takes `units` units for a blob: adjacent, or in at most `runs_max` runs if otherwise the
    /// file would grow while there is free space. All runs but the last have whole multiples of
    /// `grain` units. They are uncommitted until [`BlockStore::commit`] or
    /// [`BlockStore::free_uncommitted`].
    ///
    /// # Errors
    /// [`Error::Full`] when the device is full; nothing has changed in this case.
    pub fn allocate_runs(&self, units: u64, grain: u64, runs_max: u64) -> Result<Vec<Extent>> {
        let mut space = self.held();
        self.back(&mut space, Room::reserve, units, Purpose::User)?;
        let least = units.div_ceil(runs_max.max(1)).next_multiple_of(grain);
        let (mut left, mut runs) = (units, Vec::new());
        while left > 0 {
            let run = allocate_within(&mut space, left, least, grain).or_else(|| {
                // The free space is fragmented: the rest is one run at the end.
                self.grow_by_some(&mut space, left, Purpose::User).ok()?;
                space.allocate(left)
            });
            let Some(run) = run else {
                runs.into_iter().try_for_each(|run| space.give_back(run)).map_err(freed_twice)?;
                return Err(full(left));
            };
            left -= run.units;
            runs.push(run);
        }
        runs.iter().for_each(|run| space.mark_uncommitted(*run));
        Ok(runs)
    }

    /// Frees runs of a blob that no record names, in the log or in the manifest.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when one was not uncommitted.
    pub fn free_uncommitted(&self, runs: &[Extent]) -> Result<()> {
        let mut space = self.held();
        runs.iter()
            .try_for_each(|run| space.commit(*run).and_then(|()| space.give_back(*run)))
            .map_err(freed_twice)
    }

    /// Shortens an uncommitted run to `units`, and frees the rest of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it was not uncommitted.
    pub(crate) fn shorten_uncommitted(&self, run: Extent, units: u64) -> Result<()> {
        let mut space = self.held();
        space.commit(run).map_err(freed_twice)?;
        if units > 0 {
            space.mark_uncommitted(Extent { units, ..run });
        }
        if units < run.units {
            let rest = Extent { start: run.start + units, units: run.units - units };
            space.give_back(rest).map_err(freed_twice)?;
        }
        Ok(())
    }

    /// Joins two uncommitted runs, the second of which follows the first.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when one was not uncommitted.
    pub(crate) fn join_uncommitted(&self, first: Extent, second: Extent) -> Result<()> {
        let mut space = self.held();
        space.commit(first).and_then(|()| space.commit(second)).map_err(freed_twice)?;
        space.mark_uncommitted(Extent { start: first.start, units: first.units + second.units });
        Ok(())
    }

    /// Commits runs of blobs: a durable record of the manifest names them from now on, or a record
    /// that makes the log's unnecessary freed them; then they are the caller's.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when one was not uncommitted.
    pub fn commit(&self, runs: &[Extent]) -> Result<()> {
        let mut space = self.held();
        runs.iter().try_for_each(|run| space.commit(*run)).map_err(freed_twice)
    }

    /// Takes runs of a blob that the log refers to out of the free space. For recovery, before
    /// anything is allocated.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when part of one is in use, or behind the end of the file.
    pub fn claim(&self, runs: &[Extent]) -> Result<()> {
        let mut space = self.held();
        runs.iter().try_for_each(|run| space.claim(*run)).map_err(|Overlap(run)| Error::Corrupt {
            file: DATA_FILE.into(),
            offset: run.offset(),
            what: format!(
                "the log refers to a value of {} bytes here, where something else is",
                run.bytes()
            ),
        })
    }

    /// Writes part of a blob. Durable after [`BlockStore::sync_values`].
    ///
    /// # Errors
    /// Errors of the device.
    pub fn write_value(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_raw(offset, buf, Purpose::Value)?;
        self.note_value(buf.len() as u64);
        Ok(())
    }

    /// Notes that this many bytes of a blob are written that may not be durable.
    pub(crate) fn note_value(&self, bytes: u64) {
        self.value_bytes_written.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The number of bytes of blobs that were written and are not known to be durable.
    #[must_use]
    pub fn unsynced_value_bytes(&self) -> u64 {
        let durable = self.value_bytes_durable.load(Ordering::Acquire);
        self.value_bytes_written.load(Ordering::Acquire).saturating_sub(durable)
    }

    /// Makes all blobs durable that have been written. One sync serves all waiting threads.
    ///
    /// # Errors
    /// Errors of the device; the store must then be poisoned.
    pub fn sync_values(&self) -> Result<()> {
        if self.unsynced_value_bytes() == 0 || planted::is(Bug::ValueNotSynced) {
            return Ok(());
        }
        let wanted = self.value_bytes_written.load(Ordering::Acquire);
        self.sync_unless(Purpose::Value, || {
            self.value_bytes_durable.load(Ordering::Acquire) >= wanted
        })
    }

    /// Has the device begin to read a run of a value for a user, if it can.
    pub(crate) fn announce_run(&self, run: &Extent) {
        self.file.announce(run.offset(), run.bytes(), Purpose::User);
    }
}

/// The longest of `units`, halves of it and so on, in multiples of `grain` and at least `least`,
/// that is free somewhere.
fn allocate_within(space: &mut Space, units: u64, least: u64, grain: u64) -> Option<Extent> {
    let mut wanted = units;
    while wanted >= least.min(units) {
        if let Some(extent) = space.allocate(wanted) {
            return Some(extent);
        }
        let half = (wanted / 2).next_multiple_of(grain);
        if half >= wanted {
            break;
        }
        wanted = half;
    }
    None
}
