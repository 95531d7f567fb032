//! The memory of memtables, and what the cache may have of it.

use esker_substrate::budget::Part as MemoryPart;
use esker_substrate::memtable::Memtable;
use esker_substrate::sync::atomic::Ordering;

use crate::Index;

impl Index {
    /// Counts the memtables' memory afresh.
    pub(crate) fn count_memory(&self) {
        let now = self.memtable_memory_bytes();
        let before = self.counted_bytes.swap(now, Ordering::Relaxed);
        self.env.budget.add(MemoryPart::Memtables, now);
        self.env.budget.sub(MemoryPart::Memtables, before);
        self.lend_to_cache();
    }

    /// The cache may use what memtables, fences and the buffers of merges leave free, and always
    /// a little.
    pub(crate) fn lend_to_cache(&self) {
        let budget = &self.env.budget;
        let buffers = budget.used_bytes(MemoryPart::Cache);
        let room = budget.limit_bytes(MemoryPart::Cache).saturating_sub(buffers);
        let least = budget.share_bytes(MemoryPart::Cache) / 4;
        self.env.blocks.cache().set_bytes_max(room.max(least));
    }

    /// Estimated memory of the memtable and of frozen memtables, in bytes.
    pub fn memtable_memory_bytes(&self) -> u64 {
        let view = self.views.load();
        let recovered = self.recovered.lock().as_ref().map_or(0, Memtable::memory_bytes);
        view.memtable.memory_bytes() + view.frozen_bytes() + recovered
    }

    /// Versions in the memtable that takes writes.
    pub fn memtable_entries(&self) -> u64 {
        let counts = self.views.load().memtable.counts();
        counts.puts + counts.tombstones
    }

    /// Memory of the memtable that takes writes, in bytes.
    pub fn active_memory_bytes(&self) -> u64 {
        self.views.load().memtable.memory_bytes()
    }

    /// The memory that the memtables may take, in bytes.
    pub fn memtable_bytes_max(&self) -> u64 {
        self.memtable_bytes_max.load(Ordering::Relaxed)
    }

    /// Changes how much memory the memtables may take.
    pub fn set_memtable_bytes_max(&self, bytes: u64) {
        self.memtable_bytes_max.store(bytes, Ordering::Relaxed);
    }
}
