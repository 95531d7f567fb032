//! Open files: the main file of a connection, and its journal.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::slice;

use super::database::Database;
use super::guard;
use super::host::host;
use super::types::{File, IoMethods, POWERSAFE_OVERWRITE, control};
use crate::code::{Code, Result};
use crate::connection::Connection;
use crate::kept::OpenJournal;
use crate::pragma::{Answer, pragma};

/// Bytes of a sector, as SQLite's journal counts them.
const SECTOR: c_int = 512;

/// The contents of SQLite's memory for a file of ours.
#[repr(C)]
#[derive(Debug)]
pub struct OpenFile {
    base: File,
    /// From a box; of the type that the methods are for. Null once it is closed.
    inner: *mut c_void,
}

static DATABASE: IoMethods = IoMethods {
    version: 1,
    close: close::<Connection>,
    read: read::<Connection>,
    write: write::<Connection>,
    truncate: truncate::<Connection>,
    sync: sync::<Connection>,
    file_size: file_size::<Connection>,
    lock: lock_database,
    unlock: unlock_database,
    check_reserved_lock: check_reserved_lock_of_database,
    file_control: control_database,
    sector_size,
    device_characteristics,
};

static JOURNAL: IoMethods = IoMethods {
    version: 1,
    close: close::<OpenJournal>,
    read: read::<OpenJournal>,
    write: write::<OpenJournal>,
    truncate: truncate::<OpenJournal>,
    sync: sync::<OpenJournal>,
    file_size: file_size::<OpenJournal>,
    lock: no_lock,
    unlock: no_lock,
    check_reserved_lock: no_reserved_lock,
    file_control: no_control,
    sector_size,
    device_characteristics,
};

/// The operations that both kinds of file have.
trait Bytes {
    /// Whether the parent of this process opened it.
    fn is_inherited(&self) -> bool;
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result;
    fn truncate(&mut self, len: u64) -> Result;
    fn sync(&mut self);
    fn size(&self) -> Result<u64>;
}

impl Bytes for Connection {
    fn is_inherited(&self) -> bool {
        self.is_inherited()
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        Self::read(self, offset, buf)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        self.write(offset, bytes)
    }

    fn truncate(&mut self, len: u64) -> Result {
        self.truncate(len)
    }

    fn sync(&mut self) {
        self.sync();
    }

    fn size(&self) -> Result<u64> {
        self.size()
    }
}

impl Bytes for OpenJournal {
    /// It is only memory.
    fn is_inherited(&self) -> bool {
        false
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        Self::read(self, offset, buf)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        Self::write(self, offset, bytes)
    }

    fn truncate(&mut self, len: u64) -> Result {
        Self::truncate(self, len)
    }

    fn sync(&mut self) {
        Self::sync(self);
    }

    fn size(&self) -> Result<u64> {
        Ok(Self::size(self))
    }
}

/// Makes a file of a connection.
///
/// # Safety
/// `file` is memory of at least the size of [`OpenFile`].
pub unsafe fn put_connection(file: *mut File, connection: Connection) {
    let inner = Box::into_raw(Box::new(connection)).cast();
    // SAFETY: by the caller's promise.
    unsafe { file.cast::<OpenFile>().write(OpenFile { base: File { methods: &DATABASE }, inner }) };
}

/// Makes a file of a journal.
///
/// # Safety
/// As [`put_connection`].
pub unsafe fn put_journal(file: *mut File, journal: OpenJournal) {
    let inner = Box::into_raw(Box::new(journal)).cast();
    // SAFETY: by the caller's promise.
    unsafe { file.cast::<OpenFile>().write(OpenFile { base: File { methods: &JOURNAL }, inner }) };
}

/// The connection that a file belongs to, if it is a database of ours.
///
/// # Safety
/// `file` is null or an open file, of any VFS, and no other code uses it during the result's life.
pub unsafe fn connection<'a>(file: *mut File) -> Option<&'a mut Connection> {
    // SAFETY: by the caller's promise; an open file begins with its methods.
    if file.is_null() || !std::ptr::eq(unsafe { (*file).methods }, &DATABASE) {
        return None;
    }
    // SAFETY: with these methods it is ours, and holds a connection until it is closed.
    unsafe { inner(file) }.ok()
}

/// The object that a file of ours holds.
///
/// # Safety
/// The file was made with the methods for `T`, and no other code uses it during the result's life.
unsafe fn inner<'a, T>(file: *mut File) -> Result<&'a mut T> {
    // SAFETY: by the caller's promise.
    unsafe { (*file.cast::<OpenFile>()).inner.cast::<T>().as_mut() }.ok_or(Code::ERROR)
}

/// The object that a file of ours holds, unless the parent of this process opened it.
///
/// # Safety
/// As [`inner`].
unsafe fn usable<'a, T: Bytes>(file: *mut File) -> Result<&'a mut T> {
    // SAFETY: by the caller's promise.
    let inner = unsafe { inner::<T>(file) }?;
    if inner.is_inherited() { Err(Code::IOERR_LOCK) } else { Ok(inner) }
}

unsafe extern "C" fn close<T: Bytes>(file: *mut File) -> c_int {
    guard(|| {
        let file = file.cast::<OpenFile>();
        // SAFETY: the file is ours; what it holds came from a box and is given back once.
        let inner = unsafe { std::mem::replace(&mut (*file).inner, std::ptr::null_mut()) };
        if !inner.is_null() {
            // SAFETY: as above.
            let inner = unsafe { Box::from_raw(inner.cast::<T>()) };
            if inner.is_inherited() {
                std::mem::forget(inner);
            }
        }
        Ok(())
    })
}

