//! Stores that another process writes.

use crate::bytes::needed;
use crate::db::esker_db;
use crate::error::{Result, esker_code, esker_error, guard};
use crate::handle::get;

/// How far a store that is followed is behind the process that writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct esker_lag_report {
    /// Operations that the writer has passed on to the operating system and that are not visible
    /// here; 0 where `is_known` is false.
    pub operations: u64,
    /// Time since it has last caught up, in microseconds.
    pub micros_since_refresh: u64,
    /// Whether the store is followed. If not, all else is 0.
    pub is_followed: bool,
    /// Whether `operations` is known. It is not where no writer tells it: there is none, or the
    /// file `followers` of the store cannot be used.
    pub is_known: bool,
}

/// Catches up with the process that writes the store: everything that it had passed on to the
/// operating system before is visible afterwards. `version`, which may be null, is the number of
/// the newest commit that is. Does nothing where the store is not followed.
///
/// Costs some ten small reads where nothing is new; else in proportion to what is new. After an
/// error, reads see what they saw before. `ESKER_INVALID` says that the memory budget has no room
/// for what the writer has not flushed.
///
/// # Safety
/// `db` is a store; the other pointers are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_refresh(
    db: *const esker_db,
    version: *mut u64,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let newest = unsafe { get(db) }?.refresh()?;
        if !version.is_null() {
            // SAFETY: by the caller's promise.
            unsafe { version.write(newest) };
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// How far the store is behind the process that writes it. No I/O.
///
/// # Safety
/// `db` is a store; the other pointers are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_lag(
    db: *const esker_db,
    report: *mut esker_lag_report,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || -> Result {
        let report = needed(report, "report")?;
        // SAFETY: by the caller's promise.
        let lag = unsafe { get(db) }?.lag()?;
        // SAFETY: by the caller's promise.
        unsafe { report.put(lag.map(Into::into).unwrap_or_default()) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

impl From<esker::Lag> for esker_lag_report {
    fn from(lag: esker::Lag) -> Self {
        let micros = lag.since_refresh.as_micros();
        Self {
            operations: lag.operations.unwrap_or(0),
            micros_since_refresh: u64::try_from(micros).unwrap_or(u64::MAX),
            is_followed: true,
            is_known: lag.operations.is_some(),
        }
    }
}
