//! The kind of store at a path, and opening it.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use esker::{Backup, Db, Error, MEMORY_BUDGET_DEFAULT};
use esker_terminal::exit::Failure;

/// The first bytes of a store of pages.
const PAGE_STORE: &[u8; 16] = b"Esker page store";

/// Opens a store that must exist.
pub(super) fn open(path: &Path) -> Result<Db, Failure> {
    Db::builder(path).create(false).open().map_err(|error| refused(path, error))
}

/// Opens a store that must exist; while another process has it open, to follow that one.
pub(super) fn open_or_follow(path: &Path) -> Result<Db, Failure> {
    match Db::builder(path).create(false).open() {
        Err(Error::Locked { .. }) => open_to_follow(path),
        opened => opened.map_err(|error| refused(path, error)),
    }
}

/// Opens a store that must exist, and writes nothing.
pub(super) fn open_to_read(path: &Path) -> Result<Db, Failure> {
    let builder = Db::builder(path).read_only(true).memory_budget(memory_to_read(path));
    builder.open().map_err(|error| refused(path, error))
}

/// Opens a store that must exist, writes nothing, and keeps no process from writing.
pub(super) fn open_to_follow(path: &Path) -> Result<Db, Failure> {
    let builder = Db::builder(path).follow(true).memory_budget(memory_to_read(path));
    builder.open().map_err(|error| refused(path, error))
}

/// Room for all that the log holds, because nothing can be flushed.
fn memory_to_read(path: &Path) -> u64 {
    let memory = MEMORY_BUDGET_DEFAULT.saturating_add(log_bytes(path).saturating_mul(8));
    memory.min(1 << 44)
}

/// The length of a store's log.
fn log_bytes(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"log-"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// The reason for which it is no store of keys and values, and its kind where that is known.
pub(super) fn refused(path: &Path, error: Error) -> Failure {
    if !matches!(error, Error::NotAStore { .. } | Error::NoStore { .. }) {
        return error.into();
    }
    let shown = path.display();
    if is_page_store(path) {
        return Failure::Input(format!(
            "{shown} is a store of an SQLite database: its commands are those of `esker sqlite`"
        ));
    }
    if Backup::exists(path).unwrap_or(false) {
        return Failure::Input(format!(
            "{shown} is a backup: make a store of it with `esker restore {shown} DEST`"
        ));
    }
    error.into()
}

/// The reason for which it is no store of pages, and its kind where that is known.
pub(super) fn refused_by_pages(path: &Path, error: esker_pages::Error) -> Failure {
    let is_store = path.join("superblock").is_file();
    if is_store || Backup::exists(path).unwrap_or(false) {
        let kind = if is_store { "a store" } else { "a backup" };
        return Failure::Input(format!(
            "{} is {kind} of keys and values, and no database of SQLite: leave out `sqlite`, as in \
             `esker check {}`",
            path.display(),
            path.display()
        ));
    }
    error.into()
}

fn is_page_store(path: &Path) -> bool {
    let mut head = [0; PAGE_STORE.len()];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head == *PAGE_STORE
}
