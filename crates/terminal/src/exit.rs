//! The failures of the command, and their exit codes.
//!
//! Every failure is one line on standard error. None repeats a value: it may be a secret.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use esker::Error;

/// The reason for which the command ends with another code than 0.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The key that was asked for is not there; the code says it, and no text.
    #[error("the key is absent")]
    Absent,
    /// The store answered with an error.
    #[error(transparent)]
    Store(#[from] Error),
    /// A store of versions answered with an error.
    #[error(transparent)]
    Pages(#[from] esker_pages::Error),
    /// The command line, or a line of the input, is invalid.
    #[error("{0}")]
    Input(String),
    /// Stored data is damaged, found by reading it.
    #[error("{0}")]
    Damaged(String),
    /// Another process has what is to be opened.
    #[error("{0}")]
    Locked(String),
    /// The input stopped answering.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The name of the input.
        name: String,
        /// The answer of the system.
        source: io::Error,
    },
    /// Standard output cannot be written, for a reason other than a closed pipe.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The reader of standard output has closed it.
    #[error("standard output was closed")]
    OutputClosed,
    /// Another error of the operating system.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that was tried.
        what: &'static str,
        /// The answer of the system.
        source: io::Error,
    },
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// A load ended early, with the beginning of its input stored.
    #[error("{cause}; everything up to line {lines} is stored")]
    Stopped {
        /// The reason for the end.
        cause: Box<Failure>,
        /// Lines from the start that are stored.
        lines: u64,
    },
}

impl Failure {
    /// The exit code. Scripts rely on it: a code, once given, keeps its meaning.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            // `esker scan … | head` is not an error of anyone.
            Self::OutputClosed => 0,
            Self::Absent => 1,
            Self::Input(_) => 2,
            Self::Damaged(_) => 3,
            Self::Locked(_) => 4,
            Self::Read { .. } | Self::Output(_) | Self::System { .. } => 5,
            Self::Interrupted => 130,
            Self::Stopped { cause, .. } => cause.code(),
            Self::Pages(error) => match error {
                esker_pages::Error::Foreign { .. }
                | esker_pages::Error::TooNew { .. }
                | esker_pages::Error::InvalidArgument(_) => 2,
                esker_pages::Error::Corrupt { .. } => 3,
                esker_pages::Error::Locked { .. } => 4,
                _ => 5,
            },
            Self::Store(error) => match error {
                Error::Invalid { .. }
                | Error::NotAStore { .. }
                | Error::TooNew { .. }
                | Error::NoStore { .. }
                | Error::NoKeyspace { .. } => 2,
                Error::Damaged { .. } => 3,
                Error::Locked { .. } => 4,
                _ => 5,
            },
        }
    }

    const fn is_silent(&self) -> bool {
        matches!(self, Self::Absent | Self::OutputClosed)
    }
}

/// Writes the failure to standard error, as one line.
pub fn report(failure: &Failure) {
    if failure.is_silent() {
        return;
    }
    let line = format!("esker: {}\n", one_line(&failure.to_string()));
    // If standard error is closed too, there is no way to report the failure.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes what the user should know of a success to standard error, as one line.
pub fn warn(text: &str) {
    let line = format!("esker: warning: {}\n", one_line(text));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The text with control characters escaped: names and paths may hold them, and could otherwise
/// forge lines or drive the terminal.
#[must_use]
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            let _ = write!(line, "{}", character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_fixed() {
        let store = |error: Error| Failure::Store(error).code();
        let text = String::new;
        assert_eq!(Failure::OutputClosed.code(), 0);
        assert_eq!(Failure::Absent.code(), 1);
        assert_eq!(Failure::Input(text()).code(), 2);
        assert_eq!(store(Error::NoStore { location: text() }), 2);
        assert_eq!(store(Error::NoKeyspace { name: text() }), 2);
        assert_eq!(store(Error::Invalid { what: text() }), 2);
        assert_eq!(store(Error::NotAStore { location: text(), what: text() }), 2);
        assert_eq!(store(Error::TooNew { file: text(), found: 2, supported: 1 }), 2);
        assert_eq!(Failure::Damaged(text()).code(), 3);
        assert_eq!(Failure::Locked(text()).code(), 4);
        assert_eq!(store(Error::Damaged { file: text(), offset: 0, what: text() }), 3);
        assert_eq!(store(Error::Locked { location: text() }), 4);
        assert_eq!(store(Error::Full { what: text() }), 5);
        assert_eq!(store(Error::Poisoned { reason: text() }), 5);
        assert_eq!(Failure::Output(io::ErrorKind::StorageFull.into()).code(), 5);
        assert_eq!(Failure::Interrupted.code(), 130);
    }

    #[test]
    fn an_early_end_keeps_the_code_of_its_cause() {
        let cause = Box::new(Failure::Interrupted);
        let stopped = Failure::Stopped { cause, lines: 7 };
        assert_eq!(stopped.code(), 130);
        assert_eq!(stopped.to_string(), "interrupted; everything up to line 7 is stored");
    }

    #[test]
    fn no_text_makes_a_second_line() {
        assert_eq!(one_line("a\nb\u{1b}[2Jé"), "a\\nb\\u{1b}[2Jé");
    }
}
