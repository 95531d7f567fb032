//! One run, in the process that was started for it.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::{Control, Stop, StopOnDrop, joined, persist_each_second};
use esker_lab_measure::cgroup;
use esker_lab_measure::process::{DeviceBytes, resident_peak_bytes};
use esker_lab_measure::space::Peak;
use esker_lab_result::Metrics;
use parking_lot::Mutex;

use crate::stores::rows::{self, Row, Run, Tell};
use crate::stores::sizes::Sizes;
use crate::stores::task::{Message, Task};
use crate::stores::{media, opening};
use crate::{Error, Result};

/// Bytes that a process may have resident beyond its budget and a tenth of it: code, stacks,
/// buffers in flight.
const RESIDENT_ALLOWANCE_BYTES: f64 = (24u64 << 20) as f64;

/// Makes one run and says what it measured, as [`Message`]s on standard output.
///
/// # Errors
/// The error of the run, which was sent to the parent too; or [`Error::System`] if no process
/// listens.
pub fn main(task: &str) -> Result<()> {
    let lines = Lines::default();
    let outcome = Task::from_json(task).and_then(|task| perform(&task, &lines));
    match outcome {
        Ok(metrics) => lines.say(&Message::Metrics(metrics)),
        Err(error) => {
            lines.say(&Message::Failed(error.to_string()))?;
            Err(error)
        }
    }
}

/// Makes one run in this process.
///
/// # Errors
/// Those of the store, and [`Error::Invalid`] where the store's answers are wrong.
pub fn perform(task: &Task, tell: &dyn Tell) -> Result<Metrics> {
    if let Some(group) = &task.group {
        cgroup::enter(group).map_err(Error::system(format!("enter {}", group.display())))?;
    }
    let mut metrics = if task.row == Row::Reopen && !task.crash {
        rows::reopen::measure(task)?
    } else {
        in_open_store(task, tell)?
    };
    if let Some(bytes) = resident_peak_bytes() {
        let allowed = Sizes::at(task.scale).budget_bytes as f64 * 1.1 + RESIDENT_ALLOWANCE_BYTES;
        metrics.insert("resident_peak_bytes".to_owned(), bytes as f64);
        metrics.insert("resident_over_allowed".to_owned(), bytes as f64 / allowed);
    }
    if let Some(bytes) = task.group.as_deref().and_then(cgroup::peak_bytes) {
        metrics.insert("group_peak_bytes".to_owned(), bytes as f64);
    }
    Ok(metrics)
}

fn in_open_store(task: &Task, tell: &dyn Tell) -> Result<Metrics> {
    let sizes = Sizes::at(task.scale);
    let ssd = opening::device(task)?;
    let store = opening::open(task, ssd.as_ref())?;
    let reported = ssd.as_ref().map(|ssd| ssd.report());
    let (control, peak, stop) = (Control::default(), Peak::default(), Stop::default());
    let before = DeviceBytes::now();
    let run = Run { task, sizes, store: store.as_ref(), control: &control, peak: &peak, tell };
    let mut metrics = thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| control.run(&stop));
        scope.spawn(|| peak.run(&task.folder, &stop));
        let persists = (task.row != Row::Durable)
            .then(|| scope.spawn(|| persist_each_second(run.store, &stop)));
        let metrics = rows::run(&run);
        stop.ask();
        persists.map_or(Ok(()), joined)?;
        metrics
    })?;
    store.close()?;
    if let (Some(ssd), Some(before)) = (&ssd, &reported) {
        metrics.extend(media::metrics(before, &ssd.report(), ssd));
    }
    if let (Some(now), Some(before)) = (DeviceBytes::now(), before) {
        let bytes = now.since(before);
        metrics.insert("process_bytes_read".to_owned(), bytes.read as f64);
        metrics.insert("process_bytes_written".to_owned(), bytes.written as f64);
    }
    Ok(metrics)
}

/// Messages as lines of standard output.
#[derive(Debug, Default)]
struct Lines {
    progress_at: Mutex<Option<Instant>>,
}

impl Lines {
    fn say(&self, message: &Message) -> Result<()> {
        let mut output = io::stdout().lock();
        writeln!(output, "{}", message.to_json())
            .and_then(|()| output.flush())
            .map_err(Error::system("write to standard output"))
    }
}

impl Tell for Lines {
    fn progress(&self, done: u64, total: u64) {
        const INTERVAL: Duration = Duration::from_millis(250);
        let mut last = self.progress_at.lock();
        if last.is_none_or(|last| last.elapsed() >= INTERVAL) {
            *last = Some(Instant::now());
            // A parent that is gone needs no progress.
            let _ = self.say(&Message::Progress { done, total });
        }
    }

    fn ready(&self) {
        let _ = self.say(&Message::Ready);
    }
}
