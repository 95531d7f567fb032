//! The progress of a long command: a bar for people, lines for programs, otherwise no output.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const BYTES: &str = "{bytes} [{wide_bar}] {bytes_per_sec}, {eta} left";
const BYTES_WITHOUT_END: &str = "{spinner} {bytes}, {bytes_per_sec}";

/// A bar over the bytes of an input; without a length it counts them.
#[must_use]
pub fn bar_of_bytes(length: Option<u64>) -> ProgressBar {
    bar(length, if length.is_some() { BYTES } else { BYTES_WITHOUT_END })
}

/// A bar on standard error over `length` units; hidden where that is not a terminal.
#[must_use]
pub fn bar(length: Option<u64>, template: &str) -> ProgressBar {
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Lets something happen at most once an interval, and not before the first has passed.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    last: Instant,
}

impl Pace {
    /// A pace whose first interval begins now.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: Instant::now() }
    }

    /// Whether it is time, and if so, the start of the next interval.
    pub fn due(&mut self) -> bool {
        let now = Instant::now();
        let due = now.duration_since(self.last) >= self.interval;
        if due {
            self.last = now;
        }
        due
    }
}
