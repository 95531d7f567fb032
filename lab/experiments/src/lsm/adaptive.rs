//! ADAPT of the lazy-adaptive tree on the LSM index: ranges of keys that are scanned often are
//! merged, as soon as that would have paid for itself since the last flush.
//!
//! Uniform overwrites, and between them scans of 100 entries, of which nine in ten begin in the
//! first tenth of the keys. Counters are exact.

use esker::{Compaction, Db, IndexKind, Keyspace, KeyspaceOptions};
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::{Random, entry};
use serde_json::{Value, json};

use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::fdtree::alternate::temporary;
use crate::{Error, Result};

/// Bytes written into runs and levels for each byte of entries.
const WRITTEN: &str = "bytes_per_byte";
/// Blocks that a scan reads from the device.
const READS: &str = "reads_per_scan";
/// Microseconds of a scan, on average. Nothing is judged by it.
const MICROS: &str = "micros_per_scan";

/// Entries that a scan returns.
const SCANNED: usize = 100;
/// The share of the keys in which nine of ten scans begin.
const HOT: u64 = 10;
const BLOCK_BYTES: u64 = 4096;

/// What a read of a block is worth, in bytes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Worth {
    name: &'static str,
    bytes: u64,
}

const OFF: Worth = Worth { name: "Pull", bytes: 0 };
/// A block that is read is worth one that is written, or a tenth, or a fortieth.
const EVEN: Worth = Worth { name: "adaptive, 4096", bytes: BLOCK_BYTES };
const TENTH: Worth = Worth { name: "adaptive, 410", bytes: BLOCK_BYTES / 10 };
const FORTIETH: Worth = Worth { name: "adaptive, 102", bytes: BLOCK_BYTES / 40 };
const ALL: [Worth; 4] = [OFF, EVEN, TENTH, FORTIETH];

/// Scans for each memtable that is filled.
const RATES: [f64; 4] = [0.0, 100.0, RARELY, OFTEN];
const RARELY: f64 = 1_000.0;
const OFTEN: f64 = 10_000.0;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "adaptive-scans",
    figure: "LA-tree, ADAPT",
    about: "what scans of 100 read and merges write, where scans make merges due",
    axis: "scans a memtable",
    columns: &[WRITTEN, READS, MICROS],
    predictions: &[
        Prediction {
            name: "without-scans-nothing-changes",
            claim: "without scans all write the same bytes, within 1 %",
            judge: nothing_changes,
        },
        Prediction {
            name: "frequent-scans-read-less",
            claim: "with 10,000 scans a memtable and a read worth a tenth of a write, scans read \
                    at most 0.71 of the blocks that they read under Pull (a model says 0.57)",
            judge: reads_less,
        },
        Prediction {
            name: "writes-follow-what-reads-are-worth",
            claim: "with 10,000 scans a memtable, the more a read is worth the fewer blocks are \
                    read and the more bytes are written, at a tenth at most 1.68 times \
                    Pull's (the model 1.34)",
            judge: follows_the_worth,
        },
        Prediction {
            name: "rare-scans-cost-nothing",
            claim: "with 1,000 scans a memtable and a read worth a tenth, merges write at most \
                    1.05 times what they write under Pull",
            judge: rare_scans,
        },
    ],
    run,
};

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
struct Sizing {
    entries: u64,
    memory_bytes: u64,
    memtable_bytes: u64,
    /// Memtables that are filled while nothing counts, and while it does.
    memtables: [u64; 2],
    rates: &'static [f64],
}

fn sizing(scale: Scale) -> Sizing {
    let (entries, memory, memtables, rates) = match scale {
        Scale::Tiny => (20_000, 512 << 10, [2, 4], &RATES[..2]),
        Scale::Small => (1_000_000, 8 << 20, [12, 24], &RATES[..]),
        Scale::Full => (5_000_000, 64 << 20, [40, 80], &RATES[..]),
    };
    Sizing { entries, memory_bytes: memory, memtable_bytes: memory / 4, memtables, rates }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = sizing(scale);
    let mut series = Series::default();
    for at in sizing.rates {
        for worth in ALL {
            let metrics = measure(sizing, worth, *at, watch)?;
            let of = |name: &str| metrics.get(name).copied().unwrap_or(0.0);
            watch.says(&format!(
                "{}, {at} scans a memtable: {:.2} bytes a byte, {:.1} blocks a scan",
                worth.name,
                of(WRITTEN),
                of(READS)
            ));
            series.add(worth.name, *at, metrics);
        }
    }
    let settings = json!({
        "entries": sizing.entries,
        "value_bytes": entry::VALUE_BYTES,
        "memory_bytes": sizing.memory_bytes,
        "memtable_bytes": sizing.memtable_bytes,
        "memtables": sizing.memtables,
        "scanned": SCANNED,
        "hot_share": 1.0 / HOT as f64,
    });
    Ok((series, settings))
}

