//! A queue of jobs between threads that survives a crash: each job is done once, or again by
//! another worker if the first one does not finish it.
//!
//! `cargo run --example queue`

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker::{Db, Durability, Keyspace, KeyspaceOptions, Result};

/// Jobs by their number, and those that somebody has, by when they are to be given to another.
struct Queue {
    db: Db,
    /// The number of the newest job, which no other has had, also when the queue was empty.
    newest: Keyspace,
    waiting: Keyspace,
    taken: Keyspace,
}

/// A job that somebody has.
struct Job {
    number: Vec<u8>,
    lease: Vec<u8>,
    what: Vec<u8>,
}

impl Queue {
    fn open(db: Db) -> Result<Self> {
        let newest = db.keyspace("newest", KeyspaceOptions::default())?;
        let waiting = db.keyspace("waiting", KeyspaceOptions::default())?;
        let taken = db.keyspace("taken", KeyspaceOptions::default())?;
        Ok(Self { db, newest, waiting, taken })
    }

    /// Puts a job at the end; it is on the device when this returns. Those who push at the same
    /// time wait for each other's turn and not for each other's sync.
    fn push(&self, what: &str) -> Result<()> {
        let mut tx = self.db.write_transaction()?;
        let newest = tx.get(&self.newest, "")?.and_then(|number| number.try_into().ok());
        let number = (newest.map_or(0, u64::from_be_bytes) + 1).to_be_bytes();
        tx.insert(&self.newest, "", number)?;
        tx.insert(&self.waiting, number, what)?;
        tx.commit_with(Durability::Synced)?;
        Ok(())
    }

    /// Takes the first job, until `now` and `patience`: then somebody else may have it. Again when
    /// somebody else took it, or said that one was done, at the same time.
    fn take(&self, now: Duration, patience: Duration) -> Result<Option<Job>> {
        self.db.transact(|tx| {
            let overdue = tx.first(&self.taken)?.filter(|(lease, _)| *lease < key(now, &[]));
            let (number, what) = if let Some((lease, what)) = overdue {
                tx.remove(&self.taken, &lease)?;
                (lease.get(8..).unwrap_or_default().to_vec(), what)
            } else {
                let Some((number, what)) = tx.first(&self.waiting)? else { return Ok(None) };
                tx.remove(&self.waiting, &number)?;
                (number, what)
            };
            let lease = key(now + patience, &number);
            tx.insert(&self.taken, &lease, &what)?;
            Ok(Some(Job { number, lease, what }))
        })
    }

    /// Says that a job is done; whether it was still one's own.
    fn done(&self, job: &Job) -> Result<bool> {
        self.db.transact(|tx| {
            let is_ours = tx.contains(&self.taken, &job.lease)?;
            if is_ours {
                tx.remove(&self.taken, &job.lease)?;
            }
            Ok(is_ours)
        })
    }
}

/// Milliseconds, big-endian, so that the order of keys is the order of time.
fn key(at: Duration, number: &[u8]) -> Vec<u8> {
    let milliseconds = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    [&milliseconds.to_be_bytes(), number].concat()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Does jobs until none is left; one that is forgotten is left to others.
fn work(queue: &Queue, forgets: bool, sum: &AtomicU64) -> Result<()> {
    let patience = if forgets { Duration::ZERO } else { Duration::from_secs(60) };
    let mut forgets = forgets;
    while let Some(job) = queue.take(now(), patience)? {
        if std::mem::take(&mut forgets) {
            println!("job {} was forgotten", job.number.last().copied().unwrap_or_default());
            continue;
        }
        let what: u64 = String::from_utf8_lossy(&job.what).parse().unwrap_or_default();
        if queue.done(&job)? {
            sum.fetch_add(what, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("esker-queue-{}", std::process::id()));
    let queue = Queue::open(Db::open(&folder)?)?;
    for number in 1..=20_u32 {
        queue.push(&number.to_string())?;
    }

    let sum = AtomicU64::new(0);
    work(&queue, true, &sum)?;
    std::thread::sleep(Duration::from_millis(2));
    work(&queue, false, &sum)?;
    let left = queue.waiting.iter()?.count() + queue.taken.iter()?.count();
    println!("alone: {}, {left} left", sum.load(Ordering::Relaxed));

    for number in 1..=100_u32 {
        queue.push(&number.to_string())?;
    }
    let sum = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| work(&queue, false, &sum))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    println!("four workers: {}", sum.load(Ordering::Relaxed));

    drop(queue);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}
