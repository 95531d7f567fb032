//! Whether patches would pay in the product: overwrites of random keys, in three sorted runs, and
//! beside them Pull, the policy of the product's LSM index.
//!
//! The index of the product has more runs than three, and writes less for it. What Pull writes with
//! one run, one level and the last is therefore what it writes here, times the ratio of what its
//! cost function says of the two ([`sizes`]).

use esker_index::lsm::policy::sizes::{self, Sizes};
use esker_lab_measure::scale::Scale;
use esker_workload::row::Row;
use esker_workload::{Random, entry};

use super::compact::Settings;
use super::subject::{
    LOG, PER_BYTE, Plan, PullSubject, RUNS, SCAN_PAGES, Subject, TreeSubject, measure,
};
use super::tree::Options;
use crate::Result;
use crate::experiment::{Series, Watch, metric};
use crate::fdtree::alternate::temporary;

/// The systems.
pub const REWRITTEN: &str = "three runs, rewritten";
/// With patches.
pub const PATCHED: &str = "three runs, patched";
/// The index of the product, with its own number of runs.
pub const PULL: &str = "Pull";
/// The same, computed for three runs.
pub const PULL_IN_THREE: &str = "Pull in three runs";

/// Bytes of records that are measured.
pub const RECORDS: [f64; 3] = [116.0, 400.0, 1016.0];
/// R: the data, in memtables.
const RATIO: u64 = 100;
/// Entries of a scan.
const SCAN_ENTRIES: u32 = 100;
/// One request in this many is a scan.
const SCAN_ONE_IN: u64 = 100;
/// Memtables of overwrites before the count begins, and that are counted.
const WARM_UP: u64 = 30;
const COUNTED: u64 = 60;
/// d.
const DEAD_SHARE: f64 = 0.5;
/// The least share of Pull's bytes that patches must save, and the most pages that their scans may
/// read over those of tables that are rewritten.
const SAVED: f64 = 0.20;
const SCAN_SPEED: f64 = 0.95;

/// The weight of a memtable.
const fn memtable_bytes(scale: Scale) -> u64 {
    match scale {
        Scale::Tiny => 16 << 10,
        Scale::Small => 256 << 10,
        Scale::Full => 1 << 20,
    }
}

fn options(scale: Scale, dead_share: Option<f64>) -> Options {
    let memtable_bytes = memtable_bytes(scale);
    Options {
        page_bytes: 4096,
        memtable_bytes,
        runs: 1,
        level_1_bytes: 10 * memtable_bytes,
        ratio: 100,
        settings: Settings { dead_share, table_bytes: memtable_bytes / 2 },
    }
}

/// Overwrites of records of a length, and scans.
fn requests(records: u64, value_bytes: usize) -> impl Iterator<Item = Vec<Row>> {
    let mut random = Random::new(17);
    (0u64..).map(move |at| {
        let key = entry::key(random.below(records)).to_vec();
        if at % SCAN_ONE_IN == SCAN_ONE_IN - 1 {
            return vec![Row::Scan { from: key, to: vec![255; 17], most: SCAN_ENTRIES }];
        }
        let mut value = vec![0; value_bytes];
        random.fill(&mut value);
        vec![Row::Put { key, value }]
    })
}

/// All records, in the order of keys.
fn rows(records: u64, value_bytes: usize) -> Vec<Row> {
    let mut keys: Vec<_> = (0..records).map(entry::key).collect();
    keys.sort_unstable();
    let row = |key: [u8; entry::KEY_BYTES]| {
        let mut value = vec![0; value_bytes];
        entry::fill_value(&mut value, 5, u64::from(key[0]), u64::from(key[15]));
        Row::Put { key: key.to_vec(), value }
    };
    keys.into_iter().map(row).collect()
}