fn measure(sizing: Sizing, worth: Worth, rate: f64, watch: &dyn Watch) -> Result<Metrics> {
    let folder = temporary()?;
    let builder = Db::builder(folder.path().join("store")).inline_merges(0);
    let builder = builder.memory_budget(sizing.memory_bytes);
    let db = builder.compaction(Compaction::default().adaptive(worth.bytes)).open()?;
    let options = KeyspaceOptions::default().index(IndexKind::Lsm);
    let options = options.memtable_bytes(Some(sizing.memtable_bytes));
    let keyspace = db.keyspace("scanned", options)?;
    let [overwrites, begins] = [7, 8].map(Random::new);
    let mut subject = Subject { db, keyspace, sizing, overwrites, begins, version: 0 };
    subject.fill()?;
    let [before, counted] = sizing.memtables;
    subject.rounds(before, rate, watch)?;
    let first = subject.counted()?;
    let (scans, seconds) = subject.rounds(counted, rate, watch)?;
    let last = subject.counted()?;
    let mut metrics = Metrics::new();
    let user = (last.user - first.user).max(1) as f64;
    metric(&mut metrics, WRITTEN, (last.written - first.written) as f64 / user);
    let each = |count: f64| if scans == 0 { 0.0 } else { count / scans as f64 };
    metric(&mut metrics, READS, each((last.read - first.read) as f64));
    metric(&mut metrics, MICROS, each(seconds * 1e6));
    subject.db.close()?;
    Ok(metrics)
}

/// The key of an entry, in the order of numbers: 16 bytes.
fn key(number: u64) -> String {
    format!("{number:016}")
}

/// A store under a workload.
struct Subject {
    db: Db,
    keyspace: Keyspace,
    sizing: Sizing,
    /// Other numbers for scans, so that all systems write the same.
    overwrites: Random,
    begins: Random,
    version: u64,
}

/// Counters of the store.
struct Counted {
    user: u64,
    written: u64,
    read: u64,
}

impl Subject {
    fn fill(&mut self) -> Result<()> {
        let stride = 7_919;
        for number in 0..self.sizing.entries {
            self.write(number * stride % self.sizing.entries)?;
        }
        Ok(())
    }

    fn write(&mut self, number: u64) -> Result<()> {
        self.version += 1;
        let value = entry::value(1, number, self.version);
        Ok(self.keyspace.insert(key(number), value)?)
    }

    /// Fills so many memtables with overwrites, with scans evenly between; the number of scans, and
    /// their seconds.
    fn rounds(&mut self, memtables: u64, rate: f64, watch: &dyn Watch) -> Result<(u64, f64)> {
        let writes = self.sizing.memtable_bytes / entry::ENTRY_BYTES * memtables;
        let scans_per_write = rate * memtables as f64 / writes as f64;
        let (mut owed, mut scans, mut seconds) = (0.0, 0, 0.0);
        for done in 0..writes {
            if done.is_multiple_of(1_024) {
                go_on(watch)?;
            }
            let number = self.overwrites.below(self.sizing.entries);
            self.write(number)?;
            owed += scans_per_write;
            while owed >= 1.0 {
                owed -= 1.0;
                scans += 1;
                let begun = std::time::Instant::now();
                self.scan()?;
                seconds += begun.elapsed().as_secs_f64();
            }
        }
        Ok((scans, seconds))
    }

    fn scan(&mut self) -> Result<()> {
        let hot = self.sizing.entries / HOT;
        let from = if self.begins.below(10) < 9 {
            self.begins.below(hot)
        } else {
            hot + self.begins.below(self.sizing.entries - hot)
        };
        let mut found = 0;
        let mut range = self.keyspace.range(key(from)..)?.limit(SCANNED);
        while range.next_entry()?.is_some() {
            found += 1;
        }
        let wanted = SCANNED.min((self.sizing.entries - from) as usize);
        if found == wanted {
            return Ok(());
        }
        Err(Error::Invalid(format!("a scan from {from} has {found} entries, not {wanted}")))
    }

