//! Histories with named versions and with values that expire, over power cuts at every step.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{Model, assert_sound};
use esker::{Db, DbBuilder, History, Keyspace, KeyspaceOptions, Past, SimRuntime};
use esker_device::sim::SimDevice;
use esker_harness::counts::{Counts, budget};
use esker_harness::crash::{each, limited};
use esker_harness::random::Random;
use esker_substrate::planted::{self, Bug};

/// Versions that the keyspace keeps besides those with names.
const KEPT: u64 = 30;

type Names = BTreeMap<String, u64>;

fn on(disk: &Arc<SimDevice>, runtime: &Arc<SimRuntime>) -> DbBuilder {
    let builder = Db::builder_on(Arc::clone(disk) as _).memory_budget(256 << 10);
    builder.log_segment_bytes(16 << 10).inline_merges(1).runtime(Arc::clone(runtime) as _)
}

fn at_second(second: u64) -> Arc<SimRuntime> {
    let runtime = Arc::new(SimRuntime::new(1));
    runtime.set_unix_time(Duration::from_secs(second));
    runtime
}

fn contents(past: &Past) -> Model {
    past.iter().unwrap().map(Result::unwrap).collect()
}

/// A store whose versions get names and lose them while its keys are overwritten and expire.
struct Life {
    db: Db,
    keyspace: Keyspace,
    runtime: Arc<SimRuntime>,
    random: Random,
    /// Values, and the millisecond at which they expire.
    present: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    /// What each version has.
    states: BTreeMap<u64, Model>,
    names: Names,
    millis: u64,
}

impl Life {
    fn new(disk: &Arc<SimDevice>, seed: u64) -> Self {
        let runtime = at_second(1_000);
        let db = on(disk, &runtime).open().unwrap();
        let options = KeyspaceOptions::default().memtable_bytes(Some(2 << 10));
        let options = options.history(History::Newest(KEPT)).inline_bytes_max(150);
        let keyspace = db.keyspace("past", options).unwrap();
        let states = BTreeMap::from([(db.version(), Model::new())]);
        Self {
            db,
            keyspace,
            runtime,
            random: Random::new(seed),
            present: BTreeMap::new(),
            states,
            names: Names::new(),
            millis: 1_000_000,
        }
    }

    fn step(&mut self) {
        if self.random.percent(8) { self.name() } else { self.commit() }
    }

    fn commit(&mut self) {
        let millis = self.random.below(60);
        self.runtime.advance(Duration::from_millis(millis));
        self.millis += millis;
        let key = format!("key {:02}", self.random.below(25)).into_bytes();
        let value = self.random.bytes(self.random.within(&(20..=230)));
        match self.random.below(4) {
            0 => {
                self.keyspace.remove(&key).unwrap();
                self.present.remove(&key);
            }
            1 => {
                let ttl = 1 + self.random.below(400);
                self.keyspace.insert_with_ttl(&key, &value, Duration::from_millis(ttl)).unwrap();
                self.present.insert(key, (value, self.millis + ttl));
            }
            _ => {
                self.keyspace.insert(&key, &value).unwrap();
                self.present.insert(key, (value, u64::MAX));
            }
        }
        let lives = self.present.iter().filter(|(_, (_, until))| *until > self.millis);
        let state = lives.map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        self.states.insert(self.db.version(), state);
    }

    fn name(&mut self) {
        let name = format!("name {}", self.random.below(3));
        if self.names.remove(&name).is_some() {
            return self.db.unpin(&name).unwrap();
        }
        let version = self.db.version() - self.random.below(KEPT.min(self.states.len() as u64));
        self.db.pin(&name, version).unwrap();
        self.names.insert(name, version);
    }

    fn state(&self, version: u64) -> &Model {
        self.states.range(..=version).next_back().unwrap().1
    }

    /// A store that a power cut left behind has the names of one of `possible`, every named version
    /// is what it was, and so is every version from the oldest name or the oldest of [`KEPT`] on.
    fn compare(&self, disk: &Arc<SimDevice>, possible: &[&Names]) -> Db {
        let db = on(disk, &at_second(5_000)).open().unwrap();
        let found: Names =
            db.named_versions().unwrap().into_iter().map(|of| (of.name, of.version)).collect();
        assert!(possible.contains(&&found), "{found:?} of {possible:?}");
        let keyspace = db.open_keyspace("past").unwrap().unwrap();
        for (name, version) in &found {
            let past = keyspace.at_named(name).unwrap();
            assert_eq!((past.version(), contents(&past)), (*version, self.state(*version).clone()));
        }
        let newest = db.version();
        let recent = (newest + 1).saturating_sub(KEPT);
        let from = found.values().copied().fold(recent, u64::min);
        for version in from.max(*self.states.keys().next().unwrap())..=newest {
            let past = keyspace.at(version).unwrap();
            assert_eq!(contents(&past), *self.state(version), "version {version}");
        }
        assert_sound(&db);
        db
    }
}

/// Cuts the power of a life everywhere; the number of cuts, and of past indexes that were given up.
fn cut_everywhere(seed: u64, limit: u64) -> (u64, u64) {
    let disk = Arc::new(SimDevice::new());
    let mut life = Life::new(&disk, seed);
    (0..250).for_each(|_| life.step());
    disk.record();
    let mut names = vec![life.names.clone()];
    for step in 1..=200 {
        life.step();
        names.push(life.names.clone());
        disk.mark(step);
    }
    let trace = disk.take_trace().unwrap();
    let visited = each(&trace, &limited(seed, limit), |state, disk| {
        let done = state.acknowledged().map_or(0, |mark| mark as usize);
        let possible: Vec<&Names> = names[done..].iter().take(2).collect();
        let db = life.compare(disk, &possible);
        let keyspace = db.open_keyspace("past").unwrap().unwrap();
        keyspace.insert("key 01", "written after the cut").unwrap();
        db.compact().unwrap();
        assert_sound(&db);
        Ok(())
    });
    let stats = life.db.stats().unwrap().keyspaces;
    let stats = stats.iter().find(|keyspace| keyspace.name == "past").unwrap();
    (visited.unwrap().visited, stats.history_from.unwrap())
}

#[test]
fn names_and_expired_values_survive_power_cuts() {
    let mut counts = Counts::new("history_crashes", "names and expiry");
    for seed in 0..5 * budget() {
        let (crashes, oldest) = cut_everywhere(seed, 60);
        counts.add("crashes", crashes);
        counts.add("lives that gave versions up", u64::from(oldest > 100));
    }
    assert!(counts.get("crashes") > 200);
    assert!(counts.get("lives that gave versions up") > 1);
    counts.record().unwrap();
}

/// What the same crashes would show.
#[test]
fn power_cuts_would_show_forgotten_names_and_wrong_expiry() {
    for bug in [Bug::NamesNotPinned, Bug::SplitExpiresNow] {
        let is_found = |seed| {
            std::panic::catch_unwind(|| planted::with(bug, || cut_everywhere(seed, 60))).is_err()
        };
        assert!((0..6).any(is_found), "{bug:?}");
    }
}
