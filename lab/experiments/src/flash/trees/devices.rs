//! The LA-tree and its comparators on other flash: raw chips with large blocks, and a memory card.
//!
//! The slides give ranges without workloads: 8 to 23 times on raw chips with large blocks, 37 % to
//! 5 times on SD cards. The chips here have the same array as the one with pages of 512 bytes,
//! which is measured with them. With pages of 4 KiB the LA-tree needs 125 KiB: all have 256 KiB.

use esker_flashtrees::rivals::Rival;
use esker_flashtrees::workload::Workload;
use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::chips::Device;
use super::measure::{
    COLLECTION, Case, ERASES, LA_TREE, MICROS, PROGRAMS, READS, SEED, Setup, System, measure_all,
};
use super::table::{B_TREE, BFTL, BFTL_IN_MEMORY, FLASH_DB, IPL, OURS, Times, updates};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

const SYSTEMS: [(&str, System); 6] = [
    (OURS, LA_TREE),
    (FLASH_DB, System::Rival(Rival::FlashDb)),
    (BFTL, System::Rival(Rival::Bftl)),
    (BFTL_IN_MEMORY, System::Rival(Rival::BftlOfBudget)),
    (IPL, System::Rival(Rival::Ipl)),
    (B_TREE, System::Rival(Rival::BTree)),
];
const SMALL: &str = ", 512 B";
const LARGE_2K: &str = ", 2 KiB";
const LARGE_4K: &str = ", 4 KiB";
const CARD: &str = ", card";
/// Devices, and how names of systems end on them.
const DEVICES: [(&str, Device); 4] = [
    (SMALL, Device::SmallBlocks),
    (LARGE_2K, Device::Large2K),
    (LARGE_4K, Device::Large4K),
    (CARD, Device::Card),
];
/// Lookups for each update, in percent.
const PLACES: [f64; 2] = [10.0, 200.0];
const MEMORY_BYTES: usize = 256 << 10;
/// Room on the device for each update in bytes.
const ROOM: u64 = 80;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-devices",
    figure: "slides, summary of other results: SD cards, large block raw NAND",
    about: "device time of an operation of trees on raw chips with pages of 512 bytes, 2 and 4 \
            KiB and on a memory card that maps blocks",
    axis: "lookups per update, %",
    columns: &[MICROS, READS, PROGRAMS, COLLECTION, ERASES],
    predictions: &[
        Prediction {
            name: "large-blocks-gain-more",
            claim: "with 10 lookups for 100 updates the gain over the best of FlashDB, BFTL and \
                    IPL is greater with pages of 2 and of 4 KiB than with pages of 512 bytes \
                    (published: 8 to 23 times, and 11.2)",
            judge: large_blocks_gain_more,
        },
        Prediction {
            name: "four-times-on-large-blocks",
            claim: "with pages of 2 and of 4 KiB and 10 lookups for 100 updates it is 4 times or \
                    more, a half of the least that is published",
            judge: |series| {
                let gains = |suffix| on(series, suffix).gains(10.0, 4.0);
                gains(LARGE_2K).and_then(|()| gains(LARGE_4K))
            },
        },
        Prediction {
            name: "a-third-on-cards",
            claim: "on the card, with 10 and with 200 lookups for 100 updates, the gain is 1.37 \
                    times or more (published: 37 % to 5 times)",
            judge: |series| {
                PLACES.iter().try_for_each(|place| on(series, CARD).gains(*place, 1.37))
            },
        },
    ],
    run,
};

fn on<'a>(series: &'a Series, suffix: &'static str) -> Times<'a> {
    Times { series, suffix }
}

fn large_blocks_gain_more(series: &Series) -> std::result::Result<(), String> {
    let gain = |suffix| on(series, suffix).gain(10.0);
    let small = gain(SMALL)?;
    for large in [gain(LARGE_2K)?, gain(LARGE_4K)?] {
        if large <= small {
            return Err(format!("{small:.2} times with 512 bytes, {large:.2} with large pages"));
        }
    }
    Ok(())
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let setup = |device| Setup::on(device, MEMORY_BYTES, updates(scale), ROOM);
    let mut cases = Vec::new();
    for (suffix, device) in DEVICES {
        for place in PLACES {
            cases.extend(SYSTEMS.map(|(name, system)| Case {
                name: format!("{name}{suffix}"),
                place,
                system,
                workload: Workload::synthetic(SEED, place / 100.0),
                setup: setup(device),
                published: None,
            }));
        }
    }
    let (series, refused) = measure_all(cases, watch)?;
    let settings = json!({
        "devices": DEVICES.map(|(_, device)| device.about()),
        "blocks": DEVICES.map(|(_, device)| setup(device).blocks),
        "memory_bytes": MEMORY_BYTES,
        "updates": updates(scale),
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use esker_lab_result::Metrics;

    /// The LA-tree takes 1 us, the others as long as their device says.
    fn series(others: [f64; 4]) -> Series {
        let mut series = Series::default();
        for ((suffix, _), micros) in DEVICES.into_iter().zip(others) {
            for place in PLACES {
                for (name, micros) in [(OURS, 1.0), (FLASH_DB, micros), (IPL, micros)] {
                    let metrics = Metrics::from([(MICROS.to_owned(), micros)]);
                    series.add(&format!("{name}{suffix}"), place, metrics);
                }
            }
        }
        series
    }

    #[test]
    fn predictions_can_fail() {
        let shows = |others| {
            let series = series(others);
            EXPERIMENT.predictions.iter().map(|one| (one.judge)(&series).is_ok()).collect()
        };
        let found: [Vec<bool>; 3] =
            [[2.0, 4.0, 5.0, 1.4], [4.0, 5.0, 4.0, 1.3], [2.0, 3.9, 9.0, 2.0]].map(shows);
        assert_eq!(found, [[true, true, true], [false, true, false], [true, false, true]]);
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        let refused = settings["refused"].as_array().unwrap();
        let cases = DEVICES.len() * PLACES.len() * SYSTEMS.len();
        assert_eq!(found.points.len() + refused.len(), cases);
        for (suffix, _) in DEVICES {
            let own = format!("{OURS}{suffix}");
            assert_eq!(found.along(&own).count(), PLACES.len(), "{refused:#?}");
        }
    }
}
