//! One run of G_R: requests are brought to two queues, one of lookups and one of updates; workers
//! of each take and do them.
//!
//! | requests come | what counts |
//! |---|---|
//! | as fast as there are slots, as in the paper | throughput |
//! | when they are due, slots or not | latencies |
//!
//! Throughput counts to the end of the work: until all requests are answered, and the merges that
//! they made due have ended. A merge that makes no request wait would otherwise still be under way
//! when the last request is answered, and what is left of it would count for nothing: systems
//! would be compared that have written different amounts. `merge_bytes_written` shows that they
//! have not.
//!
//! The second way is needed because in the first the thread that brings requests stops where one
//! queue is full: while XM makes lookups wait, hardly any update comes that could wait too. It goes
//! on until a merge has been seen to its end, within bounds: a merge that makes no request wait
//! shares the processors with the requests, and takes longer than one that stops them.
//!
//! R_p is the time from taking a request off its queue to its completion; R_q counts from when it
//! was brought, or was due (which makes it R_o). Updates are insertions and deletions, which an
//! FD+tree treats alike. There are half as many workers as the paper had, three to one, for
//! machines with fewer cores than its eight. In addition an idle thread measures the machine's own
//! pauses, and a sampler the space.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::{KeyspaceStats, Stats};
use esker_lab_measure::arrivals::{Schedule, wake_precisely};
use esker_lab_measure::background::{Control, Stop, StopOnDrop};
use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::ratio::{Ratio, Requests};
use esker_workload::{Kind, Request};

use crate::experiment::series::{CONTROL, MERGES};
use crate::experiment::{Watch, go_on, metric};
use crate::fdtree::queue::Queue;
use crate::fdtree::subject::Subject;
use crate::{Error, Result};

/// T_r.
const LOOKUP_WORKERS: u32 = 3;
/// T_w.
const UPDATE_WORKERS: u32 = 1;
/// |Q_r| + |Q_w|.
const SLOTS: u64 = 5000;
/// Requests between two checks for a requested stop.
const WATCH_EVERY: u64 = 1024;
/// The time by which a request may be brought too early: sleeping costs the workers their
/// processor.
const EARLY_MAX: Duration = Duration::from_micros(500);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// The most requests until a merge has finished, as a multiple of those of the run.
const GOES_ON_MAX: u64 = 4;
/// Time between two looks at whether the work has ended: a thousandth of what a run takes.
const WORK_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes that flushes and merges wrote to the end of the work.
pub const WRITTEN: &str = "merge_bytes_written";
/// Seconds until the last request was answered.
pub const ANSWERED: &str = "answered_seconds";

/// The requests that the index is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Seed of the requests.
    pub seed: u64,
    /// Numbers that are there.
    pub preload: u64,
    /// Updates before the requests that count; the lookups among them are left out.
    pub warm_up: u64,
    /// Requests that count; more where latencies do and no merge has finished yet.
    pub requests: u64,
    /// W_l in percent; the rest is half insertions, half deletions.
    pub lookup_percent: u32,
    /// Requests due in a second; `None`: as fast as there are slots.
    pub rate: Option<f64>,
}

/// Latencies of one kind of request.
#[derive(Debug, Default)]
struct Kept {
    processed: Latencies,
    queued: Latencies,
    absent: u64,
}

/// The observations of a sampler: the most space in use, and the number of merges that the store
/// has done since it was created.
#[derive(Debug, Default)]
struct Seen {
    peak_bytes: AtomicU64,
    merges: AtomicU64,
}

impl Seen {
    fn watch(&self, subject: &Subject, stop: &Stop) -> Result<()> {
        loop {
            let stats = subject.stats()?;
            self.peak_bytes.fetch_max(stats.space.allocated_bytes, Ordering::Relaxed);
            self.merges.store(merges(&stats), Ordering::Relaxed);
            if stop.wait(SAMPLE_INTERVAL) {
                return Ok(());
            }
        }
    }
}

impl Asked {
    fn ratio(&self) -> Ratio {
        let lookups = self.lookup_percent.min(100);
        // Twice the percentages, so that the rest has two whole halves.
        Ratio { lookups: 2 * lookups, inserts: 100 - lookups, deletes: 100 - lookups }
    }

