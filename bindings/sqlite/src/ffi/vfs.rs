//! Files by name: databases are handled here, all other files by the system's VFS.

use std::ffi::{CStr, OsStr, c_char, c_double, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::host::{Host, host};
use super::types::{File, Symbol, Vfs, open};
use super::{guard, io, opened, path};
use esker_pages::{Allocation, Missing, Options, Processes, Snapshot};

use crate::code::{Code, OK, Result};
use crate::connection::Connection;
use crate::kept::{self, OpenJournal};
use crate::open_stores::{self, Access, OpenStore};
use crate::planted::{self, Bug};
use crate::waiting;

/// The name that applications ask for: `file:app.db?vfs=esker`.
pub const NAME: &CStr = c"esker";
/// A parameter of the URI: the name of a version that was pinned.
const VERSION: &CStr = c"version";
/// Parameters with which the pager takes no locks: there are no transactions then.
const NO_LOCKS: [&CStr; 2] = [c"immutable", c"nolock"];
/// Another: `slot` or `segment`, where a new store writes changed pages.
const ALLOCATION: &CStr = c"allocation";
/// Another: `one` or `many`, the number of processes that may have the store open. Many where that
/// is possible, if it is not given.
const PROCESSES: &CStr = c"processes";
/// How long a transaction waits within SQLite's lock for another process that writes: then SQLite
/// asks its busy handler. As long as that sleeps at most: the handler counts the sleep that it asks
/// for, which is over at once where no connection of this process writes ([`crate::waiting`]).
const TURN_WAIT: Duration = Duration::from_millis(100);

/// Another: how many milliseconds opening waits for other processes that have the file open. SQLite
/// asks no busy handler then, and the timeout of a connection is set when it is open.
const BUSY_TIMEOUT: &CStr = c"busy_timeout";
/// As long as Python, and most other drivers, have connections wait for a writer.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A VFS that leaves everything but databases to the system's.
///
/// # Safety
/// `host.system` is a VFS.
pub unsafe fn vfs(host: &Host) -> Vfs {
    // SAFETY: by the caller's promise.
    let system = unsafe { &*host.system };
    let ours = c_int::try_from(size_of::<opened::OpenFile>()).unwrap_or(c_int::MAX);
    Vfs {
        version: 2,
        file_size: ours.max(system.file_size),
        path_max: system.path_max,
        next: std::ptr::null_mut(),
        name: NAME.as_ptr(),
        data: std::ptr::null_mut(),
        open: Some(open_file),
        delete: Some(delete),
        access: Some(access),
        full_path: Some(full_path),
        dl_open: Some(dl_open),
        dl_error: Some(dl_error),
        dl_symbol: Some(dl_symbol),
        dl_close: Some(dl_close),
        randomness: Some(randomness),
        sleep: Some(sleep),
        time: Some(time),
        last_error: Some(last_error),
        time_ms: Some(time_ms),
    }
}

unsafe extern "C" fn open_file(
    _: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    guard(|| {
        let host = host()?;
        // SAFETY: SQLite passes memory for a file; it looks at the methods only if they are there.
        unsafe { (*file).methods = std::ptr::null() };
        // SAFETY: SQLite passes a name, or null.
        let is_of_store = || unsafe { path(name) }.and_then(virtual_of).is_some();
        if flags & open::WAL != 0 && !name.is_null() && is_of_store() {
            // With `locking_mode=exclusive` the pager would keep commits in it for itself.
            return Err(Code::CANTOPEN);
        }
        let to_read = flags & (open::SUPER_JOURNAL | open::CREATE) == open::SUPER_JOURNAL;
        // SAFETY: as above.
        if to_read && unsafe { path(name) }.is_some_and(|path| !path.exists()) {
            // A rollback looks for others that need it, after one of an ordinary file has removed
            // it: it lists none.
            // SAFETY: SQLite passes memory for a file of ours.
            unsafe { io::put_journal(file, OpenJournal::default()) };
            return Ok(());
        }
        if name.is_null() || flags & (open::MAIN_DB | open::MAIN_JOURNAL) == 0 {
            // SAFETY: the system's VFS gets what SQLite gave, with memory enough for its file.
            return unsafe { system_open(host, name, file, flags, out_flags) };
        }
        if flags & open::MAIN_JOURNAL != 0 {
            // SAFETY: this is the name of a journal as SQLite passes it to `xOpen`.
            let database = unsafe { (host.database_file_object)(name) };
            // SAFETY: it is an open file of a database.
            let journal = unsafe { io::connection(database) }.ok_or(Code::CANTOPEN)?.open_journal();
            // SAFETY: SQLite passes memory for a file of ours.
            unsafe { io::put_journal(file, journal) };
            return Ok(());
        }
        // SAFETY: as above.
        let is_read_only = unsafe { open_database(host, name, file, flags) }?;
        if !out_flags.is_null() {
            let wanted = if is_read_only {
                flags & !(open::READWRITE | open::CREATE) | open::READONLY
            } else {
                flags
            };
            // SAFETY: it is not null, so there is room for the flags.
            unsafe { out_flags.write(wanted) };
        }
        Ok(())
    })
}

/// Opens a database, or a version of one; answers whether it may only be read.
///
/// # Safety
/// `name` is a name as SQLite passes it to `xOpen`, and `file` memory for a file of ours.
unsafe fn open_database(
    host: &Host,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
) -> Result<bool> {
    // SAFETY: by the caller's promise.
    let path = unsafe { path(name) }.ok_or(Code::CANTOPEN)?;
    let log = |code, what: &str| host.log(code, what);
    if flags & open::EXCLUSIVE != 0 && path.exists() {
        return Err(Code::CANTOPEN);
    }
    // SAFETY: by the caller's promise.
    let parameter = |what: &CStr| unsafe { host.parameter(name, what) };
    let version = parameter(VERSION);
    // SAFETY: by the caller's promise.
    let is_set = |what: &CStr| unsafe { (host.uri_boolean)(name, what.as_ptr(), 0) } != 0;
    let is_fixed = version.is_some() || NO_LOCKS.into_iter().any(is_set);
    let access = match flags {
        _ if is_fixed || flags & open::READONLY != 0 => Access::Read,
        _ if flags & open::CREATE != 0 => Access::Write(Missing::Create),
        _ => Access::Write(Missing::Fail),
    };
    let refused = |why: String| {
        log(Code::CANTOPEN, &format!("{}: {why}", path.display()));
        Code::CANTOPEN
    };
    let mut options = options(parameter(ALLOCATION), parameter(PROCESSES)).map_err(refused)?;
    let is_chosen = parameter(PROCESSES).is_some() || open_stores::is_open(path);
    if !is_chosen && !esker_pages::can_be_shared(path, &options) {
        options.processes = Processes::One;
    }
    let patience = patience(parameter(BUSY_TIMEOUT)).map_err(refused)?;
    let opened = open_stores::open(path, access, &options, patience, &log)?;
    let is_read_only = access == Access::Read || opened.store()?.is_read_only();
    let fixed = match is_fixed.then(|| fixed(&opened, version)).transpose() {
        Ok(fixed) => fixed,
        Err(error) => {
            log(Code::CANTOPEN, &format!("{}: {error}", path.display()));
            open_stores::close(opened, path);
            return Err(Code::CANTOPEN);
        }
    };
    // SAFETY: by the caller's promise.
    unsafe {
        let path = path.to_owned();
        io::put_connection(file, Connection::new(opened, path, is_read_only, fixed));
    }
    Ok(is_read_only)
}

/// The options that a store is opened with, and a new one is made with.
fn options(
    allocation: Option<&CStr>,
    processes: Option<&CStr>,
) -> std::result::Result<Options, String> {
    let mut options = Options { busy_timeout: TURN_WAIT, ..Options::default() };
    options.processes = match processes.map(CStr::to_bytes) {
        None | Some(b"many") => Processes::Many,
        Some(b"one") => Processes::One,
        Some(_) => return Err("processes: use one or many".to_owned()),
    };
    if let Some(asked) = allocation.map(CStr::to_string_lossy) {
        options.allocation = Allocation::of_name(&asked)
            .ok_or_else(|| format!("allocation={asked}: use slot or segment"))?;
    }
    Ok(options)
}

/// The time that opening waits for other processes.
fn patience(asked: Option<&CStr>) -> std::result::Result<Duration, String> {
    let Some(asked) = asked.map(CStr::to_string_lossy) else { return Ok(BUSY_TIMEOUT_DEFAULT) };
    let millis = asked.parse().map_err(|_| format!("busy_timeout={asked}: use milliseconds"))?;
    Ok(Duration::from_millis(millis))
}

/// The version of that name, or the newest.
fn fixed(open: &OpenStore, version: Option<&CStr>) -> std::result::Result<Snapshot, String> {
    let store = open.store().map_err(|_| "the store is closed".to_owned())?;
    let Some(version) = version.map(CStr::to_string_lossy) else { return Ok(store.pin()) };
    store.at_named(&version).map_err(|error| format!("version {version}: {error}"))
}

/// Of the name of a journal or log, the database it would belong to, if that is open here: then
/// there is no such file.
fn virtual_of(path: &Path) -> Option<PathBuf> {
    let name = path.as_os_str().as_bytes();
    let base = name.strip_suffix(b"-journal").or_else(|| name.strip_suffix(b"-wal"))?;
    let base = Path::new(OsStr::from_bytes(base));
    open_stores::is_open(base).then(|| base.to_owned())
}

unsafe extern "C" fn delete(_: *mut Vfs, name: *const c_char, sync: c_int) -> c_int {
    guard(|| {
        // SAFETY: SQLite passes a name.
        let path = unsafe { path(name) };
        if path.and_then(virtual_of).is_some() {
            return Ok(());
        }
        let awaited = path.filter(|path| open_stores::is_awaited(path));
        // A rollback removes a super-journal that no journal on the disk names, and unlike a
        // commit without a sync. What is prepared here still needs it: without it, it took place.
        // And so does what is yet to be rolled back.
        let is_needed = || awaited.is_some() || path.is_some_and(kept::is_named);
        if sync == 0 && is_needed() && !planted::is(Bug::SuperJournalRemoved) {
            return Ok(());
        }
        let system = host()?.system;
        // SAFETY: the system's VFS gets what SQLite gave.
        let done = answered(unsafe { (*system).delete.map(|delete| delete(system, name, sync)) });
        if let Some(path) = awaited {
            open_stores::super_journal_removed(path, done.is_ok());
        }
        let is_gone = sync == 0 && done == Err(Code::DELETE_NOENT);
        if is_gone { Ok(()) } else { done }
    })
}

unsafe extern "C" fn access(
    _: *mut Vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: SQLite passes a name.
        let path = unsafe { path(name) };
        let is_virtual = path.and_then(virtual_of).is_some();
        // A rollback checks for the super-journal that the journal names, which the rollback of an
        // ordinary file may have removed: it still is a rollback.
        let is_kept = |path: &Path| kept::is_named(path) && !open_stores::is_decided(path);
        if is_virtual || path.is_some_and(is_kept) {
            // SAFETY: and room for the answer.
            unsafe { out.write(c_int::from(!is_virtual)) };
            return Ok(());
        }
        let system = host()?.system;
        // SAFETY: the system's VFS gets what SQLite gave.
        answered(unsafe { (*system).access.map(|access| access(system, name, flags, out)) })
    })
}

