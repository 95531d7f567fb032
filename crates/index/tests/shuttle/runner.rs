//! Runs a scenario under schedules, and counts them.
//!
//! Of a scenario's schedules a fifth chooses each step at random and four fifths change threads
//! at few chosen points (PCT), which is what finds most mistakes soonest: most of them need one
//! thread to go far between two steps of another. Seeds are always the same, except for the last
//! fifth, whose seed is printed. A failure prints its schedule, to be repeated with
//! `shuttle::replay`.

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_substrate::planted::{Mistake, with};
use esker_testkit::counts::{Counts, budget};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

const SEED: u64 = 0x5EED;

/// Schedules of all scenarios of this binary so far.
static TOTAL: AtomicUsize = AtomicUsize::new(0);

/// Runs `body` under about `runs` schedules, times `ESKER_TEST_BUDGET`.
///
/// # Panics
/// When one of them fails.
pub fn schedules(name: &str, runs: usize, body: fn()) {
    let fifth = runs.div_ceil(5) * budget() as usize;
    let fresh = RandomState::new().hash_one(name);
    // Captured, and so shown when the test fails.
    println!("{name}: the seed of the day is {fresh}");
    let done = run(RandomScheduler::new_from_seed(SEED, fifth), body)
        + run(PctScheduler::new_from_seed(SEED, 3, 2 * fifth), body)
        + run(PctScheduler::new_from_seed(SEED, 5, fifth), body)
        + run(PctScheduler::new_from_seed(fresh, 3, fifth), body);
    let total = TOTAL.fetch_add(done, Ordering::Relaxed) + done;
    tell(&format!("shuttle: {name}: {done} schedules, {total} in all so far"));
    count("shuttle", name, "schedules", done);
}

/// Finds `mistake` by one of `bodies`, within `runs` schedules each.
///
/// # Panics
/// When none of them fails.
pub fn hunt(mistake: impl Into<Mistake>, runs: usize, bodies: &[fn()]) {
    let mistake = mistake.into();
    let name = match mistake {
        Mistake::Bug(bug) => format!("{bug:?}"),
        Mistake::Race(race) => format!("{race:?}"),
    };
    let tried = Arc::new(AtomicUsize::new(0));
    let found = bodies.iter().any(|body| {
        let (body, counter) = (*body, Arc::clone(&tried));
        let counted = move || {
            counter.fetch_add(1, Ordering::Relaxed);
            body();
        };
        let attempt = || {
            with(mistake, || {
                run(PctScheduler::new_from_seed(SEED, 3, runs), counted.clone());
                run(RandomScheduler::new_from_seed(SEED, runs), counted.clone());
            });
        };
        panic::catch_unwind(panic::AssertUnwindSafe(attempt)).is_err()
    });
    let tried = tried.load(Ordering::Relaxed);
    assert!(found, "{name} was not found in {tried} schedules");
    tell(&format!("shuttle: {name} found after {tried} schedules"));
    count("shuttle-planted", &name, "schedules until found", tried);
}

fn run(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(scheduler, config).run(body)
}

/// Prints a line that the test runner does not capture.
fn tell(line: &str) {
    let _shown = writeln!(std::io::stdout(), "{line}");
}

/// Leaves a count for the page about tests.
fn count(suite: &'static str, case: &str, what: &str, number: usize) {
    let mut counts = Counts::new(suite, case);
    counts.add(what, number as u64);
    counts.record().expect("counts can be written");
}
