//! Files that earlier versions have written, checked in under gzip.

use std::fs::File;
use std::io::{Read as _, Result, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Writes a file under gzip.
///
/// # Errors
///
/// The operating system's.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut gzip = GzEncoder::new(File::create(path)?, Compression::best());
    gzip.write_all(bytes)?;
    gzip.finish().map(drop)
}

/// What [`write()`] has written.
///
/// # Errors
///
/// The operating system's, and that of bytes that are not under gzip.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}
