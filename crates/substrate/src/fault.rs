//! Named points at which tests make a durability step fail.
//!
//! Thread safety: everything may be called from any thread. With nothing armed a point costs one
//! relaxed load.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::Mutex;
use esker_device::{DeviceError, Operation};

use crate::error::{Error, Result};

/// Before pending log records are written.
pub const LOG_WRITE: &str = "log.write";
/// Before the log is synced.
pub const LOG_SYNC: &str = "log.sync";
/// Before a log segment's file is created and written through.
pub const LOG_CREATE: &str = "log.create";
/// Before the header of a segment taken into use is written.
pub const LOG_SWITCH: &str = "log.switch";
/// Before a retired segment's file becomes a spare or is removed.
pub const LOG_RECYCLE: &str = "log.recycle";
/// Before the two copies of a manifest record are written.
pub const MANIFEST_WRITE: &str = "manifest.write";
/// Before the manifest is synced.
pub const MANIFEST_SYNC: &str = "manifest.sync";
/// Before the manifest of a new epoch is created.
pub const MANIFEST_ROLL: &str = "manifest.roll";
/// Before the copies of a superblock are written.
pub const SUPERBLOCK_WRITE: &str = "superblock.write";
/// Before the superblock is synced.
pub const SUPERBLOCK_SYNC: &str = "superblock.sync";

/// Every point of the log and the manifest, for tests that fail each in turn.
pub const POINTS: [&str; 10] = [
    LOG_WRITE,
    LOG_SYNC,
    LOG_CREATE,
    LOG_SWITCH,
    LOG_RECYCLE,
    MANIFEST_WRITE,
    MANIFEST_SYNC,
    MANIFEST_ROLL,
    SUPERBLOCK_WRITE,
    SUPERBLOCK_SYNC,
];

/// The kind of failure of an armed point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// As if the device had answered with an I/O error.
    Io,
    /// As if the device were full.
    Full,
}

#[derive(Debug)]
struct Armed {
    name: &'static str,
    /// Hits that still pass.
    passes: u64,
    fault: Fault,
    sticky: bool,
}

/// The fault points of one store, and the faults armed there.
#[derive(Debug, Default)]
pub struct FaultPoints {
    /// Length of `armed`, readable without the lock.
    count: AtomicUsize,
    armed: Mutex<Vec<Armed>>,
}

impl FaultPoints {
    /// Makes the `nth` hit of `name` fail, counting from 1 and from now; with `sticky`, all
    /// later hits too.
    pub fn arm(&self, name: &'static str, nth: u64, fault: Fault, sticky: bool) {
        let mut armed = self.armed.lock();
        armed.push(Armed { name, passes: nth.saturating_sub(1), fault, sticky });
        self.count.store(armed.len(), Ordering::Relaxed);
    }

    /// Disarms everything.
    pub fn disarm(&self) {
        let mut armed = self.armed.lock();
        armed.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// The number of faults that are still armed; a sticky one stays.
    pub fn armed(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Passes the point `name`: fails exactly when a fault armed there is due.
    pub fn hit(&self, name: &'static str) -> Result<()> {
        if self.armed() == 0 {
            return Ok(());
        }
        self.hit_armed(name)
    }

    #[cold]
    fn hit_armed(&self, name: &'static str) -> Result<()> {
        let mut armed = self.armed.lock();
        let mut due = None;
        for (at, entry) in armed.iter_mut().enumerate().filter(|(_, entry)| entry.name == name) {
            match entry.passes.checked_sub(1) {
                Some(left) => entry.passes = left,
                None => due = due.or(Some((at, entry.fault, entry.sticky))),
            }
        }
        let Some((at, fault, sticky)) = due else { return Ok(()) };
        if !sticky {
            armed.remove(at);
            self.count.store(armed.len(), Ordering::Relaxed);
        }
        Err(failure(name, fault))
    }
}

fn failure(name: &str, fault: Fault) -> Error {
    let source = match fault {
        Fault::Io => io::Error::other("injected fault"),
        Fault::Full => io::Error::new(io::ErrorKind::StorageFull, "injected fault"),
    };
    DeviceError { operation: Operation::Write, file: name.to_string(), offset: 0, source }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_hit_fails_once() {
        let points = FaultPoints::default();
        points.hit(LOG_SYNC).unwrap();
        points.arm(LOG_SYNC, 2, Fault::Io, false);
        points.hit(LOG_SYNC).unwrap();
        points.hit(LOG_WRITE).unwrap();
        points.hit(LOG_SYNC).unwrap_err();
        points.hit(LOG_SYNC).unwrap();
        assert_eq!(points.armed(), 0);
    }

    #[test]
    fn a_sticky_fault_stays_until_disarmed() {
        let points = FaultPoints::default();
        points.arm(LOG_SYNC, 1, Fault::Full, true);
        for _ in 0..3 {
            let Error::Device(error) = points.hit(LOG_SYNC).unwrap_err() else { panic!() };
            assert!(error.is_full());
        }
        points.disarm();
        points.hit(LOG_SYNC).unwrap();
    }
}
