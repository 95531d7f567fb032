//! The memory that level sizes and filters are chosen for: with little of it, the fences of large
//! levels are not in memory, and each such level costs a lookup a read.

use esker_format::filter;
use esker_format::meta::{LevelCounts, LevelMeta};

/// The memory that a block's fence takes, in bytes, without its filter, where nothing is known:
/// with random keys, whose separators have three or four bytes.
const FENCE_BYTES: u64 = 14;
/// The memory that a block's fence and filter take, as a share of the block: about 58 bytes where
/// 35 entries are in a block of 4 KiB.
const FENCE_MEMORY_SHARE: f64 = 1.0 / 70.0;
/// What is above the largest level may have so many times its entries: the bound on garbage, where
/// three quarters of the entries replace others.
const UPPER_SHARE: f64 = 0.45;
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
    /// What other keyspaces have of it, in bytes.
    pub others_bytes: u64,
    /// What a block's fence takes without its filter, in bytes.
    pub each_bytes: u64,
}

impl FenceRoom {
    /// With enough memory that reads do not count.
    #[must_use]
    pub const fn ample(kappa0_bytes: u64) -> Self {
        Self { kappa0_bytes, fence_bytes: u64::MAX, others_bytes: 0, each_bytes: FENCE_BYTES }
    }

    /// The same for a keyspace whose fences take `each_bytes`, if that is known.
    #[must_use]
    pub fn with_each(self, each_bytes: Option<u64>) -> Self {
        Self { each_bytes: each_bytes.unwrap_or(self.each_bytes), ..self }
    }

    /// The data, in full memtables, whose fences fit into the memory; `None` where reads do not
    /// count.
    #[must_use]
    pub fn memtables(&self) -> Option<f64> {
        let of_a_memtable = self.kappa0_bytes.max(1) as f64 * FENCE_MEMORY_SHARE;
        (self.fence_bytes < AMPLE_BYTES).then(|| self.fence_bytes as f64 / of_a_memtable)
    }

    /// Bits a key of the filters of the largest level, which has `blocks` blocks with `keys` keys:
    /// those with which a lookup of an absent key reads least. Fewer bits let more keys through,
    /// and more of the fences be in memory, without which a lookup reads the level above.
    #[must_use]
    pub fn filter_bits(&self, blocks: u64, keys: u64) -> usize {
        let bytes = |bits: usize| {
            let filters = u128::from(keys) * bits as u128 / 8;
            (filters + u128::from(blocks) * u128::from(self.each_bytes)) as f64
        };
        let upper = UPPER_SHARE * bytes(filter::BITS_PER_KEY);
        let room = (self.fence_bytes.saturating_sub(self.others_bytes) as f64 - upper).max(0.0);
        let reads = |bits: usize| {
            let held = (room / bytes(bits).max(1.0)).min(1.0);
            1.0 - held + filter::passes(bits)
        };
        let bits = filter::BITS_PER_KEY_MIN..=filter::BITS_PER_KEY;
        bits.min_by(|a, b| reads(*a).total_cmp(&reads(*b))).unwrap_or(filter::BITS_PER_KEY)
    }

    /// The same where `levels` become the largest level.
    pub fn filter_bits_of(&self, levels: &[LevelMeta]) -> usize {
        let counts =
            |of: fn(&LevelCounts) -> u64| levels.iter().map(|level| of(&level.counts)).sum();
        self.filter_bits(counts(|counts| counts.blocks), counts(LevelCounts::data_entries))
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

    /// By hand: 8 million entries of 116 bytes in 240,000 blocks take 13.4 MB with ten bits a key,
    /// and those above at most 0.45 times as much, 6 MB.
    #[test]
    fn filters_are_as_long_as_the_memory_lets_them_be() {
        let bits = |fence_bytes, others_bytes| {
            let room = FenceRoom { fence_bytes, others_bytes, ..FenceRoom::ample(4 << 20) };
            room.filter_bits(240_000, 8_000_000)
        };
        assert_eq!(bits(19_500_000, 0), 10);
        assert_eq!(bits(19_300_000, 0), 9);
        assert_eq!(bits(19_500_000, 200_000), 9);
        assert_eq!(bits(16_500_000, 0), 7);
        assert_eq!(bits(11_000_000, 0), 6);
        // A tenth of the fences fits: what bits save is little.
        assert_eq!(bits(7_000_000, 0), 9);
        let long = FenceRoom { fence_bytes: 19_500_000, ..FenceRoom::ample(1) }.with_each(Some(40));
        assert_eq!(long.filter_bits(240_000, 8_000_000), 6);
        assert_eq!([bits(0, 0), bits(1000, u64::MAX)], [10, 10]);
        assert_eq!(FenceRoom::ample(1).filter_bits(u64::MAX, u64::MAX), 10);
        assert_eq!(FenceRoom::ample(1).filter_bits(0, 0), 10);
    }

    /// By hand: fences of 96 KiB lead to 6.6 MiB of blocks.
    #[test]
    fn reads_count_where_memory_is_scarce() {
        let room = |fence_bytes| FenceRoom { fence_bytes, ..FenceRoom::ample(96 << 10) };
        let held = room(96 << 10).memtables().unwrap();
        assert!((held - 70.0).abs() < 1e-9, "{held}");
        let cost = |fence_bytes| room(fence_bytes).cost(2.0, |held| held);
        assert!((cost(96 << 10) - 140.0).abs() < 1e-9);
        assert_eq!([cost(0), cost(384 << 10)], [0.0, 0.0]);
        assert_eq!(room(384 << 10).memtables(), None);
        assert_eq!(FenceRoom::ample(1).cost(2.0, |_| 1.0), 0.0);
    }
}
