//! The LA-tree and its comparators by memory: the slides say that its gains scale with it.
//!
//! The chip is that of the slides. What does not work in a memory has no value there: the table of
//! a translation layer, of FlashDB's or BFTL's lists, is larger than a small memory.

use esker_flashtrees::rivals::Rival;
use esker_flashtrees::workload::Workload;
use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::chips::{CHIP, Device};
use super::measure::{
    COLLECTION, Case, ERASES, LA_TREE, MICROS, PROGRAMS, READS, SEED, Setup, System, best_of,
    measure_all,
};
use super::table::{B_TREE, BFTL_IN_MEMORY, FLASH_DB, IPL, OURS, updates};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

const SYSTEMS: [(&str, System); 5] = [
    (OURS, LA_TREE),
    (FLASH_DB, System::Rival(Rival::FlashDb)),
    (BFTL_IN_MEMORY, System::Rival(Rival::BftlOfBudget)),
    (IPL, System::Rival(Rival::Ipl)),
    (B_TREE, System::Rival(Rival::BTree)),
];
/// What the LA-tree is compared with.
const RIVALS: [&str; 3] = [FLASH_DB, BFTL_IN_MEMORY, IPL];
/// Memory in KiB.
const PLACES: [f64; 6] = [32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
/// Lookups for each update, in percent, and how names of systems end.
const LOOKUPS: [(f64, &str); 2] = [(10.0, ", 10 %"), (200.0, ", 200 %")];
/// Room on the chip for each update in bytes.
const ROOM: u64 = 41;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-memory",
    figure: "slides, summary of other results: gains scale with memory",
    about: "device time of an operation of trees on raw flash, by memory, with 10 and 200 \
            lookups for 100 updates",
    axis: "memory, KiB",
    columns: &[MICROS, READS, PROGRAMS, COLLECTION, ERASES],
    predictions: &[
        Prediction {
            name: "gains-grow-with-memory",
            claim: "with 10 lookups for 100 updates, from the least memory in which the LA-tree \
                    and one of FlashDB, BFTL and IPL work to 1 MiB, the gain over the best of \
                    them grows by a fifth or more",
            judge: |series| gain_grows(series, LOOKUPS[0].1),
        },
        Prediction {
            name: "gains-grow-with-memory-with-many-lookups",
            claim: "the same with 200 lookups for 100 updates",
            judge: |series| gain_grows(series, LOOKUPS[1].1),
        },
        Prediction {
            name: "more-memory-is-less-time",
            claim: "with 10 and with 200 lookups for 100 updates the LA-tree works in 32 KiB, and \
                    each doubling of memory takes time from it",
            judge: time_falls,
        },
        Prediction {
            name: "it-is-ahead-in-every-memory",
            claim: "with 10 lookups for 100 updates the LA-tree takes less time in every memory \
                    than the best of the others that work in it",
            judge: is_ahead,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let setup =
        |kib: f64| Setup::on(Device::SmallBlocks, (kib as usize) << 10, updates(scale), ROOM);
    let mut cases = Vec::new();
    for (lookups, suffix) in LOOKUPS {
        for place in PLACES {
            cases.extend(SYSTEMS.map(|(name, system)| Case {
                name: format!("{name}{suffix}"),
                place,
                system,
                workload: Workload::synthetic(SEED, lookups / 100.0),
                setup: setup(place),
                published: None,
            }));
        }
    }
    let (series, refused) = measure_all(cases, watch)?;
    let settings = json!({
        "chip": CHIP,
        "updates": updates(scale),
        "blocks": setup(128.0).blocks,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

/// How many times the LA-tree's time the best of the others takes.
fn gain(series: &Series, suffix: &str, place: f64) -> std::result::Result<f64, String> {
    let names = RIVALS.map(|name| format!("{name}{suffix}"));
    let best = best_of(series, names.iter().map(String::as_str), place)?;
    let own = series.value(&format!("{OURS}{suffix}"), place, MICROS)?;
    if own > 0.0 { Ok(best / own) } else { Err("no time passed".to_owned()) }
}

fn gain_grows(series: &Series, suffix: &str) -> std::result::Result<(), String> {
    let gains = PLACES.map(|place| (place, gain(series, suffix, place)));
    let mut works = gains.iter().filter_map(|(at, gain)| Some((*at, *gain.as_ref().ok()?)));
    let (from, least) = works.next().ok_or("no other was measured")?;
    let [.., (last, most)] = &gains;
    let most = most.as_ref().map_err(Clone::clone)?;
    if from < *last && *most >= 1.2 * least {
        return Ok(());
    }
    Err(format!("{least:.2} times in {from} KiB, {most:.2} in {last}"))
}

fn time_falls(series: &Series) -> std::result::Result<(), String> {
    for (_, suffix) in LOOKUPS {
        let name = format!("{OURS}{suffix}");
        let times = PLACES.iter().map(|place| Ok((*place, series.value(&name, *place, MICROS)?)));
        let times: Vec<(f64, f64)> = times.collect::<std::result::Result<_, String>>()?;
        for pair in times.windows(2) {
            let [(from, before), (to, after)] = pair else { continue };
            if after >= before {
                return Err(format!("{name}: {before:.1} us in {from} KiB, {after:.1} in {to}"));
            }
        }
    }
    Ok(())
}

fn is_ahead(series: &Series) -> std::result::Result<(), String> {
    let suffix = LOOKUPS[0].1;
    let mut behind = Vec::new();
    for place in PLACES {
        // Where no other works, the LA-tree must.
        if series.value(&format!("{OURS}{suffix}"), place, MICROS)? <= 0.0 {
            return Err("no time passed".to_owned());
        }
        if let Ok(gain) = gain(series, suffix, place)
            && gain <= 1.0
        {
            behind.push(format!("{gain:.2} times in {place} KiB"));
        }
    }
    if behind.is_empty() { Ok(()) } else { Err(behind.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use esker_lab_result::Metrics;

    /// The LA-tree and the others by memory, where `from` is the first in which the others work.
    fn series(ours: impl Fn(usize) -> f64, others: impl Fn(usize) -> f64, from: usize) -> Series {
        let mut series = Series::default();
        let mut add = |name: &str, place, micros| {
            let metrics = Metrics::from([(MICROS.to_owned(), micros)]);
            series.add(name, place, metrics);
        };
        for (_, suffix) in LOOKUPS {
            for (index, place) in PLACES.into_iter().enumerate() {
                add(&format!("{OURS}{suffix}"), place, ours(index));
                if index >= from {
                    for name in RIVALS {
                        add(&format!("{name}{suffix}"), place, others(index));
                    }
                }
            }
        }
        series
    }

    #[test]
    fn predictions_can_fail() {
        let falls = |index| 10.0 - index as f64;
        let grows = |found: &Series| gain_grows(found, LOOKUPS[1].1);
        assert_eq!(grows(&series(falls, |_| 12.0, 2)), Ok(()));
        assert!(grows(&series(falls, |_| 12.0, 5)).is_err());
        assert!(grows(&series(falls, falls, 0)).is_err());
        assert_eq!(time_falls(&series(falls, falls, 0)), Ok(()));
        assert!(time_falls(&series(|index| 10.0 - (index / 2) as f64, falls, 0)).is_err());
        assert_eq!(is_ahead(&series(falls, |_| 12.0, 3)), Ok(()));
        assert!(is_ahead(&series(falls, |_| 7.0, 3)).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        let refused = settings["refused"].as_array().unwrap();
        let cases = LOOKUPS.len() * PLACES.len() * SYSTEMS.len();
        assert_eq!(found.points.len() + refused.len(), cases);
        assert_eq!(found.along("LA-tree, 10 %").count(), PLACES.len(), "{refused:#?}");
    }
}
