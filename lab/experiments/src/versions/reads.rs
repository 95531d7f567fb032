//! The reads: lookups, scans of 100 entries and histories of keys, whose answers are judged and
//! summed up while they are counted.

use std::time::Instant;

use esker_lab_result::Metrics;
use esker_peers::versions::{Versioned, View, Way};
use esker_workload::random::mixed;
use esker_workload::{entry, uniform};

use super::workload::{AGES, Workload, Written};
use crate::progress::Watch;
use crate::stores::rows::{grown, insert};
use crate::{Error, Result};

/// The sum of the answers of the present, after the load.
pub const ANSWERS: &str = "answers";
/// The sum of the answers of the past.
pub const PAST_ANSWERS: &str = "past_answers";
/// The part of a run that comes after the load, for the progress.
pub const LATER: f64 = 0.1;

/// The most lookups of a measurement; a tenth as many scans, and a fortieth as many histories.
const LOOKUPS_MAX: u64 = 20_000;
const SCAN_ENTRIES: u64 = 100;

/// Answers so far: whether they are possible, and their sum.
#[derive(Debug)]
pub struct Answers<'a> {
    work: &'a Workload,
    /// What the next measurement's keys are drawn by.
    seed: u64,
    sum: u64,
    wrong: Option<String>,
}

impl<'a> Answers<'a> {
    /// No answers; keys are drawn by the workload's seed and this one.
    #[must_use]
    pub const fn new(work: &'a Workload, seed: u64) -> Self {
        Self { work, seed: mixed(work.seed ^ mixed(seed)), sum: 0, wrong: None }
    }

    /// So many keys, drawn evenly, others each time.
    fn keys(&mut self, count: u64) -> impl Iterator<Item = [u8; entry::KEY_BYTES]> + use<> {
        self.seed = mixed(self.seed);
        let keys = uniform::lookups(self.seed, self.work.keys);
        let keys = keys.take(usize::try_from(count).unwrap_or(usize::MAX));
        keys.map(|request| entry::key(request.number))
    }

    /// Hears an answer, which must be what some put up to the commit has written to the key. Says
    /// which.
    pub fn hear(&mut self, commit: u64, key: &[u8], value: Option<&[u8]>) -> Option<u64> {
        let put = value.and_then(|value| self.work.put_of(key, value));
        let put = put.filter(|put| self.work.commit_of(*put) <= commit);
        match put {
            Some(put) => self.sum = mixed(self.sum ^ put),
            None => {
                let number = key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                let what = if value.is_some() { "another value than was written" } else { "none" };
                let text = format!("entry {number} at commit {commit}: the answer is {what}");
                self.wrong.get_or_insert(text);
            }
        }
        put
    }

    /// Whether all answers were possible.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first one that was not.
    pub fn judge(&mut self) -> Result<()> {
        self.wrong.take().map_or(Ok(()), |wrong| Err(Error::Invalid(wrong)))
    }

    /// A number that follows from all answers in their order, and that a metric can be.
    #[must_use]
    pub const fn sum(&self) -> f64 {
        (self.sum >> 12) as f64
    }
}

/// Reads that were counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    count: u64,
    seconds: f64,
    /// Device reads, where the store counts them.
    reads: Option<f64>,
}

impl Counted {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.seconds += other.seconds;
        self.reads = other.reads.map(|reads| reads + self.reads.unwrap_or(0.0));
    }

    /// Their rate, and device reads of each.
    pub fn put_into(&self, metrics: &mut Metrics, name: &str) {
        let count = self.count as f64;
        insert(metrics, &format!("{name}_rate"), Some(count / self.seconds.max(1e-9)));
        insert(metrics, &format!("{name}_reads"), self.reads.map(|reads| reads / count));
    }
}

