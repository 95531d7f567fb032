//! The LA-tree beside the crates that firmware takes: `ekv` and `sequential-storage`.
//!
//! These are made for NOR flash. Here they run over a layer that emulates it on NAND, which takes
//! what it costs in their favour: the pages that they write between two commits are programmed
//! once, in any order, and trims wait (`esker_flashtrees::nor`). A commit is durable for all
//! three: `sync` of the LA-tree; a transaction of `ekv`, or an item, and its pages on the chip.
//!
//! Reading order: `store` (what is compared, on which chip), `phases` (what is done to it), then
//! here.

mod phases;
mod store;

use esker_flashtrees::{FlashTree as _, Order, Values};
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use serde_json::{Value, json};

use self::phases::{Cost, Counts, LIMIT_NS, Loaded, RANGE_ENTRIES, filled};
use self::store::{BATCH, Entries, Made, ROOM, Store};
use super::chips::CHIP;
use super::measure::{MEMORY_BYTES, SEED, is_refusal};
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::{Error, Result};

/// Microseconds of the device for each operation.
const SYNCED: &str = "synced_update_micros";
const BATCHED: &str = "batched_update_micros";
const HIT: &str = "hit_micros";
const MISS: &str = "miss_micros";
const RANGE: &str = "range_micros";
const BACKWARD: &str = "backward_range_micros";
/// Erased blocks for each 1,000 updates.
const SYNCED_ERASES: &str = "erases_per_1000_synced";
const BATCHED_ERASES: &str = "erases_per_1000_batched";
/// Bytes of the chip for each entry when it is full.
const SPACE: &str = "flash_bytes_per_entry";
/// Memory at the end, and keys that are pointed to.
const TABLES: &str = "memory_tables_bytes";
const CACHE: &str = "memory_cache_bytes";
const POINTERS: &str = "pointers";

/// Bytes of values, and how names of systems end.
const SIZES: [(usize, &str); 2] = [(8, ", 16 B"), (56, ", 64 B")];
/// Systems, and bytes of their chip for each byte of entries: on a chip of twice the bytes, which
/// no prediction asks for, there is less garbage. A log has twice the bytes of its items on both.
const SYSTEMS: [(&str, Store, u64); 5] = [
    ("LA-tree", Store::LaTree, ROOM),
    ("ekv", Store::Ekv, ROOM),
    ("sequential-storage", Store::Sequential, ROOM),
    ("LA-tree, chip doubled", Store::LaTree, 2 * ROOM),
    ("ekv, chip doubled", Store::Ekv, 2 * ROOM),
];
/// What the LA-tree is compared with.
const CRATES: [Store; 2] = [Store::Ekv, Store::Sequential];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-peers",
    figure: "none: the LA-tree beside crates for firmware",
    about: "device time of updates, lookups and ranges of the LA-tree, ekv and \
            sequential-storage on raw flash, erases and space, by the number of keys",
    axis: "keys",
    columns: &[SYNCED, BATCHED, HIT, MISS, RANGE, SYNCED_ERASES, BATCHED_ERASES, SPACE],
    predictions: &[
        Prediction {
            name: "twice-as-fast-as-the-crates",
            claim: "with entries of 16 and of 64 bytes and each number of keys the better of ekv \
                    and sequential-storage takes at least 2 times the LA-tree's time for an \
                    update, committed alone or in 64, for a lookup, of a key that is there or \
                    not, and for a range of 100 entries, wherever it takes any",
            judge: is_twice_as_fast,
        },
        Prediction {
            name: "a-log-is-searched-for-what-has-no-pointer",
            claim: "with the most keys a lookup of one that is there takes sequential-storage at \
                    least 10 times as long as with the fewest, and so it does of one that is not",
            judge: is_searched,
        },
    ],
    run,
};

