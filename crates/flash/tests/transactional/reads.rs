//! Every read answers what the model holds, and every invariant holds after every operation.

use esker_flash::ftl::{mvftl, xftl};
use esker_harness::random::Random;

use crate::budget;
use crate::history::{Ended, Session};
use crate::layer::{Flash, Layer, empty};

/// A history of so many operations. Answers how many were done, not refused.
pub fn history<L: Layer>(seed: u64, operations: u64) -> Result<u64, String> {
    let random = Random::new(seed);
    let mut session = Session::new(empty::<L>());
    let mut done = 0;
    for at in 0..operations {
        let op = session.next_op(&random);
        let place = |wrong| format!("{}, seed {seed}, operation {at}: {wrong}", L::NAME);
        done += u64::from(session.apply(op).map_err(place)? == Ended::Done);
        session.layer.check().map_err(|error| place(format!("{op:?}: {error}")))?;
        if at % 64 == 0 {
            session.compare_all().map_err(place)?;
        }
    }
    session.compare_all().map_err(|wrong| format!("{}, seed {seed}: {wrong}", L::NAME))?;
    Ok(done)
}

fn histories<L: Layer>() {
    for seed in 0..24 * budget() {
        let done = history::<L>(seed, 1500).unwrap();
        assert!(done > 1000, "{}, seed {seed}: only {done} operations were done", L::NAME);
    }
}

#[test]
fn mvftl_answers_what_the_model_holds() {
    histories::<mvftl::MvFtl<Flash>>();
}

#[test]
fn xftl_answers_what_the_model_holds() {
    histories::<xftl::XFtl<Flash>>();
}

/// The histories are worth something only if they meet everything that the layers do.
#[test]
fn histories_meet_collections_compactions_dumps_and_checkpoints() {
    let random = Random::new(7);
    let mut mv = Session::new(empty::<mvftl::MvFtl<Flash>>());
    let mut x = Session::new(empty::<xftl::XFtl<Flash>>());
    let mut diffs = 0;
    for _ in 0..6000 {
        mv.apply(mv.next_op(&random)).unwrap();
        x.apply(x.next_op(&random)).unwrap();
        diffs = diffs.max(mv.layer.committed_diffs());
    }
    let (mv, x) = (mv.layer.activity(), x.layer.activity());
    assert!(mv.commits > 100 && mv.commit_pages > mv.commits, "{mv:?}");
    assert!(mv.moved_pages > 10 && mv.compactions > 3 && mv.dumps > 3, "{mv:?}");
    assert!(diffs > 2, "{diffs} diffs at a time");
    assert!(x.commits > 100 && x.commit_pages > x.commits, "{x:?}");
    assert!(x.noted_pages > 10 && x.checkpoints > 10, "{x:?}");
}

/// Which of several equal blocks is collected follows from the history alone.
fn twice_the_same<L: Layer>() {
    let run = || {
        let random = Random::new(3);
        let mut session = Session::new(empty::<L>());
        for _ in 0..3000 {
            session.apply(session.next_op(&random)).unwrap();
        }
        (*session.layer.counters(), session.layer.wear())
    };
    assert_eq!(run(), run(), "{}", L::NAME);
}

#[test]
fn one_history_has_one_result() {
    twice_the_same::<mvftl::MvFtl<Flash>>();
    twice_the_same::<xftl::XFtl<Flash>>();
}
