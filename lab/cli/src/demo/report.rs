//! The output of the demo: a line per phase while it runs, and tables or JSON at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::{CheckReport, Stats};
use esker_terminal::exit::{Failure, one_line};
use esker_terminal::output::Output;
use esker_terminal::progress;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::{Value, json};

use super::FILES_FEW;
use super::files::Files;
use super::memory::Resident;
use super::timing::Timing;
use crate::live::Board;

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
const BAR: &str = "{msg:16} [{wide_bar}] {human_pos}/{human_len}";
const SPINNER: &str = "{msg:16} {human_pos} files";

/// Reports progress; prints nothing if the output is for a program.
pub(super) struct Narrator {
    silent: bool,
    /// The board to which lines go while a live view has the terminal.
    board: Option<Arc<Board>>,
}

impl Narrator {
    pub(super) const fn new(silent: bool) -> Self {
        Self { silent, board: None }
    }

    pub(super) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Sends further reports to a live view.
    pub(super) fn tell(&mut self, board: Arc<Board>) {
        self.board = Some(board);
    }

    /// The live view has ended: its lines are printed.
    pub(super) fn print_lines(&mut self) -> Result<(), Failure> {
        let told = self.board.take().map_or_else(Vec::new, |board| board.lines());
        told.iter().try_for_each(|line| self.say(line))
    }

    /// Shows a bar while the file system is walked.
    pub(super) fn walk<T>(&self, work: impl FnOnce(&ProgressBar) -> T) -> T {
        let bar = if self.silent { ProgressBar::hidden() } else { progress::bar(None, SPINNER) };
        bar.set_message("list");
        let answer = work(&bar);
        bar.finish_and_clear();
        answer
    }

    pub(super) fn bar(&self, phase: &'static str, length: u64) -> ProgressBar {
        if self.silent {
            return ProgressBar::hidden();
        }
        if let Some(board) = &self.board {
            let bar = ProgressBar::hidden();
            bar.set_length(length);
            board.follow(phase, bar.clone());
            return bar;
        }
        progress::bar(Some(length), BAR).with_message(phase)
    }

    pub(super) fn introduce(
        &self,
        root: &Path,
        store: &Path,
        files: &Files,
    ) -> Result<(), Failure> {
        let count = files.list.len();
        let mut text = format!(
            "{} files below {}, path to metadata, into a fresh store at {}",
            HumanCount(count as u64),
            root.display(),
            store.display()
        );
        if count < FILES_FEW {
            text.push_str("; so few that memory holds them all, and the figures say little");
        }
        if files.truncated {
            text.push_str("; there are more, which are left out");
        }
        if files.unreadable > 0 {
            text.push_str(&format!("; {} could not be read", HumanCount(files.unreadable)));
        }
        self.say(&one_line(&text))
    }

    pub(super) fn finished(&self, timing: &Timing) -> Result<(), Failure> {
        let seconds = timing.seconds();
        self.say(&match timing.operations() {
            1 => format!("  {:16} {seconds:>8.3} s", timing.phase),
            operations => format!(
                "  {:16} {seconds:>8.3} s  {:>9} operations",
                timing.phase,
                HumanCount(operations).to_string()
            ),
        })
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.silent {
            return Ok(());
        }
        if let Some(board) = &self.board {
            board.say(text);
            return Ok(());
        }
        let mut output = Output::new();
        output.line(text)?;
        output.flush()
    }
}

/// Everything that was measured.
pub(super) struct Figures {
    pub(super) timings: Vec<Timing>,
    pub(super) files: Files,
    pub(super) answers_checked: u64,
    /// As sampled between phases.
    pub(super) counted_bytes_peak: u64,
    pub(super) check: CheckReport,
    /// When all was written: what it cost.
    pub(super) before_close: Stats,
    /// At the end: what is left.
    pub(super) after: Stats,
    pub(super) memory_before: Option<Resident>,
    pub(super) memory_after: Option<Resident>,
}

impl Figures {
    pub(super) fn as_text(&self) -> String {
        format!(
            "\n{}\n\n{}\n\n{}\n\n{}\n\n{}\n",
            self.latencies(),
            self.writes(),
            self.space(),
            self.memory(),
            self.verdict()
        )
    }

    fn latencies(&self) -> Table {
        let mut table =
            Table::new(&["operation", "number", "per second", "p50", "p99", "p99.9", "max"]);
        for timing in &self.timings {
            let mut row = vec![
                timing.phase.to_owned(),
                HumanCount(timing.operations()).to_string(),
                HumanCount(timing.per_second() as u64).to_string(),
            ];
            match timing.operations() {
                // A single operation has no distribution.
                1 => {
                    row = vec![
                        timing.phase.to_owned(),
                        "1".to_owned(),
                        String::new(),
                        human(timing.quantile(1.0)),
                    ]
                }
                _ => row.extend(QUANTILES.map(|(_, part)| human(timing.quantile(part)))),
            }
            table.row(row);
        }
        table
    }

