//! Verdicts: a bar or a prediction, and whether what was measured meets it.

use serde::{Deserialize, Serialize};

/// A bar or a prediction, judged.
///
/// A bar has a value and a bound; a prediction has a claim and, where it does not hold, the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The part of the measurement that is judged; `None` for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The name of the prediction, or of the figure that has a bar.
    pub name: String,
    /// The claim, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The metric that the figure is computed from, where it is one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The figure; `None` where something was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The bound that the figure must keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Whether it is met.
    pub outcome: Outcome,
    /// The reason why a prediction does not show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The outcome of a bar or a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The figure keeps its bound, or the prediction shows.
    Met,
    /// The bound is missed by so little that another run might meet it.
    Tie,
    /// The bound is missed, or the prediction does not show.
    Missed,
    /// A value that it needs was not measured, or is no more than the machine's pauses.
    Unknown,
}

/// On which side of its limit a figure must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sense {
    /// At or above.
    AtLeast,
    /// At or below.
    AtMost,
}

/// The bound that a figure must keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// On which side of the limit.
    pub sense: Sense,
    /// The limit, in the figure's unit; `None` where the system that it refers to has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The system that the limit refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// A limit that is a multiple of another system's value of the same metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// The factor.
    pub factor: f64,
    /// The other system.
    pub system: String,
    /// Whether the limit is at least what an idle thread's longest gap allows.
    pub or_control: bool,
}

impl Outcome {
    /// The outcome in a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Tie => "tie",
            Self::Missed => "missed",
            Self::Unknown => "unknown",
        }
    }
}

impl Sense {
    /// Whether a value is on this side of a limit.
    #[must_use]
    pub fn keeps(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
        }
    }

    /// The side in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
        }
    }
}

impl Verdict {
    /// A figure that must be at least a number.
    #[must_use]
    pub fn at_least(name: &str, value: Option<f64>, limit: f64) -> Self {
        Self::bar(name, value, Sense::AtLeast, limit)
    }

    /// A figure that must be at most a number.
    #[must_use]
    pub fn at_most(name: &str, value: Option<f64>, limit: f64) -> Self {
        Self::bar(name, value, Sense::AtMost, limit)
    }

    fn bar(name: &str, value: Option<f64>, sense: Sense, limit: f64) -> Self {
        let value = value.filter(|value| value.is_finite());
        let outcome = match value {
            None => Outcome::Unknown,
            Some(value) if sense.keeps(value, limit) => Outcome::Met,
            Some(_) => Outcome::Missed,
        };
        Self {
            part: None,
            name: name.to_owned(),
            claim: None,
            metric: None,
            value,
            bound: Some(Bound { sense, limit: Some(limit), times: None }),
            outcome,
            why: None,
        }
    }

    /// A prediction: met, or missed for a reason.
    #[must_use]
    pub fn prediction(name: &str, claim: &str, judged: Result<(), String>) -> Self {
        Self {
            part: None,
            name: name.to_owned(),
            claim: Some(claim.to_owned()),
            metric: None,
            value: None,
            bound: None,
            outcome: if judged.is_ok() { Outcome::Met } else { Outcome::Missed },
            why: judged.err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_bound() {
        let outcomes = [Some(1.0), Some(1.5), Some(2.0), None, Some(f64::NAN)].map(|value| {
            [Verdict::at_least("x", value, 1.5), Verdict::at_most("x", value, 1.5)]
                .map(|verdict| verdict.outcome)
        });
        use Outcome::{Met, Missed, Unknown};
        let expected =
            [[Missed, Met], [Met, Met], [Met, Missed], [Unknown, Unknown], [Unknown, Unknown]];
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn a_prediction_that_does_not_show_says_why() {
        let verdict = Verdict::prediction("n", "it is", Err("it is not".to_owned()));
        assert_eq!((verdict.outcome, verdict.why.as_deref()), (Outcome::Missed, Some("it is not")));
        assert_eq!(Verdict::prediction("n", "it is", Ok(())).outcome, Outcome::Met);
    }
}
