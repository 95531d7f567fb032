//! Blobs: values outside blocks, their owners, and when their space is freed.
//!
//! A reference is in one entry, which owns the runs of units that it names. While only the log has
//! the entry the runs are *logged*: after a crash, replaying the log finds them. The record by
//! which the log becomes unnecessary for the entry *takes* them, in the manifest; from then on
//! merges move the reference and leave the blob in its place. A merge that drops the entry frees
//! its runs: if they were taken, by the record that makes its progress durable; if they were
//! logged, by the same record, because with it the log's entry is not replayed any more. Then they
//! go into quarantine like merged blocks.
//!
//! Invariant: a run is logged, taken, or neither, and never both; all that a record takes was
//! logged, and all that it frees was taken.
//! Invariant: what a merge has noted is at or before its wavefront whenever it makes a record: the
//! record contains the outcome for every reference that the merge passed, and for no other.

use std::collections::BTreeMap;

use esker_format::ids::{KeyspaceId, Seq};
use esker_format::meta::IndexMeta;
use esker_format::ptr::Extent;
use esker_format::value_ref::ValueRef;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};
use esker_substrate::runs::RunSet;
use esker_substrate::sync::atomic::Ordering;

use crate::{Index, Paused};

/// A keyspace's memtable is flushed when the blobs it refers to are this many times the data that
/// it may hold itself: until then the space of blobs overwritten in it is not freed.
const REFERRED_SHARE: u64 = 16;

/// The change of a record to the extents that a keyspace's levels refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValuesEdit {
    /// Referred to from now on.
    pub taken: Vec<Extent>,
    /// Not referred to any more.
    pub freed: Vec<Extent>,
}

impl ValuesEdit {
    /// Whether nothing changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.freed.is_empty()
    }
}

/// The values of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// As they are in the manifest.
    taken: RunSet,
    /// Start → units.
    logged: BTreeMap<u64, u64>,
}

impl Values {
    pub(crate) fn new(taken: RunSet) -> Self {
        Self { taken, ..Self::default() }
    }

    /// A memtable refers to a value.
    pub(crate) fn note(&mut self, content: &[u8]) {
        self.logged.extend(runs_of(content).iter().map(|run| (run.start, run.units)));
    }
}

/// The changes found by a merge since its last record. Repeating a note changes nothing.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Logged runs that the new side refers to.
    stays: BTreeMap<u64, u64>,
    /// Runs that it does not, and whether they were logged.
    goes: BTreeMap<u64, (u64, bool)>,
    /// Runs that a split does not copy: its past index has them for itself.
    released: BTreeMap<u64, u64>,
    /// Space of scattered blocks, which is counted with the blobs'.
    blocks: ValuesEdit,
}

impl Moved {
    /// The merge has passed a reference, which stays or goes. `is_logged`: it comes from a
    /// memtable.
    pub(crate) fn note(&mut self, content: &[u8], stays: bool, is_logged: bool) {
        for run in runs_of(content) {
            if !stays {
                self.stays.remove(&run.start);
                self.goes.insert(run.start, (run.units, is_logged));
            } else if is_logged {
                self.stays.insert(run.start, run.units);
            }
        }
    }

    /// The same for a split, which copies the reference or does not.
    pub(crate) fn note_split(&mut self, content: &[u8], is_copied: bool) {
        if !is_copied {
            self.released.extend(runs_of(content).iter().map(|run| (run.start, run.units)));
        }
    }

    /// The space that a past index has for itself, found since the last record.
    pub(crate) fn released(&self) -> Vec<Extent> {
        extents(&self.released)
    }

    /// Taken runs that nothing refers to any more.
    pub(crate) fn of_dropped(runs: &[Extent]) -> Self {
        let goes = runs.iter().map(|run| (run.start, (run.units, false)));
        Self { goes: goes.collect(), ..Self::default() }
    }

