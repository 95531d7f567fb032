//! The memory that filters are chosen for: fences and filters of the largest level of an FD+tree
//! should fit into it.

use esker_format::filter;

/// The memory that a block's fence takes, in bytes, without its filter, where nothing is known:
/// with random keys, whose separators have three bytes.
const FENCE_BYTES: u64 = 17;
/// What is above the largest level may have so many times its entries: the bound on garbage, where
/// three quarters of the entries replace others.
const UPPER_SHARE: f64 = 0.45;

/// The memory for fences and filters of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterRoom {
    bytes: u64,
    /// What a block's fence takes without its filter, in bytes.
    each_bytes: u64,
}

impl FilterRoom {
    /// `bytes` bytes, in which a fence takes `each_bytes`, if that is known.
    #[must_use]
    pub fn new(bytes: u64, each_bytes: Option<u64>) -> Self {
        Self { bytes, each_bytes: each_bytes.unwrap_or(FENCE_BYTES) }
    }

    /// Bits a key of the filters of the largest level, which has `blocks` blocks with `keys` keys:
    /// those with which a lookup of an absent key reads least. Fewer bits let more keys through,
    /// and more of the fences be in memory, without which a lookup reads the level above.
    #[must_use]
    pub fn bits(&self, blocks: u64, keys: u64) -> usize {
        let room = self.largest_bytes(blocks, keys) as f64;
        let reads = |bits: usize| {
            let held = (room / self.needs(blocks, keys, bits).max(1.0)).min(1.0);
            1.0 - held + filter::passes(bits)
        };
        let bits = filter::BITS_PER_KEY_MIN..=filter::BITS_PER_KEY;
        bits.min_by(|a, b| reads(*a).total_cmp(&reads(*b))).unwrap_or(filter::BITS_PER_KEY)
    }

    /// The memory for the fences of such a level, in bytes: what the levels above it do not need,
    /// which are smaller and cost a lookup as much, and a sixteenth at least.
    #[must_use]
    pub fn largest_bytes(&self, blocks: u64, keys: u64) -> u64 {
        let upper = UPPER_SHARE * self.needs(blocks, keys, filter::BITS_PER_KEY);
        self.bytes.saturating_sub(upper as u64).max(self.bytes / 16)
    }

    fn needs(&self, blocks: u64, keys: u64, bits: usize) -> f64 {
        keys as f64 * bits as f64 / 8.0 + blocks as f64 * self.each_bytes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 8 million entries of 116 bytes in 240,000 blocks, whose fences take 14 bytes each,
    /// take 13.4 MB with ten bits a key, and those above at most 0.45 times as much, 6 MB.
    #[test]
    fn filters_are_as_long_as_the_memory_lets_them_be() {
        let bits = |bytes| FilterRoom::new(bytes, Some(14)).bits(240_000, 8_000_000);
        assert_eq!(bits(19_500_000), 10);
        assert_eq!(bits(19_300_000), 9);
        assert_eq!(bits(16_500_000), 7);
        assert_eq!(bits(11_000_000), 6);
        // A tenth of the fences fits: what bits save is little.
        assert_eq!(bits(7_000_000), 9);
        let bytes = |bytes| FilterRoom::new(bytes, Some(14)).largest_bytes(240_000, 8_000_000);
        assert_eq!([bytes(19_500_000), bytes(6_400_000)], [13_488_000, 400_000]);
        assert_eq!(bits(0), 10);
        assert_eq!(FilterRoom::new(19_500_000, Some(40)).bits(240_000, 8_000_000), 6);
        assert_eq!(FilterRoom::new(u64::MAX, None).bits(0, 0), 10);
        assert_eq!(FilterRoom::new(0, None).bits(u64::MAX, u64::MAX), 10);
    }
}
