//! Open files of ours, of any kind: the memory that SQLite has for one, and the methods that only
//! pass on what was called.

use std::ffi::{c_int, c_void};
use std::slice;

use super::guard;
use super::types::{File, IoMethods, POWERSAFE_OVERWRITE};
use crate::code::{Code, Result};

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

/// The operations that all kinds of file have.
pub trait Bytes {
    /// Whether the parent of this process opened it.
    fn is_inherited(&self) -> bool;
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result;
    fn truncate(&mut self, len: u64) -> Result;
    fn sync(&mut self) -> Result;
    fn size(&self) -> Result<u64>;
}

/// The operations that files with locks have besides.
pub trait Locks: Bytes {
    fn lock(&mut self, level: c_int) -> Result;
    fn unlock(&mut self, level: c_int) -> Result;
    fn has_writer(&self) -> Result<bool>;
}

/// Makes a file of `object`.
///
/// # Safety
/// `file` is memory of at least the size of [`OpenFile`], and the methods are for `T`.
pub unsafe fn put<T>(file: *mut File, object: T, methods: &'static IoMethods) {
    let inner = Box::into_raw(Box::new(object)).cast();
    // SAFETY: by the caller's promise.
    unsafe { file.cast::<OpenFile>().write(OpenFile { base: File { methods }, inner }) };
}

/// The object that a file of ours holds.
///
/// # Safety
/// The file was made with the methods for `T`, and no other code uses it during the result's life.
pub unsafe fn inner<'a, T>(file: *mut File) -> Result<&'a mut T> {
    // SAFETY: by the caller's promise.
    unsafe { (*file.cast::<OpenFile>()).inner.cast::<T>().as_mut() }.ok_or(Code::ERROR)
}

/// The object that a file of ours holds, unless the parent of this process opened it.
///
/// # Safety
/// As [`inner`].
pub unsafe fn usable<'a, T: Bytes>(file: *mut File) -> Result<&'a mut T> {
    // SAFETY: by the caller's promise.
    let inner = unsafe { inner::<T>(file) }?;
    if inner.is_inherited() { Err(Code::IOERR_LOCK) } else { Ok(inner) }
}

pub unsafe extern "C" fn close<T: Bytes>(file: *mut File) -> c_int {
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

pub unsafe extern "C" fn read<T: Bytes>(
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

pub unsafe extern "C" fn write<T: Bytes>(
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

pub unsafe extern "C" fn truncate<T: Bytes>(file: *mut File, len: i64) -> c_int {
    guard(|| {
        let (len, _) = place(len, 0, Code::IOERR_WRITE)?;
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.truncate(len)
    })
}

pub unsafe extern "C" fn sync<T: Bytes>(file: *mut File, _: c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are for `T`.
        unsafe { usable::<T>(file) }?.sync()
    })
}

pub unsafe extern "C" fn file_size<T: Bytes>(file: *mut File, out: *mut i64) -> c_int {
    guard(|| {
        // SAFETY: the methods are for `T`.
        let size = unsafe { usable::<T>(file) }?.size()?;
        // SAFETY: SQLite passes room for the answer.
        unsafe { out.write(i64::try_from(size).unwrap_or(i64::MAX)) };
        Ok(())
    })
}

pub unsafe extern "C" fn lock<T: Locks>(file: *mut File, level: c_int) -> c_int {
    // SAFETY: the methods are for `T`.
    guard(|| unsafe { usable::<T>(file) }?.lock(level))
}

pub unsafe extern "C" fn unlock<T: Locks>(file: *mut File, level: c_int) -> c_int {
    // SAFETY: the methods are for `T`.
    guard(|| unsafe { usable::<T>(file) }?.unlock(level))
}

pub unsafe extern "C" fn has_writer<T: Locks>(file: *mut File, out: *mut c_int) -> c_int {
    guard(|| {
        // SAFETY: the methods are for `T`.
        let has_writer = unsafe { usable::<T>(file) }?.has_writer()?;
        // SAFETY: SQLite passes room for the answer.
        unsafe { out.write(c_int::from(has_writer)) };
        Ok(())
    })
}

pub unsafe extern "C" fn no_lock(_: *mut File, _: c_int) -> c_int {
    crate::code::OK
}

pub unsafe extern "C" fn no_reserved_lock(_: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes room for the answer.
    unsafe { out.write(0) };
    crate::code::OK
}

pub unsafe extern "C" fn no_control(_: *mut File, _: c_int, _: *mut c_void) -> c_int {
    Code::NOTFOUND.0
}

pub unsafe extern "C" fn sector_size(_: *mut File) -> c_int {
    SECTOR
}

pub unsafe extern "C" fn device_characteristics(_: *mut File) -> c_int {
    POWERSAFE_OVERWRITE
}
