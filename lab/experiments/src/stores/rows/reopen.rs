//! The first answer after a crash in the middle of a full merge with a full memtable.
//!
//! Two processes: one loads, fills the memtable, begins a full merge, goes on writing, and is
//! killed when about half of the data has been rewritten; the other opens what is left.

use std::thread;
use std::time::Instant;

use esker_lab_measure::arrivals::{PATIENCE, Schedule, Window, drive};
use esker_lab_measure::background::joined;
use esker_lab_measure::space::occupied_bytes;
use esker_lab_result::Metrics;
use esker_workload::uniform::{self, Overwrite};
use esker_workload::{Request, entry};

use crate::stores::rows::Run;
use crate::stores::sizes::Sizes;
use crate::stores::task::Task;
use crate::stores::{media, opening};
use crate::{Error, Result};

/// Writes a second that keep the memtable full while the merge runs.
const WRITE_RATE: f64 = 20_000.0;
/// Puts between two looks at the memtable.
const LOOK_EVERY: u64 = 256;

/// Does the work before the kill; returns only if the process is not killed.
pub(super) fn crash(run: &Run<'_>) -> Result<Metrics> {
    let entries = run.sizes.crash_entries;
    run.write_all(uniform::load(entries), entries)?;
    run.store.wait_idle()?;
    let mut requests = Overwrite::new(run.task.seed, entries);
    fill_memtable(run, &mut requests)?;

    let window = Window::default();
    thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let schedule = Schedule::new(Instant::now(), WRITE_RATE);
            let mut next = || requests.next().map_or(Ok(()), |put: Request| run.write(put));
            drive(&schedule, &window, PATIENCE, |_| next())
        });
        run.tell.ready();
        let merged = run.store.compact();
        window.end();
        joined(writes)?;
        merged?;
        Err(Error::Invalid("the full merge ended before the process was killed".to_owned()))
    })
}

/// Writes until the memtable holds nine tenths of what it may: half of the budget.
fn fill_memtable(run: &Run<'_>, requests: &mut Overwrite) -> Result<()> {
    let full_bytes = run.sizes.budget_bytes as f64 * 0.45;
    // However a store counts its memtable, this many entries are more than it can hold.
    let most = run.sizes.budget_bytes / entry::ENTRY_BYTES;
    for (done, put) in (0..most).zip(requests) {
        run.write(put)?;
        if done % LOOK_EVERY == 0 {
            let figures = run.store.figures()?;
            if figures.get("memtable_bytes").is_some_and(|bytes| *bytes >= full_bytes) {
                break;
            }
        }
    }
    Ok(())
}

/// Opens what the killed process left and reads one entry.
pub(crate) fn measure(task: &Task) -> Result<Metrics> {
    let sizes = Sizes::at(task.scale);
    let occupied = occupied_bytes(&task.folder);
    let ssd = opening::device(task)?;
    let reported = ssd.as_ref().map(|ssd| ssd.report());
    let start = Instant::now();
    let store = opening::open(task, ssd.as_ref())?;
    let opening = start.elapsed();
    let found = store.get(&entry::key(sizes.crash_entries / 2))?;
    let answered = start.elapsed();
    if found.is_none() {
        return Err(Error::Invalid("an entry is lost after the crash".to_owned()));
    }
    store.close()?;
    let mut metrics = Metrics::from([
        ("open_seconds".to_owned(), opening.as_secs_f64()),
        ("first_read_seconds".to_owned(), answered.as_secs_f64()),
        ("occupied_bytes".to_owned(), occupied as f64),
    ]);
    if let (Some(ssd), Some(before)) = (&ssd, &reported) {
        metrics.extend(media::metrics(before, &ssd.report(), ssd));
    }
    Ok(metrics)
}
