//! The walk over crashes finds what it should, in a list of bytes that is not always synced.

use std::sync::Arc;

use esker_device::{Caching, Device, DeviceError, DeviceFile, Open, Purpose};

use super::*;

/// Whether a byte is synced before it is acknowledged, now and in the second run.
#[derive(Clone, Copy)]
struct Syncs(bool, bool);

/// A file in which byte `n` is `n + 1`, so far.
struct List {
    file: Arc<dyn DeviceFile>,
    len: u64,
    syncs: bool,
}

fn open(disk: &Arc<SimDevice>) -> Result<Arc<dyn DeviceFile>, DeviceError> {
    disk.open("list", Open::Existing, Caching::Buffered)
}

impl Subject for List {
    type Case = Syncs;
    type Op = ();
    type Point = u64;
    type Model = ();
    type Error = DeviceError;

    fn open(case: &Syncs, disk: &Arc<SimDevice>, known: &u64) -> Result<Self, DeviceError> {
        Ok(Self { file: open(disk)?, len: *known, syncs: case.0 })
    }

    fn apply(&mut self, _: &()) -> Verdict<Result<(), DeviceError>> {
        let byte = [self.len as u8 + 1];
        let written = self.file.write_at(self.len, &byte, Purpose::User);
        self.len += 1;
        let synced = if self.syncs { self.file.sync(Purpose::User) } else { Ok(()) };
        Ok(written.and(synced))
    }

    fn observe(&self) -> u64 {
        self.len
    }

    fn is_more(now: &u64, last: &u64) -> bool {
        now > last
    }

    fn into_model(self) {}

    fn check(
        _: &Recording<Self>,
        promise: &Promise<'_, u64>,
        disk: &Arc<SimDevice>,
    ) -> Verdict<Option<u64>> {
        let bytes = disk.files().remove("list").unwrap_or_default();
        let found = (0..).zip(&bytes).take_while(|(at, byte)| **byte == at + 1).count() as u64;
        assert!(found <= *promise.next, "{found} were never written");
        match found < *promise.now {
            true => Err(Violation::new(Oracle::AcknowledgedIsThere, format!("{found} are"))),
            false => Ok(Some(found)),
        }
    }

    fn again(case: &Syncs, seed: u64) -> Again<Self> {
        Again { case: Syncs(case.1, case.1), ops: vec![(); 3], options: limited(seed, 20) }
    }
}

fn run(case: Syncs, judged: &mut Judged) -> Verdict {
    let disk = Arc::new(SimDevice::new());
    disk.open("list", Open::CreateNew, Caching::Buffered).unwrap();
    disk.sync_dir().unwrap();
    let recording: Recording<List> = record(case, &disk, 0, &[(); 10])?;
    explore(&recording, &limited(0, 100), 3, judged)
}

#[test]
fn what_keeps_its_promise_passes() {
    let mut judged = Judged::default();
    run(Syncs(true, true), &mut judged).unwrap();
    assert!(judged.states > 10 && judged.again > 3 && judged.within > judged.again, "{judged:?}");
    assert_eq!(judged.again, judged.states / 3);
}

#[test]
fn a_broken_promise_is_found_with_its_state() {
    let violation = run(Syncs(false, true), &mut Judged::default()).unwrap_err();
    assert_eq!(violation.oracle, Oracle::AcknowledgedIsThere);
    assert!(violation.place.starts_with("crash at position"), "{violation}");
}

#[test]
fn a_broken_promise_of_the_second_run_is_found() {
    let violation = run(Syncs(true, false), &mut Judged::default()).unwrap_err();
    assert_eq!(violation.oracle, Oracle::AcknowledgedIsThere);
    assert!(violation.place.contains("then used: with seed"), "{violation}");
}
