//! Values that versions are merged onto.
//!
//! A value is a list of versions, and merging appends one. So a value that is read names its last
//! writer, and beyond that, for each version in it that was merged, its base: which must be the
//! version that the key had before, in every read by every thread.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::{ABSENT, Key, Version};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// The bit of a version that is merged; others are put.
const MERGED: Version = 1 << 63;

/// The same version, to be merged.
#[must_use]
pub const fn merged(version: Version) -> Version {
    version | MERGED
}

/// The same version, to be put.
#[must_use]
pub const fn put(version: Version) -> Version {
    version & !MERGED
}

/// Whether a version is merged onto what is there.
#[must_use]
pub const fn is_merged(version: Version) -> bool {
    version & MERGED != 0
}

/// Bytes that say which version they are, of a length that follows from it.
#[must_use]
pub fn value_bytes(version: Version) -> Vec<u8> {
    let len = 16 + (version.wrapping_mul(0x9e37_79b9) >> 8) as usize % 180;
    version.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// The versions of a value, in the order in which they were merged.
///
/// # Errors
/// [`Oracle::NothingFromNowhere`] when the value is not whole.
pub fn versions_of(mut value: &[u8]) -> Verdict<Vec<Version>> {
    let broken = || Violation::new(Oracle::NothingFromNowhere, "a value is not whole");
    let mut versions = Vec::new();
    while versions.is_empty() || !value.is_empty() {
        let version = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let version = version.filter(|version| *version != ABSENT).ok_or_else(broken)?;
        value = value.strip_prefix(&*value_bytes(version)).ok_or_else(broken)?;
        ensure(versions.is_empty() || is_merged(version), Oracle::ContentMatches, || {
            format!("version {version} was put, and stands on {versions:?}")
        })?;
        versions.push(version);
    }
    Ok(versions)
}

/// A version that was merged, and the base that it was found to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stood {
    /// The key.
    pub key: Key,
    /// Its base; [`ABSENT`] where there is none.
    pub on: Version,
    /// The version.
    pub version: Version,
}

/// The versions and their bases that the threads of a run have found.
#[derive(Debug, Default)]
pub struct Stacks(Mutex<HashSet<Stood>>);

impl Stacks {
    /// The last version of a value of `key`; remembers its base and those of the versions before
    /// it.
    ///
    /// # Errors
    /// Those of [`versions_of`].
    pub fn see(&self, key: Key, value: &[u8]) -> Verdict<Version> {
        let versions = versions_of(value)?;
        let before = [ABSENT].into_iter().chain(versions.iter().copied());
        let pairs = before.zip(&versions).filter(|(_, version)| is_merged(**version));
        let stood: Vec<_> =
            pairs.map(|(on, version)| Stood { key, on, version: *version }).collect();
        if !stood.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(stood);
        }
        Ok(versions.last().copied().unwrap_or(ABSENT))
    }

    /// All that was found since this was called last.
    #[must_use]
    pub fn take(&self) -> HashSet<Stood> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Fails unless what was found below a version was `before` it.
///
/// # Errors
/// [`Oracle::ContentMatches`].
pub(crate) fn compare(stood: &Stood, before: Version) -> Verdict {
    ensure(stood.on == before, Oracle::ContentMatches, || {
        let Stood { key, on, version } = stood;
        format!("version {version} of key {key} was merged onto {before} and stands on {on}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_operands() {
        let stacks = Stacks::default();
        let value = |versions: &[Version]| -> Vec<u8> {
            versions.iter().flat_map(|version| value_bytes(*version)).collect()
        };
        let (a, b, c) = (7, merged(8), merged(3));
        assert_eq!(versions_of(&value(&[a, b, c])).unwrap(), [a, b, c]);
        assert_eq!(stacks.see(1, &value(&[a, b, c])).unwrap(), c);
        assert_eq!(stacks.see(2, &value(&[merged(9)])).unwrap(), merged(9));
        assert_eq!(stacks.see(3, &value(&[10])).unwrap(), 10);
        let found = stacks.take();
        let stood = |key, on, version| Stood { key, on, version };
        let expected = [stood(1, a, b), stood(1, b, c), stood(2, ABSENT, merged(9))];
        assert_eq!(found, expected.into_iter().collect());
        assert!(stacks.take().is_empty());
        assert!(versions_of(&value(&[a, 9])).is_err(), "what is put stands on nothing");
        assert!(versions_of(&value(&[a])[1..]).is_err());
        assert!(versions_of(&[]).is_err());
    }
}
