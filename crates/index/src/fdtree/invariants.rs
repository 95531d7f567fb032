//! Checks of what is recorded about the levels: I3 to I5.

use esker_format::meta::{IndexMeta, LevelMeta};
use esker_format::ptr::Extent;

use super::{prepare, shape};
use crate::check::CheckSink;

/// I3.
pub(super) fn check_sizes(meta: &IndexMeta, sink: &mut CheckSink) {
    let shape = &meta.shape;
    for level in &meta.main.levels {
        let offset = level.extents.first().map_or(0, Extent::offset);
        let bytes = level.counts.data_bytes();
        // What has been gathered before a split is one level of any size.
        let is_gathered = meta.history.splits_next;
        if !is_gathered && bytes > shape::capacity_bytes(shape, level.rank) {
            sink.report(
                offset,
                format!("level {} holds {bytes} bytes, which is too many", level.rank),
            );
        }
    }
}

/// I4.
pub(super) fn check_bottom(meta: &IndexMeta, sink: &mut CheckSink) {
    if meta.history.splits_next {
        // What is above the bottom has been gathered into one level, of any size.
        return;
    }
    let shape = &meta.shape;
    let has_data = |level: &&LevelMeta| level.counts.data_entries() > 0;
    let bottom = meta.main.levels.last().filter(has_data);
    let Some(bottom) = bottom.filter(|level| level.rank == shape::bottom_rank(shape)) else {
        return;
    };
    let bytes = bottom.counts.data_bytes();
    if shape.k > 0 && bytes <= shape::capacity_bytes(shape, shape.k) {
        let offset = bottom.extents.first().map_or(0, Extent::offset);
        sink.report(offset, format!("the bottom level holds only {bytes} bytes"));
    }
}

/// I5.
pub(super) fn check_skips(meta: &IndexMeta, sink: &mut CheckSink) {
    for pair in meta.main.levels.windows(2) {
        let [upper, lower] = pair else { continue };
        if !prepare::may_lead_to(&meta.shape, upper.rank, lower) {
            let offset = upper.extents.first().map_or(0, Extent::offset);
            let blocks = lower.counts.blocks;
            sink.report(
                offset,
                format!("level {} leads to {blocks} blocks, which is too many", upper.rank),
            );
        }
    }
}