    fn writes(&self) -> Table {
        let user_bytes = self.before_close.user_bytes_written;
        let mut table = Table::new(&["written for", "bytes", "per user byte", "writes", "syncs"]);
        let mut all_bytes = 0;
        for io in &self.before_close.io {
            all_bytes += io.bytes_written;
            if io.bytes_written > 0 || io.syncs > 0 {
                table.row([
                    io.purpose.to_owned(),
                    HumanBytes(io.bytes_written).to_string(),
                    ratio(io.bytes_written, user_bytes),
                    HumanCount(io.writes).to_string(),
                    HumanCount(io.syncs).to_string(),
                ]);
            }
        }
        table.row([
            "all".to_owned(),
            HumanBytes(all_bytes).to_string(),
            ratio(all_bytes, user_bytes),
        ]);
        table.row(["users".to_owned(), HumanBytes(user_bytes).to_string()]);
        table
    }

    fn space(&self) -> Table {
        let live_bytes = self.files.live_bytes();
        let space = &self.after.space;
        let mut table = Table::new(&["space", "bytes", "per live byte"]);
        for (name, bytes) in [
            ("live keys and values", live_bytes),
            ("data file", space.data_file_bytes),
            ("  in use", space.allocated_bytes),
            ("  free", space.free_bytes),
            ("log", space.log_bytes),
            ("manifest", space.manifest_bytes),
        ] {
            table.row([name.to_owned(), HumanBytes(bytes).to_string(), ratio(bytes, live_bytes)]);
        }
        table
    }

    fn memory(&self) -> Table {
        let mut table = Table::new(&["memory", "bytes"]);
        let mut row =
            |name: &str, bytes| table.row([name.to_owned(), HumanBytes(bytes).to_string()]);
        row("budget of the store", self.after.memory.budget_bytes);
        row("counted by it, at most", self.counted_bytes_peak);
        if let (Some(before), Some(after)) = (self.memory_before, self.memory_after) {
            row("process, before the store", before.now_bytes);
            row("process, at its peak", after.peak_bytes);
        }
        table
    }

    fn verdict(&self) -> String {
        format!(
            "All {} answers were right; check read {} in {} blocks and found nothing wrong.",
            HumanCount(self.answers_checked),
            HumanBytes(self.check.bytes),
            HumanCount(self.check.blocks)
        )
    }

    pub(super) fn as_json(&self) -> Value {
        let io = self.before_close.io.iter().map(|io| {
            json!({
                "purpose": io.purpose,
                "bytes_written": io.bytes_written,
                "writes": io.writes,
                "syncs": io.syncs,
            })
        });
        let space = &self.after.space;
        json!({
            "files": self.files.list.len(),
            "unreadable": self.files.unreadable,
            "truncated": self.files.truncated,
            "few": self.files.list.len() < FILES_FEW,
            "answers_checked": self.answers_checked,
            "phases": self.timings.iter().map(timing_as_json).collect::<Vec<_>>(),
            "user_bytes_written": self.before_close.user_bytes_written,
            "written": io.collect::<Vec<_>>(),
            "space": {
                "live_bytes": self.files.live_bytes(),
                "data_file_bytes": space.data_file_bytes,
                "allocated_bytes": space.allocated_bytes,
                "free_bytes": space.free_bytes,
                "log_bytes": space.log_bytes,
                "manifest_bytes": space.manifest_bytes,
            },
            "memory": {
                "budget_bytes": self.after.memory.budget_bytes,
                "counted_bytes_peak": self.counted_bytes_peak,
                "process_bytes_before": self.memory_before.map(|resident| resident.now_bytes),
                "process_bytes_peak": self.memory_after.map(|resident| resident.peak_bytes),
            },
            "check": {
                "blocks": self.check.blocks,
                "bytes": self.check.bytes,
                "entries": self.check.entries,
            },
        })
    }
}

fn timing_as_json(timing: &Timing) -> Value {
    let latency_ns = QUANTILES.map(|(name, part)| {
        (name.to_owned(), Value::from(timing.quantile(part).as_nanos() as u64))
    });
    json!({
        "phase": timing.phase,
        "operations": timing.operations(),
        "seconds": timing.seconds(),
        "per_second": timing.per_second(),
        "latency_ns": latency_ns.into_iter().collect::<serde_json::Map<_, _>>(),
    })
}

/// Three digits and a unit.
fn human(duration: Duration) -> String {
    match duration.as_nanos() {
        0..1_000 => format!("{} ns", duration.as_nanos()),
        1_000..1_000_000 => format!("{:.1} µs", duration.as_secs_f64() * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { String::new() } else { format!("{:.2}", part as f64 / whole as f64) }
}
