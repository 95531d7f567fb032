//! The report of a comparison: every run's metrics, their medians, the verdicts; as JSON.

use std::collections::BTreeMap;

use esker_peers::{Arrangement, Name};
use serde_json::{Map, Value, json};

use crate::measure::Metrics;
use crate::measure::bars::{self, Limit, Sense};
use crate::measure::rows::Row;
use crate::measure::summary::medians;

/// The runs of a row with a system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs {
    /// Each run's metrics, in order.
    pub runs: Vec<Metrics>,
    /// Their medians.
    pub median: Metrics,
    /// The reasons for which runs failed.
    pub failures: Vec<String>,
}

/// Everything found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The identity of the comparison: scale, machine, settings.
    pub about: BTreeMap<&'static str, Value>,
    /// Remarks that a reader must know besides.
    pub notes: Vec<String>,
    /// The kind of index and the policy of Esker's keyspaces.
    pub arrangement: Arrangement,
    rows: BTreeMap<(Row, Name), Runs>,
}

impl Report {
    /// Nothing yet, of keyspaces that are arranged so.
    #[must_use]
    pub fn of(arrangement: Arrangement) -> Self {
        Self { arrangement, ..Self::default() }
    }

    /// Adds a run.
    pub fn add(&mut self, row: Row, system: Name, metrics: Metrics) {
        let runs = self.rows.entry((row, system)).or_default();
        runs.runs.push(metrics);
        runs.median = medians(&runs.runs);
    }

    /// Adds a run that failed.
    pub fn add_failure(&mut self, row: Row, system: Name, why: String) {
        self.rows.entry((row, system)).or_default().failures.push(why);
    }

    /// Whether the row ran.
    #[must_use]
    pub fn has(&self, row: Row) -> bool {
        self.rows.keys().any(|(of, _)| *of == row)
    }

    /// The runs of a row with a system.
    #[must_use]
    pub fn runs(&self, row: Row, system: Name) -> Option<&Runs> {
        self.rows.get(&(row, system))
    }

    /// The systems that ran, in the order of tables.
    #[must_use]
    pub fn systems(&self) -> Vec<Name> {
        let ran = |system: &Name| self.rows.keys().any(|(_, of)| of == system);
        Name::ALL.into_iter().filter(ran).collect()
    }

    /// The median of a metric.
    #[must_use]
    pub fn median(&self, row: Row, system: Name, metric: &str) -> Option<f64> {
        self.runs(row, system)?.median.get(metric).copied()
    }

    /// Every failure, a line each.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.rows.iter().flat_map(|((row, system), runs)| {
            let name = format!("{} of {system}", row.as_str());
            runs.failures.iter().map(move |why| format!("{name}: {why}"))
        })
    }

    /// As JSON: `about`, `notes`, `rows` by row and system, `bars`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut rows = Map::new();
        for row in Row::ALL.into_iter().filter(|row| self.has(*row)) {
            let of_row = self.rows.iter().filter(|((of, _), _)| *of == row);
            let systems = of_row.map(|((_, system), runs)| {
                let runs = json!({
                    "median": runs.median,
                    "runs": runs.runs,
                    "failures": runs.failures,
                });
                (system.as_str().to_owned(), runs)
            });
            rows.insert(row.as_str().to_owned(), Value::Object(systems.collect()));
        }
        let bars: Vec<Value> = bars::judge(self).iter().map(bar_to_json).collect();
        json!({ "about": self.about, "notes": self.notes, "rows": rows, "bars": bars })
    }
}

fn bar_to_json(judged: &bars::Judged) -> Value {
    let bar = judged.bar;
    let (factor, of) = match bar.limit {
        Limit::Number(_) => (None, None),
        Limit::Times(factor, peer) | Limit::TimesOrControl(factor, peer) => {
            (Some(factor), Some(peer.as_str()))
        }
    };
    json!({
        "row": bar.row.as_str(),
        "metric": bar.metric,
        "what": bar.what,
        "sense": if bar.sense == Sense::AtLeast { "at least" } else { "at most" },
        "factor": factor,
        "of": of,
        "limit": judged.limit,
        "value": judged.value,
        "verdict": judged.verdict.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_runs_medians_failures_and_bars() {
        let mut report = Report::default();
        for rate in [1.0, 5.0, 2.0] {
            let metrics = Metrics::from([("rate".to_owned(), rate)]);
            report.add(Row::Load, Name::Esker, metrics);
        }
        report.add_failure(Row::Load, Name::Redb, "no room".to_owned());
        let json = report.to_json();
        let esker = &json["rows"]["load"]["esker"];
        assert_eq!(
            (&esker["median"]["rate"], &esker["runs"][1]["rate"]),
            (&json!(2.0), &json!(5.0))
        );
        assert_eq!(json["rows"]["load"]["redb"]["failures"][0], "no room");
        assert_eq!(json["bars"][0]["verdict"], "unknown");
        assert_eq!(report.failures().collect::<Vec<_>>(), ["load of redb: no room"]);
        assert_eq!(report.systems(), [Name::Esker, Name::Redb]);
    }
}