    /// The most requests that count.
    const fn requests_max(&self) -> u64 {
        let goes_on = self.rate.is_some() && self.lookup_percent < 100;
        if goes_on { self.requests.saturating_mul(GOES_ON_MAX) } else { self.requests }
    }

    fn slots(&self) -> (usize, usize) {
        if self.rate.is_some() {
            return (usize::MAX, usize::MAX);
        }
        let lookups = SLOTS * u64::from(self.lookup_percent.min(100)) / 100;
        (lookups as usize, (SLOTS - lookups) as usize)
    }
}

/// Makes the requests of one run.
///
/// # Errors
/// Those of the store; [`Error::Interrupted`].
pub fn run(subject: &Subject, asked: &Asked, watch: &dyn Watch) -> Result<Metrics> {
    let final_bytes = subject.stats()?.space.allocated_bytes;
    let requests = warm_up(subject, asked)?;
    let (before, cpu_before) = (subject.stats()?, cpu_seconds());
    let (stop, control, seen) = (Stop::default(), Control::default(), Seen::default());
    let merges_before = merges(&before);
    let enough =
        |number| number >= asked.requests && seen.merges.load(Ordering::Relaxed) > merges_before;
    let start = Instant::now();
    let (lookups, updates, answered) = thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        scope.spawn(|| control.run(&stop));
        let sampler = scope.spawn(|| seen.watch(subject, &stop));
        let (lookups, updates) = through_queues(subject, requests, asked, &enough, watch)?;
        let answered = start.elapsed().as_secs_f64();
        if asked.rate.is_none() {
            to_the_end(subject, watch)?;
        }
        drop(stopping);
        sampler.join().map_err(|_| ended("sampler"))??;
        Ok::<_, Error>((lookups, updates, answered))
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut metrics = Metrics::new();
    metric(&mut metrics, ANSWERED, answered);
    lookups.put_into(&mut metrics, "lookup");
    updates.put_into(&mut metrics, "update");
    let peak_bytes = seen.peak_bytes.load(Ordering::Relaxed) as f64;
    metric(&mut metrics, "seconds", seconds);
    let made = lookups.processed.summary().count + updates.processed.summary().count;
    metric(&mut metrics, "requests_per_second", made as f64 / seconds);
    metric(&mut metrics, "cpu_seconds", cpu_seconds() - cpu_before);
    metric(&mut metrics, "peak_over_final", peak_bytes / final_bytes.max(1) as f64);
    count(&mut metrics, &before, &subject.stats()?);
    metric(&mut metrics, CONTROL, control.longest_micros());
    Ok(metrics)
}

/// Waits until the flushes and merges that are due have ended.
fn to_the_end(subject: &Subject, watch: &dyn Watch) -> Result<()> {
    loop {
        let stats = subject.stats()?;
        if let Some(why) = stats.keyspaces.iter().find_map(|of| of.stalled.as_ref()) {
            return Err(Error::Run(format!("a merge of this run stopped: {why}")));
        }
        if stats.keyspaces.iter().all(has_ended) {
            return Ok(());
        }
        go_on(watch)?;
        thread::sleep(WORK_INTERVAL);
    }
}

/// Whether nothing is under way in a keyspace, and nothing due.
fn has_ended(of: &KeyspaceStats) -> bool {
    let is_due = of.next.is_none_or(|next| next.after_bytes == 0);
    of.merge.is_none() && !of.flushing && !is_due
}

/// Merges done since the store was created.
fn merges(stats: &Stats) -> u64 {
    stats.keyspaces.iter().map(|of| of.merges).sum()
}

/// The differences between two states of the store's counters.
fn count(metrics: &mut Metrics, before: &Stats, after: &Stats) {
    let syncs = |stats: &Stats| stats.io.iter().map(|of| of.syncs).sum::<u64>();
    let merged = |stats: &Stats| {
        let of_merges = stats.io.iter().filter(|of| ["merge", "flush"].contains(&of.purpose));
        of_merges.map(|of| of.bytes_written).sum::<u64>()
    };
    let mut since = |name: &str, of: &dyn Fn(&Stats) -> u64| {
        metric(metrics, name, of(after).saturating_sub(of(before)) as f64);
    };
    since(MERGES, &merges);
    since("syncs", &syncs);
    since(WRITTEN, &merged);
}

