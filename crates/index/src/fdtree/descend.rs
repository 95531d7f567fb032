//! FD-tree: from one pass of a merge to the next.

use std::sync::Arc;

use esker_format::meta::MergeScope;

use super::merge::LevelMerge;
use super::prepare::Incoming;
use super::{FdTreeIndex, two_level};
use crate::build::insert::Insert;
use crate::merge::group::Group;
use crate::merge::stage::Stage;
use crate::merge::{Inputs, Phase};
use crate::run::tree::Tree;

impl LevelMerge {
    /// FD-tree: merges the new level with the next level down, if it is too large for its own
    /// number. False when the merge is complete. No I/O.
    pub(super) fn descend(&mut self, index: &FdTreeIndex<'_>) -> bool {
        let merge = &mut self.merge;
        if merge.scheme.tightens() || merge.inputs.scope.is_of_history() {
            return false;
        }
        let written = merge.insert.meta();
        let Some(data) = written.levels.last() else { return false };
        let (rank, bytes) = (data.rank, data.counts.data_bytes());
        if merge.inputs.scope.is_full() {
            merge.inputs.shape =
                two_level::grown(index.tree.sizes, rank, bytes, index.kappa0_bytes());
        }
        let Inputs { shape, below, .. } = &merge.inputs;
        let Some(rank) = two_level::next(shape, rank, bytes, below, self.to_bottom) else {
            return false;
        };
        let entries = data.counts.data_entries();
        let pass = two_level::pass(shape, below, Incoming { data_bytes: bytes, entries }, rank)
            .with_codec(merge.plan.codec);
        let (mut upper, mut fences) = merge.insert.take_written();
        // Only this merge leads to it.
        merge.leftover.extend(upper.extents().copied());
        let levels = upper.levels.len() + pass.levels;
        upper.levels.extend_from_slice(below);
        fences.extend(merge.below_fences());
        let purpose = merge.which.purpose();
        merge.stage = Stage::new(index.reader().clone(), purpose);
        merge.stage.add_levels(&Tree::written(Arc::new(upper), fences), levels, 0, None);
        merge.insert = Insert::new(&pass.plan, index.reader(), purpose);
        merge.inputs.below = below.get(pass.levels..).unwrap_or_default().to_vec();
        merge.inputs.below_fences =
            merge.inputs.below_fences.split_off(pass.levels.min(merge.inputs.below_fences.len()));
        merge.inputs.levels += pass.levels;
        merge.inputs.scope = if pass.full { MergeScope::Full } else { MergeScope::Upper };
        merge.plan = pass.plan;
        (merge.group, merge.between_groups) = (Group::none(), true);
        merge.phase = Phase::Moving;
        true
    }
}
