//! merge-finalize: the numbers of the levels that are left.
//!
//! Upper levels that turned out not to be needed are dropped when everything is written
//! ([`insert`](crate::build::insert)). The level numbers of the rest follow from the shape chosen
//! in merge-prepare.

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
