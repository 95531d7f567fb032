//! Thesis §4.4.2: lookups read fewer blocks after a merge has left a level out.
//!
//! The trace of an index under updates of G_R, merge by merge, each run to its end by the write
//! that makes it due: so the trace repeats. After each merge the store is opened anew, which
//! empties its cache, and asked for keys that are there. The memory is so small that the fences do
//! not fit it: only then is a level more a block more to read, as in the paper. (With the fences
//! in memory a lookup reads one block, however many levels there are.)

use std::path::Path;
use std::time::Instant;

use esker::Scheme;
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::ratio::{Ratio, Requests};
use esker_workload::{Kind, Random, Request};
use serde_json::{Value, json};

use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::fdtree::alternate::temporary;
use crate::fdtree::subject::{Setting, Subject, load, name};

const SYSTEM: &str = name(Scheme::Fc);
const LEVELS: &str = "levels";
const READS: &str = "reads_per_lookup";
/// The mean saving of a level that was left out. The paper reports 14 % of the response time in
/// one case.
const SAVING: f64 = 0.05;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "level-skipping",
    figure: "thesis §4.4.2",
    about: "blocks read per lookup, cache cold, after each merge of a trace",
    axis: "merges",
    columns: &[LEVELS, READS, "lookup_mean_us"],
    predictions: &[Prediction {
        name: "skipped-levels-save-reads",
        claim: "each merge that leaves the tree fewer levels than before leaves lookups fewer \
                    block reads, and on average at least 5 % fewer",
        judge: skipped_levels_save_reads,
    }],
    run,
};

#[derive(Clone, Copy, Debug)]
struct Sizes {
    preload: u64,
    merges: u64,
    lookups: u64,
    setting: Setting,
}

