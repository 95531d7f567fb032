//! The command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use esker::KeyspaceOptions;
use esker_terminal::exit::Failure;
use esker_terminal::kind::Kind;
use esker_terminal::output::Output;

use crate::commands::bounds::Bounds;
use crate::commands::version::{self, Version};
use crate::commands::{changes, history, keep, top};
use crate::text::{self, Format};

const ABOUT: &str = "An embedded ordered key-value store, from the command line";

const EXAMPLES: &str = "\
Examples:
  esker put pets.esker whiskers cat
  esker get pets.esker whiskers
  esker load words.esker words.tsv
  esker scan words.esker --prefix un --limit 10
  esker dump words.esker > words.tsv
  esker put prices.esker tea 3.20 --history
  esker get prices.esker tea --at-time 2026-11-26T10:00:00Z

Exit codes:
  0  success                    4  another process has the store open
  1  key not found              5  I/O error, or no space
  2  invalid argument           130  interrupted
  3  stored data is damaged

Keys and values are taken from the command line byte by byte. Put `--` before one that begins with
a dash. `--key-format escaped` reads keys in the form that `scan` and `dump` print,
`--key-format hex` in hexadecimal digits.";

const TEXT_HELP: &str = r#"Text: one entry per line: key, TAB, value; \\ \t \n \r and \xHH are
a backslash, a TAB, a line feed, a carriage return, and any byte.
JSON lines: {"k":"…","v":"…"}, with "k64" or "v64" in base64 for bytes that are not UTF-8."#;

const LOAD_HELP: &str = r#"Store the entries of a file or of standard input, one per line

A later line with the same key replaces an earlier one. Creates the store and the keyspace.

If it is interrupted, killed or fails, a prefix of the input is stored, at least as long as it last
reported as durable. When it reports success, everything is synced.

Text: the first TAB separates key and value; \\ \t \n \r and \xHH are escapes, any other backslash
is an error; a carriage return before the line feed belongs to the value.
JSON lines: {"k":"…","v":"…"}, with "k64" or "v64" in base64 for bytes that are not UTF-8.

With --json, prints progress as JSON lines: "durable" is the number of lines from the start that
are synced, "lines" the number read, "bad" the number skipped; the last line has "done":true."#;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "esker", version, about = ABOUT, after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// A subcommand with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set KEY to VALUE durably; creates the store and the keyspace
    Put(Put),
    /// Print the value of KEY and a line feed; exits with 1 if there is none
    Get(Get),
    /// Delete KEY durably; no error if it does not exist
    Del(Del),
    /// Print entries in key order
    #[command(after_help = TEXT_HELP)]
    Scan(Scan),
    /// Store the entries of a file or of standard input
    #[command(long_about = LOAD_HELP)]
    Load(Load),
    /// Print every entry of a keyspace in the format that `load` reads
    #[command(after_help = TEXT_HELP)]
    Dump(Dump),
    /// Print the changes of KEY, newest first; exits with 1 if there are none
    #[command(long_about = history::HELP)]
    History(history::History),
    /// Print the changes that versions made, by key
    #[command(long_about = changes::CHANGES_HELP)]
    Changes(changes::Changes),
    /// Print the keys whose values differ between two versions
    #[command(long_about = changes::DIFF_HELP)]
    Diff(changes::Diff),
    /// Print the newest version, those with names, and the oldest one of each keyspace with history
    Versions(version::Versions),
    /// Give a version a name, under which it stays readable
    #[command(long_about = keep::PIN_HELP)]
    Pin(keep::Pin),
    /// Remove the name of a version
    Unpin(keep::Unpin),
    /// Begin to keep earlier versions of a keyspace, or change which are kept
    #[command(long_about = keep::SET_HISTORY_HELP)]
    SetHistory(keep::SetHistory),
    /// Erase keys with all of their versions, which `del` leaves in the past
    #[command(long_about = keep::ERASE_HELP)]
    Erase(keep::Erase),
    /// Print the names of all keyspaces
    Keyspaces(Keyspaces),
    /// Print statistics: sizes, levels, compaction, I/O
    Stats(Stats),
    /// Show a store at work while a program has it open, once a second
    #[command(long_about = top::HELP)]
    Top(top::Top),
    /// Verify a store or a backup; prints damage as file@offset: message
    Check(Check),
    /// Compact all levels into one and return free space to the file system
    Compact(Compact),
    /// Back up the store to a folder, incrementally if it has a backup
    #[command(long_about = crate::commands::backup::BACKUP_HELP)]
    #[command(after_help = crate::commands::backup::BACKUP_EXAMPLES)]
    Backup(Backup),
    /// Restore a backup to a new store
    #[command(long_about = crate::commands::backup::RESTORE_HELP)]
    #[command(after_help = crate::commands::backup::RESTORE_EXAMPLES)]
    Restore(Restore),
    /// Rearrange an array larger than memory: transpose, reorder axes, cut into tiles
    #[command(long_about = crate::commands::permute::HELP)]
    Permute(crate::commands::permute::Permute),
    /// Simulate SSDs: write amplification, wear and latency under traces and workloads
    #[command(after_help = crate::commands::flash::HELP)]
    Flash(crate::commands::flash::Flash),
    /// Page stores of SQLite databases: import, export, check, pin versions
    #[command(after_help = crate::commands::sqlite::HELP)]
    Sqlite(crate::commands::sqlite::Sqlite),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(esker_lab_cli::Command),
    /// Print the completion script of a shell
    Completions(Completions),
}

