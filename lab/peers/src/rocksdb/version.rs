//! The version of the RocksDB library that is loaded, which the C interface does not tell: the
//! first line of a store's log of events (`LOG`) does. A library that is older than the bindings
//! is refused, so that no comparison is with another RocksDB than the one that it names.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rocksdb::{DB, Options};

use super::failed;
use crate::system::{Name, Result};

/// The least major version that the bindings fit.
const MAJOR_MIN: u32 = 10;
/// The words before the version in the log of events.
const BEFORE: &str = "RocksDB version: ";
/// As far as the log is read: its first lines.
const READ_BYTES: u64 = 4 << 10;

pub(crate) fn version(folder: &Path) -> Result<String> {
    let mut options = Options::default();
    options.create_if_missing(true);
    drop(DB::open(&options, folder).map_err(failed)?);
    let path = folder.join("LOG");
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|log| log.take(READ_BYTES).read_to_end(&mut text));
    read.map_err(|error| Name::Rocksdb.failed(format!("read {}: {error}", path.display())))?;
    checked(&String::from_utf8_lossy(&text))
}

/// The version in a log of events, if the bindings fit it.
fn checked(log: &str) -> Result<String> {
    let Some(version) = log.lines().find_map(named) else {
        let why = "the library does not write its version into the file LOG of a store: build \
                   with the one that scripts/rocksdb-peer.sh fetches";
        return Err(Name::Rocksdb.failed(why));
    };
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major >= MAJOR_MIN) {
        return Ok(version.to_owned());
    }
    Err(Name::Rocksdb.failed(format!(
        "the library that is loaded has version {version}, and the bindings are for {MAJOR_MIN} or \
         later: set LD_LIBRARY_PATH as scripts/rocksdb-peer.sh prints it"
    )))
}

/// The version that a line names.
fn named(line: &str) -> Option<&str> {
    let (_, version) = line.split_once(BEFORE)?;
    let version = version.trim();
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    (!version.is_empty() && version.bytes().all(is_number)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "2026/01/02-03:04:05.678901 4711 RocksDB version: ";

    #[test]
    fn a_version_is_read_from_the_log() {
        let log = format!("{LINE}10.10.1\n2026/01/02-03:04:05.678902 4711 Git sha 0\n");
        assert_eq!(checked(&log).unwrap(), "10.10.1");
    }

    #[test]
    fn an_older_library_is_refused() {
        let why = checked(&format!("{LINE}7.8.3\n")).unwrap_err().to_string();
        assert!(why.contains("7.8.3") && why.contains("scripts/rocksdb-peer.sh"), "{why}");
    }

    #[test]
    fn a_log_without_a_version_is_refused() {
        for log in ["", "Git sha 0\n", &format!("{LINE}\n"), &format!("{LINE}ten\n")] {
            assert!(checked(log).is_err(), "{log}");
        }
    }

    #[test]
    fn the_library_that_is_loaded_tells_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let version = version(folder.path()).unwrap();
        assert!(version.split('.').count() >= 3, "{version}");
    }
}
