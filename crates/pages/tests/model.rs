//! Random histories give what an ordinary list of pages gives, in every version that is held.

mod common;
#[path = "common/session.rs"]
mod session;

use common::*;
use esker_harness::counts::budget;
use session::Session;

#[test]
fn histories_read_as_the_model() {
    let mut judged = 0;
    let (mut moved, mut emptied) = (0, 0);
    for seed in 0..60 * budget() {
        let mut options = small_of(seed);
        if seed % 3 == 1 {
            options.delta_bytes = 0;
        }
        let mut session = Session::start(disk(), options).unwrap();
        for (at, op) in history(seed, 400, 60).iter().enumerate() {
            session
                .apply(op)
                .unwrap_or_else(|e| panic!("seed {seed}, operation {at}, {op:?}: {e}"));
            if at % 20 == 0 {
                session.judge().unwrap_or_else(|e| panic!("seed {seed}, after {at}: {e}"));
                judged += 1;
            }
        }
        let stats = session.store().stats();
        moved += stats.moved_pages;
        emptied += stats.emptied_segments;
        session.reopen().unwrap();
        judged += 1;
    }
    count("random histories against the model", 60 * budget(), judged);
    assert!(moved > 500 && emptied > 100, "{moved} pages of {emptied} segments");
}
