//! Everything at once on a real folder: threads, kills, backups, a device that is full at times.

use std::process::Child;

use esker_substrate::planted::{Bug, with};
use esker_testkit::counts::{Counts, budget};
use esker_testkit::kill::command;
use esker_testkit::soak;

/// Campaigns at a budget of 1.
const CAMPAIGNS: u64 = 3;

#[test]
fn soak_child() {
    if let Ok(plan) = std::env::var(soak::CHILD_PLAN) {
        soak::child(&plan).unwrap();
    }
}

fn spawn(plan: &str) -> std::io::Result<Child> {
    command("soak_child").env(soak::CHILD_PLAN, plan).spawn()
}

/// `ESKER_SOAK_SEED` is the seed of the first campaign: that of one that failed, to see it again as
/// far as threads allow.
#[test]
fn a_store_that_is_used_by_all_at_once_keeps_what_it_promised() {
    let first = std::env::var("ESKER_SOAK_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = first.unwrap_or(1);
    let mut counts = Counts::new("soak", "threads, kills, backups and full devices");
    for seed in first..first + CAMPAIGNS * budget() {
        let folder = tempfile::tempdir().unwrap();
        if let Err(violation) = soak::campaign(seed, folder.path(), &mut spawn, &mut counts) {
            let kept = folder.keep();
            panic!("{violation}; what is left is in {}", kept.display());
        }
        counts.add("campaigns", 1);
    }
    counts.record().unwrap();
}

/// The process that judges recovers with a mistake: data that was acknowledged to the killed
/// process is missing.
#[test]
fn a_recovery_that_forgets_values_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut counts = Counts::new("soak", "planted");
    let hunt = || {
        (1..9).find_map(|seed| {
            let folder = folder.path().join(seed.to_string());
            soak::campaign(seed, &folder, &mut spawn, &mut counts).err()
        })
    };
    assert!(with(Bug::ValueNotClaimed, hunt).is_some(), "nothing was found");
}
