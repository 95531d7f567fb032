//! Checks of what is recorded about the levels: L1.

use esker_format::meta::IndexMeta;
use esker_format::ptr::BlockPtr;

use crate::check::{CheckSink, Units};

/// The recorded units equal the actual ones; `found` ends with the counted units of each level,
/// where all of it could be read.
pub(super) fn check_units(meta: &IndexMeta, found: &[Option<Units>], sink: &mut CheckSink) {
    let Some(lsm) = meta.lsm() else { return };
    for (level, found) in lsm.levels.iter().rev().zip(found.iter().rev()) {
        let recorded = Units { data: level.units, nodes: level.node_units };
        let Some(found) = found.filter(|found| *found != recorded) else { continue };
        let offset = level.tree.top.first().map_or(0, BlockPtr::offset);
        sink.report(offset, format!("a level has {found:?}, recorded {recorded:?}"));
    }
}
