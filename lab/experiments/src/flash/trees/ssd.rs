//! The LA-tree's table of existing schemes on an SSD: device time of an operation.
//!
//! The slides' drive is an MTRON PRO 7000, whose mapping is not published; the slides say that
//! random writes are expensive on such devices. So there are two drives: one that maps pages, for
//! which a random write costs a program and its share of garbage collection, and one that maps
//! blocks, for which it costs a block of copies. Requests are made one after the other and without
//! a bus of the host, so that several dies do not make them faster. A drive has pages of 4 KiB,
//! with which the LA-tree needs 125 KiB: all systems have 256 KiB.

use esker_lab_measure::scale::Scale;
use serde_json::{Value, json};

use super::chips::Device;
use super::measure::{
    COLLECTION, ERASES, MICROS, PROGRAMS, PUBLISHED, READS, SEED, Setup, measure_all,
};
use super::table::{
    BFTL, BFTL_IN_MEMORY, FLASH_DB, IPL, OURS, PLACES, Row, Times, WAREHOUSES, cases, updates,
};
use crate::Result;
use crate::experiment::{Experiment, Prediction, Series, Watch};

/// What the slides have.
const TABLE: [Row; 4] = [
    (OURS, [315.0, 351.0, 12.0, 216.0, 9.0]),
    (FLASH_DB, [1487.0, 1083.0, 642.0, 1877.0, 64.0]),
    (BFTL, [1463.0, 1192.0, 1175.0, 2661.0, 108.0]),
    (IPL, [2791.0, 2289.0, 6705.0, 5312.0, 544.0]),
];
/// Behind names of systems on the drive that maps blocks.
const MAPS_BLOCKS: &str = ", blocks mapped";
/// Both drives.
const DRIVES: [(&str, Device); 2] = [("", Device::Drive), (MAPS_BLOCKS, Device::BlockDrive)];
const MEMORY_BYTES: usize = 256 << 10;
/// Room on the device for each update in bytes.
const ROOM: u64 = 80;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latree-ssd",
    figure: "slides, table of existing schemes: SSD",
    about: "device time of an operation of trees on two drives, which map pages and blocks, by \
            workload: synthetic 10 and 200, radar 0.01, Customer 8, Order 197",
    axis: "lookups per update, %",
    columns: &[MICROS, PUBLISHED, READS, PROGRAMS, COLLECTION, ERASES],
    predictions: &[
        Prediction {
            name: "the-order-is-the-papers",
            claim: "on the drive that maps pages, with 10 and 200 lookups for 100 updates, the \
                    LA-tree takes less time than FlashDB and BFTL, and each of these less than IPL",
            judge: |series| order_is_the_papers(pages(series)),
        },
        Prediction {
            name: "the-order-is-the-papers-with-blocks",
            claim: "the same on the drive that maps blocks",
            judge: |series| order_is_the_papers(blocks(series)),
        },
        Prediction {
            name: "it-gains-on-synthetic-keys",
            claim: "on the drive that maps pages the best of FlashDB, BFTL and IPL takes at least \
                    2.3 times the LA-tree's time with 10 lookups for 100 updates, and 1.5 times \
                    with 200: half of the published 4.6 and 3",
            judge: |series| gains_half(pages(series), &[10.0, 200.0]),
        },
        Prediction {
            name: "it-gains-on-synthetic-keys-with-blocks",
            claim: "the same on the drive that maps blocks",
            judge: |series| gains_half(blocks(series), &[10.0, 200.0]),
        },
        Prediction {
            name: "it-gains-on-traces-with-blocks",
            claim: "on the drive that maps blocks it takes at least 26.7 times on the radar, 4.3 \
                    on Customer and 3.5 on Order: half of the published 53.5, 8.7 and 7.1",
            judge: |series| gains_half(blocks(series), &[0.01, 8.0, 197.0]),
        },
        Prediction {
            name: "it-is-ahead-on-all-workloads",
            claim: "on both drives and all five workloads the LA-tree takes less time than \
                    FlashDB, BFTL and IPL, as far as they work in the memory",
            judge: |series| pages(series).is_ahead().and_then(|()| blocks(series).is_ahead()),
        },
    ],
    run,
};

fn pages(series: &Series) -> Times<'_> {
    Times { series, suffix: "" }
}

fn blocks(series: &Series) -> Times<'_> {
    Times { series, suffix: MAPS_BLOCKS }
}

