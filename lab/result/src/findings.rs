//! Findings: everything that a measurement found, and how it was measured.
//!
//! The JSON of findings is their fields by name. It has every run, and no medians: they are
//! computed again from the runs that are read back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::median::{median, medians};
use crate::{Metrics, Verdict};

/// The results of a measurement.
///
/// Invariant: no two entries of `measured` have the same part, system and place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// The subject of the measurement.
    pub what: What,
    /// The command that measures it again.
    pub command: String,
    /// The machine on which it was measured.
    pub machine: String,
    /// The settings of the measurement.
    pub settings: Map<String, Value>,
    /// Remarks that a reader must know.
    pub notes: Vec<String>,
    /// The quantity on the axis, where systems were measured along one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<String>,
    /// The verdicts on bars and predictions.
    pub verdicts: Vec<Verdict>,
    /// Every run.
    pub measured: Vec<Measured>,
}

/// The subject of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct What {
    /// The name of the experiment, or of the comparison.
    pub name: String,
    /// The subject, in a line.
    pub about: String,
    /// The figure or section of a paper that it redraws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
}

/// The runs of a system, in one part of the measurement, at one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// The part of the measurement: a row or a case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The system, or the way of doing it.
    pub system: String,
    /// The place on the axis; `None` for what holds of a whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// The metrics of each run, in the order in which the runs were made.
    pub runs: Vec<Metrics>,
    /// The reasons for which runs failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// The measurements of one part.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    findings: &'a Findings,
    name: Option<&'a str>,
}

impl What {
    /// A subject with its name.
    #[must_use]
    pub fn of(name: &str, about: &str) -> Self {
        Self { name: name.to_owned(), about: about.to_owned(), figure: None }
    }
}

impl Findings {
    /// Findings without runs.
    #[must_use]
    pub fn of(name: &str, about: &str) -> Self {
        Self { what: What::of(name, about), ..Self::default() }
    }

    /// Records a setting.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.settings.insert(name.to_owned(), value.into());
    }

    /// Adds a run. Metrics that are not finite are left out: JSON has no such numbers.
    pub fn add(&mut self, part: Option<&str>, system: &str, at: Option<f64>, mut run: Metrics) {
        run.retain(|_, value| value.is_finite());
        self.change(part, system, at, |of| of.runs.push(run));
    }

    /// Adds a run that failed.
    pub fn add_failure(&mut self, part: Option<&str>, system: &str, why: String) {
        self.change(part, system, None, |of| of.failures.push(why));
    }

    fn change(
        &mut self,
        part: Option<&str>,
        system: &str,
        at: Option<f64>,
        change: impl FnOnce(&mut Measured),
    ) {
        let is_it =
            |of: &&mut Measured| of.part.as_deref() == part && of.system == system && of.at == at;
        if let Some(of) = self.measured.iter_mut().find(is_it) {
            return change(of);
        }
        let (part, system) = (part.map(ToOwned::to_owned), system.to_owned());
        let mut of = Measured { part, system, at, ..Measured::default() };
        change(&mut of);
        self.measured.push(of);
    }

    /// The part of a name.
    #[must_use]
    pub const fn part<'a>(&'a self, name: &'a str) -> Part<'a> {
        Part { findings: self, name: Some(name) }
    }

    /// What belongs to no part.
    #[must_use]
    pub const fn whole(&self) -> Part<'_> {
        Part { findings: self, name: None }
    }

    /// Every failure, a line each.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.measured.iter().flat_map(|of| {
            let part = of.part.as_ref().map_or_else(String::new, |part| format!("{part} of "));
            let name = format!("{part}{}", of.system);
            of.failures.iter().map(move |why| format!("{name}: {why}"))
        })
    }

    /// The findings as JSON, with a line feed at the end.
    ///
    /// # Errors
    /// Those of the encoder, which has none for findings.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Those of the decoder, for anything else.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
}

impl Measured {
    /// The median of every metric over the runs that have it.
    #[must_use]
    pub fn medians(&self) -> Metrics {
        medians(&self.runs)
    }
}