#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Folder of the store
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Space {
    /// Keyspace to use
    #[arg(long = "keyspace", value_name = "NAME", default_value = "default")]
    pub(crate) name: String,
}

/// What is chosen when a keyspace is created.
#[derive(Debug, Args)]
pub(crate) struct NewKeyspace {
    #[command(flatten)]
    kind: Kind,
    /// Keep earlier versions of a new keyspace readable: all, those of a time such as 90s, 15m,
    /// 12h or 30d, or a number of newest ones; an existing keyspace must have this history,
    /// which `set-history` changes
    #[arg(
        long,
        value_name = "KEPT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all",
        value_parser = history::kept
    )]
    history: Option<esker::History>,
    /// Share of superseded entries at which the live ones of a new keyspace with history are
    /// copied: 0.2 to 0.8, or 1 for never
    #[arg(long, value_name = "SHARE", requires = "history")]
    history_share: Option<f64>,
}

impl NewKeyspace {
    /// The options with which the keyspace is opened.
    pub(crate) fn options(&self) -> KeyspaceOptions {
        let mut options = self.kind.options();
        if let Some(history) = self.history {
            options = options.history(history);
        }
        if let Some(share) = self.history_share {
            options = options.history_share(share);
        }
        options
    }
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Keys {
    /// Encoding of keys on the command line
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    key_format: KeyFormat,
}

impl Keys {
    /// The bytes of a key, or of its beginning.
    pub(crate) fn bytes(self, given: &OsStr) -> Result<Vec<u8>, Failure> {
        let given = given.as_bytes();
        let decoded = match self.key_format {
            KeyFormat::Text => return Ok(given.to_vec()),
            KeyFormat::Escaped => text::unescaped(given).map_err(|error| error.to_string()),
            KeyFormat::Hex => text::from_hex(given)
                .ok_or_else(|| "it is not an even number of hexadecimal digits".to_owned()),
        };
        let form = match self.key_format {
            KeyFormat::Hex => "hex",
            _ => "escaped",
        };
        decoded.map_err(|why| {
            Failure::Input(format!("the key cannot be read with --key-format {form}: {why}"))
        })
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeyFormat {
    /// The bytes as they are
    Text,
    /// With escapes such as \xHH, as `scan` prints them
    Escaped,
    /// Two hexadecimal digits per byte
    Hex,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Key
    pub(crate) key: OsString,
    /// Value, as bytes
    #[arg(required_unless_present = "file")]
    pub(crate) value: Option<OsString>,
    /// Read the value from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) keyspace: Space,
    #[command(flatten)]
    pub(crate) new: NewKeyspace,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) keyspace: Space,
    #[command(flatten)]
    pub(crate) version: Version,
    /// Print the bytes of the value without a line feed
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Print the entry as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Del {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) keys: Keys,
    #[command(flatten)]
    pub(crate) keyspace: Space,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    /// Descending order
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Print at most this many entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Skip damaged parts, report them, and exit with 3 if there are any
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    #[command(flatten)]
    pub(crate) keyspace: Space,
    #[command(flatten)]
    pub(crate) version: Version,
    /// Print JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    pub(crate) store: Store,
    /// File to read; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the lines
    #[arg(long, value_enum, default_value = "tsv")]
    pub(crate) format: FormatName,
    /// Sync every batch, or periodically and at the end
    #[arg(long, value_enum, default_value = "buffered")]
    pub(crate) durability: DurabilityName,
    /// Skip invalid lines and report their number
    #[arg(long)]
    pub(crate) skip_bad: bool,
    #[command(flatten)]
    pub(crate) keyspace: Space,
    #[command(flatten)]
    pub(crate) new: NewKeyspace,
    /// Compression of blocks written from now on: none, lz4, zstd [default: unchanged]
    #[arg(long, value_name = "CODEC")]
    pub(crate) compression: Option<esker::Compression>,
    /// Print progress as JSON lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Format of the lines
    #[arg(long, value_enum, default_value = "tsv")]
    pub(crate) format: FormatName,
    /// Skip damaged parts, report them, and exit with 3 if there are any
    #[arg(long)]
    pub(crate) skip_damaged: bool,
    #[command(flatten)]
    pub(crate) keyspace: Space,
    #[command(flatten)]
    pub(crate) version: Version,
    /// The same as `--format jsonl`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Keyspaces {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Print a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Only this keyspace [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Folder of the store, or of a backup
    #[arg(value_name = "DB")]
    pub(crate) path: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Only this keyspace; does not return free space [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Folder of the backup
    pub(crate) dest: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Folder of the backup
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Folder of the new store
    pub(crate) dest: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FormatName {
    /// key, TAB, value
    Tsv,
    /// One JSON object per line
    Jsonl,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Tsv => Self::Tsv,
            FormatName::Jsonl => Self::Jsonl,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityName {
    /// Survives a killed process at once, a power cut after the next sync
    Buffered,
    /// Survives a power cut at once
    Synced,
}

impl From<DurabilityName> for esker::Durability {
    fn from(name: DurabilityName) -> Self {
        match name {
            DurabilityName::Buffered => Self::Buffered,
            DurabilityName::Synced => Self::Synced,
        }
    }
}

/// Reads the command line. Help and version are printed here, and leave nothing to run.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Option<Command>, Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match CommandLine::try_parse_from(&arguments) {
        Ok(line) => Ok(Some(line.command)),
        Err(error) if error.use_stderr() => Err(usage(&error, &arguments)),
        Err(error) => {
            let mut output = Output::new();
            output.bytes(error.render().to_string().as_bytes())?;
            output.flush()?;
            Ok(None)
        }
    }
}

/// The completion script of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "esker", &mut script);
    script
}

/// A usage error in one line.
fn usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let subcommand = arguments.get(1).and_then(|name| name.to_str());
    let text = match (subcommand, error.kind()) {
        (None, _) | (_, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) => {
            "a command is missing".to_owned()
        }
        // A forgotten quote makes a part of the value an argument of its own.
        (Some("put"), ErrorKind::UnknownArgument | ErrorKind::InvalidValue) => {
            "put takes DB KEY VALUE, or DB KEY --file FILE: quote a key or value that holds \
             spaces, and put `--` before one that begins with a dash"
                .to_owned()
        }
        _ => first_paragraph(&error.render().to_string()),
    };
    let known = error.get(ContextKind::InvalidSubcommand).is_none();
    let help = match subcommand.filter(|name| known && is_subcommand(name)) {
        Some(name) => format!("esker {name} --help"),
        None => "esker --help".to_owned(),
    };
    match suggestion(error) {
        Some(meant) => Failure::Input(format!("{text}; did you mean `{meant}`? (see `{help}`)")),
        None => Failure::Input(format!("{text} (see `{help}`)")),
    }
}

/// A name that is like what was typed.
fn suggestion(error: &clap::Error) -> Option<&str> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.as_str()),
        ContextValue::Strings(names) => names.first().map(String::as_str),
        _ => None,
    })
}