/// Measures all record lengths.
///
/// # Errors
/// Those of the stores; [`crate::Error::Interrupted`].
pub fn run(scale: Scale, series: &mut Series, watch: &mut dyn Watch) -> Result<()> {
    for bytes in RECORDS {
        let value_bytes = bytes as usize - entry::KEY_BYTES;
        let per_memtable = memtable_bytes(scale) / bytes as u64;
        let plan = Plan {
            warm_up: WARM_UP * per_memtable,
            requests: COUNTED * per_memtable,
            scan_one_in: 1,
        };
        let records = RATIO * per_memtable;
        for system in [REWRITTEN, PATCHED, PULL] {
            let folder = temporary()?;
            let dead_share = (system == PATCHED).then_some(DEAD_SHARE);
            let mut subject: Box<dyn Subject> = if system == PULL {
                Box::new(PullSubject::create(folder.path(), memtable_bytes(scale))?)
            } else {
                Box::new(TreeSubject::create(folder.path(), options(scale, dead_share))?)
            };
            let mut loaded = rows(records, value_bytes).into_iter();
            let mut asked = requests(records, value_bytes);
            let metrics = measure(&mut *subject, &plan, &mut loaded, &mut asked, watch)?;
            let written = metrics.get(PER_BYTE).copied().unwrap_or(0.0);
            watch.says(&format!("{system}, {bytes} bytes: {written:.2} bytes a byte"));
            if system == PULL {
                let log = metrics.get(LOG).copied().unwrap_or(0.0);
                let mut computed = esker_lab_result::Metrics::new();
                metric(&mut computed, PER_BYTE, log + (written - log) * three_runs_cost());
                metric(&mut computed, LOG, log);
                metric(&mut computed, RUNS, 3.0);
                series.add(PULL_IN_THREE, bytes, computed);
            }
            series.add(system, bytes, metrics);
        }
    }
    Ok(())
}

/// What Pull writes with one run, one level and the last one, over what it writes with the sizes
/// that it chooses.
fn three_runs_cost() -> f64 {
    let ratio = RATIO as f64;
    let own = sizes::cost(&sizes::choose(RATIO, 1, 1.0), ratio, 1.0);
    let three = (2..=16).map(|growth| Sizes { runs: 1, levels: 1, growth });
    let within = three.filter(|sizes| sizes.is_within(ratio, 1.0));
    let best = within.map(|sizes| sizes::cost(&sizes, ratio, 1.0)).fold(f64::INFINITY, f64::min);
    best / own
}

/// The gate: for one record length at least, patches write 20 % less than Pull in as many runs,
/// both with the log of the tree, and scans read as few pages.
///
/// # Errors
/// What is off, for each length.
pub fn patches_pay(series: &Series) -> std::result::Result<(), String> {
    let mut off = Vec::new();
    for bytes in RECORDS {
        let value = |system, name| series.value(system, bytes, name);
        let log = value(PATCHED, LOG)?;
        let pull = value(PULL_IN_THREE, PER_BYTE)? - value(PULL_IN_THREE, LOG)? + log;
        let saved = 1.0 - value(PATCHED, PER_BYTE)? / pull;
        let speed = value(REWRITTEN, SCAN_PAGES)? / value(PATCHED, SCAN_PAGES)?;
        let runs = value(PATCHED, RUNS)?;
        if saved >= SAVED && speed >= SCAN_SPEED && runs <= 3.0 {
            return Ok(());
        }
        let saved = 100.0 * saved;
        off.push(format!("{bytes} bytes: {saved:.0} % saved, scans {speed:.2}, {runs:.1} runs"));
    }
    Err(off.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::series;

    fn measured(patched: f64, pages: f64, runs: f64) -> Series {
        let mut rows = Vec::new();
        let (rewritten, pull) = ([(SCAN_PAGES, 10.0)], [(PER_BYTE, 11.5), (LOG, 1.5)]);
        let of_patches = [(PER_BYTE, patched), (LOG, 1.0), (SCAN_PAGES, pages), (RUNS, runs)];
        for bytes in RECORDS {
            rows.push((REWRITTEN, bytes, &rewritten[..]));
            rows.push((PULL_IN_THREE, bytes, &pull[..]));
            rows.push((PATCHED, bytes, &of_patches[..]));
        }
        series(&rows)
    }

    #[test]
    fn the_gate_can_pass_and_can_fail() {
        assert_eq!(patches_pay(&measured(8.7, 10.0, 2.5)), Ok(()));
        assert!(patches_pay(&measured(8.9, 10.0, 2.5)).unwrap_err().contains("19 % saved"));
        assert!(patches_pay(&measured(8.7, 11.0, 2.5)).unwrap_err().contains("scans 0.91"));
        assert!(patches_pay(&measured(8.7, 10.0, 3.1)).unwrap_err().contains("3.1 runs"));
        assert!(patches_pay(&Series::default()).is_err());
    }

    #[test]
    fn fewer_runs_cost_more() {
        assert!((1.5..4.0).contains(&three_runs_cost()), "{}", three_runs_cost());
    }
}