    fn counted(&self) -> Result<Counted> {
        let stats = self.db.stats()?;
        let of = |purpose: &'static str| stats.io.iter().find(move |row| row.purpose == purpose);
        let written = |purpose| of(purpose).map_or(0, |row| row.bytes_written);
        Ok(Counted {
            user: stats.user_bytes_written,
            written: written("flush") + written("merge"),
            read: of("user").map_or(0, |row| row.bytes_read) / BLOCK_BYTES,
        })
    }
}

type Judged = std::result::Result<(), String>;

fn nothing_changes(series: &Series) -> Judged {
    let pull = series.value(OFF.name, 0.0, WRITTEN)?;
    for worth in ALL {
        let found = series.value(worth.name, 0.0, WRITTEN)? / pull;
        if !(0.99..=1.01).contains(&found) {
            return Err(format!("{} writes {found:.3} times Pull's", worth.name));
        }
    }
    // The control: scans that change what is written.
    let control = series.value(EVEN.name, *RATES.last().unwrap_or(&0.0), WRITTEN)? / pull;
    if control > 1.01 { Ok(()) } else { Err(format!("with scans {control:.3}, too")) }
}

fn reads_less(series: &Series) -> Judged {
    let pull = series.value(OFF.name, OFTEN, READS)?;
    let found = series.value(TENTH.name, OFTEN, READS)? / pull;
    if found <= 0.71 { Ok(()) } else { Err(format!("{found:.2} of Pull's {pull:.1}")) }
}

fn follows_the_worth(series: &Series) -> Judged {
    let row = |metric: &str| -> std::result::Result<Vec<f64>, String> {
        let order = [EVEN, TENTH, FORTIETH, OFF];
        order.iter().map(|worth| series.value(worth.name, OFTEN, metric)).collect()
    };
    let (written, read) = (row(WRITTEN)?, row(READS)?);
    let falls = |row: &[f64]| row.windows(2).all(|pair| matches!(pair, [a, b] if a > b));
    let rises = |row: &[f64]| row.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    let share = match written[..] {
        [_, tenth, _, pull] => tenth / pull,
        _ => f64::NAN,
    };
    if falls(&written) && rises(&read) && share <= 1.68 {
        return Ok(());
    }
    Err(format!("written {written:.2?}, read {read:.1?}"))
}

fn rare_scans(series: &Series) -> Judged {
    let found =
        series.value(TENTH.name, RARELY, WRITTEN)? / series.value(OFF.name, RARELY, WRITTEN)?;
    if found <= 1.05 { Ok(()) } else { Err(format!("{found:.3} times Pull's")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    #[test]
    fn it_runs_and_repeats() {
        let run = || run(Scale::Tiny, &mut Silent).unwrap().0;
        let (first, again) = (run(), run());
        assert_eq!(first.points.len(), 8);
        for (one, other) in first.points.iter().zip(&again.points) {
            assert_eq!(one.value(WRITTEN), other.value(WRITTEN));
            assert_eq!(one.value(READS), other.value(READS));
        }
    }

    type Row = (&'static str, f64, [(&'static str, f64); 2]);

    fn off(rows: &[Row]) -> Vec<String> {
        let rows: Vec<_> = rows.iter().map(|(name, at, of)| (*name, *at, &of[..])).collect();
        let verdicts = EXPERIMENT.judge(&series(&rows));
        verdicts.into_iter().filter(|of| of.why.is_some()).map(|of| of.name).collect()
    }

    #[test]
    fn the_predictions_show_and_do_not() {
        let row =
            |worth: Worth, at, written, read| (worth.name, at, [(WRITTEN, written), (READS, read)]);
        let mut rows = vec![
            row(OFF, RARELY, 2.7, 30.0),
            row(TENTH, RARELY, 2.7, 30.0),
            row(EVEN, OFTEN, 5.3, 10.0),
            row(TENTH, OFTEN, 3.7, 15.0),
            row(FORTIETH, OFTEN, 3.0, 20.0),
            row(OFF, OFTEN, 2.7, 30.0),
        ];
        rows.extend(ALL.map(|worth| row(worth, 0.0, 2.7, 0.0)));
        assert_eq!(off(&rows), [""; 0]);
        for point in &mut rows[1..5] {
            *point = (point.0, point.1, [(WRITTEN, 2.9), (READS, 29.0)]);
        }
        rows[6].2[0].1 = 3.0;
        let all: Vec<_> = EXPERIMENT.predictions.iter().map(|of| of.name).collect();
        assert_eq!(off(&rows), all);
    }
}
