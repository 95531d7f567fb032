//! `sqlite`: databases in stores of versions, which SQLite reaches through the extension.
//!
//! Reading order: here (what can be typed), `convert` (from and to SQLite's own files), `look`
//! (what a store holds), `compact`.

mod compact;
mod convert;
mod look;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use esker_pages::{Allocation, Error, Missing, Options, Processes, StoreFile, decide_by_file};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use super::place::refused_by_pages;

pub(crate) const HELP: &str = "\
A page store holds one SQLite database. Readers have snapshots and never wait, a commit is one
record and one sync, and no log grows while readers are active. Applications open it through a
loadable extension of an unmodified SQLite:

  esker sqlite import app.db app.esker
  sqlite3 -cmd '.load libesker_sqlite' -cmd '.open file:app.esker?vfs=esker'
  esker sqlite export app.esker app.db

These commands work beside processes that share a page store (processes=many in the URI); a process
that has it to itself keeps them out. check, stats, versions and export only read.";

#[derive(Debug, Args)]
pub(crate) struct Sqlite {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What can be done with stores of databases.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Import an SQLite database into a new page store
    Import(Import),
    /// Export a page store, or a pinned version of it, to an SQLite database
    Export(Export),
    /// Verify all checksums
    Check(Look),
    /// Print statistics
    Stats(Look),
    /// List the versions that can be read
    Versions(Look),
    /// Pin the current version; read it with `file:STORE?vfs=esker&version=NAME`
    Pin(Named),
    /// Unpin a version
    Unpin(Named),
    /// Shrink the file to its live data; can be interrupted
    Compact(Look),
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// The SQLite database
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The new page store
    store: PathBuf,
    /// Replace STORE if it exists
    #[arg(long)]
    force: bool,
    /// Where changed pages are written; cannot be changed later
    #[arg(long, value_enum, value_name = "HOW", default_value = "slot")]
    allocation: Where,
}

/// The place to which changed pages are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Where {
    /// To single free pages anywhere in the file: for SSDs and other disks
    Slot,
    /// Sequentially in segments of 256 KiB, which are cleaned before reuse: for flash without a
    /// translation layer, and devices that prefer long writes
    Segment,
}

#[derive(Debug, Args)]
pub(super) struct Export {
    /// The page store
    store: PathBuf,
    /// The new SQLite database
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// A pinned version instead of the newest
    #[arg(long, value_name = "NAME")]
    version: Option<String>,
    /// Replace DST if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Look {
    /// The page store
    store: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    /// The page store
    store: PathBuf,
    /// Name of the version
    name: String,
}

impl From<Where> for Allocation {
    fn from(chosen: Where) -> Self {
        match chosen {
            Where::Slot => Self::Slot,
            Where::Segment => Self::Segment,
        }
    }
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Import(args) => convert::import(args),
        Command::Export(args) => convert::export(args),
        Command::Check(args) => look::check(args),
        Command::Stats(args) => look::stats(args),
        Command::Versions(args) => look::versions(args),
        Command::Compact(args) => compact::compact(args),
        Command::Pin(args) => {
            let version = open(&args.store)?.store.pin_named(&args.name)?;
            let mut output = Output::new();
            output.line(&format!("version {version} is kept as {}", args.name))?;
            output.flush()
        }
        Command::Unpin(args) => {
            let file = open(&args.store)?;
            file.store.unpin_named(&args.name)?;
            Ok(file.close()?)
        }
    }
}

/// Opens a store that must exist.
fn open(path: &Path) -> Result<StoreFile, Failure> {
    open_as(path, |options| StoreFile::open(path, Missing::Fail, options))
}

/// Opens a store that must exist, and writes nothing.
fn open_read_only(path: &Path) -> Result<StoreFile, Failure> {
    open_as(path, |options| StoreFile::open_read_only(path, options))
}

/// Opens a store for this process alone, or beside the processes that share it.
fn open_as(
    path: &Path,
    open: impl Fn(Options) -> esker_pages::Result<StoreFile>,
) -> Result<StoreFile, Failure> {
    let opened = match open(Options::default()) {
        Err(Error::Locked { .. }) => open(Options::default().processes(Processes::Many)),
        opened => opened,
    };
    decided(path, opened.map_err(|error| refused_by_pages(path, error))?)
}

/// A transaction over several stores that was cut off took place or did not, as SQLite finds it.
fn decided(path: &Path, file: StoreFile) -> Result<StoreFile, Failure> {
    decide_by_file(&file.store, path)?;
    Ok(file)
}
