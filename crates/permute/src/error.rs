//! The errors of this crate.

use std::io;

use crate::message::Message;

/// An error of rearranging.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be used; the text says what to change.
    #[error("{0}")]
    Input(Message),
    /// The pattern cannot be read, or does not fit the array; the text says what to change.
    #[error("{0}")]
    Pattern(Message),
    /// A file cannot be used; the text says why.
    #[error("{0}")]
    File(Message),
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    System {
        /// The operation that was tried, as a verb.
        what: &'static str,
        /// The file.
        path: String,
        /// Its answer.
        source: io::Error,
    },
    /// The caller asked for an end.
    #[error("interrupted")]
    Interrupted,
    /// A bug of this program; nothing was written under the final name.
    #[error("internal error: {0}; please report it")]
    Internal(&'static str),
}

impl Error {
    /// A text of the request, the pattern or a file, with the name of what it is about before it,
    /// as an error of that file.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        match self {
            Self::File(text) | Self::Input(text) => {
                Self::File(text.after(format!("{}: ", path.display())))
            }
            other => other,
        }
    }
}

/// The usual result.
pub type Result<T> = std::result::Result<T, Error>;

/// An unusable request.
pub(crate) fn input<T>(text: impl Into<Message>) -> Result<T> {
    Err(Error::Input(text.into()))
}

/// A pattern that does not fit.
pub(crate) fn unfit<T>(text: impl Into<Message>) -> Result<T> {
    Err(Error::Pattern(text.into()))
}

/// An unusable file.
pub(crate) fn unusable<T>(text: impl Into<Message>) -> Result<T> {
    Err(Error::File(text.into()))
}
