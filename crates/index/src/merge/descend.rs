//! FD-tree: from one pass of a merge to the next.

use std::sync::Arc;

use super::{Group, Inputs, Insert, Merge, Phase, Stage, Which};
use crate::Index;
use crate::fdtree::prepare::Incoming;
use crate::fdtree::two_level;
use crate::tree::Tree;

impl Merge {
    /// FD-tree: merges what was written with the next level down, if it is too large for its own.
    /// False when the merge is complete. No I/O.
    pub(super) fn descend(&mut self, tree: &Index) -> bool {
        if self.scheme.tightens() || self.which == Which::Spill {
            return false;
        }
        let written = self.insert.meta();
        let Some(data) = written.levels.last() else { return false };
        let (rank, bytes) = (data.rank, data.counts.data_bytes());
        if self.inputs.full {
            self.inputs.shape = two_level::grown(tree.sizes, rank, bytes, tree.kappa0_bytes());
        }
        let Inputs { shape, below, .. } = &self.inputs;
        let Some(rank) = two_level::next(shape, rank, bytes, below, self.to_bottom) else {
            return false;
        };
        let entries = data.counts.data_entries();
        let pass = two_level::pass(shape, below, Incoming { data_bytes: bytes, entries }, rank)
            .with_codec(self.plan.codec);
        let (mut upper, mut fences) = self.insert.take_written();
        // Only this merge leads to it.
        self.leftover.extend(upper.extents().copied());
        let levels = upper.levels.len() + pass.levels;
        upper.levels.extend_from_slice(below);
        fences.extend(self.below_fences());
        let purpose = self.which.purpose();
        self.stage = Stage::new(tree.reader.clone(), purpose);
        self.stage.add_levels(&Tree::written(Arc::new(upper), fences), levels, 0, None);
        self.insert = Insert::new(&pass.plan, &tree.reader, purpose);
        self.inputs.below = below.get(pass.levels..).unwrap_or_default().to_vec();
        self.inputs.below_fences =
            self.inputs.below_fences.split_off(pass.levels.min(self.inputs.below_fences.len()));
        self.inputs.levels += pass.levels;
        self.inputs.full = pass.full;
        self.plan = pass.plan;
        (self.group, self.between_groups) = (Group::none(), true);
        self.phase = Phase::Moving;
        true
    }
}
