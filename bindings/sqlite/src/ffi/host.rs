//! The functions that SQLite offers to an extension.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{mem, ptr};

use super::types::{File, Routines, Symbol, Vfs, routine};
use crate::code::{Code, Result};

/// The oldest version that has everything used here: 3.37.
const OLDEST: c_int = 3_037_000;

/// Functions of SQLite, and the VFS that was the default when we came.
#[derive(Debug)]
pub struct Host {
    malloc: Malloc,
    log: unsafe extern "C" fn(c_int, *const c_char, ...),
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    pub vfs_register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub uri_boolean: unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int,
    uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    pub database_file_object: unsafe extern "C" fn(*const c_char) -> *mut File,
    pub get_autocommit: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// For everything that is not a database: never null, lives as long as the process.
    pub system: *mut Vfs,
}

// SAFETY: the functions of SQLite may be called from any thread, and a VFS is not changed once it
// is registered.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

static HOST: OnceLock<Host> = OnceLock::new();

/// The host that [`set`] has kept.
pub fn host() -> Result<&'static Host> {
    HOST.get().ok_or(Code::ERROR)
}

/// Keeps what SQLite offers, the first time. A program may have two SQLites: the functions and
/// files of one are nothing to the other, so that the second is refused.
///
/// # Safety
/// `routines` is what SQLite passes to an extension.
pub unsafe fn set(routines: *const Routines) -> std::result::Result<&'static Host, &'static str> {
    // SAFETY: by the caller's promise; the structure is older than every version, but its end.
    let at = |index: usize| unsafe { (&raw const (*routines).all[index]).read() };
    let version = at(routine::LIBVERSION_NUMBER).ok_or("SQLite does not say its version")?;
    // SAFETY: `int (*libversion_number)(void)`.
    let version = unsafe { mem::transmute::<unsafe extern "C" fn(), Number>(version)() };
    if version < OLDEST {
        return Err("SQLite 3.37 or later is needed");
    }
    if let Some(host) = HOST.get() {
        let register = at(routine::VFS_REGISTER);
        let is_same = register.is_some_and(|found| ptr::fn_addr_eq(found, host.vfs_register));
        return is_same.then_some(host).ok_or("another SQLite of this process has loaded it");
    }
    // SAFETY: each position of the structure holds a function of the type that is named here, as
    // `sqlite3ext.h` declares them; the version has all of them.
    let host = unsafe {
        Host {
            malloc: cast(at(routine::MALLOC))?,
            log: cast(at(routine::LOG))?,
            vfs_find: cast(at(routine::VFS_FIND))?,
            vfs_register: cast(at(routine::VFS_REGISTER))?,
            uri_boolean: cast(at(routine::URI_BOOLEAN))?,
            uri_parameter: cast(at(routine::URI_PARAMETER))?,
            database_file_object: cast(at(routine::DATABASE_FILE_OBJECT))?,
            get_autocommit: cast(at(routine::GET_AUTOCOMMIT))?,
            system: ptr::null_mut(),
        }
    };
    // SAFETY: null asks for the default VFS.
    let system = unsafe { (host.vfs_find)(ptr::null()) };
    if system.is_null() {
        return Err("SQLite has no VFS for the files of this system");
    }
    Ok(HOST.get_or_init(|| Host { system, ..host }))
}

type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type Number = unsafe extern "C" fn() -> c_int;

/// A function of another type.
///
/// # Safety
/// `F` is the type of a pointer to a function, and the one that the symbol has.
unsafe fn cast<F>(symbol: Symbol) -> std::result::Result<F, &'static str> {
    let symbol = symbol.ok_or("SQLite lacks a function that is needed")?;
    // SAFETY: by the caller's promise; all pointers to functions are of one size.
    Ok(unsafe { mem::transmute_copy(&symbol) })
}

impl Host {
    /// A parameter of a URI, if it has that.
    ///
    /// # Safety
    /// `name` is a name as SQLite passes it to `xOpen`, and lives as long as the result.
    pub unsafe fn parameter<'a>(&self, name: *const c_char, what: &CStr) -> Option<&'a CStr> {
        // SAFETY: by the caller's promise; the answer is null or a string that lives as the name.
        let found = unsafe { (self.uri_parameter)(name, what.as_ptr()) };
        // SAFETY: it is not null, then.
        (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) })
    }

    /// A copy of a text in memory that SQLite frees; null when there is none.
    #[must_use]
    pub fn text(&self, text: &str) -> *mut c_char {
        // SAFETY: the function is SQLite's.
        unsafe { copy(self.malloc, text) }
    }

    /// Tells SQLite's log, which an application may listen to.
    pub fn log(&self, code: Code, what: &str) {
        let Ok(what) = CString::new(what.replace('\0', " ")) else { return };
        // SAFETY: a format for one string, and a string.
        unsafe { (self.log)(code.0, c"%s".as_ptr(), what.as_ptr()) };
    }
}

/// As [`Host::text`], for the SQLite that is loading the extension, which may be another one.
///
/// # Safety
/// `routines` is what SQLite passes to an extension.
pub unsafe fn text_for(routines: *const Routines, text: &str) -> *mut c_char {
    // SAFETY: by the caller's promise.
    let malloc = unsafe { (&raw const (*routines).all[routine::MALLOC]).read() };
    // SAFETY: `void *(*malloc)(int)`.
    match unsafe { cast::<Malloc>(malloc) } {
        // SAFETY: it is SQLite's.
        Ok(malloc) => unsafe { copy(malloc, text) },
        Err(_) => ptr::null_mut(),
    }
}

/// # Safety
/// `malloc` is that of an SQLite.
unsafe fn copy(malloc: Malloc, text: &str) -> *mut c_char {
    let Ok(len) = c_int::try_from(text.len() + 1) else { return ptr::null_mut() };
    // SAFETY: any size may be asked for.
    let memory = unsafe { malloc(len) }.cast::<u8>();
    if !memory.is_null() {
        // SAFETY: the memory has that many bytes and no other code uses it.
        unsafe {
            memory.copy_from_nonoverlapping(text.as_ptr(), text.len());
            memory.add(text.len()).write(0);
        }
    }
    memory.cast()
}
