//! The declarations of `sqlite3.h` and `sqlite3ext.h` that are used here.
//!
//! Layouts are those of SQLite 3.37 and later; a later version only adds at the end of structures.

use std::ffi::{c_char, c_double, c_int, c_void};

/// `sqlite3_vfs`, version 2: what an application replaces of the operating system.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Vfs {
    pub version: c_int,
    /// Bytes of the largest structure that `open` fills.
    pub file_size: c_int,
    pub path_max: c_int,
    pub next: *mut Self,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub open: Option<
        unsafe extern "C" fn(*mut Self, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    >,
    pub delete: Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int) -> c_int>,
    pub access: Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_path:
        Option<unsafe extern "C" fn(*mut Self, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut Self, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut Self, c_int, *mut c_char)>,
    pub dl_symbol: Option<unsafe extern "C" fn(*mut Self, *mut c_void, *const c_char) -> Symbol>,
    pub dl_close: Option<unsafe extern "C" fn(*mut Self, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut Self, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut Self, c_int) -> c_int>,
    pub time: Option<unsafe extern "C" fn(*mut Self, *mut c_double) -> c_int>,
    pub last_error: Option<unsafe extern "C" fn(*mut Self, c_int, *mut c_char) -> c_int>,
    pub time_ms: Option<unsafe extern "C" fn(*mut Self, *mut i64) -> c_int>,
}

/// A function found in a library, of any type.
pub type Symbol = Option<unsafe extern "C" fn()>;

/// `sqlite3_file`: an open file; the bytes behind it belong to the VFS that opened it.
#[repr(C)]
#[derive(Debug)]
pub struct File {
    pub methods: *const IoMethods,
}

/// `sqlite3_io_methods`, version 2. Version 1 has no shared memory, so no WAL of SQLite's own.
#[repr(C)]
#[derive(Debug)]
pub struct IoMethods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> c_int,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub check_reserved_lock: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut File) -> c_int,
    pub shm_map: Option<ShmMap>,
    pub shm_lock: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int>,
    pub shm_barrier: Option<unsafe extern "C" fn(*mut File)>,
    pub shm_unmap: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
}

/// `xShmMap`: the number of a region, its bytes, whether it is made, and where its address goes.
pub type ShmMap = unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int;

/// The largest number of functions of `sqlite3_api_routines` that are reached.
const ROUTINES: usize = 252;

/// `sqlite3_api_routines`: what SQLite hands to an extension, as pointers in their order.
#[repr(C)]
#[derive(Debug)]
pub struct Routines {
    pub all: [Symbol; ROUTINES],
}

/// Positions in [`Routines`].
pub mod routine {
    pub const GET_AUTOCOMMIT: usize = 60;
    pub const LIBVERSION_NUMBER: usize = 67;
    pub const MALLOC: usize = 68;
    pub const VFS_FIND: usize = 141;
    pub const VFS_REGISTER: usize = 142;
    pub const LOG: usize = 167;
    pub const URI_BOOLEAN: usize = 187;
    pub const URI_PARAMETER: usize = 189;
    pub const DATABASE_FILE_OBJECT: usize = 251;
}

/// Flags of `xOpen`.
pub mod open {
    use std::ffi::c_int;
    pub const READONLY: c_int = 0x1;
    pub const READWRITE: c_int = 0x2;
    pub const CREATE: c_int = 0x4;
    pub const EXCLUSIVE: c_int = 0x10;
    pub const MAIN_DB: c_int = 0x100;
    pub const MAIN_JOURNAL: c_int = 0x800;
    pub const SUPER_JOURNAL: c_int = 0x4000;
    pub const WAL: c_int = 0x8_0000;
}

/// Operations of `xFileControl`.
pub mod control {
    use std::ffi::c_int;
    pub const LOCKSTATE: c_int = 1;
    pub const SIZE_HINT: c_int = 5;
    pub const CHUNK_SIZE: c_int = 6;
    pub const OVERWRITE: c_int = 11;
    pub const VFSNAME: c_int = 12;
    pub const POWERSAFE_OVERWRITE: c_int = 13;
    pub const PRAGMA: c_int = 14;
    pub const HAS_MOVED: c_int = 20;
    pub const SYNC: c_int = 21;
    pub const COMMIT_PHASETWO: c_int = 22;
    pub const PDB: c_int = 30;
}

/// Levels of `xLock`.
pub mod level {
    use std::ffi::c_int;
    pub const NONE: c_int = 0;
    pub const SHARED: c_int = 1;
    pub const RESERVED: c_int = 2;
}

/// Flags of `xShmLock`.
#[cfg(feature = "linked")]
pub mod shm {
    use std::ffi::c_int;
    pub const UNLOCK: c_int = 1;
    pub const LOCK: c_int = 2;
    pub const EXCLUSIVE: c_int = 8;
}

/// An interrupted partial write damages no adjacent byte: commits are whole or not at all.
pub const POWERSAFE_OVERWRITE: c_int = 0x1000;
