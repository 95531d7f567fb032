//! The memory that level sizes are chosen for: with little of it, the fences of large levels are
//! not in memory, and each such level costs a lookup a read.

/// The memory that a block's fence and filter take, as a share of the block: about 100 bytes where
/// 30 entries are in a block of 4 KiB and a level has so few blocks that its one chunk of fences
/// is not full.
const FENCE_MEMORY_SHARE: f64 = 1.0 / 40.0;
/// The memory for fences, in bytes, from which sizes are chosen by the bytes that they write alone:
/// that of a budget of 1 MiB.
const AMPLE_BYTES: u64 = 384 << 10;

/// The memory that level sizes are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceRoom {
    /// κ0: the payload of a full memtable, in bytes.
    pub kappa0_bytes: u64,
    /// The memory for fences and filters, in bytes.
    pub fence_bytes: u64,
}

impl FenceRoom {
    /// With enough memory that reads do not count.
    #[must_use]
    pub const fn ample(kappa0_bytes: u64) -> Self {
        Self { kappa0_bytes, fence_bytes: u64::MAX }
    }

    /// The data, in full memtables, whose fences fit into the memory; `None` where reads do not
    /// count.
    #[must_use]
    pub fn memtables(&self) -> Option<f64> {
        let of_a_memtable = self.kappa0_bytes.max(1) as f64 * FENCE_MEMORY_SHARE;
        (self.fence_bytes < AMPLE_BYTES).then(|| self.fence_bytes as f64 / of_a_memtable)
    }

    /// What sizes cost in addition to the bytes that they write per byte that comes in: `worth` of
    /// such bytes for each read of a lookup; `reads` are those where the fences of so many
    /// memtables are held.
    pub fn cost(&self, worth: f64, reads: impl FnOnce(f64) -> f64) -> f64 {
        self.memtables().map_or(0.0, |memtables| worth * reads(memtables))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: fences of 96 KiB lead to 3.75 MiB of blocks.
    #[test]
    fn reads_count_where_memory_is_scarce() {
        let room = |fence_bytes| FenceRoom { kappa0_bytes: 96 << 10, fence_bytes };
        let held = room(96 << 10).memtables().unwrap();
        assert!((held - 40.0).abs() < 1e-9, "{held}");
        let cost = |fence_bytes| room(fence_bytes).cost(2.0, |held| held);
        assert!((cost(96 << 10) - 80.0).abs() < 1e-9);
        assert_eq!([cost(0), cost(384 << 10)], [0.0, 0.0]);
        assert_eq!(room(384 << 10).memtables(), None);
        assert_eq!(FenceRoom::ample(1).cost(2.0, |_| 1.0), 0.0);
    }
}
