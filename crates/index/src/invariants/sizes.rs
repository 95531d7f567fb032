//! What is recorded of levels and runs: their sizes and their numbers.

use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LevelMeta};
use esker_format::ptr::{BlockPtr, Extent};

use super::CheckSink;
use crate::fdtree::{prepare, shape};

/// I3.
pub(super) fn check_sizes(meta: &IndexMeta, sink: &mut CheckSink) {
    let shape = &meta.shape;
    for level in &meta.main.levels {
        let offset = level.extents.first().map_or(0, Extent::offset);
        let bytes = level.counts.data_bytes();
        if bytes > shape::capacity_bytes(shape, level.rank) {
            sink.report(offset, format!("I3: level {} holds {bytes} bytes", level.rank));
        }
    }
}

/// I4.
pub(super) fn check_bottom(meta: &IndexMeta, sink: &mut CheckSink) {
    let shape = &meta.shape;
    let has_data = |level: &&LevelMeta| level.counts.data_entries() > 0;
    let bottom = meta.main.levels.last().filter(has_data);
    let Some(bottom) = bottom.filter(|level| level.rank == shape::bottom_rank(shape)) else {
        return;
    };
    let bytes = bottom.counts.data_bytes();
    if shape.k > 0 && bytes <= shape::capacity_bytes(shape, shape.k) {
        let offset = bottom.extents.first().map_or(0, Extent::offset);
        sink.report(offset, format!("I4: the bottom holds only {bytes} bytes"));
    }
}

/// I5.
pub(super) fn check_skips(meta: &IndexMeta, sink: &mut CheckSink) {
    for pair in meta.main.levels.windows(2) {
        let [upper, lower] = pair else { continue };
        if !prepare::may_lead_to(&meta.shape, upper.rank, lower) {
            let offset = upper.extents.first().map_or(0, Extent::offset);
            let blocks = lower.counts.blocks;
            sink.report(offset, format!("I5: level {} leads to {blocks} blocks", upper.rank));
        }
    }
}

/// I8.
pub(super) fn check_order_of_runs(meta: &IndexMeta, sink: &mut CheckSink) {
    let mut newer: Option<Seq> = None;
    let levels = meta.spills.iter().chain([&meta.main]).flat_map(|tree| &tree.levels);
    for level in levels.filter(|level| level.counts.data_entries() > 0) {
        let (oldest, newest) = level.seqs;
        let offset = level.extents.first().map_or(0, Extent::offset);
        if newest > meta.log_needed_seq() || newer.is_some_and(|newer| newest >= newer) {
            sink.report(offset, format!("I8: a run reaches up to number {newest}"));
        }
        newer = Some(oldest);
    }
}

/// Units of the blocks of a level of an LSM index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Units {
    data: u64,
    nodes: u64,
}

impl Units {
    /// With so many more.
    pub fn with(self, units: u64, is_node: bool) -> Self {
        let (data, nodes) = if is_node { (0, units) } else { (units, 0) };
        Self { data: self.data + data, nodes: self.nodes + nodes }
    }
}

/// L1; `found` ends with what was found of each level, where all of it could be read.
pub(super) fn check_units(meta: &IndexMeta, found: &[Option<Units>], sink: &mut CheckSink) {
    let Some(lsm) = &meta.lsm else { return };
    for (level, found) in lsm.levels.iter().rev().zip(found.iter().rev()) {
        let recorded = Units { data: level.units, nodes: level.node_units };
        let Some(found) = found.filter(|found| *found != recorded) else { continue };
        let offset = level.tree.top.first().map_or(0, BlockPtr::offset);
        sink.report(offset, format!("L1: a level has {found:?}, recorded {recorded:?}"));
    }
}
