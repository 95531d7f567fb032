//! Experiments: what is measured, which figure it redraws, and which shape must show.
//!
//! An experiment measures a [`Series`]; each of its [`Prediction`]s is a pure function over that
//! and says itself whether the shape showed. Predictions judge ratios between systems that
//! alternated, never absolute times. None shows where there is no effect: a worst case must
//! be more than an idle thread met in the same runs, counters must have counted something, and
//! what must be equal in one place must differ in another (`vacuous.rs` tries all of them).
//!
//! Reading order: [`series`], then here [`Prediction`], [`Experiment`], [`Findings`], and
//! [`EXPERIMENTS`], the list of all.

pub mod series;

use serde_json::{Value, json};

use crate::compaction::{index, keys, levels, load, loosened, payload, sizes, spread};
use crate::error::{Error, Result};
use crate::measure::Metrics;
use crate::measure::process::machine;
use crate::measure::scale::Scale;
use crate::rearranging::{asymmetry, passes};
use crate::schemes::{ablation, index_size, level_skipping, lookup_ratio, stall};

pub use series::{Point, Series};

/// A shape that a series must have.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// Its name.
    pub name: &'static str,
    /// The claim, in a sentence.
    pub claim: &'static str,
    /// Whether it shows; if not, what is off.
    pub judge: fn(&Series) -> std::result::Result<(), String>,
}

/// Hears how far an experiment is, and may end it.
pub trait Watch {
    /// Something worth a line has been done.
    fn says(&mut self, line: &str);

    /// Whether a stop was requested.
    fn is_interrupted(&self) -> bool;
}

/// The measurement of a figure, and the predictions for it.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The figure or section of the paper that it redraws.
    pub figure: &'static str,
    /// The subject of the measurement, in a line.
    pub about: &'static str,
    /// The quantity on the axis.
    pub axis: &'static str,
    /// Metrics worth a column of the table; the JSON has all.
    pub columns: &'static [&'static str],
    /// The predictions that must show.
    pub predictions: &'static [Prediction],
    /// Measures it; the second answer is the settings.
    pub run: fn(Scale, &mut dyn Watch) -> Result<(Series, Value)>,
}

/// Every experiment.
pub const EXPERIMENTS: [Experiment; 15] = [
    stall::EXPERIMENT,
    lookup_ratio::EXPERIMENT,
    ablation::EXPERIMENT,
    index_size::EXPERIMENT,
    level_skipping::EXPERIMENT,
    passes::EXPERIMENT,
    asymmetry::EXPERIMENT,
    sizes::EXPERIMENT,
    keys::EXPERIMENT,
    levels::EXPERIMENT,
    load::EXPERIMENT,
    payload::EXPERIMENT,
    spread::EXPERIMENT,
    loosened::EXPERIMENT,
    index::EXPERIMENT,
];

/// The outcome of a prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The prediction's name.
    pub name: &'static str,
    /// The prediction's claim.
    pub claim: &'static str,
    /// The difference, if the prediction does not show.
    pub off: Option<String>,
}

impl Outcome {
    /// For machines.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "claim": self.claim,
            "shows": self.off.is_none(),
            "off": self.off,
        })
    }
}

/// The results of an experiment.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The experiment.
    pub experiment: Experiment,
    /// At which scale.
    pub scale: Scale,
    /// The points that were measured.
    pub series: Series,
    /// Settings of the run.
    pub settings: Value,
    /// The outcomes of the predictions.
    pub outcomes: Vec<Outcome>,
}

impl Experiment {
    /// The experiment of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        EXPERIMENTS.into_iter().find(|experiment| experiment.name == name)
    }

    /// Measures, and judges what was measured.
    ///
    /// # Errors
    /// Those of the store and the system; [`Error::Interrupted`].
    pub fn find(self, scale: Scale, watch: &mut dyn Watch) -> Result<Findings> {
        let (series, settings) = (self.run)(scale, watch)?;
        let outcomes = self.judge(&series);
        Ok(Findings { experiment: self, scale, series, settings, outcomes })
    }

    /// The outcome of each prediction.
    #[must_use]
    pub fn judge(&self, series: &Series) -> Vec<Outcome> {
        let judge = |prediction: &Prediction| Outcome {
            name: prediction.name,
            claim: prediction.claim,
            off: (prediction.judge)(series).err(),
        };
        self.predictions.iter().map(judge).collect()
    }
}

