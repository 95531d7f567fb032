//! The reads and writes of backups into one folder, each after another part of the store has
//! changed.

use std::path::Path;

use esker::{Backup, Db, Keyspace, KeyspaceOptions};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::entry;

use super::{Bench, metrics, timed};
use crate::{Error, Result};

const BATCH: u64 = 1000;
const UNCHANGED: &str = "nothing has changed";
const OVERWRITTEN: &str = "1 % overwritten, written out";

/// Writes these numbers' values of a version.
fn write(
    db: &Db,
    keyspace: &Keyspace,
    numbers: impl Iterator<Item = u64>,
    version: u64,
) -> Result<()> {
    let mut batch = db.batch();
    for (count, number) in (1..).zip(numbers) {
        batch.insert(keyspace, entry::key(number), entry::value(1, number, version));
        if count % BATCH == 0 {
            std::mem::replace(&mut batch, db.batch()).commit()?;
        }
    }
    Ok(batch.commit().map(drop)?)
}

/// Bytes of blocks that the store has written: what a backup has to read again at the most.
fn blocks_written(db: &Db) -> Result<u64> {
    let stats = db.stats()?;
    let blocks = stats.io.iter().filter(|row| matches!(row.purpose, "merge" | "flush"));
    Ok(blocks.map(|row| row.bytes_written).sum())
}

/// Makes a backup, and says what it read and wrote. `before` are the bytes of blocks that the
/// store had written when the last one was made.
fn back_up(db: &Db, to: &Path, before: &mut u64) -> Result<Metrics> {
    let now = blocks_written(db)?;
    let changed = now - std::mem::replace(before, now);
    let (seconds, report) = timed(|| Ok(db.backup(to)?))?;
    Ok(metrics([
        ("held_bytes", report.bytes_total as f64),
        ("read_bytes", report.bytes_read as f64),
        ("written_bytes", report.bytes_written as f64),
        ("changed_bytes", changed as f64),
        ("seconds", seconds),
    ]))
}

pub(super) fn round(bench: &Bench<'_>) -> Result<Vec<(String, Metrics)>> {
    let entries = bench.plan.entries.max(100);
    let hundredth = entries / 100;
    let (db, keyspace) = bench.store("store", KeyspaceOptions::default())?;
    let to = bench.folder("copy");
    write(&db, &keyspace, 0..entries, 0)?;
    db.compact()?;
    let (mut found, mut before) = (Vec::new(), 0);
    let mut add = |name: &str| -> Result<()> {
        found.push((name.to_owned(), back_up(&db, &to, &mut before)?));
        Ok(())
    };
    add("the first")?;
    add(UNCHANGED)?;
    write(&db, &keyspace, (0..hundredth).map(|number| number * 97 % entries), 1)?;
    add("1 % overwritten, in the log")?;
    db.flush()?;
    add(OVERWRITTEN)?;
    write(&db, &keyspace, (0..20 * hundredth).map(|number| number * 89 % entries), 2)?;
    add("20 % overwritten")?;
    db.compact()?;
    add("everything merged")?;
    drop(keyspace);
    db.close()?;
    let copy = Backup::open(&to)?;
    let (seconds, report) = timed(|| Ok(copy.check()?))?;
    if !report.is_ok() {
        return Err(Error::Invalid("the backup is damaged".to_owned()));
    }
    found.push(("check".to_owned(), metrics([("seconds", seconds)])));
    let (seconds, ()) = timed(|| Ok(copy.restore(bench.folder("restored"))?))?;
    found.push(("restore".to_owned(), metrics([("seconds", seconds)])));
    ["store", "copy", "restored"].into_iter().try_for_each(|name| bench.remove(name))?;
    Ok(found)
}

/// The log is read again, whatever has changed. A share of nothing is unknown, and so is what is
/// written where there is nothing to back up.
pub(super) fn bars(found: Part<'_>) -> Vec<Verdict> {
    let counted = |way: &str, metric: &str| found.median(way, metric).filter(|value| *value > 0.0);
    let share =
        |way: &str, metric: &str, of: &str| Some(found.median(way, metric)? / counted(way, of)?);
    let holds = counted(UNCHANGED, "held_bytes");
    vec![
        Verdict::at_most(
            "nothing changed: bytes written",
            holds.and(found.median(UNCHANGED, "written_bytes")),
            4096.0,
        ),
        Verdict::at_most(
            "1 % changed: bytes written over bytes of changed blocks",
            share(OVERWRITTEN, "written_bytes", "changed_bytes"),
            1.05,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_lab_result::Findings;

    #[test]
    fn bars_need_something_to_back_up() {
        let verdicts = |held: f64, changed: f64| {
            let mut found = Findings::default();
            for (way, run) in [
                (UNCHANGED, [("held_bytes", held), ("written_bytes", 0.0)]),
                (OVERWRITTEN, [("changed_bytes", changed), ("written_bytes", 0.0)]),
            ] {
                found.add(None, way, None, metrics(run));
            }
            bars(found.whole()).iter().map(|verdict| verdict.outcome.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(100.0, 100.0), ["met", "met"]);
        assert_eq!(verdicts(0.0, 0.0), ["unknown", "unknown"]);
    }
}
