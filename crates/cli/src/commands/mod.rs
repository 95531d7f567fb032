//! One file a subcommand; those of the laboratory are in `esker-lab-cli`.

pub(crate) mod backup;
pub(crate) mod bounds;
pub(crate) mod changes;
mod check;
mod compact;
mod dump;
mod entries;
pub(crate) mod flash;
pub(crate) mod history;
pub(crate) mod keep;
mod keyspaces;
mod load;
pub(crate) mod permute;
mod permute_probe;
mod place;
mod scan;
mod single;
pub(crate) mod sqlite;
mod stats;
mod time;
pub(crate) mod top;
pub(crate) mod version;

use std::path::Path;

use esker::{Db, Keyspace, KeyspaceOptions};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use crate::args::{self, Command};
use place::{open, open_to_read};

/// Runs the subcommand, if there is one.
pub(crate) fn run(command: Option<Command>) -> Result<(), Failure> {
    match command {
        None => Ok(()),
        Some(Command::Put(args)) => single::put(&args),
        Some(Command::Get(args)) => single::get(&args),
        Some(Command::Del(args)) => single::del(&args),
        Some(Command::Scan(args)) => scan::run(&args),
        Some(Command::Load(args)) => load::run(&args),
        Some(Command::Dump(args)) => dump::run(&args),
        Some(Command::History(args)) => history::history(&args),
        Some(Command::Changes(args)) => changes::changes(&args),
        Some(Command::Diff(args)) => changes::diff(&args),
        Some(Command::Versions(args)) => version::versions(&args),
        Some(Command::Pin(args)) => keep::pin(&args),
        Some(Command::Unpin(args)) => keep::unpin(&args),
        Some(Command::SetHistory(args)) => keep::set_history(&args),
        Some(Command::Erase(args)) => keep::erase(&args),
        Some(Command::Keyspaces(args)) => keyspaces::run(&args),
        Some(Command::Stats(args)) => stats::run(&args),
        Some(Command::Top(args)) => top::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Compact(args)) => compact::run(&args),
        Some(Command::Backup(args)) => backup::backup(&args),
        Some(Command::Restore(args)) => backup::restore(&args),
        Some(Command::Permute(args)) => permute::run(&args),
        Some(Command::Flash(args)) => flash::run(&args),
        Some(Command::Sqlite(args)) => sqlite::run(&args.command),
        #[cfg(feature = "lab")]
        Some(Command::Lab(command)) => esker_lab_cli::run(&command),
        Some(Command::Completions(args)) => {
            let mut output = Output::new();
            output.bytes(&args::completions(args.shell))?;
            output.flush()
        }
    }
}

/// Opens a keyspace that must exist.
fn keyspace(db: &Db, name: &str) -> Result<Keyspace, Failure> {
    db.open_keyspace(name)?.ok_or_else(|| esker::Error::NoKeyspace { name: name.to_owned() }.into())
}

/// Opens a store and a keyspace, creating what is missing.
fn open_or_create(
    path: &Path,
    name: &str,
    options: KeyspaceOptions,
) -> Result<(Db, Keyspace), Failure> {
    let db = Db::open(path).map_err(|error| place::refused(path, error))?;
    let keyspace = db.keyspace(name, options)?;
    Ok((db, keyspace))
}
