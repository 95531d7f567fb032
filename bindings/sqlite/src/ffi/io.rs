//! Open files: the main file of a connection, and its journal.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::database::Database;
use super::guard;
use super::host::host;
use super::opened::{self, Bytes, Locks, inner, usable};
use super::types::{File, IoMethods, control};
use crate::code::{Code, Result};
use crate::connection::Connection;
use crate::kept::OpenJournal;
use crate::pragma::{Answer, pragma};

static DATABASE: IoMethods = IoMethods {
    version: 1,
    close: opened::close::<Connection>,
    read: opened::read::<Connection>,
    write: opened::write::<Connection>,
    truncate: opened::truncate::<Connection>,
    sync: opened::sync::<Connection>,
    file_size: opened::file_size::<Connection>,
    lock: opened::lock::<Connection>,
    unlock: opened::unlock::<Connection>,
    check_reserved_lock: opened::has_writer::<Connection>,
    file_control: control_database,
    sector_size: opened::sector_size,
    device_characteristics: opened::device_characteristics,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
};

static JOURNAL: IoMethods = IoMethods {
    version: 1,
    close: opened::close::<OpenJournal>,
    read: opened::read::<OpenJournal>,
    write: opened::write::<OpenJournal>,
    truncate: opened::truncate::<OpenJournal>,
    sync: opened::sync::<OpenJournal>,
    file_size: opened::file_size::<OpenJournal>,
    lock: opened::no_lock,
    unlock: opened::no_lock,
    check_reserved_lock: opened::no_reserved_lock,
    file_control: opened::no_control,
    sector_size: opened::sector_size,
    device_characteristics: opened::device_characteristics,
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
};

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

    fn sync(&mut self) -> Result {
        self.sync();
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        self.size()
    }
}

impl Locks for Connection {
    fn lock(&mut self, level: c_int) -> Result {
        self.lock(level)
    }

    fn unlock(&mut self, level: c_int) -> Result {
        self.unlock(level);
        Ok(())
    }

    fn has_writer(&self) -> Result<bool> {
        self.has_writer()
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

    fn sync(&mut self) -> Result {
        Self::sync(self);
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(Self::size(self))
    }
}

/// Makes a file of a connection.
///
/// # Safety
/// `file` is memory of at least the size of [`opened::OpenFile`].
pub unsafe fn put_connection(file: *mut File, connection: Connection) {
    // SAFETY: by the caller's promise.
    unsafe { opened::put(file, connection, &DATABASE) };
}

/// Makes a file of a journal.
///
/// # Safety
/// As [`put_connection`].
pub unsafe fn put_journal(file: *mut File, journal: OpenJournal) {
    // SAFETY: by the caller's promise.
    unsafe { opened::put(file, journal, &JOURNAL) };
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
