//! The load: all puts, the present read at moments of the second half, and then the wait for what
//! runs in the background.
//!
//! Commits are made durable once a second, as in the comparison of stores. Time that the reads take
//! is not the load's.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_lab_measure::space::occupied_bytes;
use esker_lab_result::Metrics;
use esker_peers::versions::Versioned;
use esker_workload::entry;

use super::reads::{Answers, Counted, LATER, lookups, scans};
use super::workload::{Workload, Written};
use crate::Result;
use crate::progress::Watch;
use crate::stores::rows::insert;
use crate::stores::rows::steady::Counters;

/// The sum of the answers at the moments.
pub const ANSWERS: &str = "load_answers";

/// Lookups, and scans of 100 entries, at each moment.
const MOMENT_LOOKUPS: u64 = 400;
const MOMENT_SCANS: u64 = 40;
/// Commits between two looks at the clock, and two reports.
const LOOK_EVERY: u64 = 64;
const PERSIST_INTERVAL: Duration = Duration::from_secs(1);

/// A load that is complete.
#[derive(Debug)]
pub struct Loaded {
    /// What it measured.
    pub metrics: Metrics,
    /// What was written.
    pub written: Written,
}

/// Loads a store.
///
/// # Errors
/// Those of the store; [`Error::Invalid`](crate::Error::Invalid) for a wrong answer.
pub fn load(
    work: &Workload,
    store: &dyn Versioned,
    folder: &Path,
    watch: &mut Watch<'_>,
) -> Result<Loaded> {
    let before = Counters::now(store.figures()?);
    let (mut written, mut present) = (Written::new(work), Present::new(work));
    let start = Instant::now();
    write_all(work, store, &mut written, &mut present, watch)?;
    let putting = start.elapsed().saturating_sub(present.took);
    let idle = store.wait_idle()?;
    let total = start.elapsed().saturating_sub(present.took + idle);
    store.persist()?;

    let (puts, figures) = (work.puts() as f64, store.figures()?);
    let mut metrics = Metrics::from([
        ("rate".to_owned(), puts / total.as_secs_f64().max(1e-9)),
        ("put_rate".to_owned(), puts / putting.as_secs_f64().max(1e-9)),
    ]);
    before.written_since(&figures, work.puts() * entry::ENTRY_BYTES, &mut metrics);
    let space = occupied_bytes(folder) as f64;
    insert(&mut metrics, "space_bytes", Some(space));
    insert(&mut metrics, "space_per_version_bytes", Some(space / puts));
    let entries = figures.get("entries").map(|entries| entries / puts);
    insert(&mut metrics, "entries_per_version", entries);
    for name in ["past_indexes", "sorted_runs", "levels"] {
        insert(&mut metrics, name, figures.get(name).copied());
    }
    present.put_into(&mut metrics);
    Ok(Loaded { metrics, written })
}

fn write_all(
    work: &Workload,
    store: &dyn Versioned,
    written: &mut Written,
    present: &mut Present<'_>,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let mut puts = (0..work.puts()).zip(work.numbers()).peekable();
    let (mut batch, mut watched) = (Vec::new(), Vec::new());
    let mut persisted = Instant::now();
    for commit in 1..=work.commits() {
        batch.clear();
        watched.clear();
        while let Some((put, number)) = puts.next_if(|(put, _)| work.commit_of(*put) == commit) {
            batch.push(work.put(number, put));
            if written.is_watched(number) {
                watched.push((number, put));
            }
        }
        let version = store.commit(commit, &batch)?;
        written.note(commit, version, &watched);
        present.after(commit, store)?;
        if commit.is_multiple_of(LOOK_EVERY) {
            if persisted.elapsed() >= PERSIST_INTERVAL {
                store.persist()?;
                persisted = Instant::now();
            }
            watch.progress(commit as f64 / work.commits() as f64 * (1.0 - LATER))?;
        }
    }
    Ok(())
}

/// Reads of the present during the load.
struct Present<'a> {
    moments: Vec<u64>,
    answers: Answers<'a>,
    lookups: Counted,
    scans: Counted,
    took: Duration,
}

impl<'a> Present<'a> {
    fn new(work: &'a Workload) -> Self {
        let (lookups, scans) = (Counted::default(), Counted::default());
        let (mut moments, answers) = (work.moments(), Answers::new(work, 1));
        moments.reverse();
        Self { moments, answers, lookups, scans, took: Duration::ZERO }
    }

    /// Reads, if it is time.
    fn after(&mut self, commit: u64, store: &dyn Versioned) -> Result<()> {
        while self.moments.pop_if(|moment| *moment == commit).is_some() {
            let start = Instant::now();
            let view = store.now()?;
            let (count, answers) = (MOMENT_LOOKUPS, &mut self.answers);
            self.lookups.add(lookups(store, view.as_ref(), commit, count, answers)?);
            self.scans.add(scans(store, view.as_ref(), commit, MOMENT_SCANS, answers)?);
            self.took += start.elapsed();
        }
        Ok(())
    }

    fn put_into(&self, metrics: &mut Metrics) {
        self.lookups.put_into(metrics, "load_get");
        self.scans.put_into(metrics, "load_scan");
        insert(metrics, ANSWERS, Some(self.answers.sum()));
    }
}
