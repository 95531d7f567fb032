//! What an index lends to its kind: named operations on what all kinds share.
//!
//! Kinds use an [`Index`] only through this. A method here is a promise that the shared part keeps
//! for every kind.

use std::sync::Arc;

use esker_format::block::Codec;
use esker_format::ids::{Moment, Seq};
use esker_format::meta::IndexMeta;
use esker_substrate::blocks::{BlockStore, Pot};
use esker_substrate::budget::Part as MemoryPart;
use esker_substrate::error::Error;
use esker_substrate::memtable::{Leaves, Memtable, MemtableCounts};
use esker_substrate::poison::Poison;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::atomic::Ordering;
use esker_substrate::sync::{Loaded, MutexGuard, RwLockWriteGuard};

use crate::history::History;
use crate::merge::freeze::Frozen;
use crate::merge::scheme::Scheme;
use crate::read::heat::Heat;
use crate::read::operands::Operator;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::source::Part;
use crate::read::view::View;
use crate::run::tree::BlockReader;
use crate::upkeep::balance::{Balance, KeptTombstones};
use crate::upkeep::fence_room::FenceRoom;
use crate::upkeep::filter_room::FilterRoom;
use crate::{Gate, Index, Work};

/// An index, as its kind sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindContext<'a> {
    index: &'a Index,
}

impl<'a> KindContext<'a> {
    pub const fn new(index: &'a Index) -> Self {
        Self { index }
    }