    /// Scattered blocks that the index owns from now on, and others that it frees.
    pub(crate) fn change_blocks(&mut self, taken: Vec<Extent>, freed: Vec<Extent>) {
        self.blocks = ValuesEdit { taken, freed };
    }

    /// The edit for the next record.
    pub(crate) fn recorded(&self) -> ValuesEdit {
        let mut edit = self.edit();
        if planted::is(Bug::ValueFreedEarly) {
            edit.freed.clear();
        }
        edit.taken.extend_from_slice(&self.blocks.taken);
        edit.freed.extend_from_slice(&self.blocks.freed);
        edit
    }

    fn edit(&self) -> ValuesEdit {
        if planted::is(Bug::ValueForgotten) {
            return ValuesEdit { taken: extents(&self.stays), freed: Vec::new() };
        }
        let taken = self.goes.iter().filter(|(_, (_, is_logged))| !is_logged);
        let freed = taken.map(|(start, (units, _))| Extent { start: *start, units: *units });
        ValuesEdit { taken: extents(&self.stays), freed: freed.collect() }
    }
}

fn extents(runs: &BTreeMap<u64, u64>) -> Vec<Extent> {
    runs.iter().map(|(start, units)| Extent { start: *start, units: *units }).collect()
}

/// The runs that a reference names. What is in a memtable or a verified block is a reference.
fn runs_of(content: &[u8]) -> Vec<Extent> {
    ValueRef::decode(content).map(|value| value.runs).unwrap_or_default()
}

/// Whether the log's operation `seq` on `key` is not in the levels of `durable`.
#[must_use]
pub fn is_in_log_alone(durable: &IndexMeta, key: &[u8], seq: Seq) -> bool {
    match &durable.merge {
        Some(merge) if merge.frozen.0 < seq && seq <= merge.frozen.1 => {
            key > merge.wavefront.as_slice()
        }
        _ => seq > durable.flushed_seq,
    }
}

impl Index {
    /// The same with the blobs' space that the manifest records for it.
    #[must_use]
    pub fn with_values(mut self, taken: RunSet) -> Self {
        *self.values.get_mut() = Values::new(taken);
        self
    }

    /// Bytes of the data file that blobs take, in the levels and in memtables.
    pub fn value_bytes(&self) -> u64 {
        let values = self.values.lock();
        let units = values.taken.units() + values.logged.values().sum::<u64>();
        let meta = self.meta();
        let blocks =
            meta.scattered_levels().map(|level| level.units.saturating_add(level.node_units));
        let units = units.saturating_sub(blocks.sum());
        units.saturating_mul(esker_format::ptr::UNIT_BYTES)
    }

    /// The space that the manifest records for blobs.
    pub(crate) fn taken_runs(&self) -> RunSet {
        self.values.lock().taken.clone()
    }

    /// The space that only the log refers to.
    pub(crate) fn logged_runs(&self) -> Vec<Extent> {
        extents(&self.values.lock().logged)
    }

    /// Whether the memtable refers to enough blob bytes that it should be flushed.
    pub(crate) fn refers_to_much(&self) -> bool {
        let bytes = self.referred_bytes.load(Ordering::Relaxed);
        bytes > self.memtable_bytes_max().saturating_mul(REFERRED_SHARE)
    }

    /// Whether writers should wait for the flush because of the number of blob bytes that the
    /// memtable refers to, in addition to those being flushed.
    pub fn refers_to_too_much(&self) -> bool {
        let bytes = self.referred_bytes.load(Ordering::Relaxed);
        let most = self.memtable_bytes_max().saturating_mul(2 * REFERRED_SHARE);
        bytes > most
    }

