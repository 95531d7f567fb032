//! Entries as lines of text: what `dump` and `scan` write and `load` reads.
//!
//! Both forms carry any bytes, one entry a line, and hold this both ways:
//! - decoding what was encoded gives the same key and value, for every key and value;
//! - a line that is accepted, however it was written, encodes to one canonical line.
//!
//! A line never holds its line feed, and an encoded line never holds a control byte, so output
//! can be shown on any terminal. Errors name the place in the line and never its content: a
//! value may be a secret.

mod jsonl;
mod lines;
mod tsv;

#[cfg(test)]
mod tests;

pub use lines::{Line, LineSplitter};

use esker::KEY_BYTES_MAX;

/// The longest value of a line, in bytes: a line is read whole before it is decoded.
pub const VALUE_BYTES_MAX: usize = 4 << 20;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The text format in which entries are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `key<TAB>value` with backslash escapes.
    #[default]
    Tsv,
    /// One JSON object a line: `{"k":…,"v":…}`, with `k64` and `v64` where bytes are not UTF-8.
    Jsonl,
}

impl Format {
    /// Appends the canonical line of an entry to `line`, line feed included.
    pub fn encode(self, key: &[u8], value: &[u8], line: &mut Vec<u8>) {
        match self {
            Self::Tsv => tsv::encode(key, value, line),
            Self::Jsonl => jsonl::encode(key, value, line),
        }
        line.push(b'\n');
    }

    /// Reads one line, given without its line feed.
    ///
    /// # Errors
    /// The line is not of this form, its key is longer than a store takes, or its value longer than
    /// [`VALUE_BYTES_MAX`].
    pub fn decode(self, line: &[u8]) -> Result<Entry, LineError> {
        let (key, value) = match self {
            Self::Tsv => tsv::decode(line),
            Self::Jsonl => jsonl::decode(line),
        }?;
        if key.len() > KEY_BYTES_MAX {
            return Err(LineError::KeyTooLong { bytes: key.len() });
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(LineError::ValueTooLong { bytes: value.len() });
        }
        Ok((key, value))
    }

    /// A bound no canonical line exceeds, in bytes; longer lines can be refused unread.
    #[must_use]
    pub const fn line_bytes_max(self) -> usize {
        let entry_bytes_max = KEY_BYTES_MAX + VALUE_BYTES_MAX;
        match self {
            // `\xHH` is four bytes; the TAB is one.
            Self::Tsv => 4 * entry_bytes_max + 1,
            // `\u0000` is six bytes; names, quotes and a little free white space are the rest.
            Self::Jsonl => 6 * entry_bytes_max + 1024,
        }
    }
}

/// Appends bytes with the escapes of the text format.
pub fn escape(bytes: &[u8], line: &mut Vec<u8>) {
    tsv::escape(bytes, line);
}

/// Adds bytes to a JSON object: as `name`, or in base64 as `base64_name` where they are not UTF-8.
pub fn insert_json(
    object: &mut serde_json::Map<String, serde_json::Value>,
    (name, base64_name): (&str, &str),
    bytes: &[u8],
) {
    jsonl::insert(object, name, base64_name, bytes);
}

/// The bytes that a text with escapes represents.
///
/// # Errors
/// [`LineError::UnknownEscape`].
pub fn unescaped(text: &[u8]) -> Result<Vec<u8>, LineError> {
    tsv::unescape(text, 0)
}

/// The bytes of a text of hexadecimal digits, with or without `0x` before them; `None` where it is
/// anything else.
#[must_use]
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some(tsv::hex_digit(high)? << 4 | tsv::hex_digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

/// The reason for the refusal of a line. Columns count bytes from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Nothing separates the key from the value.
    #[error("there is no TAB between a key and a value")]
    NoTab,
    /// A backslash begins none of the escapes.
    #[error(
        "unknown escape at column {column}: use \\\\ for a backslash, \\t \\n \\r, or \\xHH for \
         any byte"
    )]
    UnknownEscape {
        /// The column of the backslash.
        column: usize,
    },
    /// Not JSON.
    #[error("this is not JSON from column {column} on")]
    NotJson {
        /// The column where the parser stopped.
        column: usize,
    },
    /// JSON, but not an entry.
    #[error("{0}")]
    NotAnEntry(&'static str),
    /// The key is longer than a store takes.
    #[error("the key has {bytes} bytes; at most {KEY_BYTES_MAX} are allowed")]
    KeyTooLong {
        /// Its length once decoded.
        bytes: usize,
    },
    /// The value is longer than a line may have.
    #[error("the value has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    ValueTooLong {
        /// Its length once decoded.
        bytes: usize,
    },
    /// The line is longer than any entry could make it.
    #[error("the line has more than {bytes_max} bytes, which no entry needs")]
    LineTooLong {
        /// The bound it passed.
        bytes_max: usize,
    },
}