/// Does the updates of the warm-up; answers the requests that come after.
fn warm_up(subject: &Subject, asked: &Asked) -> Result<impl Iterator<Item = Request>> {
    let updates_percent = u64::from(100 - asked.lookup_percent.min(100));
    let skipped = (asked.warm_up * 100).checked_div(updates_percent).unwrap_or(0);
    let total = skipped.saturating_add(asked.requests_max());
    let mut requests = Requests::new(asked.seed, asked.preload, total, asked.ratio());
    let first = requests.by_ref().take(usize::try_from(skipped).unwrap_or(usize::MAX));
    for update in first.filter(|request| request.kind != Kind::Lookup) {
        subject.perform(&update)?;
    }
    Ok(requests)
}

fn through_queues(
    subject: &Subject,
    requests: impl Iterator<Item = Request>,
    asked: &Asked,
    enough: &dyn Fn(u64) -> bool,
    watch: &dyn Watch,
) -> Result<(Kept, Kept)> {
    let (lookup_slots, update_slots) = asked.slots();
    let lookups = Queue::new(lookup_slots);
    let updates = Queue::new(update_slots);
    let work = |queue: &Queue| {
        let kept = work(subject, queue);
        // A thread that fails ends the run.
        if kept.is_err() {
            lookups.close();
            updates.close();
        }
        kept
    };
    thread::scope(|scope| {
        let start = |queue, number| -> Vec<_> {
            (0..number).map(|_| scope.spawn(move || work(queue))).collect()
        };
        let lookup_workers = start(&lookups, LOOKUP_WORKERS);
        let update_workers = start(&updates, UPDATE_WORKERS);
        let brought = bring(requests, asked.rate, enough, &lookups, &updates, watch);
        lookups.close();
        updates.close();
        let all = |workers: Vec<thread::ScopedJoinHandle<'_, Result<Kept>>>| {
            workers.into_iter().try_fold(Kept::default(), |mut sum, worker| {
                sum.add(&worker.join().map_err(|_| ended("worker"))??);
                Ok::<_, Error>(sum)
            })
        };
        let kept = (all(lookup_workers), all(update_workers));
        brought?;
        Ok((kept.0?, kept.1?))
    })
}

fn bring(
    requests: impl Iterator<Item = Request>,
    rate: Option<f64>,
    enough: &dyn Fn(u64) -> bool,
    lookups: &Queue,
    updates: &Queue,
    watch: &dyn Watch,
) -> Result<()> {
    wake_precisely();
    let schedule = rate.map(|rate| Schedule::new(Instant::now(), rate));
    for (number, request) in (0..).zip(requests) {
        if number % WATCH_EVERY == 0 {
            go_on(watch)?;
        }
        if enough(number) {
            break;
        }
        let due = schedule.as_ref().map(|schedule| schedule.due(number));
        if let Some(due) = due {
            let early = due.saturating_duration_since(Instant::now());
            if early > EARLY_MAX {
                thread::sleep(early);
            }
        }
        let queue = if request.kind == Kind::Lookup { lookups } else { updates };
        if !queue.bring(request, due) {
            return Ok(());
        }
    }
    Ok(())
}

fn work(subject: &Subject, queue: &Queue) -> Result<Kept> {
    let mut kept = Kept::default();
    while let Some((request, brought)) = queue.take() {
        let taken = Instant::now();
        let found = subject.perform(&request)?;
        let processed = taken.elapsed();
        kept.processed.record(processed);
        kept.queued.record(brought.elapsed().max(processed));
        kept.absent += u64::from(!found);
    }
    Ok(kept)
}

impl Kept {
    fn add(&mut self, other: &Self) {
        self.processed.add(&other.processed);
        self.queued.add(&other.queued);
        self.absent += other.absent;
    }

    fn put_into(&self, metrics: &mut Metrics, what: &str) {
        self.processed.summary().put_into(metrics, what);
        self.queued.summary().put_into(metrics, &format!("{what}_queued"));
        metric(metrics, &format!("{what}_absent"), self.absent as f64);
    }
}

