//! Shortens a failing history: takes out runs of operations, then changes of batches, as long as
//! the rest still fails the same way.

use esker_harness::minimise::shorten_within;

use crate::history::Op;

/// A shorter history that still fails; `fails` says whether one does. Calls it at most
/// `tries_max` times.
pub fn minimise(ops: &[Op], tries_max: usize, fails: impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let mut tries = 0;
    let ops = shorten_within(ops, tries_max, &mut tries, &fails);
    thin_batches(ops, tries_max.saturating_sub(tries), &fails)
}

/// Takes changes out of batches, one at a time.
fn thin_batches(mut ops: Vec<Op>, tries_max: usize, fails: &impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let mut tries = 0;
    for at in 0..ops.len() {
        let mut change = 0;
        while tries < tries_max {
            let mut thinner = ops.clone();
            match thinner.get_mut(at) {
                Some(Op::Commit { changes, .. }) if change < changes.len() && changes.len() > 1 => {
                    changes.remove(change);
                }
                _ => break,
            }
            tries += 1;
            if fails(&thinner) {
                ops = thinner;
            } else {
                change += 1;
            }
        }
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario;

    #[test]
    fn only_what_matters_is_left() {
        let ops = scenario::load(0).ops;
        let needs = |ops: &[Op]| {
            let syncs = ops.iter().filter(|op| matches!(op, Op::Persist)).count();
            let creates = ops.iter().any(|op| matches!(op, Op::Create(_)));
            syncs >= 2 && creates
        };
        assert!(needs(&ops));
        let shortest = minimise(&ops, 2_000, needs);
        assert_eq!(shortest.len(), 3, "{shortest:?}");
    }
}