impl Findings {
    /// As JSON: what it is, where and how it was measured, every point, every prediction.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let experiment = &self.experiment;
        let (name, scale) = (experiment.name, self.scale.as_str());
        json!({
            "experiment": name,
            "figure": experiment.figure,
            "about": experiment.about,
            "command": format!("esker lab run {name} --scale {scale}"),
            "machine": machine(),
            "scale": scale,
            "settings": self.settings,
            "axis": experiment.axis,
            "predictions": self.outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
            "totals": self.series.totals.values().map(point).collect::<Vec<_>>(),
            "series": self.series.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

fn point(point: &Point) -> Value {
    let rounded = |(name, value): (&String, &f64)| (name.clone(), json!(rounded(*value)));
    let median: serde_json::Map<_, _> = point.metrics.iter().map(rounded).collect();
    json!({ "system": point.system, "at": point.at, "runs": point.runs.len(), "median": median })
}

/// Five digits that count: more would be noise.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(4 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// [`Error::Interrupted`] if a stop was requested.
pub(crate) fn go_on(watch: &dyn Watch) -> Result<()> {
    if watch.is_interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}

/// A metric with its name.
pub(crate) fn metric(metrics: &mut Metrics, name: &str, value: f64) {
    metrics.insert(name.to_owned(), value);
}

#[cfg(test)]
mod committed;
#[cfg(test)]
mod vacuous;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Hears nothing and never ends anything.
    pub(crate) struct Silent;

    impl Watch for Silent {
        fn says(&mut self, _: &str) {}

        fn is_interrupted(&self) -> bool {
            false
        }
    }

    /// System, place and metrics.
    type Row<'a> = (&'static str, f64, &'a [(&'a str, f64)]);

    /// A series from rows.
    pub(crate) fn series(rows: &[Row<'_>]) -> Series {
        let mut series = Series::default();
        for (system, at, metrics) in rows {
            let named = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value));
            series.add(system, *at, named.collect());
        }
        series
    }

    #[test]
    fn names_are_unique_and_found() {
        for experiment in EXPERIMENTS {
            assert_eq!(Experiment::named(experiment.name).unwrap().figure, experiment.figure);
            assert!(!experiment.predictions.is_empty());
        }
        assert!(Experiment::named("x").is_none());
    }

    #[test]
    fn nothing_shows_in_an_empty_series() {
        for experiment in EXPERIMENTS {
            for outcome in experiment.judge(&Series::default()) {
                assert!(outcome.off.is_some(), "{}: {}", experiment.name, outcome.name);
            }
        }
    }

    #[test]
    fn the_json_has_predictions_and_points() {
        let series = series(&[("FC", 0.5, &[("max_us", 12.345_678)])]);
        let outcomes = vec![Outcome { name: "n", claim: "c", off: Some("o".to_owned()) }];
        let settings = json!({ "growth": 24 });
        let experiment = stall::EXPERIMENT;
        let findings = Findings { experiment, scale: Scale::Tiny, series, settings, outcomes };
        let json = findings.to_json();
        assert_eq!(json["command"], "esker lab run stall --scale tiny");
        assert_eq!(json["predictions"][0]["shows"], false);
        assert_eq!(json["series"][0]["median"]["max_us"], 12.346);
        assert_eq!(json["settings"]["growth"], 24);
    }

    #[test]
    fn five_digits_stay() {
        let found = [123_456.7, 0.001_234_567, 0.0, f64::INFINITY].map(rounded);
        assert_eq!(found, [123_460.0, 0.001_234_6, 0.0, 0.0]);
    }
}
