//! The judge can condemn: each promise, broken on purpose in the expectation, is named.

use std::sync::Arc;

use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_testkit::config::Config;
use esker_testkit::history::{Op, keyspace_name};
use esker_testkit::model::{Change, Model, Write};
use esker_testkit::recovery::{Depth, Expectation, Point, judge};
use esker_testkit::scenario::synced;
use esker_testkit::session::{Outcome, Session};
use esker_testkit::violation::{Oracle, Verdict};

/// A store with three commits, each of one operation, and what is known of it.
struct Sample {
    device: Arc<dyn Device>,
    model: Model,
    point: Point,
}

fn sample() -> esker::Result<Sample> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let mut session = Session::open(&Config::default(), Arc::clone(&device), Model::default())?;
    let ops =
        [Op::Create(keyspace_name(0)), synced(b"a", b"1"), synced(b"b", b"2"), synced(b"a", b"3")];
    for op in ops {
        assert!(matches!(session.apply(&op), Ok(Outcome::Done)), "{op:?}");
    }
    let (model, point) = (session.model().clone(), session.point());
    session.close()?;
    Ok(Sample { device, model, point })
}

fn verdict(sample: &Sample) -> Verdict {
    let Sample { device, model, point } = sample;
    let expectation = Expectation { model, now: point, next: None, doubt: None };
    judge(&Config::default(), device, &expectation, Depth::Thorough).map(drop)
}

fn change(key: &[u8], value: &[u8]) -> Change {
    Change { keyspace: keyspace_name(0), key: key.into(), write: Write::Put(value.into()) }
}

#[track_caller]
fn is_condemned(sample: &Sample, oracle: Oracle) {
    assert_eq!(verdict(sample).err().map(|violation| violation.oracle), Some(oracle));
}

#[test]
fn a_sound_store_is_acquitted() {
    verdict(&sample().unwrap()).unwrap();
}

#[test]
fn a_lost_commit_is_named() {
    let mut sample = sample().unwrap();
    sample.point.durable += 1;
    is_condemned(&sample, Oracle::AcknowledgedIsThere);
}

#[test]
fn a_commit_from_nowhere_is_named() {
    let mut sample = sample().unwrap();
    sample.point.visible -= 1;
    sample.point.durable = 0;
    is_condemned(&sample, Oracle::NothingFromNowhere);
}

#[test]
fn half_a_commit_is_named() {
    let mut sample = sample().unwrap();
    let whole = sample.model.last_commit() + 1;
    sample.model = sample.model.recovered(whole - 2, &sample.point.alive);
    sample.model.commit(whole, &[change(b"a", b"3"), change(b"c", b"4")]);
    sample.point.visible = whole;
    is_condemned(&sample, Oracle::CommitsAreWhole);
}

#[test]
fn a_wrong_value_is_named() {
    let mut sample = sample().unwrap();
    let last = sample.model.last_commit();
    sample.model = sample.model.recovered(last - 1, &sample.point.alive);
    sample.model.commit(last, &[change(b"a", b"4")]);
    is_condemned(&sample, Oracle::ContentMatches);
}

#[test]
fn a_missing_and_a_surplus_key_are_named() {
    for key in [&b"0"[..], b"c"] {
        let mut sample = sample().unwrap();
        let last = sample.model.last_commit();
        sample.model = sample.model.recovered(last - 1, &sample.point.alive);
        sample.model.commit(last, &[change(b"a", b"3"), change(key, b"9")]);
        is_condemned(&sample, Oracle::ContentMatches);
    }
    let mut surplus = sample().unwrap();
    let (last, alive) = (surplus.model.last_commit(), surplus.point.alive.clone());
    surplus.model = surplus.model.recovered(1, &alive);
    surplus.model.commit(last, &[change(b"a", b"3")]);
    is_condemned(&surplus, Oracle::ContentMatches);
}

#[test]
fn a_missing_keyspace_is_named() {
    let mut sample = sample().unwrap();
    sample.point.alive.insert(keyspace_name(1), 0);
    is_condemned(&sample, Oracle::KeyspacesExist);
}

#[test]
fn damage_is_named() {
    let sample = sample().unwrap();
    let segment = sample.device.list().unwrap().into_iter().find(|name| name.starts_with("log-"));
    sample.device.remove(&segment.unwrap()).unwrap();
    is_condemned(&sample, Oracle::Opens);
}