/// Counts what reads for so many keys take.
fn counted(
    store: &dyn Versioned,
    answers: &mut Answers<'_>,
    count: u64,
    mut read: impl FnMut(&[u8], &mut Answers<'_>) -> Result<()>,
) -> Result<Counted> {
    let keys = answers.keys(count);
    let (before, start) = (store.figures()?, Instant::now());
    for key in keys {
        read(&key, answers)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let reads = grown(&before, &store.figures()?, "reads_user");
    answers.judge()?;
    Ok(Counted { count, seconds, reads })
}

/// Lookups in a view that is the state of a commit with all keys.
///
/// # Errors
/// Those of the store; [`Error::Invalid`] for an answer that is not possible.
pub fn lookups(
    store: &dyn Versioned,
    view: &dyn View,
    commit: u64,
    count: u64,
    answers: &mut Answers<'_>,
) -> Result<Counted> {
    counted(store, answers, count, |key, answers| {
        answers.hear(commit, key, view.get(key)?.as_deref());
        Ok(())
    })
}

/// The same with scans.
///
/// # Errors
/// Those of the store; [`Error::Invalid`] for an answer that is not possible.
pub fn scans(
    store: &dyn Versioned,
    view: &dyn View,
    commit: u64,
    count: u64,
    answers: &mut Answers<'_>,
) -> Result<Counted> {
    counted(store, answers, count, |from, answers| {
        let mut see = |key: &[u8], value: &[u8]| {
            answers.hear(commit, key, Some(value));
        };
        Ok(view.scan(from, SCAN_ENTRIES, &mut see)?)
    })
}

/// Reads the present, and the past where there is one.
///
/// # Errors
/// Those of the store; [`Error::Invalid`] for an answer that is not possible.
pub fn read(
    work: &Workload,
    way: Way,
    store: &dyn Versioned,
    written: &Written,
    watch: &mut Watch<'_>,
) -> Result<Metrics> {
    let count = LOOKUPS_MAX.min(work.keys);
    let mut metrics = Metrics::new();
    watch.progress(1.0 - LATER)?;
    let mut answers = Answers::new(work, 2);
    let now = store.now()?;
    for (name, counted) in read_at(store, now.as_ref(), work.commits(), count, &mut answers)? {
        counted.put_into(&mut metrics, name);
    }
    insert(&mut metrics, ANSWERS, Some(answers.sum()));
    if !way.has_history() {
        return Ok(metrics);
    }
    let mut answers = Answers::new(work, 3);
    for (done, age) in AGES.into_iter().enumerate() {
        watch.progress(1.0 - LATER * (0.8 - 0.2 * done as f64))?;
        let commit = work.commit_at(age);
        let version = written.versions.get(&commit).copied().unwrap_or(0);
        let past = store.at(version)?;
        for (name, counted) in read_at(store, past.as_ref(), commit, count, &mut answers)? {
            counted.put_into(&mut metrics, &format!("at{age}_{name}"));
        }
    }
    histories(store, count / 40, &mut answers, &mut metrics)?;
    insert(&mut metrics, PAST_ANSWERS, Some(answers.sum()));
    Ok(metrics)
}

/// The first lookups, with nothing in memory but what others left there, the lookups after them,
/// and scans.
fn read_at(
    store: &dyn Versioned,
    view: &dyn View,
    commit: u64,
    count: u64,
    answers: &mut Answers<'_>,
) -> Result<[(&'static str, Counted); 3]> {
    Ok([
        ("first_get", lookups(store, view, commit, count / 10, answers)?),
        ("get", lookups(store, view, commit, count, answers)?),
        ("scan", scans(store, view, commit, count / 10, answers)?),
    ])
}

fn histories(
    store: &dyn Versioned,
    count: u64,
    answers: &mut Answers<'_>,
    metrics: &mut Metrics,
) -> Result<()> {
    let (work, mut changes) = (answers.work, 0u64);
    let counted = counted(store, answers, count, |key, answers| {
        let (mut before, mut is_sorted) = (u64::MAX, true);
        store.history(key, &mut |_, value| {
            let put = answers.hear(work.commits(), key, value).unwrap_or(0);
            is_sorted &= put < before;
            before = put;
            changes += 1;
        })?;
        // The first put of a key has its number.
        let number = key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        if is_sorted && (before == number || work.batch > 1) {
            return Ok(());
        }
        Err(Error::Invalid(format!("entry {number}: its history is not in order or not whole")))
    })?;
    counted.put_into(metrics, "history");
    insert(metrics, "history_changes", Some(changes as f64 / count as f64));
    Ok(())
}
