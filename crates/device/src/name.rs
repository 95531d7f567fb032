//! The file names that every device accepts.

use std::io;

use crate::{DeviceError, Operation, Result};

/// The file that carries the one-process lock. Not listed and not openable, so that no caller can
/// break the lock by removing or replacing it.
pub(crate) const LOCK_NAME: &str = "lock";

/// The longest name in bytes that common file systems take.
const NAME_BYTES_MAX: usize = 255;

/// Whether `name` is a plain file name: nothing that could lead out of the folder.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != "."
        && name != ".."
        && name != LOCK_NAME
        && !name.contains(['/', '\\', '\0'])
}

/// Refuses a name that is not plain.
pub(crate) fn check(name: &str, operation: Operation, location: &str) -> Result<()> {
    if is_plain(name) {
        return Ok(());
    }
    let why = "not a plain file name: 1 to 255 bytes, no separators, not `.`, `..` or `lock`";
    let source = io::Error::new(io::ErrorKind::InvalidInput, why);
    Err(DeviceError::new(operation, format!("{location}/{}", name.escape_debug()), 0, source))
}

/// The error for a read that passes the end of a file of `len_bytes`.
pub(crate) fn past_end(file: &str, offset: u64, wanted: usize, len_bytes: u64) -> DeviceError {
    let why = format!("{wanted} bytes wanted, but the file ends at byte {len_bytes}");
    let source = io::Error::new(io::ErrorKind::UnexpectedEof, why);
    DeviceError::new(Operation::Read, file, offset, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names() {
        for good in ["data", "log-00000001", "a.b", "\u{e9}"] {
            assert!(is_plain(good), "{good}");
        }
        let long = "x".repeat(256);
        for bad in ["", ".", "..", "lock", "a/b", "/etc", "a\0", "..\\x", long.as_str()] {
            assert!(!is_plain(bad), "{bad:?}");
        }
    }
}
