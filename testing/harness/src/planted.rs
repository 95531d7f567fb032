//! Bugs on purpose: each must make a suite fail, and the same attempt must pass without it. A suite
//! that cannot fail proves nothing.

use crate::counts::Counts;
use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// The discovery of a bug.
#[derive(Debug)]
pub struct Finding {
    /// The violation that was seen.
    pub violation: Violation,
    /// The number of attempts, with the one that found it.
    pub attempts: u64,
    /// What they had judged when it was seen.
    pub judged: u64,
}

/// Runs attempts with a bug until one finds a violation, then makes sure that this one passes
/// without the bug. `with_bug` runs what it is given with the bug; an attempt adds what it judges
/// to the counts "judged" and "judged within them".
///
/// # Errors
/// When no attempt finds anything, when one cannot do its work, or when the one that found the bug
/// fails without it.
pub fn hunt<T>(
    attempts: impl IntoIterator<Item = T>,
    with_bug: impl Fn(&mut dyn FnMut() -> Verdict) -> Verdict,
    mut attempt: impl FnMut(&T, &mut Counts) -> Verdict,
) -> Verdict<Finding> {
    let mut counts = Counts::new("planted", "");
    let mut tried = 0;
    for each in attempts {
        tried += 1;
        let verdict = with_bug(&mut || without_panic(|| attempt(&each, &mut counts)));
        let judged = counts.get("judged") + counts.get("judged within them");
        let violation = match verdict {
            Ok(()) => continue,
            Err(violation) if violation.oracle == Oracle::Harness => return Err(violation),
            Err(violation) => violation,
        };
        without_panic(|| attempt(&each, &mut counts)).map_err(|v| v.at("without any bug"))?;
        return Ok(Finding { violation, attempts: tried, judged });
    }
    let judged = counts.get("judged") + counts.get("judged within them");
    let detail = format!("not found by {tried} attempts, {judged} states judged");
    Err(Violation::new(Oracle::Harness, detail))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Hunts with attempts that fail as `fails` says of the attempt and of whether there is a bug.
    fn hunted(fails: impl Fn(u64, bool) -> Option<Oracle>) -> Verdict<Finding> {
        let is_there = Cell::new(false);
        let with_bug = |body: &mut dyn FnMut() -> Verdict| {
            is_there.set(true);
            let verdict = body();
            is_there.set(false);
            verdict
        };
        hunt(0..5_u64, with_bug, |attempt, counts| {
            counts.add("judged", 10);
            counts.add("judged within them", 1);
            let oracle = fails(*attempt, is_there.get());
            assert_ne!(oracle, Some(Oracle::NoPanic), "a panic");
            oracle.map_or(Ok(()), |oracle| Err(Violation::new(oracle, "wrong")))
        })
    }

    #[test]
    fn the_first_attempt_that_fails_only_with_the_bug_ends_the_hunt() {
        for oracle in [Oracle::Opens, Oracle::NoPanic] {
            let fails = |attempt, is_there| (attempt >= 2 && is_there).then_some(oracle);
            let finding = hunted(fails).unwrap();
            assert_eq!((finding.attempts, finding.judged), (3, 33));
            assert_eq!(finding.violation.oracle, oracle);
        }
    }

    #[test]
    fn what_fails_without_the_bug_too_or_never_is_no_finding() {
        let both = hunted(|_, _| Some(Oracle::Opens)).unwrap_err();
        assert_eq!((both.oracle, both.place.as_str()), (Oracle::Opens, "without any bug"));
        let never = hunted(|_, _| None).unwrap_err();
        assert_eq!(never.oracle, Oracle::Harness);
        assert_eq!(never.detail, "not found by 5 attempts, 55 states judged");
        let unable = hunted(|_, is_there| is_there.then_some(Oracle::Harness)).unwrap_err();
        assert_eq!(unable.detail, "wrong");
    }
}
