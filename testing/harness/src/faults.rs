//! Every operation of a device fails, one at a time: the cases, and the loop over them.

use std::fmt;

use esker_device::sim::{Effect, Failure, Fault, FaultPlan, OpKind, SyncLoss};

use crate::violation::{Verdict, without_panic};

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kind of operation.
    pub kind: OpKind,
    /// Which of them, from 0.
    pub nth: u64,
    /// What happens to it.
    pub effect: Effect,
    /// Whether all later ones fail as well.
    pub is_sticky: bool,
}

impl Case {
    /// The fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let fault = Fault::new(self.effect).on(self.kind).nth(self.nth);
        if self.is_sticky { fault.sticky() } else { fault }
    }

    /// The plan that has this fault alone.
    #[must_use]
    pub fn plan(&self) -> FaultPlan {
        FaultPlan::new().with(self.fault())
    }

    /// Whether the operation is a sync that drops what it should keep from the cache too.
    #[must_use]
    pub fn drops(&self) -> bool {
        self.effect == Effect::FailSync(SyncLoss::Dropped)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, nth, effect, is_sticky } = self;
        let sticky = if *is_sticky { ", and all after it" } else { "" };
        write!(f, "{kind:?} {nth}{sticky}: {effect:?}")
    }
}

/// The faults of a suite besides those of every suite.
#[derive(Clone, Copy, Debug)]
pub struct Effects {
    /// Whether the power goes off with an operation.
    pub power_off: bool,
    /// Those of a write, each with whether it continues to strike.
    pub on_write: &'static [(Effect, bool)],
    /// Those of a read.
    pub on_read: &'static [(Effect, bool)],
}

/// The faults that may strike an operation of a kind, each with whether it continues to strike.
#[must_use]
pub fn effects_on(kind: OpKind, effects: &Effects) -> Vec<(Effect, bool)> {
    let mut all = vec![(Effect::Fail(Failure::Io), false), (Effect::Fail(Failure::Io), true)];
    if effects.power_off {
        all.push((Effect::PowerOff, false));
    }
    if matches!(kind, OpKind::Write | OpKind::Preallocate | OpKind::Create) {
        all.push((Effect::Fail(Failure::NoSpace), false));
        all.push((Effect::Fail(Failure::NoSpace), true));
    }
    match kind {
        OpKind::Write => all.extend(effects.on_write),
        OpKind::Read => all.extend(effects.on_read),
        OpKind::Sync | OpKind::SyncDir => {
            all.extend(SyncLoss::ALL.map(|loss| (Effect::FailSync(loss), false)));
        }
        _ => {}
    }
    all
}

/// Calls `run` with every effect on every operation of some kinds, of each of which there are so
/// many in a run without a fault. Of more than `runs_of_a_kind` operations of a kind about as many
/// are taken, evenly, for each effect.
///
/// # Errors
/// The first violation, a panic included, with its case.
pub fn each(
    operations: impl IntoIterator<Item = (OpKind, u64)>,
    runs_of_a_kind: u64,
    effects: &Effects,
    mut run: impl FnMut(Case) -> Verdict,
) -> Verdict {
    for (kind, operations) in operations {
        let stride = (operations / runs_of_a_kind.max(1)).max(1);
        for (turn, (effect, is_sticky)) in effects_on(kind, effects).into_iter().enumerate() {
            // Each effect starts at another operation, so that together they reach more operations.
            for nth in (turn as u64 % stride..operations).step_by(stride as usize) {
                let case = Case { kind, nth, effect, is_sticky };
                without_panic(|| run(case)).map_err(|violation| violation.at(case))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violation::{Oracle, Violation};

    const FEW: Effects = Effects { power_off: false, on_write: &[], on_read: &[] };

    #[test]
    fn few_operations_are_all_taken_and_many_evenly() {
        let taken = |operations: u64, runs: u64| {
            let mut taken = Vec::new();
            let verdict = each([(OpKind::Read, operations)], runs, &FEW, |case| {
                taken.push((case.is_sticky, case.nth));
                Ok(())
            });
            verdict.unwrap();
            taken
        };
        assert_eq!(taken(2, 5), [(false, 0), (false, 1), (true, 0), (true, 1)]);
        assert_eq!(
            taken(6, 3),
            [false, true].map(|s| [0, 2, 4].map(|n| (s, n + u64::from(s)))).concat()
        );
        assert_eq!(taken(0, 3), []);
    }

    #[test]
    fn what_fails_is_named_with_its_case() {
        let fails = |case: Case| match case.nth {
            1 => Err(Violation::new(Oracle::WorksOn, "no")),
            _ => Ok(()),
        };
        let violation = each([(OpKind::Sync, 3)], 3, &FEW, fails).unwrap_err();
        assert_eq!(
            (violation.oracle, violation.place.as_str()),
            (Oracle::WorksOn, "Sync 1: Fail(Io)")
        );
        let panics = |case: Case| -> Verdict { panic!("in {}", case.nth) };
        let violation = each([(OpKind::Sync, 3)], 3, &FEW, panics).unwrap_err();
        assert_eq!((violation.oracle, violation.detail.as_str()), (Oracle::NoPanic, "in 0"));
    }
}
