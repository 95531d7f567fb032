//! A figure next to the number that it must reach.

use serde_json::{Value, json};

/// A figure, and what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The name of the figure that is measured.
    pub what: &'static str,
    /// The figure; `None` where something was not measured.
    pub value: Option<f64>,
    /// The bound that it must keep.
    pub must: Must,
}

/// The bound that a figure must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Must {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
}

impl Bar {
    /// Whether it is; `None` where nothing was measured.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.must {
            Must::AtLeast(least) => value >= least,
            Must::AtMost(most) => value <= most,
        })
    }

    /// One word for it.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "unknown",
        }
    }

    /// For machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let (least, most) = match self.must {
            Must::AtLeast(least) => (Some(least), None),
            Must::AtMost(most) => (None, Some(most)),
        };
        json!({
            "what": self.what,
            "value": self.value,
            "at_least": least,
            "at_most": most,
            "verdict": self.verdict(),
        })
    }
}
