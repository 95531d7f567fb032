//! `scan`: entries in key order, between bounds.

use std::ffi::OsString;
use std::ops::Bound;

use esker_terminal::exit::Failure;

use super::entries::{self, Selection};
use super::{keyspace, open_to_read};
use crate::args::Scan;
use crate::text::Format;

pub(super) fn run(args: &Scan) -> Result<(), Failure> {
    let bytes =
        |given: &Option<OsString>| given.as_deref().map(|given| args.keys.bytes(given)).transpose();
    let (from, to, prefix) = (bytes(&args.from)?, bytes(&args.to)?, bytes(&args.prefix)?);
    let db = open_to_read(&args.store.path)?;
    let bounds = bounds(from.as_deref(), to.as_deref(), prefix.as_deref());
    let range = args.version.of(keyspace(&db, &args.keyspace.name)?)?.range(bounds)?;
    entries::print(
        range,
        &Selection {
            format: if args.json { Format::Jsonl } else { Format::Tsv },
            reverse: args.reverse,
            limit: args.limit,
            skip_damaged: args.skip_damaged,
        },
    )
}

/// The keys that satisfy all that is given: not before `from`, before `to`, beginning with
/// `prefix`.
fn bounds(
    from: Option<&[u8]>,
    to: Option<&[u8]>,
    prefix: Option<&[u8]>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
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
