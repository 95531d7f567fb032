//! Backups: made of an open store, and made into a store again; and checking both.

use std::ffi::c_char;

use esker::{Backup, BackupReport, CheckReport, Error, Problem};

use crate::bytes::{needed, path};
use crate::db::esker_db;
use crate::error::{Result, esker_code, esker_error, guard};
use crate::handle::get;

/// The result of a backup.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct esker_backup_report {
    /// The number up to which operations are in the backup.
    pub seq: u64,
    /// The number of the backup in this folder, from 1. The same as before if nothing had changed.
    pub run: u64,
    /// Bytes read from the store: blocks that are new, and the log.
    pub bytes_read: u64,
    /// Bytes written to the backup.
    pub bytes_written: u64,
    /// Bytes that the last backup had already.
    pub bytes_reused: u64,
    /// Bytes of the store that the backup holds.
    pub bytes_total: u64,
}

impl From<BackupReport> for esker_backup_report {
    fn from(of: BackupReport) -> Self {
        Self {
            seq: of.seq,
            run: of.run,
            bytes_read: of.bytes_read,
            bytes_written: of.bytes_written,
            bytes_reused: of.bytes_reused,
            bytes_total: of.bytes_total,
        }
    }
}

/// Copies the store, as it is at this moment, into the folder `to`, while others read and write.
/// The folder is new or empty, or has a backup of this store: then only what has changed since is
/// read and written, and the older backup is there until the new one is complete and durable.
/// `report` may be null.
///
/// # Safety
/// `db` is a store; `to` ends with a null byte; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_backup(
    db: *const esker_db,
    to: *const c_char,
    report: *mut esker_backup_report,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let done = unsafe { get(db)?.backup(path(to, "folder")?) }?;
        if !report.is_null() {
            // SAFETY: by the caller's promise.
            unsafe { needed(report, "report")?.put(done.into()) };
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Makes a store of the backup in the folder `backup`, in the folder `to`, which is new or empty.
/// All of it is checked on the way; where it is damaged there is no store then.
///
/// # Safety
/// `backup` and `to` end with a null byte; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_restore(
    backup: *const c_char,
    to: *const c_char,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (backup, to) = unsafe { (path(backup, "backup")?, path(to, "folder")?) };
        Ok(Backup::open(backup)?.restore(to)?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Reads all of the backup in the folder `backup` and compares it with what it should be:
/// `ESKER_DAMAGED` and the first place where it is not.
///
/// # Safety
/// `backup` ends with a null byte; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_check_backup(
    backup: *const c_char,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let backup = unsafe { path(backup, "backup") }?;
        whole(Backup::open(backup)?.check()?)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Reads all of the store and compares it with what it should be: `ESKER_DAMAGED` and the first
/// place where it is not. Writes wait meanwhile.
///
/// # Safety
/// `db` is a store; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_check(
    db: *const esker_db,
    error: *mut *mut esker_error,
) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { guard(error, || whole(get(db)?.check()?)) }
}

/// Damage as an error.
fn whole(report: CheckReport) -> Result {
    match report.problems.into_iter().next() {
        None => Ok(()),
        Some(Problem { file, offset, what, .. }) => {
            Err(Error::Damaged { file, offset, what }.into())
        }
    }
}