fn ended(who: &str) -> Error {
    Error::Run(format!("a {who} of this run ended early; its message is above"))
}

/// Processor time of this process so far, in seconds; 0 where the kernel does not say.
fn cpu_seconds() -> f64 {
    parse_cpu_seconds(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or(0.0)
}

fn parse_cpu_seconds(stat: &str) -> Option<f64> {
    /// The unit in which Linux counts, on every platform that there is.
    const TICKS_PER_SECOND: f64 = 100.0;
    // The name in parentheses may hold spaces; what follows it begins with the third field.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::fdtree::subject::{Setting, copy, load};
    use esker::Scheme;

    const SETTING: Setting =
        Setting { scheme: Scheme::Fc, growth: 4, memtable_bytes: 32 << 10, buffer_bytes: 1 << 20 };

    #[test]
    fn every_request_is_made_and_measured_whether_or_not_it_is_due_at_a_time() {
        for rate in [None, Some(20_000.0)] {
            let folder = tempfile::tempdir().unwrap();
            load(folder.path(), 3_000, 4, &Silent).unwrap();
            let subject = Subject::open(folder.path(), &SETTING).unwrap();
            let (preload, warm_up, requests, lookup_percent) = (3_000, 500, 6_000, 40);
            let asked = Asked { seed: 1, preload, warm_up, requests, lookup_percent, rate };
            let metrics = run(&subject, &asked, &Silent).unwrap();
            let of = |name: &str| metrics[name];
            assert_eq!(of("lookup_samples") + of("update_samples"), 6_000.0);
            assert!((2_200.0..=2_600.0).contains(&of("lookup_samples")), "{metrics:?}");
            assert!(of("update_queued_max_us") >= of("update_max_us"));
            assert!(of("merges") >= 1.0 && of("peak_over_final") > 1.0, "{metrics:?}");
            // 6,000 at 20,000 a second are due in 0.3 seconds.
            assert!(rate.is_none() || of("seconds") >= 0.29, "{metrics:?}");
        }
    }

    /// A merge that makes no request wait outlasts them, and what is left of it counts. (In so
    /// small an index FC writes more than the others: it closes a block at each publish point.)
    #[test]
    fn no_scheme_is_let_off_the_end_of_its_merge() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = folder.path().join("loaded");
        load(&loaded, 60_000, 4, &Silent).unwrap();
        let mut written = Vec::new();
        for scheme in [Scheme::Fc, Scheme::Ds, Scheme::Xm] {
            let place = folder.path().join(format!("{scheme:?}"));
            copy(&loaded, &place).unwrap();
            let subject = Subject::open(&place, &Setting { scheme, ..SETTING }).unwrap();
            let (preload, warm_up, requests) = (60_000, 0, 2_000);
            let asked =
                Asked { seed: 1, preload, warm_up, requests, lookup_percent: 80, rate: None };
            let metrics = run(&subject, &asked, &Silent).unwrap();
            let stats = subject.stats().unwrap();
            assert!(stats.keyspaces.iter().all(has_ended), "{scheme:?}: {:?}", stats.keyspaces);
            assert!(metrics["merges"] >= 1.0 && metrics["seconds"] >= metrics[ANSWERED]);
            assert_eq!(metrics["lookup_samples"] + metrics["update_samples"], 2_000.0);
            written.push(metrics[WRITTEN]);
        }
        assert!(written[1] > 60_000.0 * 12.0 && written[1] == written[2], "{written:?}");
        assert!(written[0] >= written[1], "{written:?}");
    }

    struct Ended;

    impl Watch for Ended {
        fn says(&mut self, _: &str) {}

        fn is_interrupted(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_run_ends_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let subject = Subject::open(folder.path(), &SETTING).unwrap();
        let (preload, warm_up, requests, lookup_percent) = (0, 0, 1 << 40, 0);
        let asked = Asked { seed: 1, preload, warm_up, requests, lookup_percent, rate: None };
        assert!(matches!(run(&subject, &asked, &Ended), Err(Error::Interrupted)));
    }

    #[test]
    fn processor_time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(parse_cpu_seconds(stat), Some(2.0));
        assert_eq!(parse_cpu_seconds("7 (a"), None);
    }
}
