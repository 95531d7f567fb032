//! The codec of data blocks, and the space that a merge reserves because of it.
//!
//! A merge frees space it has read while it writes: if blocks compress as well as before, it needs
//! little more space than it frees. If they compress less well, it may write more than it frees.

use esker_format::block::Codec;
use esker_format::meta::{IndexMeta, LevelMeta};
use esker_format::ptr::SECTOR_BYTES;
use esker_substrate::sync::atomic::Ordering;

use crate::Index;

/// This share of what a codec saves is reserved for a merge whose blocks compress less well than
/// those that it reads.
const MARGIN_SHARE: u64 = 16;

impl Index {
    /// The codec of data blocks.
    pub fn codec(&self) -> Codec {
        Codec::from_number(self.codec.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Compresses data blocks with `codec`, in flushes and merges that begin from now on.
    pub fn set_codec(&self, codec: Codec) {
        self.codec.store(codec as u8, Ordering::Relaxed);
    }
}

/// The most bytes that a merge of the sorted runs and the first `levels` levels may write beyond
/// what it frees, where it compresses with `codec`.
#[must_use]
pub fn growth_bytes(durable: &IndexMeta, levels: usize, codec: Codec) -> u64 {
    let flushed = durable.sorted_runs.iter().flat_map(|flush| &flush.levels);
    let merged = flushed.chain(durable.main.levels.iter().take(levels));
    // Level by level: one that takes more than its entries frees no space for another.
    let saved = merged.map(saved_bytes).fold(0, u64::saturating_add);
    match codec {
        Codec::None => saved,
        Codec::Lz4 | Codec::Zstd => saved / MARGIN_SHARE,
    }
}

const fn saved_bytes(level: &LevelMeta) -> u64 {
    level.counts.data_bytes().saturating_sub(level.counts.sectors.saturating_mul(SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::meta::{LevelCounts, TreeMeta};

    fn level(put_bytes: u64, sectors: u64) -> LevelMeta {
        let counts = LevelCounts { put_bytes, sectors, ..LevelCounts::default() };
        LevelMeta { counts, ..LevelMeta::default() }
    }

    /// By hand: a run of 51,200 bytes in 60 sectors saves 20,480; a level of 102,400 in 240, which
    /// is more, nothing; one of 204,800 in 200 saves 102,400.
    #[test]
    fn what_was_saved_may_be_needed() {
        let tree = |levels| TreeMeta { levels, ..TreeMeta::default() };
        let durable = IndexMeta {
            sorted_runs: vec![tree(vec![level(51_200, 60)])],
            main: tree(vec![level(102_400, 240), level(204_800, 200)]),
            ..IndexMeta::default()
        };
        assert_eq!(growth_bytes(&durable, 1, Codec::None), 20_480);
        assert_eq!(growth_bytes(&durable, 2, Codec::None), 122_880);
        assert_eq!(growth_bytes(&durable, 2, Codec::Lz4), 7_680);
        assert_eq!(growth_bytes(&IndexMeta::default(), 0, Codec::None), 0);
    }
}
