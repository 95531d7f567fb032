//! Arguments and results: bytes, strings, places for results.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::error::{Failure, Result};

/// Bytes that the library has allocated for the caller. Freed with `esker_bytes_free`.
#[repr(C)]
#[derive(Debug)]
pub struct esker_bytes {
    /// The first one; null for none.
    pub data: *mut u8,
    /// The number of bytes.
    pub len: usize,
}

impl esker_bytes {
    /// No bytes.
    pub(crate) const NONE: Self = Self { data: ptr::null_mut(), len: 0 };

    /// Gives `bytes` to the caller.
    pub(crate) fn give(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Self::NONE;
        }
        let bytes = Box::leak(bytes.into_boxed_slice());
        Self { data: bytes.as_mut_ptr(), len: bytes.len() }
    }
}

/// Bytes that stay the library's, as C programs see them; null where there are none.
pub(crate) fn shown(bytes: Option<&[u8]>) -> (*const u8, usize) {
    (bytes.map_or(ptr::null(), <[u8]>::as_ptr), bytes.map_or(0, <[u8]>::len))
}

/// Names one behind the other, each with a null byte at its end.
pub(crate) fn list_of<'a>(names: impl IntoIterator<Item = &'a str>) -> esker_bytes {
    esker_bytes::give(names.into_iter().flat_map(|name| name.bytes().chain([0])).collect())
}

/// Frees bytes and makes them empty, so that a second call does no harm. Null is ignored.
///
/// # Safety
/// `bytes` is null, or as the library has filled it in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_bytes_free(bytes: *mut esker_bytes) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: by the caller's promise; `give` has made the bytes from a boxed slice.
    unsafe {
        let esker_bytes { data, len } = bytes.replace(esker_bytes::NONE);
        if !data.is_null() {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(data, len)));
        }
    }
}

/// The bytes of an argument. Null is none where `len` is 0.
///
/// # Safety
/// `data` is null or points to `len` bytes that no other code changes during `'a`.
pub(crate) unsafe fn slice<'a>(data: *const u8, len: usize, name: &str) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("{name} is no run of {len} bytes")));
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// The text of an argument.
///
/// # Safety
/// `text` is null or ends with a null byte and lives as long as the result.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Failure::invalid(format!("there is no {name}: the pointer is null")));
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(format!("the {name} is not valid UTF-8")))
}

/// The path of an argument.
///
/// # Safety
/// `text` is null or ends with a null byte and lives as long as the result.
pub(crate) unsafe fn path<'a>(text: *const c_char, name: &str) -> Result<&'a Path> {
    if text.is_null() {
        return Err(Failure::invalid(format!("there is no {name}: the pointer is null")));
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Refuses a place for a result that is not there, before anything is done.
pub(crate) fn needed<T>(place: *mut T, name: &str) -> Result<Place<T>> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::invalid(format!("{name}, the place for the result, is missing")));
    }
    Ok(Place(place))
}

/// A place for a result.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// Puts a result there.
    ///
    /// # Safety
    /// What was [`needed`] can be written to.
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: by the caller's promise; it is neither null nor misaligned.
        unsafe { self.0.write(value) }
    }
}
