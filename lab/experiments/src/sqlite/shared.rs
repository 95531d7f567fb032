//! The shared state of the threads of a run, and their waits for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker_sqlite::waiting::wait_instead;
use rusqlite::{Connection, ErrorCode};

/// The time for which a connection waits for a lock before it is refused.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing counts yet.
    Warming = 0,
    /// Everything counts.
    Measuring = 1,
    /// Everybody is to end.
    Ending = 2,
}

/// The phase, for all threads of a run.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<AtomicU8>);

impl Shared {
    /// The present phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Warming,
            1 => Phase::Measuring,
            _ => Phase::Ending,
        }
    }

    /// Begins a phase; a later one stays.
    pub fn enter(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Whether everybody is to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase() == Phase::Ending
    }

    /// Makes a connection wait for locks as SQLite's own timeout does, and counts its sleeps.
    pub fn wait_for_locks(&self, connection: &mut Connection) -> rusqlite::Result<Waits> {
        let waits = Waits::default();
        let (counted, shared) = (waits.clone(), self.clone());
        let mut begun = Instant::now();
        connection.busy_handler(Some(move |tries: i32| {
            if tries == 0 {
                begun = Instant::now();
            }
            if shared.phase() == Phase::Measuring {
                counted.0.fetch_add(1, Ordering::Relaxed);
            }
            if begun.elapsed() > PATIENCE || shared.is_ending() {
                return false;
            }
            // As SQLite's handler sleeps: through the VFS.
            let pause = pause(tries);
            if !wait_instead(pause) {
                thread::sleep(pause);
            }
            true
        }))?;
        Ok(waits)
    }
}

/// Sleeps of a connection that waited for a lock.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<AtomicU64>);

impl Waits {
    /// The number of sleeps.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time for which `sqlite3_busy_timeout` sleeps before each try.
const fn pause(tries: i32) -> Duration {
    let millis = match tries {
        i32::MIN..=0 => 1,
        1 => 2,
        2 => 5,
        3 => 10,
        4 => 15,
        5 => 20,
        6..=8 => 25,
        9 | 10 => 50,
        _ => 100,
    };
    Duration::from_millis(millis)
}

/// Whether an error says that another connection has the database.
#[must_use]
pub fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
