//! Recorded sizes of levels and runs, compared with the sizes that the checker finds.

use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, TreeMeta};
use esker_format::ptr::Extent;

use super::CheckSink;

/// The sequence ranges of runs are disjoint and descending.
pub(super) fn check_order_of_runs(meta: &IndexMeta, sink: &mut CheckSink) {
    check_order(meta.sorted_runs.iter().chain([&meta.main]), meta.log_needed_seq(), sink);
}

/// The sequence ranges of trees, newest first, are disjoint and descending, and no number is above
/// `most`.
pub(super) fn check_order<'a>(
    trees: impl Iterator<Item = &'a TreeMeta>,
    most: Seq,
    sink: &mut CheckSink,
) {
    let mut newer: Option<Seq> = None;
    for level in trees.flat_map(|tree| &tree.levels).filter(|level| level.counts.data_entries() > 0)
    {
        let (oldest, newest) = level.seqs;
        let offset = level.extents.first().map_or(0, Extent::offset);
        if newest > most || newer.is_some_and(|newer| newest >= newer) {
            sink.report(offset, format!("a run reaches up to number {newest}"));
        }
        newer = Some(oldest);
    }
}

/// Units of the blocks of a level with scattered blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units {
    pub data: u64,
    pub nodes: u64,
}

impl Units {
    /// The same with `units` more.
    pub fn with(self, units: u64, is_node: bool) -> Self {
        let (data, nodes) = if is_node { (0, units) } else { (units, 0) };
        Self { data: self.data + data, nodes: self.nodes + nodes }
    }
}