    /// The index, as an argument of shared code; kinds do nothing else with it.
    pub const fn index(self) -> &'a Index {
        self.index
    }

    /// The means of reading blocks.
    pub const fn reader(self) -> &'a BlockReader {
        &self.index.reader
    }

    /// The data file.
    pub fn blocks(self) -> &'a Arc<BlockStore> {
        &self.index.env.blocks
    }

    /// The visible number and the live snapshots.
    pub fn snapshots(self) -> &'a Snapshots {
        &self.index.env.snapshots
    }

    /// The first write failure.
    pub fn poison(self) -> &'a Poison {
        &self.index.env.poison
    }

    /// The keyspace's merge operator.
    pub fn operator(self) -> Arc<Operator> {
        self.index.operator()
    }

    /// The first version that stays readable, where the keyspace keeps history.
    pub fn history_from(self) -> Option<Seq> {
        self.index.history_from()
    }

    /// The history that the keyspace keeps.
    pub fn history(self) -> Option<History> {
        self.index.history()
    }

    /// The first version that the index of now answers.
    pub fn now_from(self, durable: &IndexMeta) -> Seq {
        self.index.now_from(durable)
    }

    /// Whether a full merge has to split: see [`Index::split_after`].
    pub fn must_split(self) -> bool {
        self.index.must_split()
    }

    /// The time of a version; the first moment where it is not known. A lookup.
    pub fn time_of(self, version: Seq) -> Moment {
        self.index.time_of(version)
    }

    /// Whether merges keep every version.
    pub fn keeps_history(self) -> bool {
        self.index.keeps_history()
    }

    /// The scheme by which merges run.
    pub const fn scheme(self) -> Scheme {
        self.index.scheme
    }

    /// The codec of new data blocks.
    pub fn codec(self) -> Codec {
        self.index.codec()
    }

    /// κ0: the payload of a full memtable, in bytes.
    pub fn kappa0_bytes(self) -> u64 {
        self.index.kappa0_bytes()
    }

    /// The memory budget of the store, in bytes.
    pub fn budget_bytes(self) -> u64 {
        self.index.env.budget.total_bytes()
    }

    /// κ0, and the memory for fences.
    pub fn fence_room(self) -> FenceRoom {
        let fence_bytes = self.index.env.budget.share_bytes(MemoryPart::Fences);
        FenceRoom { kappa0_bytes: self.kappa0_bytes(), fence_bytes }
    }

    /// The memory for fences and filters that other keyspaces do not have. Looks at all chunks of
    /// fences that are in memory.
    pub fn filter_room(self) -> FilterRoom {
        let budget = &self.index.env.budget;
        let used_bytes = budget.used_bytes(MemoryPart::Fences);
        let others_bytes = used_bytes.saturating_sub(self.index.fence_memory_bytes());
        let bytes = budget.share_bytes(MemoryPart::Fences).saturating_sub(others_bytes);
        FilterRoom::new(bytes, self.index.largest_fence_bytes())
    }

    /// Estimates κ0 anew, from the memtable that is about to be written out.
    pub fn note_payload_share(self) {
        self.index.note_payload_share();
    }

    /// The reads of scans, by range of keys.
    pub const fn heat(self) -> &'a Heat {
        &self.index.heat
    }

    /// The view that readers have now. Never waits.
    pub fn view(self) -> Loaded<View> {
        self.index.views.load()
    }

    /// Replaces the view.
    pub fn publish(self, change: impl FnOnce(&View) -> View) {
        self.index.views.publish(change);
    }

    /// The durable state.
    pub fn meta(self) -> Arc<IndexMeta> {
        self.index.meta()
    }

    /// Lets neither the durable state nor the view change together until the guard is dropped.
    pub fn hold_durable(self) -> MutexGuard<'a, ()> {
        self.index.durable.hold()
    }

    /// Poisons the store if a write has failed.
    pub fn poison_if_write_failed(self, error: Error) -> Error {
        self.index.poison_if_write_failed(error)
    }

    /// Lets no other flush or merge begin until the guard is dropped.
    pub fn start(self) -> MutexGuard<'a, ()> {
        self.index.starting.lock()
    }

    /// Whether a flush is in memory. Waits for its step.
    pub fn has_flush(self) -> bool {
        self.index.flush.lock().is_some()
    }

    /// Whether a merge is under way.
    pub fn is_merging(self) -> bool {
        self.index.is_merging()
    }

    /// A merge is under way, or no longer.
    pub fn set_merging(self, is_merging: bool) {
        self.index.merging.store(is_merging, Ordering::Release);
    }

    /// The merge under way retires range tombstones, or none.
    pub fn set_retiring(self, is_retiring: bool) {
        self.index.retiring.store(is_retiring, Ordering::Release);
    }

    /// In an exclusive scheme, keeps operations out until the guard is dropped.
    pub fn exclude(self) -> Option<RwLockWriteGuard<'a, ()>> {
        self.index.scheme.is_exclusive().then(|| self.index.exclusive.write())
    }

    /// Freezes the memtable: see [`Index::freeze`].
    pub fn freeze(
        self,
        gate: &Gate<'_>,
        data_bytes_max: u64,
        change: &mut dyn FnMut(&Arc<Leaves>, &mut Vec<Part>),
    ) -> Option<Frozen> {
        self.index.freeze(gate, data_bytes_max, change)
    }

    /// The counts of the memtable that takes writes.
    pub fn memtable_counts(self) -> MemtableCounts {
        self.index.views.load().memtable.counts()
    }

    /// Versions in the memtable that takes writes.
    pub fn memtable_entries(self) -> u64 {
        self.index.memtable_entries()
    }

    /// Payload of the memtable that takes writes, in bytes.
    pub fn active_data_bytes(self) -> u64 {
        self.index.active_data_bytes()
    }

    /// Whether the memtable is flushed before the next merge.
    pub fn flushes_first(self) -> bool {
        self.index.flushes_first()
    }

    /// Puts and tombstones on the device, without versions that are kept for snapshots.
    pub fn flushed_balance(self) -> Balance {
        *self.index.flushed.lock()
    }

    /// What the last full merge had to keep for snapshots that are still live.
    pub fn still_kept(self) -> KeptTombstones {
        self.index.still_kept()
    }

    /// A full merge of everything up to `frozen` has kept that many tombstones.
    pub fn note_kept(self, count: u64, frozen: Seq, oldest_snapshot: Option<Seq>) {
        self.index.note_kept(count, frozen, oldest_snapshot);
    }

    /// The number of range tombstones.
    pub fn removals(self) -> usize {
        self.index.removals()
    }

    /// The work that is due because of the number of range tombstones.
    pub fn removal_work(self, durable: &IndexMeta) -> Option<Work> {
        self.index.removal_work(durable)
    }

    /// The range tombstones for a merge that begins now: see [`Index::removed_for_merge`].
    pub fn removed_for_merge(self, frozen: Seq, full: bool) -> (RangeTombstones, Seq) {
        self.index.removed_for_merge(frozen, full)
    }

    /// Whether a merge that a crash interrupted waits to be resumed.
    pub fn awaits_resume(self) -> bool {
        self.index.awaits_resume()
    }

    /// The log's entries for that merge.
    pub fn recovered(self) -> Option<Arc<Leaves>> {
        self.index.recovered.lock().as_ref().map(Memtable::leaves_arc)
    }

    /// The space that is reserved for those entries.
    pub fn recovered_pot(self) -> Arc<Pot> {
        self.index.recovered_pot()
    }

    /// The merge has been resumed, and holds those entries.
    pub fn note_resumed(self) {
        *self.index.recovered.lock() = None;
        self.index.awaits_resume.store(false, Ordering::Release);
    }

    /// Whether merges may use the reserve permanently.
    pub fn may_use_reserve(self) -> bool {
        self.index.may_use_reserve()
    }
}