const fn sizes(scale: Scale) -> Sizes {
    // The thesis: γ = 12 and κ0 = 64 KiB, which takes six times the memory with such small entries.
    let setting = Setting {
        scheme: Scheme::Fc,
        growth: 12,
        memtable_bytes: 384 << 10,
        buffer_bytes: 384 << 10,
    };
    match scale {
        Scale::Tiny => {
            let setting = Setting {
                growth: 3,
                memtable_bytes: 128 << 10,
                buffer_bytes: 128 << 10,
                ..setting
            };
            Sizes { preload: 60_000, merges: 8, lookups: 300, setting }
        }
        Scale::Small => Sizes { preload: 1_000_000, merges: 40, lookups: 4_000, setting },
        Scale::Full => Sizes { preload: 10_000_000, merges: 600, lookups: 10_000, setting },
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizes = sizes(scale);
    let folder = temporary()?;
    let place = folder.path().join("index");
    load(&place, sizes.preload, sizes.setting.growth, watch)?;
    watch.says(&format!("level-skipping: loaded {} entries", sizes.preload));
    let mut series = Series::default();
    // Lookups change nothing, so that the trace is that of the updates alone.
    let ratio = Ratio { lookups: 0, inserts: 1, deletes: 1 };
    let mut updates = Requests::new(1, sizes.preload, u64::MAX >> 8, ratio);
    let mut there = vec![true; sizes.preload as usize];
    for merge in 1..=sizes.merges {
        go_on(watch)?;
        if !until_a_merge(&place, &sizes.setting, &mut updates, &mut there)? {
            break;
        }
        let metrics = look_up(&place, &sizes, merge, &there)?;
        let (levels, reads) = (metrics.get(LEVELS), metrics.get(READS));
        let (levels, reads) = (levels.unwrap_or(&0.0), reads.unwrap_or(&0.0));
        let line = format!("{levels} levels, {reads:.2} reads a lookup");
        watch.says(&format!("level-skipping: merge {merge} of {}: {line}", sizes.merges));
        series.add(SYSTEM, merge as f64, metrics);
    }
    let settings = json!({
        "preload": sizes.preload,
        "lookups": sizes.lookups,
        "growth": sizes.setting.growth,
        "memtable_bytes": sizes.setting.memtable_bytes,
        "buffer_bytes": sizes.setting.buffer_bytes,
    });
    Ok((series, settings))
}

/// Updates until a merge has been done; false when there are no more updates.
fn until_a_merge(
    place: &Path,
    setting: &Setting,
    updates: &mut Requests,
    there: &mut [bool],
) -> Result<bool> {
    let subject = Subject::open_inline(place, setting)?;
    let before = subject.merges()?;
    let mut merged = false;
    for (number, request) in updates.enumerate() {
        subject.perform(&request)?;
        let known = there.get_mut(request.number.wrapping_sub(1) as usize);
        if let Some(there) = known.filter(|_| request.kind == Kind::Delete) {
            *there = false;
        }
        // Far fewer than a memtable holds.
        if number % 64 == 0 && subject.merges()? > before {
            merged = true;
            break;
        }
    }
    subject.close()?;
    Ok(merged)
}

/// Lookups of a store with a cold cache.
fn look_up(place: &Path, sizes: &Sizes, seed: u64, there: &[bool]) -> Result<Metrics> {
    let subject = Subject::open_inline(place, &sizes.setting)?;
    let before = user_reads(&subject)?;
    let mut random = Random::new(seed);
    let (mut found, mut made) = (0, 0);
    let begun = Instant::now();
    while made < sizes.lookups {
        let index = random.below(there.len() as u64);
        if there.get(index as usize) == Some(&true) {
            found += u64::from(subject.perform(&Request::lookup(index + 1))?);
            made += 1;
        }
    }
    let micros = begun.elapsed().as_secs_f64() * 1e6;
    let lookups = made.max(1) as f64;
    let stats = subject.stats()?;
    let keyspace = stats.keyspaces.first();
    let mut metrics = Metrics::new();
    metric(&mut metrics, LEVELS, keyspace.map_or(0, |of| of.levels.len()) as f64);
    metric(&mut metrics, READS, (user_reads(&subject)? - before) as f64 / lookups);
    metric(&mut metrics, "lookup_mean_us", micros / lookups);
    metric(&mut metrics, "lookup_absent", (made - found) as f64);
    metric(&mut metrics, "fence_bytes", stats.memory.fence_bytes as f64);
    subject.close()?;
    Ok(metrics)
}

fn user_reads(subject: &Subject) -> Result<u64> {
    let stats = subject.stats()?;
    Ok(stats.io.iter().filter(|of| of.purpose == "user").map(|of| of.reads).sum())
}

fn skipped_levels_save_reads(series: &Series) -> std::result::Result<(), String> {
    let points: Vec<_> = series.along(SYSTEM).collect();
    let (mut savings, mut saved) = (0u32, 0.0);
    for (before, after) in points.iter().zip(points.iter().skip(1)) {
        if after.value(LEVELS)? >= before.value(LEVELS)? {
            continue;
        }
        let (reads_before, reads_after) = (before.value(READS)?, after.value(READS)?);
        if reads_after <= 0.0 {
            return Err(format!("no blocks were read after merge {}", after.at));
        }
        if reads_after >= reads_before {
            let change = format!("from {reads_before:.2} to {reads_after:.2}");
            return Err(format!("merge {} left out a level, reads went {change}", after.at));
        }
        savings += 1;
        saved += 1.0 - reads_after / reads_before;
    }
    if savings == 0 {
        return Err("no merge left out a level".to_owned());
    }
    let mean = saved / f64::from(savings);
    if mean >= SAVING {
        return Ok(());
    }
    Err(format!("{savings} merges left out a level and saved {:.1} % of the reads", 100.0 * mean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    fn trace(points: &[(f64, f64)]) -> Series {
        let rows: Vec<_> = points.iter().map(|(l, r)| [(LEVELS, *l), (READS, *r)]).collect();
        let rows: Vec<_> =
            rows.iter().enumerate().map(|(n, row)| (SYSTEM, n as f64, &row[..])).collect();
        series(&rows)
    }

    #[test]
    fn every_skipped_level_must_save_reads() {
        assert_eq!(
            skipped_levels_save_reads(&trace(&[(2.0, 2.0), (3.0, 3.0), (2.0, 2.0)])),
            Ok(())
        );
        let none = trace(&[(2.0, 2.0), (3.0, 3.0)]);
        assert!(skipped_levels_save_reads(&none).unwrap_err().contains("no merge"));
        let nothing = trace(&[(3.0, 2.0), (2.0, 0.0)]);
        assert!(skipped_levels_save_reads(&nothing).unwrap_err().contains("no blocks"));
        let more = trace(&[(3.0, 2.0), (2.0, 2.1)]);
        assert!(skipped_levels_save_reads(&more).unwrap_err().contains("merge 1"));
        let little = trace(&[(3.0, 2.0), (2.0, 1.95)]);
        assert!(skipped_levels_save_reads(&little).unwrap_err().contains("2.5 %"));
    }

    #[test]
    fn it_runs_and_finds_every_key() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 8);
        for point in &found.points {
            assert_eq!(point.value("lookup_absent"), Ok(0.0));
            assert!(point.value(READS) >= Ok(0.5), "{point:?}");
        }
    }
}
