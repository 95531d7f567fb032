//! A cache of whether work is due, computed once for each state of the index.
//!
//! Every write asks. The inputs of the answer change with each run and slice, some thousand writes
//! apart, and computing it takes longer than a write: it looks at all sizes that levels could have,
//! and at the extents of all runs.

use std::sync::Arc;

use esker_format::meta::IndexMeta;

use crate::lsm::choose::pull::Arrivals;

/// The last answer, and the state for which it was computed.
#[derive(Debug, Default)]
pub(super) struct Asked(Option<(Arc<IndexMeta>, Arrivals, bool)>);

impl Asked {
    /// The answer may be another one now, of the same state.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Whether work is due in this state; `work_out` computes it.
    pub fn is_due(
        &mut self,
        durable: &Arc<IndexMeta>,
        arrivals: &Arrivals,
        work_out: impl FnOnce() -> bool,
    ) -> bool {
        match &self.0 {
            Some((last, before, is_due)) if Arc::ptr_eq(last, durable) && before == arrivals => {
                *is_due
            }
            _ => {
                let is_due = work_out();
                self.0 = Some((Arc::clone(durable), *arrivals, is_due));
                is_due
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upkeep::fence_room::FenceRoom;

    #[test]
    fn an_answer_is_worked_out_once_for_each_state() {
        let mut asked = Asked::default();
        let (one, other) = (Arc::new(IndexMeta::default()), Arc::new(IndexMeta::default()));
        let few = Arrivals { room: FenceRoom::ample(10), replaced: 0.5 };
        let many = Arrivals { room: FenceRoom::ample(20), ..few };
        let unasked = || -> bool { panic!("the answer is known") };
        assert!(asked.is_due(&one, &few, || true));
        assert!(asked.is_due(&one, &few, unasked));
        assert!(!asked.is_due(&one, &many, || false));
        assert!(!asked.is_due(&one, &many, unasked));
        assert!(asked.is_due(&other, &many, || true), "as equal as it may be");
        assert!(asked.is_due(&other, &many, unasked));
        asked.forget();
        assert!(!asked.is_due(&other, &many, || false));
    }
}
