//! Fig. 1: the longest insertion of each 10,000, from an empty index on.
//!
//! One thread inserts as fast as it can. Under FD+XM an insertion waits for a whole merge, and
//! the merges grow with the index; under FD+FC it waits at most for a piece of the memtable.

use std::time::Instant;

use esker::Scheme;
use esker_lab_measure::background::{Control, Stop, StopOnDrop};
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::Request;
use serde_json::{Value, json};

use crate::Result;
use crate::experiment::series::{CONTROL, CONTROL_FACTOR, MERGES, worst_is_at_most};
use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::fdtree::alternate::temporary;
use crate::fdtree::subject::{Setting, Subject, name};

/// Insertions in a bucket of the figure.
const BUCKET: u64 = 10_000;
const SCHEMES: [Scheme; 2] = [Scheme::Xm, Scheme::Fc];
const LONGEST: &str = "longest_us";
const MAX: &str = "insert_max_us";
/// FD+FC's worst over FD+XM's. The paper has 1 to 33.
const SHARE: f64 = 0.25;
/// The least ratio of FD+XM's worst in the last half to that in the first quarter, while the index
/// grows by two to four times.
const GROWTH: f64 = 1.5;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "stall",
    figure: "CIKM Fig. 1",
    about: "longest insertion of each 10,000, from an empty index on",
    axis: "insertions, in 10,000s",
    columns: &[LONGEST],
    predictions: &[
        Prediction {
            name: "fc-never-stalls",
            claim: "FC's longest insertion is at most a quarter of XM's",
            judge: fc_never_stalls,
        },
        Prediction {
            name: "xm-stalls-grow",
            claim: "XM's longest insertion grows with the index: in the last half of the run it \
                    is at least 1.5 times that of the first quarter",
            judge: xm_stalls_grow,
        },
    ],
    run,
};

#[derive(Clone, Copy, Debug)]
struct Sizes {
    inserts: u64,
    setting: Setting,
    repeats: u32,
}

