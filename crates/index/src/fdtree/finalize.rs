//! merge-finalize: dropping upper levels that turned out not to be needed.
//!
//! Only fence-only levels may become part of L0: data whose log is gone must never live in memory
//! only. The level numbers of the rest follow from the shape chosen in merge-prepare.

use esker_format::meta::LevelMeta;

/// Gives the levels of a full merge their final numbers: the level with the data becomes the
/// bottom, and no level above it is numbered behind it.
pub fn renumber(levels: &mut [LevelMeta], bottom_rank: u8) {
    let Some((bottom, upper)) = levels.split_last_mut() else { return };
    bottom.rank = bottom_rank;
    for level in upper {
        level.rank = level.rank.min(bottom_rank);
    }
}

/// How many upper levels to drop: as many as leave top fences of at most `top_bytes_max` (z of
/// the thesis). For each new level from the top: the memory that its fences take, if they are
/// held; the last level has the data and stays.
#[must_use]
pub fn levels_to_skip(fence_bytes: impl Iterator<Item = Option<u64>>, top_bytes_max: u64) -> usize {
    let small = |bytes: &Option<u64>| bytes.is_some_and(|bytes| bytes <= top_bytes_max);
    fence_bytes
        .enumerate()
        .filter(|(_, bytes)| small(bytes))
        .map(|(level, _)| level)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::levels_to_skip;

    #[test]
    fn the_deepest_level_whose_fences_fit_comes_first() {
        assert_eq!(levels_to_skip([Some(10), Some(400), None].into_iter(), 50), 0);
        assert_eq!(levels_to_skip([Some(1), Some(10), Some(400)].into_iter(), 50), 1);
        assert_eq!(levels_to_skip([Some(1), Some(2), Some(3)].into_iter(), 50), 2);
        assert_eq!(levels_to_skip([Some(99)].into_iter(), 50), 0);
    }
}