fn counts(scale: Scale) -> (&'static [u64], Counts) {
    match scale {
        Scale::Tiny => (&[1_000, 3_000], Counts { updates: 960, lookups: 300, ranges: 30 }),
        Scale::Small => {
            let counts = Counts { updates: 19_200, lookups: 6_000, ranges: 600 };
            (&[2_000, 8_000, 32_000], counts)
        }
        Scale::Full => {
            let counts = Counts { updates: 96_000, lookups: 30_000, ranges: 3_000 };
            (&[2_000, 8_000, 32_000, 64_000], counts)
        }
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let (keys, counts) = counts(scale);
    let (mut series, mut notes) = (Series::default(), Notes::default());
    for Case { name, store, entries } in cases(keys)? {
        go_on(watch)?;
        let place = format!("{name} at {}", entries.keys);
        match measure(store, entries, counts, &place, &mut notes) {
            Ok(metrics) => {
                watch.says(&line(&place, &metrics));
                series.add(&name, entries.keys as f64, metrics);
            }
            Err(error) if is_refusal(&error) => {
                watch.says(&format!("{place}: {error}"));
                notes.refused.push(format!("{place}: {error}"));
            }
            Err(error) => return Err(failed(format!("{place}: {error}"))),
        }
    }
    Ok((series, settings(keys, counts, &notes)))
}

/// A measurement to be made.
struct Case {
    name: String,
    store: Store,
    entries: Entries,
}

fn cases(keys: &[u64]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (value_bytes, suffix) in SIZES {
        let values = Values::of(value_bytes).map_err(failed)?;
        for keys in keys {
            let on = |room| Entries { keys: *keys, values, room };
            // A chip has 64 blocks or more: the least one is not doubled.
            let differs = |room| room == ROOM || on(room).blocks() > on(ROOM).blocks();
            let systems = SYSTEMS.into_iter().filter(|(_, _, room)| differs(*room));
            cases.extend(systems.map(|(name, store, room)| Case {
                name: format!("{name}{suffix}"),
                store,
                entries: on(room),
            }));
        }
    }
    Ok(cases)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Run(error.to_string())
}

/// What did not work, or not to its end.
#[derive(Debug, Default)]
struct Notes {
    refused: Vec<String>,
    cut: Vec<String>,
}

impl Notes {
    fn look_at(&mut self, place: &str, what: &str, cost: &Cost) {
        if cost.is_cut {
            self.cut.push(format!("{place}: {what} after {}", cost.operations));
        }
    }
}

/// Everything that is measured of a store, in the order in which it is done.
fn measure(
    store: Store,
    entries: Entries,
    counts: Counts,
    place: &str,
    notes: &mut Notes,
) -> esker_flashtrees::Result<Metrics> {
    let mut metrics = Metrics::new();
    let Made { tree, pointers, .. } = store.make(entries)?;
    let mut loaded = Loaded::new(tree, entries.keys)?;
    let updates = counts.updates_of(entries.keys);
    let batched = loaded.updates(updates, BATCH)?;
    let (hits, misses) = (loaded.hits(counts.lookups)?, loaded.misses(counts.lookups)?);
    if store != Store::Sequential {
        metric(&mut metrics, RANGE, loaded.ranges(counts.ranges, Order::Ascending)?.micros());
    }
    if store == Store::LaTree {
        metric(&mut metrics, BACKWARD, loaded.ranges(counts.ranges, Order::Descending)?.micros());
    }
    let synced = loaded.updates(updates, 1)?;
    for (name, what, cost) in [
        (BATCHED, "updates in batches", batched),
        (HIT, "hits", hits),
        (MISS, "misses", misses),
        (SYNCED, "synced updates", synced),
    ] {
        metric(&mut metrics, name, cost.micros());
        notes.look_at(place, what, &cost);
    }
    metric(&mut metrics, BATCHED_ERASES, batched.erases_per_1000());
    metric(&mut metrics, SYNCED_ERASES, synced.erases_per_1000());
    memory(&mut metrics, &loaded, pointers)?;
    loaded.finish()?;
    if let Some(bytes) = space(store, entries)? {
        metric(&mut metrics, SPACE, bytes);
    }
    Ok(metrics)
}

/// How the memory is used.
fn memory(
    metrics: &mut Metrics,
    loaded: &Loaded,
    pointers: Option<usize>,
) -> esker_flashtrees::Result<()> {
    let memory = loaded.tree().memory();
    metric(metrics, TABLES, memory.tables as f64);
    metric(metrics, CACHE, memory.cache as f64);
    if let Some(pointers) = pointers {
        metric(metrics, POINTERS, pointers as f64);
    }
    if memory.used() <= MEMORY_BYTES {
        return Ok(());
    }
    let what = format!("{} has {} bytes in memory", loaded.tree().name(), memory.used());
    Err(esker_flashtrees::Error::Invariant(what))
}

/// Bytes of the chip for each entry when it is full; none if filling it takes too long.
fn space(store: Store, entries: Entries) -> esker_flashtrees::Result<Option<f64>> {
    let mut made = store.to_be_filled(entries)?;
    let filled = filled(made.tree.as_mut())?;
    Ok(filled.filter(|entries| *entries > 0).map(|entries| made.flash_bytes / entries as f64))
}

fn line(place: &str, metrics: &Metrics) -> String {
    let of = |name| metrics.get(name).copied().unwrap_or(f64::NAN);
    format!(
        "{place}: {:.1} us an update, {:.1} in batches, {:.1} a hit, {:.1} a miss",
        of(SYNCED),
        of(BATCHED),
        of(HIT),
        of(MISS)
    )
}

fn settings(keys: &[u64], counts: Counts, notes: &Notes) -> Value {
    let blocks = |(value_bytes, suffix): (usize, &str)| {
        let of = |keys: &u64| {
            let blocks = |values| Entries { keys: *keys, values, room: ROOM }.blocks();
            Values::of(value_bytes).map_or(0, blocks)
        };
        (suffix.trim_start_matches(", ").to_owned(), keys.iter().map(of).collect())
    };
    json!({
        "chip": CHIP,
        "memory_bytes": MEMORY_BYTES,
        "batch": BATCH,
        "updates": keys.iter().map(|keys| counts.updates_of(*keys)).collect::<Vec<_>>(),
        "lookups": counts.lookups,
        "ranges": counts.ranges,
        "range_entries": RANGE_ENTRIES,
        "blocks": SIZES.map(blocks).into_iter().collect::<serde_json::Map<_, Value>>(),
        "limit_device_seconds": LIMIT_NS / 1_000_000_000,
        "seed": SEED,
        "refused": notes.refused,
        "cut_short": notes.cut,
    })
}

/// The least value of a metric among the crates at a place, and the LA-tree's.
fn pair(
    series: &Series,
    suffix: &str,
    keys: f64,
    metric: &str,
) -> std::result::Result<(f64, f64), String> {
    let of = |store: Store| series.value(&format!("{}{suffix}", store.name()), keys, metric);
    let best = CRATES.into_iter().filter_map(|store| of(store).ok()).fold(f64::INFINITY, f64::min);
    if best.is_finite() {
        return Ok((of(Store::LaTree)?, best));
    }
    Err(format!("{metric} of no crate was measured at {keys}"))
}

fn is_twice_as_fast(series: &Series) -> std::result::Result<(), String> {
    let mut less = Vec::new();
    for metric in [SYNCED, BATCHED, HIT, MISS, RANGE] {
        let mut compared = 0;
        for (_, suffix) in SIZES {
            for keys in series.places(&format!("{}{suffix}", Store::LaTree.name())) {
                let (own, best) = pair(series, suffix, keys, metric)?;
                compared += u32::from(best > 0.0);
                if best > 0.0 && 2.0 * own > best {
                    less.push(format!("{metric} at {keys}{suffix}: {:.2}", best / own));
                }
            }
        }
        if compared == 0 {
            return Err(format!("{metric}: the crates took no time, or were not measured"));
        }
    }
    if less.is_empty() { Ok(()) } else { Err(format!("times: {}", less.join("; "))) }
}

fn is_searched(series: &Series) -> std::result::Result<(), String> {
    for (_, suffix) in SIZES {
        let name = format!("{}{suffix}", Store::Sequential.name());
        for metric in [HIT, MISS] {
            let times = series.along(&name).map(|point| Ok((point.at, point.value(metric)?)));
            let times: Vec<(f64, f64)> = times.collect::<std::result::Result<_, String>>()?;
            let [(fewest, least), .., (most, greatest)] = times.as_slice() else {
                return Err(format!("{name} was measured in fewer than two places"));
            };
            if !(*greatest > 0.0 && *greatest >= 10.0 * least) {
                return Err(format!(
                    "{metric} of {name}: {least:.1} us at {fewest}, {greatest:.1} at {most}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;

    const STORES: [Store; 3] = [Store::LaTree, Store::Ekv, Store::Sequential];

    /// Two places with these times of the LA-tree, ekv and sequential-storage, which has no ranges.
    fn series(times: [f64; 3]) -> Series {
        let mut series = Series::default();
        for (_, suffix) in SIZES {
            for keys in [10.0, 20.0] {
                for (store, micros) in STORES.into_iter().zip(times) {
                    let all = [SYNCED, BATCHED, HIT, MISS, RANGE];
                    let of = |metric: &&str| store != Store::Sequential || *metric != RANGE;
                    let metrics = all.iter().filter(|metric| of(metric));
                    let named = metrics.map(|metric| ((*metric).to_owned(), micros)).collect();
                    series.add(&format!("{}{suffix}", store.name()), keys, named);
                }
            }
        }
        series
    }

    fn with(mut series: Series, store: Store, keys: f64, metric: &str, micros: f64) -> Series {
        let name = format!("{}, 64 B", store.name());
        let mut points = series.points.iter_mut();
        let point = points.find(|point| point.system == name && point.at == keys).unwrap();
        point.metrics.insert(metric.to_owned(), micros);
        series
    }

    #[test]
    fn one_comparison_that_is_less_than_twice_is_enough_to_fail() {
        assert_eq!(is_twice_as_fast(&series([1.0, 2.0, 2.0])), Ok(()));
        assert!(is_twice_as_fast(&series([1.0, 1.9, 3.0])).is_err());
        assert!(is_twice_as_fast(&series([1.0, 3.0, 1.9])).is_err());
        for metric in [SYNCED, BATCHED, HIT, MISS, RANGE] {
            let slower = with(series([1.0, 2.0, 2.0]), Store::LaTree, 20.0, metric, 1.1);
            let why = is_twice_as_fast(&slower).unwrap_err();
            assert_eq!(why, format!("times: {metric} at 20, 64 B: 1.82"));
        }
    }

    #[test]
    fn no_time_shows_nothing_and_is_not_held_against_the_tree() {
        assert!(is_twice_as_fast(&series([0.0, 0.0, 0.0])).is_err());
        let in_memory = with(series([1.0, 2.0, 2.0]), Store::Ekv, 10.0, HIT, 0.0);
        assert_eq!(is_twice_as_fast(&in_memory), Ok(()));
    }

    #[test]
    fn a_log_with_pointers_for_all_keys_shows_nothing() {
        assert!(is_searched(&series([1.0, 1.0, 50.0])).is_err());
        let mut longer = series([1.0, 1.0, 1.0]);
        for metric in [HIT, MISS] {
            for point in longer.points.iter_mut().filter(|point| point.at > 10.0) {
                point.metrics.insert(metric.to_owned(), 10.0);
            }
        }
        assert_eq!(is_searched(&longer), Ok(()));
        assert!(is_searched(&with(longer, Store::Sequential, 20.0, MISS, 9.0)).is_err());
    }

    #[test]
    fn chips_are_doubled_where_they_are_not_the_least() {
        let names = |keys| -> Vec<String> {
            cases(&[keys]).unwrap().into_iter().map(|case| case.name).collect()
        };
        assert!(names(2_000).iter().all(|name| !name.contains("doubled")));
        assert_eq!(names(32_000).len(), SIZES.len() * SYSTEMS.len());
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(settings["refused"], json!([]));
        assert_eq!(found.points.len(), cases(counts(Scale::Tiny).0).unwrap().len());
        for point in &found.points {
            assert!(point.value(SYNCED).unwrap() > 200.0, "{point:?}");
            assert!(point.value(SPACE).unwrap() > 16.0, "{point:?}");
            let has_ranges = !point.system.starts_with(Store::Sequential.name());
            assert_eq!(point.value(RANGE).is_ok(), has_ranges, "{point:?}");
        }
    }
}