impl<'a> Part<'a> {
    /// The entries of the part, in the order in which they were measured first.
    pub fn measured(self) -> impl Iterator<Item = &'a Measured> {
        self.findings.measured.iter().filter(move |of| of.part.as_deref() == self.name)
    }

    /// Whether any run of the part was made, or failed.
    #[must_use]
    pub fn is_there(self) -> bool {
        self.measured().next().is_some()
    }

    /// The values of a metric of a system, run by run.
    #[must_use]
    pub fn values(self, system: &str, metric: &str) -> Vec<f64> {
        let of_system = self.measured().filter(|of| of.system == system);
        of_system.flat_map(|of| &of.runs).filter_map(|run| run.get(metric).copied()).collect()
    }

    /// The median of a metric of a system over the runs.
    #[must_use]
    pub fn median(self, system: &str, metric: &str) -> Option<f64> {
        median(self.values(system, metric))
    }

    /// The median over the rounds of the ratio of the one system's value to the other's: what
    /// disturbs the machine for a while then disturbs both.
    #[must_use]
    pub fn ratio(self, system: &str, other: &str, metric: &str) -> Option<f64> {
        let pairs = self.values(system, metric).into_iter().zip(self.values(other, metric));
        let pairs = pairs.filter(|(_, other)| *other > 0.0);
        median(pairs.map(|(value, other)| value / other).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Bound, Outcome, Sense, Times};
    use proptest::prelude::*;

    fn run(values: &[(&str, f64)]) -> Metrics {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn findings() -> Findings {
        let mut findings = Findings::of("bench", "stores compared");
        for (slow, fast) in [(2.0, 1.0), (40.0, 10.0), (6.0, 2.0)] {
            findings.add(Some("load"), "slow", None, run(&[("x", slow)]));
            findings.add(Some("load"), "fast", None, run(&[("x", fast), ("lost", f64::NAN)]));
        }
        findings.add(None, "slow", Some(0.5), run(&[("x", 1.0)]));
        findings.add_failure(Some("load"), "absent", "no room".to_owned());
        findings
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let findings = findings();
        let load = findings.part("load");
        assert_eq!(load.ratio("slow", "fast", "x"), Some(3.0));
        assert_eq!(load.median("slow", "x"), Some(6.0));
        assert_eq!(load.ratio("slow", "absent", "x"), None);
        assert_eq!(findings.whole().values("slow", "x"), [1.0]);
        assert_eq!((findings.measured.len(), findings.part("walk").is_there()), (4, false));
        assert_eq!(findings.failures().collect::<Vec<_>>(), ["load of absent: no room"]);
    }

    #[test]
    fn findings_are_read_back() {
        let mut written = findings();
        written.set("entries", 5);
        written.set("parts", Value::from(vec![50, 100]));
        written.notes.push("a note".to_owned());
        let times = Times { factor: 0.5, system: "fast".to_owned(), or_control: true };
        let bound = Bound { sense: Sense::AtMost, limit: None, times: Some(times) };
        let unknown = Verdict { bound: Some(bound), ..Verdict::at_most("x", None, 1.0) };
        assert_eq!(unknown.outcome, Outcome::Unknown);
        let missed = Verdict::prediction("n", "c", Err("o".to_owned()));
        written.verdicts = vec![unknown, Verdict::at_least("y", Some(0.1 + 0.2), 1.0), missed];
        let text = written.to_json().unwrap();
        assert_eq!(Findings::from_json(&text).unwrap(), written);
        for text in ["", "{}", "[1]", &text.replace("\"runs\"", "\"median\"")] {
            assert!(Findings::from_json(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_read_back(bits in any::<u64>(), at in any::<f64>()) {
            let mut written = Findings::default();
            let at = Some(at).filter(|at| at.is_finite());
            written.add(None, "s", at, run(&[("x", f64::from_bits(bits))]));
            prop_assert_eq!(Findings::from_json(&written.to_json().unwrap()).unwrap(), written);
        }
    }
}
