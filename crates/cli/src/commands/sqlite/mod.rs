//! `sqlite`: databases in stores of versions, which SQLite reaches through the extension.
//!
//! Reading order: here (what can be typed), `convert` (from and to SQLite's own files), `look`
//! (what a store holds), `compact`.

mod compact;
mod convert;
mod look;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use esker_flash::{Allocation, Missing, Options, StoreFile, decide_by_file};

use super::place::refused_by_pages;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) const HELP: &str = "\
A database in a store of versions: every reader has a snapshot and waits for nobody, a commit is
one record and one sync, and there is no log that grows behind readers. Applications open it with
the extension, SQLite itself being as it is:

  esker sqlite import app.db app.esker
  sqlite3 -cmd '.load libesker_sqlite' -cmd '.open file:app.esker?vfs=esker'
  esker sqlite export app.esker app.db

One process at a time has a store open to write it, this command included, or several have it open
to read it: check, stats, versions and export write nothing.";

#[derive(Debug, Args)]
pub(crate) struct Sqlite {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What can be done with stores of databases.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a store of an SQLite database
    Import(Import),
    /// Make an SQLite database of a store, or of a version of it that was pinned
    Export(Export),
    /// Read everything and compare checksums
    Check(Look),
    /// Print what a store holds and what it takes
    Stats(Look),
    /// Print which versions can be read, and what they hold
    Versions(Look),
    /// Keep the present version, readable as `file:STORE?vfs=esker&version=NAME`
    Pin(Named),
    /// Let a version that was pinned go
    Unpin(Named),
    /// Make the file as short as what lives in it; Ctrl-C keeps what was done
    Compact(Look),
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// The SQLite database
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The store to make
    store: PathBuf,
    /// Replace STORE if it exists
    #[arg(long)]
    force: bool,
    /// Where the store writes changed pages, for its whole life
    #[arg(long, value_enum, value_name = "HOW", default_value = "slot")]
    allocation: Where,
}

/// Where changed pages are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Where {
    /// To single places that are free, wherever they are: for SSDs and other disks
    Slot,
    /// Behind each other in segments of 256 KiB, which are emptied before they are used again: for
    /// flash without a translation layer, and where one long write is better than several short
    Segment,
}

#[derive(Debug, Args)]
pub(super) struct Export {
    /// The store
    store: PathBuf,
    /// The SQLite database to make
    #[arg(value_name = "DST")]
    target: PathBuf,
    /// A version that was pinned, instead of the newest
    #[arg(long, value_name = "NAME")]
    version: Option<String>,
    /// Replace DST if it exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Look {
    /// The store
    store: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Named {
    /// The store
    store: PathBuf,
    /// The name
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
    let opened = StoreFile::open(path, Missing::Fail, Options::default());
    decided(path, opened.map_err(|error| refused_by_pages(path, error))?)
}

/// Opens a store that must exist, and writes nothing.
fn open_read_only(path: &Path) -> Result<StoreFile, Failure> {
    let opened = StoreFile::open_read_only(path, Options::default());
    decided(path, opened.map_err(|error| refused_by_pages(path, error))?)
}

/// A transaction over several stores that was cut off took place or did not, as SQLite finds it.
fn decided(path: &Path, file: StoreFile) -> Result<StoreFile, Failure> {
    decide_by_file(&file.store, path)?;
    Ok(file)
}
