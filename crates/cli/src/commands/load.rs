//! `load`: the lines of a stream, in order, batch by batch.
//!
//! Invariants: batches are committed in the order of their lines, each whole, so that at every
//! moment, and after every crash, a prefix of the input's lines is stored and no other line;
//! `durable <= committed <= lines`; a count of durable lines is reported only after the sync.

use std::time::{Duration, Instant};

use esker::{Batch, Db, Durability, Keyspace};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::progress::{self, Pace};
use esker_terminal::signals::Interrupt;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::json;

use super::open_or_create;
use crate::args::Load;
use crate::input::{Event, Input};
use crate::text::{Format, Line, LineError, LineSplitter};

/// Enough to share the cost of a commit, little enough to lose nothing by holding it back.
const BATCH_LINES: usize = 1024;
const BATCH_BYTES: usize = 256 * 1024;
const REPORT_INTERVAL: Duration = Duration::from_millis(300);

/// The progress of the load, in lines of the input from its start (skipped ones included).
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lines: u64,
    committed: u64,
    durable: u64,
    bad: u64,
    bytes: u64,
}

pub(super) fn run(args: &Load) -> Result<(), Failure> {
    // Before the store: a mistyped file name must not leave an empty one behind.
    let input = Input::open(&args.file)?;
    let interrupt = Interrupt::install()?;
    let mut options = args.new.options();
    if let Some(codec) = args.compression {
        options = options.compression(codec);
    }
    let (db, keyspace) = open_or_create(&args.store.path, &args.keyspace.name, options)?;
    let mut loader = Loader {
        batch: db.batch(),
        batch_bytes: 0,
        db: db.clone(),
        keyspace,
        name: input.name().to_owned(),
        format: args.format.into(),
        durability: args.durability.into(),
        skip_bad: args.skip_bad,
        first_bad: None,
        counts: Counts::default(),
        reporter: Reporter::new(args.json, input.length_bytes()),
    };

    let read = loader.pump(&input, &interrupt);
    // Also after a failure: what came before it is promised to be stored.
    let ended = read.and(loader.persist()).and(db.close().map_err(Failure::from));
    let ended = ended.map_err(|failure| match loader.counts.durable {
        0 => failure,
        lines => Failure::Stopped { cause: Box::new(failure), lines },
    });
    let told = loader.reporter.end(&loader.counts, loader.first_bad.as_deref(), ended.is_ok());
    ended.and(told)
}

struct Loader {
    db: Db,
    keyspace: Keyspace,
    batch: Batch,
    batch_bytes: usize,
    name: String,
    format: Format,
    durability: Durability,
    skip_bad: bool,
    first_bad: Option<String>,
    counts: Counts,
    reporter: Reporter,
}

impl Loader {
    /// Takes the input to its end, or to the first thing that stops it.
    fn pump(&mut self, input: &Input, interrupt: &Interrupt) -> Result<(), Failure> {
        let mut splitter = LineSplitter::new(self.format.line_bytes_max());
        loop {
            match input.next(interrupt)? {
                Event::Chunk(chunk) => {
                    self.counts.bytes += chunk.len() as u64;
                    splitter.feed(&chunk, &mut |line| self.take(line))?;
                }
                // If the input arrives line by line, every line is stored soon after.
                Event::Idle => self.commit()?,
                Event::End => return splitter.finish(&mut |line| self.take(line)),
            }
            self.report_if_due()?;
        }
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), Failure> {
        let entry = match line {
            Line::Whole(line) => self.format.decode(line),
            Line::TooLong => {
                Err(LineError::LineTooLong { bytes_max: self.format.line_bytes_max() })
            }
        };
        let number = self.counts.lines + 1;
        match entry {
            Ok((key, value)) => {
                self.batch_bytes += key.len() + value.len();
                self.batch.insert(&self.keyspace, key, value);
            }
            Err(error) => {
                let text = format!("{}:{number}: {error}", self.name);
                if !self.skip_bad {
                    return Err(Failure::Input(text));
                }
                self.counts.bad += 1;
                self.first_bad.get_or_insert(text);
            }
        }
        self.counts.lines = number;
        if self.batch.len() >= BATCH_LINES || self.batch_bytes >= BATCH_BYTES {
            self.commit()?;
            self.report_if_due()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if !self.batch.is_empty() {
            let batch = std::mem::replace(&mut self.batch, self.db.batch());
            self.batch_bytes = 0;
            if let Err(error) = batch.commit_with(self.durability) {
                // These lines are lost; no later count may include them as stored.
                self.counts.lines = self.counts.committed;
                return Err(error.into());
            }
            if self.durability == Durability::Synced {
                self.counts.durable = self.counts.lines;
            }
        }
        self.counts.committed = self.counts.lines;
        Ok(())
    }

    fn persist(&mut self) -> Result<(), Failure> {
        self.commit()?;
        if self.counts.durable < self.counts.committed {
            self.db.persist()?;
            self.counts.durable = self.counts.committed;
        }
        Ok(())
    }

    fn report_if_due(&mut self) -> Result<(), Failure> {
        if self.reporter.pace.due() {
            if self.reporter.tells_durable() {
                self.persist()?;
            }
            self.reporter.report(&self.counts);
        }
        Ok(())
    }
}

/// Reports the progress of the load. A report that cannot be written does not stop the load; if the
/// load succeeds otherwise, it is the load's failure.
struct Reporter {
    started: Instant,
    pace: Pace,
    output: Output,
    refused: Option<Failure>,
    bar: Option<ProgressBar>,
}

impl Reporter {
    fn new(json: bool, length_bytes: Option<u64>) -> Self {
        Self {
            started: Instant::now(),
            pace: Pace::new(REPORT_INTERVAL),
            output: Output::new(),
            refused: None,
            bar: (!json).then(|| progress::bar_of_bytes(length_bytes)),
        }
    }

    const fn tells_durable(&self) -> bool {
        self.bar.is_none()
    }

    fn report(&mut self, counts: &Counts) {
        match &self.bar {
            Some(bar) => bar.set_position(counts.bytes),
            None => self.write_counts(counts, false),
        }
    }

    fn end(mut self, counts: &Counts, first_bad: Option<&str>, done: bool) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            if done {
                let text = self.summary(counts, first_bad);
                self.output.line(&text)?;
            }
        } else {
            self.write_counts(counts, done);
        }
        self.output.flush()?;
        self.refused.map_or(Ok(()), Err)
    }

    fn write_counts(&mut self, counts: &Counts, done: bool) {
        if self.refused.is_some() {
            return;
        }
        let report = json!({
            "durable": counts.durable,
            "lines": counts.lines,
            "bad": counts.bad,
            "bytes": counts.bytes,
            "seconds": self.started.elapsed().as_secs_f64(),
            "done": done,
        });
        let written = self.output.json(&report).and_then(|()| self.output.flush());
        self.refused = written.err();
    }

    fn summary(&self, counts: &Counts, first_bad: Option<&str>) -> String {
        let loaded = format!(
            "loaded {} lines ({}) in {:.1} s",
            HumanCount(counts.lines - counts.bad),
            HumanBytes(counts.bytes),
            self.started.elapsed().as_secs_f64()
        );
        match first_bad {
            Some(first) => {
                let first = esker_terminal::exit::one_line(first);
                format!("{loaded}; skipped {} bad, the first: {first}", HumanCount(counts.bad))
            }
            None => loaded,
        }
    }
}