const fn sizes(scale: Scale) -> Sizes {
    // The papers' γ and buffer, and a memtable of about their κ0. They inserted 2 million.
    let papers = Setting {
        scheme: Scheme::Fc,
        growth: 24,
        memtable_bytes: super::MEMTABLE_BYTES,
        buffer_bytes: 15 << 20,
    };
    match scale {
        Scale::Tiny => {
            let setting = Setting { memtable_bytes: 128 << 10, ..papers };
            Sizes { inserts: 60_000, setting, repeats: 1 }
        }
        Scale::Small => Sizes { inserts: 2_000_000, setting: papers, repeats: 3 },
        Scale::Full => Sizes { inserts: 20_000_000, setting: papers, repeats: 7 },
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizes = sizes(scale);
    let folder = temporary()?;
    let mut series = Series::default();
    for number in 1..=sizes.repeats {
        for scheme in SCHEMES {
            let begun = Instant::now();
            let place = folder.path().join(format!("{}-{number}", name(scheme)));
            let subject = Subject::open(&place, &Setting { scheme, ..sizes.setting })?;
            insert_all(&subject, scheme, sizes.inserts, &mut series, watch)?;
            subject.close()?;
            let (system, of) = (name(scheme), sizes.repeats);
            let seconds = begun.elapsed().as_secs_f64();
            watch.says(&format!("stall: {system}, run {number} of {of}: {seconds:.1} s"));
        }
    }
    let settings = json!({
        "inserts": sizes.inserts,
        "growth": sizes.setting.growth,
        "memtable_bytes": sizes.setting.memtable_bytes,
        "buffer_bytes": sizes.setting.buffer_bytes,
        "repeats": sizes.repeats,
    });
    Ok((series, settings))
}

fn insert_all(
    subject: &Subject,
    scheme: Scheme,
    inserts: u64,
    series: &mut Series,
    watch: &dyn Watch,
) -> Result<()> {
    let (stop, control) = (Stop::default(), Control::default());
    let start = Instant::now();
    let mut buckets = Vec::new();
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| control.run(&stop));
        for first in (1..=inserts).step_by(BUCKET as usize) {
            go_on(watch)?;
            let mut longest = std::time::Duration::ZERO;
            for number in first..(first + BUCKET).min(inserts + 1) {
                let begun = Instant::now();
                subject.perform(&Request::put(number, 0))?;
                longest = longest.max(begun.elapsed());
            }
            buckets.push(longest.as_nanos() as f64 / 1e3);
        }
        Ok::<_, crate::Error>(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut total = Metrics::new();
    metric(&mut total, MAX, buckets.iter().copied().fold(0.0, f64::max));
    metric(&mut total, "inserts_per_second", inserts as f64 / seconds);
    metric(&mut total, MERGES, subject.merges()? as f64);
    metric(&mut total, CONTROL, control.longest_micros());
    let stats = subject.stats()?;
    metric(&mut total, "syncs", stats.io.iter().map(|of| of.syncs).sum::<u64>() as f64);
    let kappa0 = stats.keyspaces.first().map_or(0, |of| of.shape.memtable_bytes);
    metric(&mut total, "kappa0_bytes", kappa0 as f64);
    series.add_total(name(scheme), total);
    for (bucket, longest) in buckets.into_iter().enumerate() {
        let metrics = Metrics::from([(LONGEST.to_owned(), longest)]);
        series.add(name(scheme), bucket as f64, metrics);
    }
    Ok(())
}

fn fc_never_stalls(series: &Series) -> std::result::Result<(), String> {
    let total = |system| series.totals.get(system).ok_or(format!("{system} was not measured"));
    worst_is_at_most(SHARE, total("FC")?, total("XM")?, MAX)
}

fn xm_stalls_grow(series: &Series) -> std::result::Result<(), String> {
    let longest: Vec<f64> = series
        .along("XM")
        .map(|point| point.value(LONGEST))
        .collect::<std::result::Result<_, _>>()?;
    if longest.len() < 4 {
        return Err(format!("{} buckets of XM are too few", longest.len()));
    }
    let total = series.totals.get("XM").ok_or("XM was not measured")?;
    total.waits_for_merges(MAX)?;
    let noise = CONTROL_FACTOR * total.value(CONTROL)?;
    let worst = |buckets: &[f64]| buckets.iter().copied().fold(0.0, f64::max);
    let early = worst(longest.get(..longest.len() / 4).unwrap_or_default());
    let late = worst(longest.get(longest.len() / 2..).unwrap_or_default());
    if late <= noise {
        return Err(format!("XM's longest in the last half is {late:.0} µs, as an idle thread's"));
    }
    if late >= GROWTH * early {
        return Ok(());
    }
    Err(format!("XM's longest is {early:.0} µs in the first quarter, {late:.0} in the last half"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::{Silent, series};

    fn measured(xm: [f64; 4], fc: f64) -> Series {
        let rows = [0, 1, 2, 3].map(|bucket| ("XM", bucket as f64, xm[bucket]));
        let rows = rows.map(|(system, at, longest)| (system, at, [(LONGEST, longest)]));
        let mut found = series(&rows.each_ref().map(|(s, at, m)| (*s, *at, &m[..])));
        for (system, worst) in [("XM", xm.into_iter().fold(0.0, f64::max)), ("FC", fc)] {
            let total = [(MAX, worst), (CONTROL, 10.0), (MERGES, 1.0)];
            let named = total.map(|(name, value)| (name.to_owned(), value));
            found.add_total(system, Metrics::from(named));
        }
        found
    }

    #[test]
    fn fc_must_stay_far_below_xm() {
        assert_eq!(fc_never_stalls(&measured([100.0, 200.0, 100.0, 400.0], 100.0)), Ok(()));
        assert!(fc_never_stalls(&measured([100.0, 200.0, 100.0, 400.0], 101.0)).is_err());
        assert!(fc_never_stalls(&measured([1.0, 2.0, 3.0, 12.0], 1.0)).is_err());
    }

    #[test]
    fn xm_must_grow() {
        assert_eq!(xm_stalls_grow(&measured([100.0, 9.0, 9.0, 150.0], 1.0)), Ok(()));
        assert!(xm_stalls_grow(&measured([100.0, 500.0, 9.0, 149.0], 1.0)).is_err());
        let noise = xm_stalls_grow(&measured([1.0, 100.0, 9.0, 15.0], 1.0));
        assert!(noise.unwrap_err().contains("idle"));
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!((found.places("FC").len(), found.places("XM").len()), (6, 6));
        assert!(found.total("XM", "merges").unwrap() > 1.0, "{:?}", found.totals);
    }
}
