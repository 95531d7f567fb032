//! Errors: the reasons why a measurement could not be made.

use std::io;

/// Each is one line that says what, where, and what to do where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] esker_peers::Error),
    /// The store whose schemes are compared failed.
    #[error(transparent)]
    Esker(#[from] esker::Error),
    /// The system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that was tried, and its object.
        what: String,
        /// Its answer.
        source: io::Error,
    },
    /// The process that made one run ended without a result.
    #[error("the run {run} ended without a result: {why}")]
    Child {
        /// Which run.
        run: String,
        /// The last message of the process, or the way in which it ended.
        why: String,
    },
    /// The process that made one run said why it failed.
    #[error("{0}")]
    Run(String),
    /// The measured data show that the measurement was not what it claims to be.
    #[error("this is no measurement: {0}")]
    Invalid(String),
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Input(String),
    /// A stop was requested.
    #[error("interrupted")]
    Interrupted,
}

/// The result of measuring.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Turns the answer of the system into an error that says what was tried.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what: what.into(), source }
    }
}