    /// The record with the changes of `moved` is durable. Returns the runs that have no owner any
    /// more.
    pub(crate) fn commit_moved_values(&self, moved: &mut Moved) -> Result<Vec<Extent>> {
        let edit = moved.edit();
        let logged = |(start, (units, is_logged)): (&u64, &(u64, bool))| {
            is_logged.then_some(Extent { start: *start, units: *units })
        };
        let gone: Vec<Extent> = moved.goes.iter().filter_map(logged).collect();
        let blocks = std::mem::take(&mut moved.blocks);
        let mut values = self.values.lock();
        for run in edit.freed.iter().chain(&blocks.freed) {
            values.taken.remove(*run).map_err(|_| mixed_up(run))?;
        }
        for run in edit.taken.iter().chain(&blocks.taken) {
            values.taken.insert(*run).map_err(|_| mixed_up(run))?;
        }
        for run in edit.taken.iter().chain(&gone) {
            values.logged.remove(&run.start).ok_or_else(|| mixed_up(run))?;
        }
        drop(values);
        self.env.blocks.commit(&[edit.taken.as_slice(), &gone].concat())?;
        *moved = Moved::default();
        Ok([edit.freed, gone, blocks.freed].concat())
    }
}

impl Paused<'_> {
    /// The blobs' space of the levels, in the manifest's form.
    pub(crate) fn taken(&self) -> Vec<Extent> {
        self.index.values.lock().taken.runs().collect()
    }

    /// The runs that the log alone refers to.
    #[must_use]
    pub fn logged(&self) -> Vec<Extent> {
        self.index.logged_runs()
    }

    /// The keyspace, which has no values any more.
    #[must_use]
    pub fn keyspace(&self) -> KeyspaceId {
        self.index.reader.keyspace
    }

    /// Forgets all values; returns their space.
    pub(crate) fn take_values(&mut self) -> Result<Vec<Extent>> {
        let values = std::mem::take(&mut *self.index.values.lock());
        let logged = extents(&values.logged);
        self.index.env.blocks.commit(&logged)?;
        Ok(values.taken.runs().chain(logged).collect())
    }
}

fn mixed_up(run: &Extent) -> Error {
    Error::Corrupt {
        file: esker_substrate::blocks::DATA_FILE.into(),
        offset: run.offset(),
        what: "a merge moved a value that is not the keyspace's: run check".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Generation;
    use esker_format::meta::MergeProgress;

    fn content(start: u64) -> Vec<u8> {
        let runs = vec![Extent { start, units: 1 }];
        let value = ValueRef { until: None, bytes: 9, generation: Generation(1), crc: 0, runs };
        let mut content = Vec::new();
        value.encode(&mut content);
        content
    }

    #[test]
    fn a_record_takes_logged_values_and_frees_taken_ones() {
        let mut moved = Moved::default();
        moved.note(&content(1), true, true);
        moved.note(&content(2), true, false);
        moved.note(&content(3), false, true);
        moved.note(&content(4), false, false);
        // A second pass over the same, as an FD-tree makes it.
        moved.note(&content(1), true, true);
        moved.note(&content(5), true, true);
        moved.note(&content(5), false, true);
        let run = |start| Extent { start, units: 1 };
        assert_eq!(moved.edit(), ValuesEdit { taken: vec![run(1)], freed: vec![run(4)] });
        assert_eq!(moved.goes.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn the_log_alone_has_what_is_behind_every_record() {
        let mut meta = IndexMeta { flushed_seq: Seq(10), ..IndexMeta::default() };
        assert!(!is_in_log_alone(&meta, b"k", Seq(10)) && is_in_log_alone(&meta, b"k", Seq(11)));
        meta.merge = Some(Box::new(MergeProgress {
            frozen: (Seq(4), Seq(8)),
            wavefront: b"k".to_vec(),
            ..MergeProgress::default()
        }));
        assert!(!is_in_log_alone(&meta, b"k", Seq(5)) && is_in_log_alone(&meta, b"l", Seq(8)));
        assert!(!is_in_log_alone(&meta, b"l", Seq(4)) && is_in_log_alone(&meta, b"a", Seq(11)));
    }
}