fn place(offset: i64, len: c_int, code: Code) -> Result<(u64, usize)> {
    let offset = u64::try_from(offset).map_err(|_| code)?;
    Ok((offset, usize::try_from(len).map_err(|_| code)?))
}

unsafe extern "C" fn read<T: Bytes>(
    file: *mut File,
    buf: *mut c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    guard(|| {
        let (offset, len) = place(offset, len, Code::IOERR_READ)?;
        // SAFETY: SQLite passes memory for this many bytes.
        let buf = unsafe { slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.read(offset, buf)
    })
}

unsafe extern "C" fn write<T: Bytes>(
    file: *mut File,
    bytes: *const c_void,
    len: c_int,
    offset: i64,
) -> c_int {
    guard(|| {
        let (offset, len) = place(offset, len, Code::IOERR_WRITE)?;
        // SAFETY: SQLite passes this many bytes.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len) };
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.write(offset, bytes)
    })
}

unsafe extern "C" fn truncate<T: Bytes>(file: *mut File, len: i64) -> c_int {
    guard(|| {
        let (len, _) = place(len, 0, Code::IOERR_WRITE)?;
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.truncate(len)
    })
}

unsafe extern "C" fn sync<T: Bytes>(file: *mut File, _: c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.sync();
        Ok(())
    })
}

unsafe extern "C" fn file_size<T: Bytes>(file: *mut File, out: *mut i64) -> c_int {
    guard(|| {
        // SAFETY: the methods are for `T`.
        let size = unsafe { usable::<T>(file) }?.size()?;
        // SAFETY: SQLite passes room for the answer.
        unsafe { out.write(i64::try_from(size).unwrap_or(i64::MAX)) };
        Ok(())
    })
}

unsafe extern "C" fn lock_database(file: *mut File, level: c_int) -> c_int {
    // SAFETY: the methods are those of a database.
    guard(|| unsafe { usable::<Connection>(file) }?.lock(level))
}

unsafe extern "C" fn unlock_database(file: *mut File, level: c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are those of a database.
        unsafe { usable::<Connection>(file) }?.unlock(level);
        Ok(())
    })
}

unsafe extern "C" fn check_reserved_lock_of_database(file: *mut File, out: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are those of a database.
        let has_writer = unsafe { usable::<Connection>(file) }?.has_writer()?;
        // SAFETY: SQLite passes room for the answer.
        unsafe { out.write(c_int::from(has_writer)) };
        Ok(())
    })
}

unsafe extern "C" fn control_database(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: the methods are those of a database.
        let connection = unsafe { usable::<Connection>(file) }?;
        match operation {
            control::SYNC => {
                let name = argument.cast::<c_char>().cast_const();
                // SAFETY: the argument is null or the name of a super-journal.
                let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
                connection.reserve(name)
            }
            control::COMMIT_PHASETWO => connection.end_transaction(),
            control::PDB => {
                // SAFETY: the argument is where the pager keeps its connection, until it closes
                // the file.
                connection.database = Some(unsafe { Database::new(argument.cast()) });
                Ok(())
            }
            // SAFETY: the argument is three strings, the last of which may be null.
            control::PRAGMA => unsafe { answer_pragma(connection, argument.cast()) },
            control::LOCKSTATE => {
                // SAFETY: the argument is room for a number.
                unsafe { argument.cast::<c_int>().write(connection.level()) };
                Ok(())
            }
            control::HAS_MOVED => {
                let has_moved = c_int::from(connection.has_moved());
                // SAFETY: as above.
                unsafe { argument.cast::<c_int>().write(has_moved) };
                Ok(())
            }
            control::POWERSAFE_OVERWRITE => {
                // SAFETY: as above.
                unsafe { argument.cast::<c_int>().write(1) };
                Ok(())
            }
            control::VFSNAME => {
                // SAFETY: the argument is room for a string that SQLite will free.
                unsafe { argument.cast::<*mut c_char>().write(host()?.text("esker")) };
                Ok(())
            }
            control::SIZE_HINT | control::CHUNK_SIZE | control::OVERWRITE => Ok(()),
            _ => Err(Code::NOTFOUND),
        }
    })
}

/// # Safety
/// `arguments` are those of `SQLITE_FCNTL_PRAGMA`: room for an answer, a name, a value or null.
unsafe fn answer_pragma(connection: &mut Connection, arguments: *mut *mut c_char) -> Result {
    let text = |index: usize| {
        // SAFETY: by the caller's promise.
        let text = unsafe { arguments.add(index).read() };
        // SAFETY: by the caller's promise.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(1).ok_or(Code::NOTFOUND)?;
    let tell = |row: &str| -> Result {
        // SAFETY: by the caller's promise.
        unsafe { arguments.write(host()?.text(row)) };
        Ok(())
    };
    match pragma(connection, &name, text(2).as_deref()) {
        Ok(Answer::GoOn) => Err(Code::NOTFOUND),
        Ok(Answer::Row(row)) => tell(&row),
        Err((code, message)) => tell(&message).and(Err(code)),
    }
}

unsafe extern "C" fn no_lock(_: *mut File, _: c_int) -> c_int {
    crate::code::OK
}

unsafe extern "C" fn no_reserved_lock(_: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes room for the answer.
    unsafe { out.write(0) };
    crate::code::OK
}

unsafe extern "C" fn no_control(_: *mut File, _: c_int, _: *mut c_void) -> c_int {
    Code::NOTFOUND.0
}

unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    SECTOR
}

unsafe extern "C" fn device_characteristics(_: *mut File) -> c_int {
    POWERSAFE_OVERWRITE
}
