//! The state that the running command shows in the view: a title, lines, and the progress of the
//! current one.
//!
//! Locks are held for as long as it takes to copy a few lines. Working threads take them where a
//! phase begins or ends, never for an operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{HumanCount, ProgressBar};

/// The lines are those of one run: a handful.
#[derive(Debug, Default)]
pub(crate) struct Board {
    text: Mutex<Text>,
    quit: AtomicBool,
}

#[derive(Debug, Default)]
struct Text {
    title: String,
    lines: Vec<String>,
    current: Option<(&'static str, ProgressBar)>,
}

/// The board as it is at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The names of writes and of reads.
    pub(super) names: [&'static str; 2],
}

impl Board {
    pub(crate) fn set_title(&self, title: String) {
        self.text().title = title;
    }

    /// Adds a line; what was under way is done.
    pub(crate) fn say(&self, line: &str) {
        let mut text = self.text();
        text.current = None;
        text.lines.push(line.to_owned());
    }

    /// Shows how far a bar is, until the next line.
    pub(crate) fn follow(&self, what: &'static str, bar: ProgressBar) {
        self.text().current = Some((what, bar));
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.text().lines.clone()
    }

    /// Whether `q` was typed, or drawing has failed.
    pub(crate) fn has_quit(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    pub(super) fn quit(&self) {
        self.quit.store(true, Ordering::Relaxed);
    }

    pub(super) fn shown(&self, names: [&'static str; 2]) -> Shown {
        let text = self.text();
        let mut lines = text.lines.clone();
        if let Some((what, bar)) = &text.current {
            let (done, all) = (bar.position(), bar.length().unwrap_or(0));
            lines.push(format!("  {what:16} {} of {}", HumanCount(done), HumanCount(all)));
        }
        Shown { title: text.title.clone(), lines, names }
    }

    fn text(&self) -> MutexGuard<'_, Text> {
        // The text is consistent at every moment, even after a panic of another thread.
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_line_follows_its_bar_until_the_next_line() {
        let board = Board::default();
        let bar = ProgressBar::hidden();
        bar.set_length(2000);
        board.say("  store");
        board.follow("look up", bar.clone());
        bar.inc(1000);
        assert_eq!(board.shown([""; 2]).lines, ["  store", "  look up          1,000 of 2,000"]);
        board.say("  look up");
        assert_eq!(board.shown([""; 2]).lines, ["  store", "  look up"]);
        assert_eq!(board.lines().len(), 2);
    }
}
