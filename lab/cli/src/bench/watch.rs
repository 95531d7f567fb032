//! The progress of a comparison: a bar on a terminal, otherwise a line per run, both on standard
//! error.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use esker_experiments::Result;
use esker_experiments::stores::bench::{RunName, Watch};
use esker_lab_result::Metrics;
use esker_terminal::progress;
use esker_terminal::signals::Interrupt;
use indicatif::ProgressBar;

pub(super) struct Watcher {
    interrupt: Interrupt,
    bar: ProgressBar,
    is_terminal: bool,
    begun: Instant,
}

impl Watcher {
    pub(super) fn new(interrupt: Interrupt) -> Self {
        let bar = progress::bar(Some(1), "{msg:<40} {wide_bar} {percent:>3} %  {elapsed}");
        let is_terminal = stderr().is_terminal();
        Self { interrupt, bar, is_terminal, begun: Instant::now() }
    }
}

impl Watch for Watcher {
    fn begins(&mut self, run: RunName) {
        self.begun = Instant::now();
        self.bar.reset();
        self.bar.set_message(label(run));
        self.bar.enable_steady_tick(Duration::from_millis(500));
    }

    fn progress(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    fn ends(&mut self, run: RunName, outcome: &Result<Metrics>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let line = match outcome {
            Ok(_) => format!("{}: {seconds:.1} s", label(run)),
            Err(error) => format!("{}: {error}", label(run)),
        };
        if self.is_terminal {
            self.bar.suspend(|| say(&line));
        } else {
            say(&line);
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.requested()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn say(line: &str) {
    // Progress that cannot be written is no reason to stop.
    let _ = writeln!(stderr(), "{line}");
}

fn label(run: RunName) -> String {
    let (row, system) = (run.row.as_str(), run.system);
    match (run.number, run.of) {
        (0, _) => format!("{system}: loading, for the rows that need it"),
        (_, 1) => format!("{system}: {row}"),
        (number, of) => format!("{system}: {row}, run {number} of {of}"),
    }
}
