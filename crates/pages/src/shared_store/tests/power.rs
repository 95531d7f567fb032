//! The power goes out while several processes have a store open.

use esker_harness::crash;

use super::*;

/// What a power cut leaves of a store that several processes had open.
pub(super) fn judge(tried: &[(u64, Contents)], least: u64, device: &SimDevice) {
    let file = device.open("pages", Open::Existing, Caching::Buffered).unwrap();
    let store = PageStore::open(Arc::clone(&file), options()).unwrap();
    let newest = store.pin();
    assert!(newest.version() >= least, "{} is before {least}", newest.version());
    let found = (newest.version(), contents(&newest));
    assert!(tried.contains(&found), "version {} was never made", found.0);
    assert!(store.check().unwrap().accounted);
    drop((newest, store));
    let shared = SimShared::new(WORDS);
    let meeting = || Arc::new(shared.another());
    let leader = PageStore::open_leader(Arc::clone(&file), options(), meeting()).unwrap();
    let follower = PageStore::open_follower(file, options(), meeting()).unwrap();
    let held = follower.begin_read().unwrap();
    assert_eq!((held.version(), contents(&held)), found);
    count_up(&leader, 7);
    leader.checkpoint().unwrap();
    assert_eq!(counted(&follower.begin_read().unwrap()).unwrap(), Some(7));
    assert_eq!(contents(&held), found.1);
    assert!(leader.check().unwrap().accounted && follower.check().unwrap().accounted);
}

/// Cuts the power in a history, and judges some of what that may leave.
fn cut_power(seed: u64, history: impl FnOnce(&mut World, &Random)) -> (u64, u64) {
    let random = Random::new(seed);
    let mut world = World::new();
    world.device.record();
    world.device.mark(0);
    history(&mut world, &random);
    let trace = world.device.take_trace().unwrap();
    let mut judged = 0;
    let crashes = crash::each(&trace, &crash::limited(seed, 120), |state, device| {
        // Before there is a store nothing was promised.
        if let Some(least) = state.acknowledged().filter(|least| *least > 0) {
            judged += 1;
            judge(&world.tried, least, device);
        }
        Ok(())
    });
    crashes.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    (judged, world.taken_over)
}

#[test]
fn a_power_cut_of_all_leaves_what_was_promised() {
    let mut counts = Counts::new("page-store", "a power cut of all processes of a store");
    let mut add = |(judged, taken_over)| {
        counts.add("runs", 1);
        counts.add("judged", judged);
        counts.add("others write", taken_over);
    };
    for seed in 0..8 * budget() {
        // Processes hand the writing over.
        add(cut_power(seed, |world, random| {
            world.hands_over = true;
            world.lead(u64::MAX, u64::MAX).unwrap();
            (0..60).for_each(|_| world.step(random).unwrap());
        }));
        // One dies, and another takes over.
        add(cut_power(seed, |world, random| {
            let opened = world.lead(30 + random.below(60), u64::MAX);
            let _died = opened.and_then(|()| (0..60).try_for_each(|_| world.step(random)));
            world.go_on(random);
        }));
    }
    counts.record().unwrap();
    let least = [("judged", 800), ("others write", 10)];
    assert!(least.iter().all(|(name, least)| counts.get(name) > *least), "{counts:?}");
}
