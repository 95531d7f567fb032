//! Several writers at once on a disk that records: group commit under crashes.
//!
//! The schedule of the threads is the system's, so no two runs are the same; what is judged
//! follows from the numbers that the commits return. Each number names one commit, and the state
//! at a number is all commits up to it in the order of numbers, from all threads.

use std::sync::Arc;

use esker::{Db, Durability, History, IndexKind, Keyspace};
use esker_device::Device;
use esker_device::sim::SimDevice;
use parking_lot::Mutex;

use crate::config::Config;
use crate::crash::Recording;
use crate::history::{key, keyspace_name, value};
use crate::model::{Change, Model, Write};
use crate::random::Random;
use crate::recovery::Point;
use crate::subject::{Case, Written};
use crate::violation::{Oracle, Verdict, Violation};

const WRITERS: u32 = 3;
const COMMITS_OF_WRITER: u32 = 70;
const KEYSPACES: usize = 2;

/// The state that all writers share. A point is pushed and marked under the lock, after the commit
/// returned and never before.
struct Progress {
    commits: Vec<(u64, Vec<Change>)>,
    points: Vec<Point>,
}

/// Records a run of several writers; where the seed is odd, their keyspaces have an LSM index,
/// and in one of four they keep history.
///
/// # Errors
/// When the store fails, or two commits have the same number.
pub fn record(seed: u64) -> Verdict<Recording> {
    let failed = |error: esker::Error| Violation::new(Oracle::WorksOn, error.to_string());
    let device = Arc::new(SimDevice::new());
    let index = if seed % 2 == 1 { IndexKind::Lsm } else { IndexKind::FdTree };
    let history = (seed % 4 == 2).then_some(History::All);
    let config = Config { seed, index, history, ..Config::default() };
    let db = config.open(&(Arc::clone(&device) as Arc<dyn Device>)).map_err(failed)?;
    let mut model = Model::default();
    let mut keyspaces = Vec::new();
    for name in (0..KEYSPACES).map(keyspace_name) {
        keyspaces.push(db.keyspace(&name, config.keyspace_options()).map_err(failed)?);
        model.create(&name);
    }
    device.record();
    let start = Point { alive: model.alive(), exists: true, ..Point::default() };
    let progress = Mutex::new(Progress { commits: Vec::new(), points: vec![start] });
    std::thread::scope(|scope| {
        let write = |writer| {
            let (db, device, keyspaces, progress) = (&db, &device, &keyspaces, &progress);
            scope.spawn(move || write_on(writer, seed, db, device, keyspaces, progress))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        writers.into_iter().try_for_each(|writer| {
            let panicked = |_| Violation::new(Oracle::NoPanic, "a writer panicked");
            writer.join().map_err(panicked)?.map_err(failed)
        })
    })?;
    drop(keyspaces);
    db.close().map_err(failed)?;
    let trace = device.take_trace();
    let trace = trace.ok_or_else(|| Violation::new(Oracle::Harness, "no trace was recorded"))?;
    let Progress { mut commits, points } = progress.into_inner();
    commits.sort_by_key(|(seq, _)| *seq);
    if commits.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return Err(Violation::new(Oracle::CommitsAreWhole, "two commits have the same number"));
    }
    for (seq, changes) in &commits {
        model.commit(*seq, changes);
    }
    let end = points.last().cloned().unwrap_or_default();
    let case = Case { is_concurrent: true, ..Case::new(config) };
    let model = Written { model, ..Written::default() };
    Ok(Recording { case, trace, model, points, end })
}

fn write_on(
    writer: u32,
    seed: u64,
    db: &Db,
    device: &SimDevice,
    keyspaces: &[Keyspace],
    progress: &Mutex<Progress>,
) -> esker::Result<()> {
    let random = Random::new(seed ^ u64::from(writer) << 32);
    for number in 0..COMMITS_OF_WRITER {
        let mut batch = db.batch();
        let mut changes = Vec::new();
        for at in 0..=random.below(3) as u32 {
            let Some(keyspace) = random.pick(keyspaces) else { continue };
            let key = key(random.below(60));
            let unique = (writer << 24) | (number << 4) | at;
            let new = (!random.percent(15)).then(|| value(unique, random.within(&(8..=90))));
            match &new {
                Some(value) => batch.insert(keyspace, &key, value),
                None => batch.remove(keyspace, &key),
            }
            let keyspace = keyspace.name().to_owned();
            let write = new.map_or(Write::Delete, |value| Write::Put(value.into()));
            changes.push(Change { keyspace, key, write });
        }
        let synced = random.percent(40);
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        let seq = batch.commit_with(durability)?;
        let mut progress = progress.lock();
        progress.commits.push((seq, changes));
        let mut point = progress.points.last().cloned().unwrap_or_default();
        point.visible = point.visible.max(seq);
        if synced {
            // The log is one sequence: what is durable at a number is durable below it.
            point.durable = point.durable.max(seq);
        }
        device.mark(progress.points.len() as u64);
        progress.points.push(point);
    }
    Ok(())
}
