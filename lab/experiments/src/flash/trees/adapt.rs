//! ADAPT compared with buffers of a fixed size, from few lookups to many.
//!
//! A fixed buffer that is emptied early costs updates, one that is emptied late costs lookups. The
//! best size follows the share of lookups; ADAPT is told neither.

use esker_lab_measure::scale::Scale;
use esker_latree::{Buffering, Scan};
use serde_json::{Value, json};

use super::chips::CHIP;
use super::measure::{
    ERASES, LA_TREE, MEMORY_BYTES, MICROS, PROGRAMS, READS, SEED, Setup, System, by_lookups,
    measure_all,
};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

const ADAPT: &str = "ADAPT";
/// Names and bytes of fixed buffers.
const FIXED: [(&str, usize); 5] = [
    ("1 KiB", 1 << 10),
    ("4 KiB", 4 << 10),
    ("16 KiB", 16 << 10),
    ("64 KiB", 64 << 10),
    ("256 KiB", 256 << 10),
];
/// Lookups for each update, in percent.
const PLACES: [f64; 6] = [0.01, 1.0, 10.0, 100.0, 200.0, 1000.0];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-adapt",
    figure: "slides, plot: ADAPT against fixed sizes of buffers",
    about: "device time of an operation of the LA-tree, by when buffers are emptied",
    axis: "lookups per update, %",
    columns: &[MICROS, READS, PROGRAMS, ERASES],
    predictions: &[
        Prediction {
            name: "adapt-is-near-the-best-size",
            claim: "with 0.01 to 1000 lookups for 100 updates ADAPT takes at most 1.1 times the \
                    time of the best fixed size, where the worst takes at least 1.5 times that \
                    of the best somewhere",
            judge: is_near_the_best,
        },
        Prediction {
            name: "no-size-is-best-everywhere",
            claim: "each fixed size takes more than 1.1 times ADAPT's time somewhere",
            judge: no_size_is_best,
        },
    ],
    run,
};

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let updates = match scale {
        Scale::Tiny => 4_000,
        Scale::Small => 150_000,
        Scale::Full => 1_000_000,
    };
    let setup = Setup::paper(updates, (updates / 400).max(64) as u32);
    let fixed =
        FIXED.map(|(name, bytes)| (name, System::LaTree(Scan::Sorted, Buffering::Fixed(bytes))));
    let systems: Vec<_> = [(ADAPT, LA_TREE)].into_iter().chain(fixed).collect();
    let (series, refused) = measure_all(by_lookups(&systems, &PLACES, setup), watch)?;
    let settings = json!({
        "chip": CHIP,
        "memory_bytes": MEMORY_BYTES,
        "updates": setup.updates,
        "blocks": setup.blocks,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

/// The times of fixed sizes at a place: the least and the greatest.
fn of_fixed(series: &Series, place: f64) -> std::result::Result<(f64, f64), String> {
    FIXED.iter().try_fold((f64::INFINITY, 0.0_f64), |(least, most), (name, _)| {
        let micros = series.value(name, place, MICROS)?;
        Ok((least.min(micros), most.max(micros)))
    })
}

fn is_near_the_best(series: &Series) -> std::result::Result<(), String> {
    let (mut far, mut spread) = (Vec::new(), 0.0_f64);
    for place in PLACES {
        let (least, most) = of_fixed(series, place)?;
        let own = series.value(ADAPT, place, MICROS)?;
        if !(own > 0.0 && own <= 1.1 * least) {
            far.push(format!("{:.2} at {place} %", own / least));
        }
        spread = spread.max(most / least);
    }
    if !far.is_empty() {
        return Err(format!("{} times the best", far.join(", ")));
    }
    if spread >= 1.5 { Ok(()) } else { Err(format!("sizes differ {spread:.2} times at most")) }
}

fn no_size_is_best(series: &Series) -> std::result::Result<(), String> {
    for (name, _) in FIXED {
        let mut worst = 0.0_f64;
        for place in PLACES {
            let own = series.value(ADAPT, place, MICROS)?;
            worst = worst.max(series.value(name, place, MICROS)? / own.max(f64::MIN_POSITIVE));
        }
        if worst <= 1.1 {
            return Err(format!("{name} takes at most {worst:.2} times ADAPT's time"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use esker_lab_result::Metrics;

    /// ADAPT's time, and those of small and of large buffers with few and with many lookups.
    fn series(adapt: f64, small: [f64; 2], large: [f64; 2]) -> Series {
        let mut series = Series::default();
        for place in PLACES {
            let index = usize::from(place >= 100.0);
            let mut add = |name: &str, micros: f64| {
                series.add(name, place, Metrics::from([(MICROS.to_owned(), micros)]));
            };
            add(ADAPT, adapt);
            FIXED[..2].iter().for_each(|(name, _)| add(name, small[index]));
            FIXED[2..].iter().for_each(|(name, _)| add(name, large[index]));
        }
        series
    }

    #[test]
    fn predictions_can_fail() {
        let opposed = |adapt| series(adapt, [2.0, 1.0], [1.0, 2.0]);
        assert_eq!(is_near_the_best(&opposed(1.1)), Ok(()));
        assert!(is_near_the_best(&opposed(1.2)).is_err());
        assert!(is_near_the_best(&series(1.0, [1.4, 1.0], [1.0, 1.4])).is_err());
        assert_eq!(no_size_is_best(&opposed(1.0)), Ok(()));
        assert!(no_size_is_best(&series(1.0, [1.0, 1.0], [1.0, 2.0])).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), PLACES.len() * (1 + FIXED.len()));
        assert!(found.points.iter().all(|point| point.value(MICROS).unwrap() > 0.0));
    }
}
