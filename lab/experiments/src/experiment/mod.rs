//! Experiments: what is measured, which figure it redraws, and which shape must show.
//!
//! An experiment measures a [`Series`]; each of its [`Prediction`]s is a pure function over that
//! and says itself whether the shape showed. Predictions judge ratios between systems that
//! alternated, never absolute times. None shows where there is no effect: a worst case must
//! be more than an idle thread met in the same runs, counters must have counted something, and
//! what must be equal in one place must differ in another (`catalog/vacuous.rs` tries all of
//! them).
//!
//! Reading order: [`series`], then here [`Prediction`] and [`Experiment`]. What is found is
//! [`Findings`], as everywhere in the laboratory. [`catalog`](crate::catalog) lists them all.

pub mod series;

use esker_lab_measure::process::machine;
use esker_lab_measure::scale::Scale;
use esker_lab_result::{Findings, Metrics, Verdict, What};
use serde_json::Value;

use crate::{Error, Result};

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

impl Experiment {
    /// Measures, and judges what was measured.
    ///
    /// # Errors
    /// Those of the store and the system; [`Error::Interrupted`].
    pub fn find(self, scale: Scale, watch: &mut dyn Watch) -> Result<Findings> {
        let (series, settings) = (self.run)(scale, watch)?;
        Ok(self.findings(scale, &series, settings))
    }

    /// What was found, as it is written: predictions are judged by the runs that it has.
    fn findings(self, scale: Scale, series: &Series, settings: Value) -> Findings {
        let (name, scale) = (self.name, scale.as_str());
        let mut findings = Findings {
            what: What { figure: Some(self.figure.to_owned()), ..What::of(name, self.about) },
            command: format!("esker lab run {name} --scale {scale}"),
            machine: machine(),
            axis: Some(self.axis.to_owned()),
            ..Findings::default()
        };
        findings.set("scale", scale);
        if let Value::Object(settings) = settings {
            findings.settings.extend(settings);
        }
        series.record(&mut findings);
        findings.verdicts = self.judge(&Series::from(&findings));
        findings
    }

    /// The verdict on each prediction.
    #[must_use]
    pub fn judge(&self, series: &Series) -> Vec<Verdict> {
        let judge = |prediction: &Prediction| {
            let judged = (prediction.judge)(series);
            Verdict::prediction(prediction.name, prediction.claim, judged)
        };
        self.predictions.iter().map(judge).collect()
    }
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
pub(crate) mod tests {
    use super::*;
    use crate::catalog;
    use esker_lab_result::Outcome;
    use serde_json::json;

    /// Hears nothing and never ends anything.
    pub(crate) struct Silent;

    impl Watch for Silent {
        fn says(&mut self, _: &str) {}

        fn is_interrupted(&self) -> bool {
            false
        }
    }

    /// System, place and metrics.
    type Row<'a> = (&'a str, f64, &'a [(&'a str, f64)]);

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
    fn findings_have_predictions_and_every_run() {
        let mut series = series(&[("FC", 0.5, &[("max_us", 12.345_678)])]);
        series.add("FC", 0.5, Metrics::from([("max_us".to_owned(), 2.0)]));
        let settings = json!({ "growth": 24 });
        let found = catalog::named("stall").unwrap().findings(Scale::Tiny, &series, settings);
        assert_eq!(found.command, "esker lab run stall --scale tiny");
        assert_eq!(found.verdicts[0].outcome, Outcome::Missed);
        let runs: Vec<f64> = found.measured[0].runs.iter().map(|run| run["max_us"]).collect();
        assert_eq!(runs, [12.346, 2.0]);
        assert_eq!(
            (&found.settings["growth"], &found.settings["scale"]),
            (&json!(24), &json!("tiny"))
        );
        assert_eq!(Findings::from_json(&found.to_json().unwrap()).unwrap(), found);
    }
}
