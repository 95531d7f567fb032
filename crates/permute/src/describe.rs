//! The text form of a plan.

use crate::job::Job;

impl Job {
    /// The plan as text, one line each: passes, what each reads and writes, in what requests.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let (figures, record) = self.figures();
        let shape = self.shape().map_or_else(|| "short tiles".into(), |s| format!("{s:?}"));
        let count = figures.len();
        let passes = if count == 1 { "1 pass".to_owned() } else { format!("{count} passes") };
        let mut lines = vec![format!(
            "{} to {shape}: {passes}, about {:.1} s",
            size(self.payload_bytes()),
            self.price()
        )];
        for (number, f) in (1..).zip(&figures) {
            let again =
                if f.waste > 1 { format!(", each {} times", f.waste) } else { String::new() };
            lines.push(format!(
                "pass {number}: reads {} segments of {}{again}; memory holds {}; writes {} flushes \
                 of {} into {} partitions",
                f.segments,
                size(f.segment * record),
                size(f.load * record),
                f.flushes,
                size(f.flush * record),
                f.partitions,
            ));
        }
        if let Some(memory) = self.memory_that_saves_a_pass() {
            lines.push(format!("with {} of memory there would be fewer passes", size(memory)));
        }
        lines
    }
}

/// Bytes in the largest unit that leaves at least one.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
