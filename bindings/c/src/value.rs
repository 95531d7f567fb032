//! Values as streams: read from any position, written in pieces.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::slice;

use esker::{Error, ValueReader, ValueWriter};

use crate::bytes::{needed, slice as bytes};
use crate::db::durability;
use crate::error::{Failure, esker_code, esker_error, guard, release};
use crate::handle::{get, get_mut, give, handle, take};
use crate::keyspace::esker_keyspace;
use crate::snapshot::esker_snapshot;

/// A value as it was when the reader was made. One thread at a time may use it. It holds versions
/// as a snapshot does: free it with `esker_reader_free`.
pub struct esker_reader {
    _opaque: [u8; 0],
}

handle!(esker_reader(ValueReader) = b"ESK-read");

/// A value that is being written. One thread at a time may use it. Freed with `esker_writer_finish`
/// or `esker_writer_free`.
pub struct esker_writer {
    _opaque: [u8; 0],
}

handle!(esker_writer(ValueWriter) = b"ESK-writ");

/// The failure of a stream: the error of the store in it, or an invalid argument.
fn failure(error: io::Error) -> Failure {
    match error.downcast::<Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::invalid(error.to_string()),
    }
}

/// Opens the value of `key` for reading, as it is now, or as of `snapshot` if that is not null.
/// `found` says whether there is one; if not, `reader` is left unchanged.
///
/// # Safety
/// The handles are of the named kinds or null, `key` has the given length; the others are null
/// or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_reader_new(
    keyspace: *const esker_keyspace,
    snapshot: *const esker_snapshot,
    key: *const u8,
    key_len: usize,
    reader: *mut *mut esker_reader,
    found: *mut bool,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let (reader, found) = (needed(reader, "reader")?, needed(found, "found")?);
        // SAFETY: by the caller's promise.
        let (keyspace, key) = unsafe { (get(keyspace)?, bytes(key, key_len, "key")?) };
        let made = if snapshot.is_null() {
            keyspace.reader(key)?
        } else {
            // SAFETY: by the caller's promise.
            unsafe { get(snapshot) }?.reader(keyspace, key)?
        };
        // SAFETY: by the caller's promise.
        unsafe {
            found.put(made.is_some());
            if let Some(made) = made {
                reader.put(give(made));
            }
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Length of the value, in bytes; 0 for a pointer that is not a reader.
///
/// # Safety
/// `reader` is a reader that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_reader_len(reader: *const esker_reader) -> u64 {
    // SAFETY: by the caller's promise.
    unsafe { get(reader) }.map_or(0, ValueReader::len)
}

/// Reads the value from `position` on into `buffer`, at most `size` bytes; `count` is the number of
/// bytes read, less than `size` only at the end.
///
/// # Safety
/// `reader` is a reader that no other code uses, `buffer` points to `size` bytes that can be
/// written to; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_reader_read(
    reader: *mut esker_reader,
    position: u64,
    buffer: *mut u8,
    size: usize,
    count: *mut usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let count = needed(count, "count")?;
        // SAFETY: by the caller's promise.
        let reader = unsafe { get_mut(reader) }?;
        let left = reader.len().saturating_sub(position);
        let size = usize::try_from(left).map_or(size, |left| left.min(size));
        if size > 0 {
            if buffer.is_null() {
                return Err(Failure::invalid(format!("buffer is no run of {size} bytes")));
            }
            // What a program has not written to may not be read, and is made zeros first.
            // SAFETY: by the caller's promise; no more than it says, and no more than a value has.
            let target = unsafe {
                buffer.write_bytes(0, size);
                slice::from_raw_parts_mut(buffer, size)
            };
            reader.seek(SeekFrom::Start(position)).map_err(failure)?;
            reader.read_exact(target).map_err(failure)?;
        }
        // SAFETY: by the caller's promise.
        unsafe { count.put(size) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a reader. Null is ignored.
///
/// # Safety
/// `reader` is null or a reader that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_reader_free(reader: *mut esker_reader) {
    // SAFETY: by the caller's promise.
    unsafe { release(reader) }
}

/// Begins a value of `key` that is written in pieces, up to 1 GiB, in bounded memory. It is not
/// visible before `esker_writer_finish`.
///
/// # Safety
/// `keyspace` is a keyspace, `key` has the given length; the others are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_writer_new(
    keyspace: *const esker_keyspace,
    key: *const u8,
    key_len: usize,
    writer: *mut *mut esker_writer,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        let writer = needed(writer, "writer")?;
        // SAFETY: by the caller's promise.
        let (keyspace, key) = unsafe { (get(keyspace)?, bytes(key, key_len, "key")?) };
        let begun = keyspace.writer(key)?;
        // SAFETY: by the caller's promise.
        unsafe { writer.put(give(begun)) };
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Appends to the value. After a failure the value cannot be finished.
///
/// # Safety
/// `writer` is a writer that no other code uses, `data` has the given length; `error` is null or
/// can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_writer_write(
    writer: *mut esker_writer,
    data: *const u8,
    len: usize,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let (writer, data) = unsafe { (get_mut(writer)?, bytes(data, len, "data")?) };
        writer.write_all(data).map_err(failure)
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Sets the value of the key to what was written, in one step, and frees the writer, whatever the
/// code: if it fails the key keeps its earlier value. `durability` is an `esker_durability`.
///
/// # Safety
/// `writer` is a writer that is no longer in use; `error` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_writer_finish(
    writer: *mut esker_writer,
    durability: i32,
    error: *mut *mut esker_error,
) -> esker_code {
    let body = || {
        // SAFETY: by the caller's promise.
        let writer = unsafe { take(writer) }?;
        match self::durability(durability)? {
            None => writer.finish()?,
            Some(durability) => writer.finish_with(durability)?,
        }
        Ok(())
    };
    // SAFETY: by the caller's promise.
    unsafe { guard(error, body) }
}

/// Frees a writer and discards what was written with it. Null is ignored.
///
/// # Safety
/// `writer` is null or a writer that is no longer in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_writer_free(writer: *mut esker_writer) {
    // SAFETY: by the caller's promise.
    unsafe { release(writer) }
}
