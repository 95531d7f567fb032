//! The merge operators that every build contains.

use std::str::FromStr;
use std::sync::Arc;

use esker_index::read::operands::{BoxError, MergeOperator};

use crate::error::Error;

/// Operator names with this prefix are reserved for this module and for later built-in operators.
pub(crate) const RESERVED: &str = "esker.";

/// Merge operators that every process has: a keyspace that has been opened with one
/// ([`KeyspaceOptions::merge`](crate::KeyspaceOptions::merge)) is read and merged with it from then
/// on, in every process that opens the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Merge {
    /// Values and operands are integers of 8 bytes, little-endian, and are added. The sum wraps
    /// around at 64 bits, so that it is the same for signed and unsigned ones. Any other length is
    /// an error of the read.
    Add,
    /// The operand is appended.
    Append,
    /// The greater of the two, as byte strings.
    Max,
    /// The smaller of the two, as byte strings.
    Min,
}

impl Merge {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Add, Self::Append, Self::Max, Self::Min];

    /// `add`, `append`, `max` or `min`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Append => "append",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// The name that the store keeps.
    pub(crate) fn stored_name(self) -> String {
        format!("{RESERVED}{}", self.name())
    }

    /// The operator whose name in the store is this one, if it is one of these.
    pub(crate) fn stored(name: &str) -> Option<Arc<dyn MergeOperator>> {
        let known = name.strip_prefix(RESERVED)?.parse::<Self>().ok()?;
        Some(Arc::new(known))
    }
}

impl FromStr for Merge {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            Error::invalid(format!("merge is add, append, max or min, and not {name:?}"))
        })
    }
}

impl MergeOperator for Merge {
    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Result<Vec<u8>, BoxError> {
        Ok(match self {
            Self::Add => number(older)?.wrapping_add(number(newer)?).to_le_bytes().to_vec(),
            Self::Append => [older, newer].concat(),
            Self::Max => older.max(newer).to_vec(),
            Self::Min => older.min(newer).to_vec(),
        })
    }
}

fn number(bytes: &[u8]) -> Result<u64, BoxError> {
    let number = bytes.try_into().map(u64::from_le_bytes);
    number.map_err(|_| format!("{} bytes are no number of 8 bytes", bytes.len()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_names() {
        for one in Merge::ALL {
            assert_eq!(one.name().parse::<Merge>().unwrap(), one);
            assert!(Merge::stored(&one.stored_name()).is_some());
        }
        assert!(Merge::stored("add").is_none() && Merge::stored("esker.sub").is_none());
        let error = "sub".parse::<Merge>().unwrap_err().to_string();
        assert!(error.contains("add, append, max or min"), "{error}");
    }

    #[test]
    fn operators_are_associative() {
        let operands: [&[u8]; 4] = [&[1; 8], &[0xff; 8], &[7, 0, 0, 0, 0, 0, 0, 0x80], &[0; 8]];
        let merge = |one: Merge, a: &[u8], b: &[u8]| one.merge(b"", a, b).unwrap();
        for number in 0..64 * Merge::ALL.len() {
            let pick = |shift: usize| operands[(number >> shift) & 3];
            let (one, a, b, c) = (Merge::ALL[number >> 6], pick(0), pick(2), pick(4));
            let left = merge(one, &merge(one, a, b), c);
            assert_eq!(left, merge(one, a, &merge(one, b, c)), "{one:?}");
        }
        assert!(Merge::Add.merge(b"", b"1", &[0; 8]).is_err());
    }
}
