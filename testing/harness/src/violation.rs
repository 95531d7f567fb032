//! A broken promise: which promise it is, what was seen, how to see it again.

use std::fmt;

/// The promises that the suites check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Oracle {
    /// Nothing panics, regardless of the answers of the device.
    NoPanic,
    /// A store opens after any crash.
    Opens,
    /// Data that was acknowledged as durable is there.
    AcknowledgedIsThere,
    /// A store recovers to the end of a commit, never into one.
    CommitsAreWhole,
    /// Nothing is there that was never committed.
    NothingFromNowhere,
    /// Keyspaces exist from their creation to their drop.
    KeyspacesExist,
    /// Every read answers what the model holds at that number.
    ContentMatches,
    /// A snapshot answers the same however long it is held.
    SnapshotsStand,
    /// Every operation happens at one moment between its call and its return.
    Linearizable,
    /// Some order of all transactions, one after the other, explains every answer.
    Serializable,
    /// `check` finds nothing wrong with a sound store.
    CheckIsClean,
    /// Opening again changes nothing.
    OpeningAgainIsTheSame,
    /// No number that blocks and values are known by is handed out twice.
    NumbersAreUsedOnce,
    /// A failed operation of the device surfaces on a call that depends on it.
    ErrorsSurface,
    /// After a failed write or sync nothing more is accepted.
    PoisonHolds,
    /// A store works on after an error or a crash.
    WorksOn,
    /// Damage is never answered as data.
    DamageIsNotData,
    /// Damage never turns into an older state.
    NoSilentRollback,
    /// `check`, or the refusal to open, names damage that changes an answer.
    DamageIsNamed,
    /// Damage in one block leaves the keys of other blocks readable.
    DamageStaysLocal,
    /// A store that is opened for reading is not changed.
    ReadingWritesNothing,
    /// The cost of an input grows with its length, and not with its square.
    WorkIsBounded,
    /// The suite itself could not do what it meant to.
    Harness,
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPanic => "nothing panics",
            Self::Opens => "a store opens after any crash",
            Self::AcknowledgedIsThere => "what was acknowledged as durable is there",
            Self::CommitsAreWhole => "a store recovers to the end of a commit",
            Self::NothingFromNowhere => "nothing is there that was never committed",
            Self::KeyspacesExist => "keyspaces exist from creation to drop",
            Self::ContentMatches => "reads answer what was written",
            Self::SnapshotsStand => "a snapshot stands still",
            Self::Linearizable => "every operation happens at one moment",
            Self::Serializable => "one order of transactions explains everything",
            Self::CheckIsClean => "check is clean on a sound store",
            Self::OpeningAgainIsTheSame => "opening again changes nothing",
            Self::NumbersAreUsedOnce => "no number is handed out twice",
            Self::ErrorsSurface => "a failed device operation surfaces",
            Self::PoisonHolds => "a poisoned store accepts nothing",
            Self::WorksOn => "a store works on",
            Self::DamageIsNotData => "damage is never answered as data",
            Self::NoSilentRollback => "damage never turns into an older state",
            Self::DamageIsNamed => "damage is named",
            Self::DamageStaysLocal => "damage stays local",
            Self::ReadingWritesNothing => "what is opened for reading is not changed",
            Self::WorkIsBounded => "work is in proportion to the input",
            Self::Harness => "the suite can do its work",
        })
    }
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The promise.
    pub oracle: Oracle,
    /// The behaviour that was expected and the one that was seen.
    pub detail: String,
    /// The place: scenario, seed, crash state, fault or flip; enough to see it again.
    pub place: String,
}

impl Violation {
    /// A broken promise whose place is filled in by [`Violation::at`].
    pub fn new(oracle: Oracle, detail: impl Into<String>) -> Self {
        Self { oracle, detail: detail.into(), place: String::new() }
    }

    /// Adds an outer place in front of the known one.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = match self.place.is_empty() {
            true => place.to_string(),
            false => format!("{place}: {}", self.place),
        };
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken promise \"{}\" at {}: {}", self.oracle, self.place, self.detail)
    }
}

impl std::error::Error for Violation {}

/// The result of a check.
pub type Verdict<T = ()> = Result<T, Violation>;

/// Fails with `oracle` unless `holds`.
pub fn ensure(holds: bool, oracle: Oracle, detail: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Violation::new(oracle, detail())) }
}

/// Runs `body`; a panic becomes a violation of [`Oracle::NoPanic`].
pub fn without_panic<T>(body: impl FnOnce() -> Verdict<T>) -> Verdict<T> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    caught.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(Violation::new(Oracle::NoPanic, text.unwrap_or("a panic without a message")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_from_the_outside_in() {
        let violation = Violation::new(Oracle::Opens, "refused").at("state 3").at("trace load");
        let text = violation.to_string();
        assert!(text.contains("trace load: state 3") && text.ends_with("refused"), "{text}");
    }

    #[test]
    fn a_panic_is_a_violation() {
        let verdict = without_panic::<()>(|| panic!("index {}", 7));
        let violation = verdict.unwrap_err();
        assert_eq!(violation.oracle, Oracle::NoPanic);
        assert_eq!(violation.detail, "index 7");
    }
}
