//! The SQLite connection of an open file.

use std::ffi::c_void;

use super::host::host;

/// A connection of SQLite, as the pager of a file keeps it: with a shared cache it may change.
#[derive(Clone, Copy, Debug)]
pub struct Database(*const *mut c_void);

impl Database {
    /// The connection that the argument of `SQLITE_FCNTL_PDB` leads to.
    ///
    /// # Safety
    /// Where the pager keeps its connection, until the file is closed.
    pub unsafe fn new(place: *const *mut c_void) -> Self {
        Self(place)
    }

    /// Whether no transaction is open: within one SQLite refuses `PRAGMA synchronous`. To be asked
    /// in a call that SQLite makes for a statement of the connection.
    pub fn is_autocommit(&self) -> bool {
        let Ok(host) = host() else { return false };
        // SAFETY: the file is open; SQLite calls with the mutex of the connection held.
        let database = unsafe { *self.0 };
        // SAFETY: it is the connection that calls.
        !database.is_null() && unsafe { (host.get_autocommit)(database) } != 0
    }
}
