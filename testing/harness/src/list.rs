//! A list of bytes in a file: the subject of the harness's own tests.

use std::sync::Arc;

use esker_device::sim::{OpKind, SimDevice};
use esker_device::{Caching, Device, DeviceError, DeviceFile, Open, Purpose};

use crate::counts::Counts;
use crate::crash::{Again, Crash, Subject, limited};
use crate::faults::{Case, Effects, Ending, Failing, Left};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// What a list does before it acknowledges a byte.
#[derive(Clone, Copy)]
pub struct Syncs {
    /// Syncs.
    pub now: bool,
    /// Syncs in a run on what a crash left.
    pub later: bool,
    /// Looks at the answers of the device.
    pub minds_errors: bool,
}

impl Syncs {
    /// Everything.
    pub fn always() -> Self {
        Self { now: true, later: true, minds_errors: true }
    }
}

/// A file in which byte `n` is `n + 1`, so far. `len` bytes are acknowledged; after an error it
/// accepts none.
pub struct List {
    file: Arc<dyn DeviceFile>,
    len: u64,
    syncs: Syncs,
    has_failed: bool,
}

/// A disk with an empty list.
pub fn disk() -> Arc<SimDevice> {
    let disk = Arc::new(SimDevice::new());
    disk.open("list", Open::CreateNew, Caching::Buffered).unwrap();
    disk.sync_dir().unwrap();
    disk
}

fn open(disk: &Arc<SimDevice>) -> Result<Arc<dyn DeviceFile>, DeviceError> {
    disk.open("list", Open::Existing, Caching::Buffered)
}

impl Subject for List {
    type Case = Syncs;
    type Op = ();
    type Point = u64;
    type Base = u64;
    type Model = ();
    type Error = DeviceError;

    fn open(case: &Syncs, disk: &Arc<SimDevice>, base: &u64) -> Result<Self, DeviceError> {
        Ok(Self { file: open(disk)?, len: *base, syncs: *case, has_failed: false })
    }

    fn known(base: &u64) -> u64 {
        *base
    }

    fn apply(&mut self, _: &()) -> Verdict<Result<(), DeviceError>> {
        let byte = [self.len as u8 + 1];
        let written = self.file.write_at(self.len, &byte, Purpose::User);
        let synced = if self.syncs.now { self.file.sync(Purpose::User) } else { Ok(()) };
        let done = written.and(synced);
        if done.is_err() && self.syncs.minds_errors {
            self.has_failed = true;
            return Ok(done);
        }
        self.len += 1;
        Ok(Ok(()))
    }

    fn observe(&self) -> u64 {
        self.len
    }

    fn is_more(now: &u64, last: &u64) -> bool {
        now > last
    }

    fn into_model(self) {}

    fn check(
        crash: &Crash<'_, Self>,
        disk: &Arc<SimDevice>,
        _: &mut Counts,
    ) -> Verdict<Vec<Option<u64>>> {
        let promise = crash.promise;
        let found = found_on(disk);
        assert!(found <= *promise.next, "{found} were never written");
        match found < *promise.now {
            true => Err(Violation::new(Oracle::AcknowledgedIsThere, format!("{found} are"))),
            false => Ok(vec![Some(found)]),
        }
    }

    fn again(case: &Syncs, seed: u64) -> Again<Self> {
        Again {
            case: Syncs { now: case.later, ..*case },
            ops: vec![(); 3],
            options: limited(seed, 20),
        }
    }
}

/// The bytes that are there as they were written.
fn found_on(disk: &Arc<SimDevice>) -> u64 {
    let bytes = disk.files().remove("list").unwrap_or_default();
    (0..).zip(&bytes).take_while(|(at, byte)| **byte == at + 1).count() as u64
}

impl Failing for List {
    const KINDS: &'static [OpKind] = &[OpKind::Write, OpKind::Sync];
    const EFFECTS: Effects = Effects { power_off: false, on_write: &[], on_read: &[] };
    const ERRORS_MAX: u64 = 3;
    const ENDINGS: &'static [Ending] = &[Ending::Killed, Ending::Closed, Ending::PowerCut];

    fn may_answer(_: &DeviceError, _: Case) -> Verdict {
        Ok(())
    }

    fn may_pass_unseen(_: Case) -> bool {
        false
    }

    fn after_error(&mut self, _: &(), _: Case) -> Verdict<bool> {
        Ok(false)
    }

    fn is_poisoned(&self) -> bool {
        self.has_failed
    }

    fn look(&mut self, _: Case, errors: u64) -> Verdict {
        assert_eq!(self.has_failed, errors > 0);
        Ok(())
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        if self.has_failed { Ok(()) } else { self.file.sync(Purpose::User) }
    }

    fn judge_left(left: &Left<'_, Self>, disk: &Arc<SimDevice>) -> Verdict {
        let Some((_, len)) = left.run else { return Ok(()) };
        let found = found_on(disk);
        ensure(found >= *len, Oracle::AcknowledgedIsThere, || format!("{found} of {len}"))
    }
}
