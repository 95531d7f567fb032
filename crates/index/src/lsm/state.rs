//! The state that a slice begins with: the durable record, and the trees that it names.

use std::sync::Arc;

use esker_format::meta::{IndexMeta, LsmLevel, LsmMeta};
use esker_substrate::error::{Error, Result};

use super::LsmIndex;
use crate::read::source::{Part, Run};
use crate::read::view::View;
use crate::run::tree::Tree;

/// An LSM index between two slices.
pub(super) struct State {
    pub durable: Arc<IndexMeta>,
    /// Newest first; as in the durable state.
    pub runs: Vec<Run>,
    /// From the first down.
    pub levels: Vec<Arc<Tree>>,
}

impl State {
    /// The durable state of the levels.
    pub fn lsm(&self) -> &LsmMeta {
        static NONE: LsmMeta =
            LsmMeta { levels: Vec::new(), gone: Vec::new(), cursor: Vec::new(), learnt: None };
        self.durable.lsm().unwrap_or(&NONE)
    }

    /// The durable record of a level.
    pub fn level(&self, number: usize) -> Option<&LsmLevel> {
        self.lsm().levels.get(number)
    }
}

impl LsmIndex<'_> {
    /// The state, and the trees that readers see.
    pub(super) fn lsm_state(&self) -> Result<State> {
        // The durable state and the view change together under this lock.
        let _recording = self.hold_durable();
        let durable = self.meta();
        let view = self.view();
        let levels = durable.lsm().map_or(0, |lsm| lsm.levels.len());
        let (runs, levels) = split(&view, durable.sorted_runs.len(), levels).ok_or_else(lost)?;
        let runs = runs.iter().filter_map(Run::of).cloned().collect();
        let tree = |part: &Part| Run::of(part).map(|run| Arc::clone(&run.tree));
        let levels = levels.iter().filter_map(tree).collect();
        Ok(State { durable, runs, levels })
    }
}

/// The runs and the levels among a view's parts.
fn split(view: &View, runs: usize, levels: usize) -> Option<(&[Part], &[Part])> {
    let first = view.parts.len().checked_sub(runs + levels)?;
    view.parts.get(first..)?.split_at_checked(runs)
}

fn lost() -> Error {
    Error::Invalid { what: "a view has other runs and levels than the manifest".into() }
}
