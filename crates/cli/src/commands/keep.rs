//! `pin`, `unpin`, `set-history` and `erase`: which earlier versions stay readable.

use std::ffi::OsString;

use clap::Args;
use esker_terminal::exit::Failure;

use super::version::Point;
use super::{history, keyspace, open};
use crate::args::{Keys, Space, Store};

/// The description of `pin`.
pub(crate) const PIN_HELP: &str = r#"Give a version a name, under which it stays readable

The version stays readable in all keyspaces whose history it is part of now, and so do all later
ones, whatever their history keeps, until `unpin`. Wherever a command takes a version, it takes the
name. A version can have several names, a name has one version."#;

/// The description of `set-history`.
pub(crate) const SET_HISTORY_HELP: &str = "\
Begin to keep earlier versions of a keyspace, or change which are kept

A keyspace without history keeps the versions from now on. In one with history, what is not kept any
more is freed in steps. A history cannot be ended: `1` keeps as little as possible. It needs an
index of kind fdtree and no merge operator.";

/// The description of `erase`.
pub(crate) const ERASE_HELP: &str = "\
Erase keys with all of their versions, which `del` leaves in the past

Afterwards every version reads as if the keys had never been written. Compacts the keyspace and
rewrites each part of its past that has one of the keys: erase many keys by one call. Backups that
were made before still have them, and so has the log until it is written over. The keyspace keeps
history.";

/// The arguments of `erase`.
#[derive(Debug, Args)]
pub(crate) struct Erase {
    #[command(flatten)]
    store: Store,
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    erased: Vec<OsString>,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    keyspace: Space,
}

/// The arguments of `pin`.
#[derive(Debug, Args)]
pub(crate) struct Pin {
    #[command(flatten)]
    store: Store,
    /// Name: 1 to 255 bytes without control characters, and no number
    name: String,
    /// Version: its number, or another name of it [default: the newest]
    version: Option<Point>,
}

/// The arguments of `unpin`.
#[derive(Debug, Args)]
pub(crate) struct Unpin {
    #[command(flatten)]
    store: Store,
    /// Name
    name: String,
}

/// The arguments of `set-history`.
#[derive(Debug, Args)]
pub(crate) struct SetHistory {
    #[command(flatten)]
    store: Store,
    /// Versions that stay readable: all, those of a time such as 90s, 15m, 12h or 30d, or a number
    /// of newest ones
    #[arg(value_name = "KEPT", value_parser = history::kept)]
    kept: esker::History,
    #[command(flatten)]
    keyspace: Space,
}

/// Names a version.
pub(super) fn pin(args: &Pin) -> Result<(), Failure> {
    let name = &args.name;
    if matches!(name.parse(), Ok(Point::Number(_))) {
        return Err(Failure::Input(format!("{name} cannot be a name: it is read as a number")));
    }
    let db = open(&args.store.path)?;
    let version = match &args.version {
        Some(version) => version.number(&db)?,
        None => db.version(),
    };
    db.pin(name, version)?;
    Ok(db.close()?)
}

/// Gives a name up.
pub(super) fn unpin(args: &Unpin) -> Result<(), Failure> {
    let db = open(&args.store.path)?;
    db.unpin(&args.name)?;
    Ok(db.close()?)
}

/// Begins a history, or changes what is kept.
pub(super) fn set_history(args: &SetHistory) -> Result<(), Failure> {
    let db = open(&args.store.path)?;
    keyspace(&db, &args.keyspace.name)?.set_history(args.kept)?;
    Ok(db.close()?)
}

/// Erases keys.
pub(super) fn erase(args: &Erase) -> Result<(), Failure> {
    let keys = args.erased.iter().map(|key| args.keys.bytes(key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let db = open(&args.store.path)?;
    keyspace(&db, &args.keyspace.name)?.erase(keys)?;
    Ok(db.close()?)
}