/// The gain of the slides' table at a place, from its times: those that it prints for TPC-C differ.
fn published_gain(place: f64) -> f64 {
    let of = |(_, micros): &Row| {
        let at = PLACES.iter().position(|other| *other == place);
        at.and_then(|at| micros.get(at)).copied().unwrap_or(f64::NAN)
    };
    let [own, others @ ..] = &TABLE;
    others.iter().map(of).fold(f64::INFINITY, f64::min) / of(own)
}

/// Whether the gain is a half of the published one or more, in two digits.
fn gains_half(times: Times<'_>, places: &[f64]) -> std::result::Result<(), String> {
    let mut less = Vec::new();
    for place in places {
        let least = (published_gain(*place) * 5.0).floor() / 10.0;
        if let Err(why) = times.gains(*place, least) {
            less.push(format!("{place} %: {why}"));
        }
    }
    if less.is_empty() { Ok(()) } else { Err(less.join("; ")) }
}

fn order_is_the_papers(times: Times<'_>) -> std::result::Result<(), String> {
    for place in [PLACES[0], PLACES[1]] {
        let of = |system| times.of(system, place);
        let (own, flash_db, ipl) = (of(OURS)?, of(FLASH_DB)?, of(IPL)?);
        // One of them may not work in the memory.
        let bftl = of(BFTL).unwrap_or(f64::INFINITY).min(of(BFTL_IN_MEMORY)?);
        let middle = [flash_db, bftl];
        if !(own > 0.0 && middle.iter().all(|micros| own < *micros && *micros < ipl)) {
            return Err(format!("{place} %: {own:.1}, {flash_db:.1}, {bftl:.1}, {ipl:.1} us"));
        }
    }
    Ok(())
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let setup = |device| Setup::on(device, MEMORY_BYTES, updates(scale), ROOM);
    let drives = DRIVES.into_iter().flat_map(|(suffix, device)| {
        let published: &[Row] = if suffix.is_empty() { &TABLE } else { &[] };
        cases(suffix, published, move |_| setup(device))
    });
    let (series, refused) = measure_all(drives, watch)?;
    let settings = json!({
        "drives": DRIVES.map(|(_, device)| device.about()),
        "memory_bytes": MEMORY_BYTES,
        "updates": updates(scale),
        "blocks": DRIVES.map(|(_, device)| setup(device).blocks),
        "warehouses": WAREHOUSES,
        "seed": SEED,
        "refused": refused,
    });
    Ok((series, settings))
}

#[cfg(test)]
mod tests {
    use super::super::table::SYSTEMS;
    use super::super::table::tests::series;
    use super::*;
    use crate::experiment::tests::Silent;

    #[test]
    fn predictions_can_fail() {
        let order = |micros| order_is_the_papers(pages(&series("", micros)));
        assert_eq!(order([1.0, 3.0, 2.0, 4.0]), Ok(()));
        assert!(order([1.0, 3.0, 2.0, 3.0]).is_err());
        assert!(order([2.0, 3.0, 2.0, 4.0]).is_err());
        let gains = |found: &Series, place| gains_half(blocks(found), &[place]);
        assert_eq!(gains(&series(MAPS_BLOCKS, [1.0, 2.3, 3.0, 3.0]), 10.0), Ok(()));
        assert!(gains(&series(MAPS_BLOCKS, [1.0, 2.2, 3.0, 3.0]), 10.0).is_err());
        assert!(gains(&series(MAPS_BLOCKS, [1.0, 20.0, 30.0, 30.0]), 0.01).is_err());
        assert_eq!(gains(&series(MAPS_BLOCKS, [1.0, 27.0, 30.0, 30.0]), 0.01), Ok(()));
    }

    #[test]
    fn the_published_gains_are_those_of_the_table() {
        let gains = [(10.0, 4.6), (200.0, 3.1), (0.01, 53.5), (8.0, 8.7), (197.0, 7.1)];
        for (place, gain) in gains {
            assert!((published_gain(place) - gain).abs() < 0.06, "{place}");
        }
    }

    #[test]
    fn it_runs() {
        let (found, settings) = run(Scale::Tiny, &mut Silent).unwrap();
        let refused = settings["refused"].as_array().unwrap();
        let cases = DRIVES.len() * PLACES.len() * SYSTEMS.len();
        assert_eq!(found.points.len() + refused.len(), cases);
        assert!(refused.len() < cases / 2, "{refused:#?}");
        for (suffix, _) in DRIVES {
            let own = format!("{OURS}{suffix}");
            assert_eq!(found.along(&own).count(), PLACES.len());
        }
    }
}
