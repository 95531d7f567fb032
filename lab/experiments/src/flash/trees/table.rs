//! The tables of existing schemes in the slides: the LA-tree, FlashDB, BFTL and IPL on a raw chip
//! and on a drive, each with five workloads.
//!
//! The places are the lookups for each update, in percent, which also tell the workloads apart.

use esker_flashtrees::rivals::Rival;
use esker_flashtrees::workload::Workload;
use esker_lab_measure::scale::Scale;
use esker_latree::{Buffering, Scan};

use super::measure::{Case, LA_TREE, MICROS, SEED, Setup, System, best_of};
use crate::experiment::Series;

/// Names of systems, without the device.
pub(super) const OURS: &str = "LA-tree";
pub(super) const FLASH_DB: &str = "FlashDB";
pub(super) const BFTL: &str = "BFTL";
pub(super) const BFTL_IN_MEMORY: &str = "BFTL, all memory";
pub(super) const IPL: &str = "IPL";
pub(super) const B_TREE: &str = "B+tree";
/// What the LA-tree is compared with.
pub(super) const RIVALS: [&str; 4] = [FLASH_DB, BFTL, BFTL_IN_MEMORY, IPL];
/// All systems by name.
pub(super) const SYSTEMS: [(&str, System); 7] = [
    (OURS, LA_TREE),
    ("LA-tree, whole scans", System::LaTree(Scan::Whole, Buffering::Adaptive)),
    (FLASH_DB, System::Rival(Rival::FlashDb)),
    (BFTL, System::Rival(Rival::Bftl)),
    (BFTL_IN_MEMORY, System::Rival(Rival::BftlOfBudget)),
    (IPL, System::Rival(Rival::Ipl)),
    (B_TREE, System::Rival(Rival::BTree)),
];

/// Lookups for each update in percent: synthetic ones, radar, Customer and Order of TPC-C.
pub(super) const PLACES: [f64; 5] = [10.0, 200.0, 0.01, 8.0, 197.0];
/// Districts of them write in leaves that do not fit the memory: see [`Workload::order`].
pub(super) const WAREHOUSES: u64 = 100;

/// A row of a table: what the slides have for a system at each place.
pub(super) type Row = (&'static str, [f64; 5]);

fn workload(place: f64) -> Workload {
    match place {
        8.0 => Workload::customer(SEED, WAREHOUSES),
        197.0 => Workload::order(SEED, WAREHOUSES),
        0.01 => Workload::radar(SEED),
        ltu => Workload::synthetic(SEED, ltu / 100.0),
    }
}

/// Whether the workload of a place is synthetic: a third of its updates removes a key, and the
/// others mostly add one, so that it needs less room.
pub(super) fn is_synthetic(place: f64) -> bool {
    [10.0, 200.0].contains(&place)
}

/// Updates of a run. The paper's synthetic workload has a million.
pub(super) const fn updates(scale: Scale) -> u64 {
    match scale {
        Scale::Tiny => 6_000,
        Scale::Small => 300_000,
        Scale::Full => 1_000_000,
    }
}

/// All systems at all places, with `suffix` behind their names; `setup` has the place.
pub(super) fn cases(suffix: &str, published: &[Row], setup: impl Fn(f64) -> Setup) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, place) in PLACES.into_iter().enumerate() {
        for (name, system) in SYSTEMS {
            let row = published.iter().find(|(of, _)| *of == name);
            cases.push(Case {
                name: format!("{name}{suffix}"),
                place,
                system,
                workload: workload(place),
                setup: setup(place),
                published: row.and_then(|(_, micros)| micros.get(index).copied()),
            });
        }
    }
    cases
}

/// What `judge` needs of a series: times of the systems with a suffix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times<'a> {
    pub series: &'a Series,
    pub suffix: &'static str,
}

impl Times<'_> {
    pub(super) fn of(&self, system: &str, place: f64) -> Result<f64, String> {
        self.series.value(&format!("{system}{}", self.suffix), place, MICROS)
    }

    /// The least time of the others at a place: of those that work in the memory there.
    pub(super) fn best_rival(&self, place: f64) -> Result<f64, String> {
        let names = RIVALS.map(|name| format!("{name}{}", self.suffix));
        best_of(self.series, names.iter().map(String::as_str), place)
    }

    /// How many times the LA-tree's time the best of the others takes.
    pub(super) fn gain(&self, place: f64) -> Result<f64, String> {
        let (rival, own) = (self.best_rival(place)?, self.of(OURS, place)?);
        if own > 0.0 && rival > 0.0 { Ok(rival / own) } else { Err("no time passed".to_owned()) }
    }

    /// Whether it is `least` or more.
    pub(super) fn gains(&self, place: f64, least: f64) -> Result<(), String> {
        let gain = self.gain(place)?;
        if gain >= least {
            return Ok(());
        }
        let (rival, own) = (self.best_rival(place)?, self.of(OURS, place)?);
        Err(format!("{rival:.1} and {own:.1} us: {gain:.2} times"))
    }

    /// Whether the LA-tree takes less time than all others at all places.
    pub(super) fn is_ahead(&self) -> Result<(), String> {
        for place in PLACES {
            let (rival, own) = (self.best_rival(place)?, self.of(OURS, place)?);
            if !(0.0 < own && own < rival) {
                return Err(format!("{place} %: {own:.1} us, the best of the others {rival:.1}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use esker_lab_result::Metrics;

    /// A series of the LA-tree, FlashDB, both kinds of BFTL, and IPL, with a suffix.
    pub(in super::super) fn series(suffix: &str, micros: [f64; 4]) -> Series {
        let mut series = Series::default();
        let [ours, flash_db, bftl, ipl] = micros;
        for place in PLACES {
            for (name, micros) in [
                (OURS, ours),
                (FLASH_DB, flash_db),
                (BFTL, bftl),
                (BFTL_IN_MEMORY, bftl),
                (IPL, ipl),
            ] {
                let metrics = Metrics::from([(MICROS.to_owned(), micros)]);
                series.add(&format!("{name}{suffix}"), place, metrics);
            }
        }
        series
    }

    #[test]
    fn gains_can_be_too_small() {
        let of = |series: &Series, least| Times { series, suffix: "" }.gains(10.0, least);
        assert_eq!(of(&series("", [1.0, 3.0, 4.0, 4.0]), 3.0), Ok(()));
        assert!(of(&series("", [1.0, 4.0, 2.9, 4.0]), 3.0).is_err());
        assert!(of(&series(" x", [1.0, 4.0, 4.0, 4.0]), 3.0).is_err());
        let is_ahead = |series: &Series| Times { series, suffix: "" }.is_ahead();
        assert_eq!(is_ahead(&series("", [1.0, 2.0, 1.1, 1.1])), Ok(()));
        assert!(is_ahead(&series("", [1.0, 2.0, 2.0, 1.0])).is_err());
    }
}
