//! Errors: a code to decide by, and a line to show.

use std::any::Any;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::Error;

use crate::handle::{Handle, free, get, give, handle};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum esker_code {
    /// The call succeeded.
    ESKER_OK = 0,
    /// An argument is outside its bounds, or a pointer is not what it should be.
    ESKER_INVALID = 1,
    /// Bytes on the device are not what was written there.
    ESKER_DAMAGED = 2,
    /// Another process or handle has the store open.
    ESKER_LOCKED = 3,
    /// The device refused an operation.
    ESKER_IO = 4,
    /// No room left on the device.
    ESKER_FULL = 5,
    /// An earlier write failed: writes are refused until the store is opened again.
    ESKER_POISONED = 6,
    /// The folder is there and holds no store.
    ESKER_NOT_A_STORE = 7,
    /// The store was written by a newer version.
    ESKER_TOO_NEW = 8,
    /// There is no store, and none was to be created.
    ESKER_NO_STORE = 9,
    /// There is no such keyspace, or it was dropped.
    ESKER_NO_KEYSPACE = 10,
    /// The store has been closed.
    ESKER_CLOSED = 11,
    /// Another writer has changed what the transaction has read: nothing was applied, run it again.
    ESKER_CONFLICT = 12,
    /// A bug in this library: please report it. The store stays usable.
    ESKER_PANIC = 13,
    /// An error that this version of the header has no code for.
    ESKER_OTHER = 14,
    /// A merge operator could not combine the operands of a key; other keys can be read.
    ESKER_OPERATOR = 15,
    /// The store was opened for reading only.
    ESKER_READ_ONLY = 16,
    /// The store was opened by the parent of this process, before a `fork`. Handles can be freed
    /// here, which does nothing, and are of no other use.
    ESKER_FORKED = 17,
    /// A follower's snapshot or range is older than what the writer keeps: begin again with a new
    /// one.
    ESKER_TOO_OLD = 18,
    /// A follower has read blocks many times that the writer had used again: try again.
    ESKER_OVERTAKEN = 19,
}

use esker_code::{
    ESKER_CLOSED, ESKER_CONFLICT, ESKER_DAMAGED, ESKER_FORKED, ESKER_FULL, ESKER_INVALID, ESKER_IO,
    ESKER_LOCKED, ESKER_NO_KEYSPACE, ESKER_NO_STORE, ESKER_NOT_A_STORE, ESKER_OK, ESKER_OPERATOR,
    ESKER_OTHER, ESKER_OVERTAKEN, ESKER_PANIC, ESKER_POISONED, ESKER_READ_ONLY, ESKER_TOO_NEW,
    ESKER_TOO_OLD,
};

/// The reason of a failed call. Freed with `esker_error_free`.
pub struct esker_error {
    _opaque: [u8; 0],
}

handle!(esker_error(Failure) = b"ESK-fail");

/// A failure on its way to the caller.
#[derive(Debug)]
pub struct Failure {
    code: esker_code,
    message: CString,
}

/// The result of code behind the boundary.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    fn new(code: esker_code, message: &str) -> Self {
        // Messages are one line already; a null byte would end them.
        let message = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
        Self { code, message }
    }

    /// An argument that cannot be used.
    pub(crate) fn invalid(what: impl AsRef<str>) -> Self {
        Self::new(ESKER_INVALID, what.as_ref())
    }

    fn panicked(payload: &(dyn Any + Send)) -> Self {
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let said = said.unwrap_or("no message");
        Self::new(ESKER_PANIC, &format!("an internal error of esker, please report it: {said}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Invalid { .. } => ESKER_INVALID,
            Error::Damaged { .. } => ESKER_DAMAGED,
            Error::Locked { .. } => ESKER_LOCKED,
            Error::Io(_) => ESKER_IO,
            Error::Full { .. } => ESKER_FULL,
            Error::Poisoned { .. } => ESKER_POISONED,
            Error::NotAStore { .. } => ESKER_NOT_A_STORE,
            Error::TooNew { .. } => ESKER_TOO_NEW,
            Error::NoStore { .. } => ESKER_NO_STORE,
            Error::NoKeyspace { .. } => ESKER_NO_KEYSPACE,
            Error::Closed => ESKER_CLOSED,
            Error::Forked { .. } => ESKER_FORKED,
            Error::Conflict { .. } => ESKER_CONFLICT,
            Error::Operator { .. } => ESKER_OPERATOR,
            Error::ReadOnly => ESKER_READ_ONLY,
            Error::TooOld { .. } => ESKER_TOO_OLD,
            Error::Overtaken { .. } => ESKER_OVERTAKEN,
            _ => ESKER_OTHER,
        };
        Self::new(code, &error.to_string())
    }
}

/// Calls `body`. An error or a panic becomes a code, and an error object where `error` is not null.
///
/// # Safety
/// `error` is null or can be written to.
pub(crate) unsafe fn guard(
    error: *mut *mut esker_error,
    body: impl FnOnce() -> Result,
) -> esker_code {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return ESKER_OK,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::panicked(payload.as_ref()),
    };
    let code = failure.code;
    if !error.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { error.write(give(failure)) };
    }
    code
}

/// Frees a handle; a panic in it is ignored.
///
/// # Safety
/// As [`free`].
pub(crate) unsafe fn release<H: Handle>(handle: *mut H) {
    // SAFETY: by the caller's promise.
    let _ = catch_unwind(AssertUnwindSafe(|| unsafe { free(handle) }));
}

/// The code of an error; `ESKER_INVALID` for a pointer that is not an error.
///
/// # Safety
/// `error` is an error that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_code(error: *const esker_error) -> esker_code {
    // SAFETY: by the caller's promise.
    unsafe { get(error) }.map_or(ESKER_INVALID, |failure| failure.code)
}

/// One line that says what went wrong, where, and what to do. It belongs to the error, and is valid
/// as long.
///
/// # Safety
/// `error` is an error that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_message(error: *const esker_error) -> *const c_char {
    const NONE: &CStr = c"this is no esker_error";
    // SAFETY: by the caller's promise.
    unsafe { get(error) }.map_or(NONE, |failure| failure.message.as_c_str()).as_ptr()
}

/// Frees an error. Null is ignored.
///
/// # Safety
/// `error` is null or an error that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_error_free(error: *mut esker_error) {
    // SAFETY: by the caller's promise.
    unsafe { release(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_follower_reads_too_late_has_codes_of_its_own() {
        let old = Failure::from(Error::TooOld { seq: 3, from: 7 });
        assert_eq!((old.code, old.code as i32), (ESKER_TOO_OLD, 18));
        let overtaken = Failure::from(Error::Overtaken { location: "here".to_owned() });
        assert_eq!((overtaken.code, overtaken.code as i32), (ESKER_OVERTAKEN, 19));
        assert!(overtaken.message.to_string_lossy().contains("here"));
    }
}