/// The system's answer.
fn answered(code: Option<c_int>) -> Result {
    match code {
        Some(OK) => Ok(()),
        Some(code) => Err(Code(code)),
        None => Err(Code::ERROR),
    }
}

/// # Safety
/// As `xOpen` of the system's VFS.
unsafe fn system_open(
    host: &Host,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> Result {
    let system = host.system;
    // SAFETY: by the caller's promise.
    let open = unsafe { (*system).open };
    // SAFETY: by the caller's promise.
    answered(open.map(|open| unsafe { open(system, name, file, flags, out_flags) }))
}

/// Sleeps; or waits for the turn to write, where that is what the busy handler sleeps for.
unsafe extern "C" fn sleep(_: *mut Vfs, microseconds: c_int) -> c_int {
    let asked = Duration::from_micros(u64::try_from(microseconds).unwrap_or(0));
    if matches!(std::panic::catch_unwind(|| waiting::wait_instead(asked)), Ok(true)) {
        return microseconds;
    }
    let Ok(host) = host() else { return 0 };
    let system = host.system;
    // SAFETY: the system's VFS gets what SQLite gave.
    unsafe { (*system).sleep.map_or(0, |sleep| sleep(system, microseconds)) }
}

/// Functions that only hand on to the system's VFS.
macro_rules! hand_on {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty = $otherwise:expr)?;)*) => {$(
        unsafe extern "C" fn $name(_: *mut Vfs, $($argument: $type),*) $(-> $result)? {
            let Ok(host) = host() else { return $($otherwise)? };
            let system = host.system;
            // SAFETY: the system's VFS gets what SQLite gave.
            match unsafe { (*system).$name } {
                // SAFETY: as above.
                Some(method) => unsafe { method(system, $($argument),*) },
                None => { $($otherwise)? }
            }
        }
    )*};
}

hand_on! {
    full_path(name: *const c_char, len: c_int, out: *mut c_char) -> c_int = Code::ERROR.0;
    dl_open(name: *const c_char) -> *mut c_void = std::ptr::null_mut();
    dl_error(len: c_int, out: *mut c_char);
    dl_symbol(library: *mut c_void, name: *const c_char) -> Symbol = None;
    dl_close(library: *mut c_void);
    randomness(len: c_int, out: *mut c_char) -> c_int = 0;
    time(out: *mut c_double) -> c_int = Code::ERROR.0;
    last_error(len: c_int, out: *mut c_char) -> c_int = 0;
    time_ms(out: *mut i64) -> c_int = Code::ERROR.0;
}
