//! `flash kv`: the ordered map of `esker-latree` on a raw chip in a file.
//!
//! Reading order: here (what can be typed, and single keys), `open` (images, and errors as
//! failures), `load` (many entries), `show` (what an image holds).

mod load;
mod open;
mod show;

use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use esker_flash::nand::preset;
use esker_flash::run::spec;
use esker_latree::{Direction, ImageSizes};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use self::open::{Memory, failed, open_to_read, open_to_write};
use crate::args::Keys;
use crate::commands::bounds::Bounds;
use crate::commands::single;
use crate::text::Format;

pub(super) const HELP: &str = "\
Create, fill and read an ordered map on a raw flash chip in a file

IMAGE is a file with the pages of a raw flash chip, without a translation layer, and the erase
counts of its blocks. The map on it is the tree of the crate esker-latree, as a firmware uses it.

put, delete and load are durable when they end. get, scan, check and stats leave the image as it
is: what the tree programs when it is opened stays in memory. One process has an image open for
writing, or several for reading.";

pub(super) const EXAMPLES: &str = "\
Examples:
  esker flash kv create chip.img --preset slc512 --blocks 256
  esker flash kv put chip.img door open
  esker flash kv load chip.img measurements.tsv
  esker flash kv scan chip.img --from sensor7/ --to sensor8/ --reverse --limit 10
  esker flash kv stats chip.img --json

Exit codes: as those of the store, `esker --help`.";

#[derive(Debug, Args)]
pub(crate) struct Kv {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What can be done with an image.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create the image of a chip with an empty map
    Create(Create),
    /// Set KEY to VALUE durably
    Put(Put),
    /// Print the value of KEY and a line feed; exits with 1 if there is none
    Get(Get),
    /// Delete KEY durably; no error if it does not exist
    #[command(visible_alias = "del")]
    Delete(Delete),
    /// Print entries in key order
    Scan(Scan),
    /// Store the entries of a file or of standard input, one per line
    Load(load::Load),
    /// Verify all pages, their order and their counts
    Check(Look),
    /// Print the sizes of the chip, its wear, and what the tree has on it
    Stats(Look),
}

#[derive(Debug, Args)]
pub(super) struct Image {
    /// File with the pages of the chip
    #[arg(value_name = "IMAGE")]
    path: PathBuf,
    #[command(flatten)]
    memory: Memory,
}

#[derive(Debug, Args)]
pub(super) struct Create {
    #[command(flatten)]
    image: Image,
    /// Chip whose sizes are used where no option replaces them
    #[arg(long, value_name = "NAME", default_value = "slc512",
        value_parser = PossibleValuesParser::new(spec::preset_names()))]
    preset: String,
    /// Bytes of a page: 256 to 32,768
    #[arg(long, value_name = "BYTES")]
    page_bytes: Option<u32>,
    /// Pages of a block: 2 to 4,096
    #[arg(long, value_name = "N")]
    pages_per_block: Option<u32>,
    /// Blocks of the chip; at least 16
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Levels of the tree's subtrees: 1 to 3
    #[arg(long, value_name = "N", default_value = "2")]
    levels: u8,
}

#[derive(Debug, Args)]
pub(super) struct Put {
    #[command(flatten)]
    image: Image,
    /// Key
    key: OsString,
    /// Value, as bytes
    value: OsString,
    #[command(flatten)]
    keys: Keys,
}

#[derive(Debug, Args)]
pub(super) struct Get {
    #[command(flatten)]
    image: Image,
    /// Key
    key: OsString,
    #[command(flatten)]
    keys: Keys,
    /// Print the bytes of the value without a line feed
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print the entry as a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Delete {
    #[command(flatten)]
    image: Image,
    /// Key
    key: OsString,
    #[command(flatten)]
    keys: Keys,
}

#[derive(Debug, Args)]
pub(super) struct Scan {
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    bounds: Bounds,
    /// Descending order
    #[arg(long)]
    reverse: bool,
    /// Print at most this many entries
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Look {
    #[command(flatten)]
    image: Image,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => open::create(&args.image, sizes(args)?),
        Command::Put(args) => put(args),
        Command::Get(args) => get(args),
        Command::Delete(args) => delete(args),
        Command::Scan(args) => scan(args),
        Command::Load(args) => load::run(args),
        Command::Check(args) => show::check(args),
        Command::Stats(args) => show::stats(args),
    }
}

/// The sizes of the preset, with what replaces them.
fn sizes(args: &Create) -> Result<ImageSizes, Failure> {
    let wrong = |error: esker_flash::Error| Failure::Input(error.to_string());
    let chip = preset(&args.preset).and_then(|preset| preset.geometry(None)).map_err(wrong)?;
    Ok(ImageSizes {
        page_bytes: args.page_bytes.unwrap_or(chip.page_size()),
        pages_per_block: args.pages_per_block.unwrap_or(chip.pages_per_block()),
        blocks: args.blocks.unwrap_or(chip.blocks()),
        subtree_levels: args.levels,
    })
}

fn put(args: &Put) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let mut tree = open_to_write(&args.image)?;
    let put = tree.put(&key, args.value.as_bytes()).and_then(|()| tree.sync());
    put.map_err(|error| failed(&args.image, error))
}

fn get(args: &Get) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let found = open_to_read(&args.image)?.get(&key).map_err(|error| failed(&args.image, error))?;
    single::print_value(&key, &found.ok_or(Failure::Absent)?, args.raw, args.json)
}

fn delete(args: &Delete) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let mut tree = open_to_write(&args.image)?;
    let removed = tree.remove(&key).and_then(|()| tree.sync());
    removed.map_err(|error| failed(&args.image, error))
}

fn scan(args: &Scan) -> Result<(), Failure> {
    let (from, to) = args.bounds.read()?;
    let from = match from {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => Vec::new(),
    };
    let to = match to {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    let mut tree = open_to_read(&args.image)?;
    let direction = if args.reverse { Direction::Backward } else { Direction::Forward };
    let format = if args.json { Format::Jsonl } else { Format::Tsv };
    let mut output = Output::new();
    let range = tree.range(&from, to.as_deref(), direction);
    let printed = print(range.take(args.limit.unwrap_or(usize::MAX)), format, &mut output, args);
    // Also after an error: what was read before it.
    output.flush()?;
    printed
}

type Entry = Result<(Vec<u8>, Vec<u8>), esker_latree::Error>;

fn print(
    entries: impl Iterator<Item = Entry>,
    format: Format,
    output: &mut Output,
    args: &Scan,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    for entry in entries {
        let (key, value) = entry.map_err(|error| failed(&args.image, error))?;
        line.clear();
        format.encode(&key, &value, &mut line);
        output.bytes(&line)?;
    }
    Ok(())
}
