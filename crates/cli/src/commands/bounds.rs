//! The keys to which a command that prints many is restricted.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use esker_terminal::exit::Failure;

use crate::args::Keys;

/// The bounds of keys, as the store takes them.
pub(super) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All keys, or those between two keys or with a prefix.
#[derive(Debug, Args)]
pub(crate) struct Bounds {
    /// First key (inclusive)
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Last key (exclusive)
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "BYTES")]
    prefix: Option<OsString>,
    #[command(flatten)]
    keys: Keys,
}

impl Bounds {
    /// The bounds.
    pub(super) fn read(&self) -> Result<KeyBounds, Failure> {
        let bytes = |given: &Option<OsString>| {
            given.as_deref().map(|given| self.keys.bytes(given)).transpose()
        };
        let (from, to, prefix) = (bytes(&self.from)?, bytes(&self.to)?, bytes(&self.prefix)?);
        Ok(bounds(from.as_deref(), to.as_deref(), prefix.as_deref()))
    }
}

/// The keys that satisfy all that is given: not before `from`, before `to`, beginning with
/// `prefix`.
fn bounds(from: Option<&[u8]>, to: Option<&[u8]>, prefix: Option<&[u8]>) -> KeyBounds {
    // `None` is before every key in the one, and behind every key in the other.
    let least = from.max(prefix);
    let after_prefix = prefix.and_then(successor);
    let end = match (to, after_prefix) {
        (Some(to), Some(after)) => Some(after.min(to.to_vec())),
        (Some(to), None) => Some(to.to_vec()),
        (None, after) => after,
    };
    (
        least.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec())),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    )
}

/// The least key behind all that begin with `prefix`; none if there is no such key.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0), Just(b'a'), Just(0xfe), Just(0xff)], 0..4)
    }

    proptest! {
        #[test]
        fn bounds_hold_what_satisfies_every_option(
            from in option::of(key()),
            to in option::of(key()),
            prefix in option::of(key()),
            key in key(),
        ) {
            let wanted = from.as_ref().is_none_or(|from| &key >= from)
                && to.as_ref().is_none_or(|to| &key < to)
                && prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix));
            let bounds = bounds(from.as_deref(), to.as_deref(), prefix.as_deref());
            prop_assert_eq!(bounds.contains(&key), wanted);
        }
    }
}
