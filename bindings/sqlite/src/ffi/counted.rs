//! SQLite's own VFS with its syncs counted, for comparison in measurements.
//!
//! Files are those of the system's VFS, with a copy of its methods in which one function is
//! replaced.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rusqlite::ffi::{
    SQLITE_CANTOPEN, SQLITE_IOERR_FSYNC, SQLITE_OK, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

/// The name of the VFS.
const NAME: &CStr = c"counted";

type Sync = unsafe extern "C" fn(*mut sqlite3_file, c_int) -> c_int;

static SYNCS: AtomicU64 = AtomicU64::new(0);
/// The system's VFS, as a number.
static SYSTEM: OnceLock<usize> = OnceLock::new();
/// The sync method of its files.
static SYNC: OnceLock<Sync> = OnceLock::new();
/// Copies of tables of methods, by where the originals are.
static COPIES: Mutex<BTreeMap<usize, &'static sqlite3_io_methods>> = Mutex::new(BTreeMap::new());

/// Registers the VFS `counted` with the SQLite that is linked into this program, once per process.
///
/// # Errors
/// The error message of SQLite.
pub fn count_syncs() -> Result<(), String> {
    static REGISTERED: OnceLock<Result<(), String>> = OnceLock::new();
    REGISTERED.get_or_init(register).clone()
}

/// The number of syncs that files of that VFS were asked for in this process.
#[must_use]
pub fn syncs() -> u64 {
    SYNCS.load(Ordering::Relaxed)
}

fn register() -> Result<(), String> {
    // SAFETY: no name asks for the default.
    let system = unsafe { sqlite3_vfs_find(std::ptr::null()) };
    if system.is_null() {
        return Err("SQLite has no VFS".to_owned());
    }
    SYSTEM.get_or_init(|| system as usize);
    // SAFETY: SQLite's VFS is never taken away.
    let ours = sqlite3_vfs {
        zName: NAME.as_ptr(),
        pNext: std::ptr::null_mut(),
        xOpen: Some(open),
        ..unsafe { *system }
    };
    // SAFETY: what is registered is never given back.
    match unsafe { sqlite3_vfs_register(Box::leak(Box::new(ours)), 0) } {
        SQLITE_OK => Ok(()),
        code => Err(format!("SQLite refuses a VFS: {code}")),
    }
}

/// # Safety
/// Called by SQLite, as `xOpen`.
unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(system) = SYSTEM.get().map(|system| *system as *mut sqlite3_vfs) else {
        return SQLITE_CANTOPEN;
    };
    // SAFETY: it is SQLite's VFS, and gets what SQLite gave.
    let Some(system_open) = (unsafe { (*system).xOpen }) else { return SQLITE_CANTOPEN };
    // SAFETY: as above.
    let code = unsafe { system_open(system, name, file, flags, out_flags) };
    // SAFETY: after `xOpen` the methods are null or those of the file.
    unsafe {
        if let Some(methods) = (*file).pMethods.as_ref() {
            (*file).pMethods = counted(methods);
        }
    }
    code
}

/// The same methods, but for the sync.
fn counted(methods: &'static sqlite3_io_methods) -> &'static sqlite3_io_methods {
    let Some(sync) = methods.xSync else { return methods };
    if *SYNC.get_or_init(|| sync) as usize != sync as usize {
        // Another kind of file, which is left alone.
        return methods;
    }
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.entry(std::ptr::from_ref(methods) as usize).or_insert_with(|| {
        Box::leak(Box::new(sqlite3_io_methods { xSync: Some(counted_sync), ..*methods }))
    })
}

/// # Safety
/// Called by SQLite, as `xSync`.
unsafe extern "C" fn counted_sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    let Some(sync) = SYNC.get() else { return SQLITE_IOERR_FSYNC };
    // SAFETY: the file has the methods that this one is of.
    unsafe { sync(file, flags) }
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, OpenFlags};

    use super::*;

    #[test]
    fn a_commit_in_wal_is_one_sync() {
        count_syncs().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let uri = format!("file:{}?vfs=counted", folder.path().join("app.db").display());
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t(a)",
            )
            .unwrap();
        let before = syncs();
        for _ in 0..10 {
            connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        }
        assert_eq!(syncs() - before, 10);
        connection.execute_batch("PRAGMA synchronous = NORMAL").unwrap();
        connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(syncs() - before, 10);
    }
}