fn is_subcommand(name: &str) -> bool {
    CommandLine::command().find_subcommand(name).is_some()
}

/// The text before the first empty line, as one line.
fn first_paragraph(message: &str) -> String {
    let lines = message.lines().map(str::trim).take_while(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join(" ");
    text.strip_prefix("error: ").map_or_else(|| text.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(arguments: &[&str]) -> String {
        match parse(arguments.iter().map(OsString::from)) {
            Err(failure) => failure.to_string(),
            Ok(command) => panic!("{command:?}"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_with_a_way_on() {
        assert_eq!(refusal(&["esker"]), "a command is missing (see `esker --help`)");
        let text = refusal(&["esker", "scan", "db", "--limit", "x"]);
        assert!(text.contains("'x'") && text.ends_with("(see `esker scan --help`)"), "{text}");
        let text = refusal(&["esker", "get"]);
        assert!(text.contains("<DB>") && text.contains("<KEY>"), "{text}");
        let text = refusal(&["esker", "gett", "db"]);
        assert!(text.contains("'gett'") && text.ends_with("(see `esker --help`)"), "{text}");
        assert!(text.contains("did you mean `get`?"), "{text}");
        let text = refusal(&["esker", "get", "db", "k", "--keyspase", "n"]);
        assert!(text.contains("did you mean `--keyspace`?"), "{text}");
        let text = refusal(&["esker", "load", "db", "--format", "jsonk"]);
        assert!(text.contains("did you mean `jsonl`?"), "{text}");
        for arguments in [&["esker", "get"][..], &["esker", "--frob"], &["esker", "dump", "a", "b"]]
        {
            assert!(!refusal(arguments).contains('\n'));
        }
    }

    #[test]
    fn a_usage_error_of_put_repeats_nothing() {
        for argument in ["hunter2", "--hunter2", "-Hunter2"] {
            let text = refusal(&["esker", "put", "db", "password", "my", argument]);
            assert!(!text.contains("unter2"), "{text}");
        }
    }

    #[test]
    fn keys_are_bytes_and_may_begin_with_a_dash() {
        let arguments = ["esker", "put", "db", "--", "-k", "--json"].map(OsString::from);
        let Ok(Some(Command::Put(put))) = parse(arguments) else { panic!() };
        assert_eq!((put.key, put.value), ("-k".into(), Some("--json".into())));
    }
}
