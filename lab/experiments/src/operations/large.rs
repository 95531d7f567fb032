//! Values of a megabyte, stored as blobs, compared with the disk itself.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use esker::{Db, Keyspace, KeyspaceOptions};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::random::Random;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

use super::{Bench, metrics, timed};
use crate::{Error, Result};

const MIB: usize = 1 << 20;
/// The number of bytes that direct requests are multiples of.
const ALIGNMENT: usize = 4096;
/// Full merges, each of which writes all references again.
const MERGES: u64 = 5;

const DISK: &str = "the disk, in order";
const ONE: &str = "one thread";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Threads(u64),
    Batches,
    Streams,
}

impl Way {
    const ALL: [Self; 4] = [Self::Threads(1), Self::Threads(4), Self::Batches, Self::Streams];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Threads(1) => ONE,
            Self::Threads(_) => "four threads",
            Self::Batches => "batches of up to eight",
            Self::Streams => "streams",
        }
    }

    fn load(self, store: &Store<'_>) -> Result<()> {
        match self {
            Self::Threads(threads) => by_threads(store, threads),
            Self::Batches => in_batches(store),
            Self::Streams => as_streams(store),
        }
    }
}

struct Store<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    count: u64,
    /// Values of a batch: half of what a batch may have, and at most eight.
    batch: u64,
    value: &'a [u8],
}

pub(super) fn round(bench: &Bench<'_>) -> Result<Vec<(String, Metrics)>> {
    let count = (bench.plan.entries / 1000).clamp(4, 512);
    let mut value = vec![0; MIB];
    Random::new(1).fill(&mut value);
    let batch = (bench.plan.budget_bytes >> 21).clamp(1, 8);
    let rate = |seconds: f64| count as f64 / seconds;
    let (seconds, ()) = timed(|| write_file(&bench.folder("disk"), count))?;
    let mut found = vec![(DISK.to_owned(), metrics([("mib_rate", rate(seconds))]))];
    for way in Way::ALL {
        let (db, keyspace) = bench.store("store", KeyspaceOptions::default())?;
        let store = Store { db: &db, keyspace: &keyspace, count, batch, value: &value };
        let (seconds, ()) = timed(|| way.load(&store).and_then(|()| Ok(db.persist()?)))?;
        let mut metrics = metrics([("mib_rate", rate(seconds))]);
        if way == Way::Threads(1) {
            forget(&bench.folder("store"))?;
            let (seconds, ()) = timed(|| read_back(&store))?;
            metrics.insert("read_mib_rate".to_owned(), rate(seconds));
            metrics.insert("written_per_byte".to_owned(), merged(&store)?);
        }
        found.push((way.as_str().to_owned(), metrics));
        drop(keyspace);
        db.close()?;
        bench.remove("store")?;
    }
    Ok(found)
}

/// Writes a file in order, a megabyte at a time, past the page cache, with one sync at the end.
fn write_file(path: &Path, count: u64) -> Result<()> {
    let write = || -> io::Result<()> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let file =
            OpenOptions::new().write(true).create_new(true).custom_flags(direct).open(path)?;
        fallocate(&file, FallocateFlags::empty(), 0, count << 20)?;
        let memory = vec![0x5a; MIB + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let piece = memory.get(start..start + MIB).unwrap_or_default();
        (0..count).try_for_each(|number| file.write_all_at(piece, number << 20))?;
        file.sync_data()?;
        fs::remove_file(path)
    };
    write().map_err(Error::system(format!("write {}", path.display())))
}

/// Has the system forget what it has of the files of a folder in memory.
fn forget(folder: &Path) -> Result<()> {
    let forget = || -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let file = File::open(entry?.path())?;
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    };
    forget().map_err(Error::system(format!("drop {} from memory", folder.display())))
}

fn by_threads(store: &Store<'_>, threads: u64) -> Result<()> {
    let write = |first: u64| {
        (first..store.count)
            .step_by(threads as usize)
            .try_for_each(|number| store.keyspace.insert(number.to_be_bytes(), store.value))
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|first| scope.spawn(move || write(first))).collect();
        writers.into_iter().try_for_each(|writer| match writer.join() {
            Ok(written) => Ok(written?),
            Err(_) => Err(Error::Invalid("a writer panicked".to_owned())),
        })
    })
}

fn in_batches(store: &Store<'_>) -> Result<()> {
    for first in (0..store.count).step_by(store.batch as usize) {
        let mut batch = store.db.batch();
        for number in first..(first + store.batch).min(store.count) {
            batch.insert(store.keyspace, number.to_be_bytes(), store.value);
        }
        batch.commit()?;
    }
    Ok(())
}

fn as_streams(store: &Store<'_>) -> Result<()> {
    for number in 0..store.count {
        let mut writer = store.keyspace.writer(number.to_be_bytes())?;
        writer.write_all(store.value).map_err(Error::system("write a value"))?;
        writer.finish()?;
    }
    Ok(())
}

fn read_back(store: &Store<'_>) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    for number in 0..store.count {
        let reader = store.keyspace.reader(number.to_be_bytes())?;
        let mut reader = reader.ok_or_else(|| Error::Invalid("a value is gone".to_owned()))?;
        while reader.read(&mut buffer).map_err(Error::system("read a value"))? > 0 {}
    }
    Ok(())
}

/// Bytes written for each that was loaded, when all references have been merged some times.
fn merged(store: &Store<'_>) -> Result<f64> {
    let user = store.db.stats()?.user_bytes_written;
    for round in 0..MERGES {
        for number in 0..store.count {
            let key = [number.to_be_bytes(), round.to_be_bytes()].concat();
            store.keyspace.insert(key, "a neighbour")?;
        }
        store.db.compact()?;
    }
    let written: u64 = store.db.stats()?.io.iter().map(|io| io.bytes_written).sum();
    Ok(written as f64 / user.max(1) as f64)
}

pub(super) fn bars(found: Part<'_>) -> Vec<Verdict> {
    vec![
        Verdict::at_least(
            "values of 1 MiB: load rate over the disk's",
            found.ratio(ONE, DISK, "mib_rate"),
            0.8,
        ),
        Verdict::at_most(
            "values of 1 MiB: bytes written a byte, after merges",
            found.median(ONE, "written_per_byte"),
            1.05,
        ),
    ]
}
