//! `flash kv load`: the lines of a stream, in order.
//!
//! Invariant: what is stored is a prefix of the lines, also after a crash; a count of lines that is
//! reported was synced before.

use std::path::PathBuf;

use clap::Args;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use indicatif::{HumanCount, ProgressBar};
use serde_json::json;

use super::Image;
use super::open::{Tree, failed, open_to_write};
use crate::args::FormatName;
use crate::input::{Event, Input};
use crate::text::{Format, Line, LineError, LineSplitter};

#[derive(Debug, Args)]
pub(in crate::commands::flash) struct Load {
    #[command(flatten)]
    image: Image,
    /// File to read; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Format of the lines
    #[arg(long, value_enum, default_value = "tsv")]
    format: FormatName,
    /// Print the number of lines as a JSON object
    #[arg(long)]
    json: bool,
}

struct Loader<'a> {
    tree: Tree,
    image: &'a Image,
    name: String,
    format: Format,
    lines: u64,
    synced: u64,
    bar: ProgressBar,
}

pub(super) fn run(args: &Load) -> Result<(), Failure> {
    let input = Input::open(&args.file)?;
    let interrupt = Interrupt::install()?;
    let length = input.length_bytes();
    let bar = if args.json { ProgressBar::hidden() } else { progress::bar_of_bytes(length) };
    let mut loader = Loader {
        tree: open_to_write(&args.image)?,
        image: &args.image,
        name: input.name().to_owned(),
        format: args.format.into(),
        lines: 0,
        synced: 0,
        bar,
    };
    let read = loader.pump(&input, &interrupt);
    // Also after a failure: what came before it is promised to be stored.
    let ended = read.and(loader.sync());
    loader.bar.finish_and_clear();
    let lines = loader.synced;
    ended.map_err(|failure| match lines {
        0 => failure,
        lines => Failure::Stopped { cause: Box::new(failure), lines },
    })?;
    let mut output = Output::new();
    if args.json {
        output.json(&json!({ "lines": lines, "done": true }))?;
    } else {
        output.line(&format!("loaded {} lines", HumanCount(lines)))?;
    }
    output.flush()
}

impl Loader<'_> {
    /// Takes the input to its end, or to the first thing that stops it.
    fn pump(&mut self, input: &Input, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut splitter = LineSplitter::new(self.format.line_bytes_max());
        loop {
            match input.next(interrupt)? {
                Event::Chunk(chunk) => {
                    splitter.feed(&chunk, &mut |line| self.take(line))?;
                    self.bar.inc(chunk.len() as u64);
                }
                // If the input arrives line by line, every line is durable soon after.
                Event::Idle => self.sync()?,
                Event::End => return splitter.finish(&mut |line| self.take(line)),
            }
        }
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), Failure> {
        let entry = match line {
            Line::Whole(line) => self.format.decode(line),
            Line::TooLong => {
                Err(LineError::LineTooLong { bytes_max: self.format.line_bytes_max() })
            }
        };
        let number = self.lines + 1;
        let (key, value) =
            entry.map_err(|error| Failure::Input(format!("{}:{number}: {error}", self.name)))?;
        self.tree.put(&key, &value).map_err(|error| failed(self.image, error))?;
        self.lines = number;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Failure> {
        if self.synced < self.lines {
            self.tree.sync().map_err(|error| failed(self.image, error))?;
            self.synced = self.lines;
        }
        Ok(())
    }
}
