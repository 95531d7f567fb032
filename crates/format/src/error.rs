//! The reasons why bytes could not be decoded.

/// The result of decoding.
pub type Result<T> = core::result::Result<T, DecodeError>;

/// Bytes that are not what their reader expects, and where in the input that showed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}")]
pub struct DecodeError {
    /// Byte offset within the decoded input.
    pub offset: usize,
    /// The problem, as a phrase that reads well before "at byte N".
    pub what: &'static str,
}

impl DecodeError {
    /// An error at `offset`.
    pub const fn new(offset: usize, what: &'static str) -> Self {
        Self { offset, what }
    }
}
