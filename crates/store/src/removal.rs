//! Range tombstones: the net effect of a batch of writes, and the number of tombstones that a
//! keyspace may have.
//!
//! A keyspace keeps its range tombstones until full merges have retired them. Beyond a certain
//! number of them a full merge is due; beyond four times that number, or a number of bytes, a
//! removal compacts the keyspace. It is refused if that does not help: then a snapshot holds the
//! removed entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::action::{KeyRange, WriteOp};
use esker_format::ids::KeyspaceId;

use crate::error::{Error, Result};
use crate::maintenance;
use crate::shared::Core;
use crate::slot::Slot;
use crate::write_request::Write;

/// Compactions that a removal waits for at most: what another thread removes meanwhile may make one
/// more due.
const COMPACTIONS_MAX: u32 = 2;

/// Waits until the keyspaces can remember the ranges that `writes` remove.
///
/// # Errors
/// [`Error::Full`] when there is no hope of that; what stops the merge.
pub(crate) fn admit(shared: &Core, writes: &[Write<'_>]) -> Result<()> {
    let is_removal = |write: &&Write<'_>| matches!(write.action, WriteOp::DeleteRange(_));
    for group in writes.chunk_by(|a, b| a.slot.id == b.slot.id) {
        // They come first.
        let more = group.iter().take_while(is_removal).count();
        if let Some(write) = group.first().filter(|_| more > 0) {
            admit_to(shared, write.slot, more)?;
        }
    }
    Ok(())
}

fn admit_to(shared: &Core, slot: &Arc<Slot>, more: usize) -> Result<()> {
    for _ in 0..COMPACTIONS_MAX {
        let tree = slot.tree()?;
        shared.poison.check()?;
        if !tree.is_full_of_removals(more) {
            return Ok(());
        }
        if !tree.can_retire_removals() {
            break;
        }
        maintenance::compact(shared, slot)?;
    }
    if slot.tree()?.is_full_of_removals(more) {
        return Err(Error::Full { what: too_many(&slot.name) });
    }
    Ok(())
}

fn too_many(name: &str) -> String {
    format!(
        "a removed range in keyspace {name}, which remembers as many as it can: snapshots see what \
         was removed"
    )
}

/// The net effect of calls, given in their order: for each keyspace the removed ranges, joined
/// where they meet, and the last write of each key that was not removed later, with the operands
/// that were then merged onto it.
pub(crate) fn net_effect<'a>(calls: impl DoubleEndedIterator<Item = Write<'a>>) -> Vec<Write<'a>> {
    let mut writes: Vec<Write<'a>> = Vec::new();
    let mut removed = Removed::default();
    // The last call on a key is the first to be met.
    for write in calls.rev() {
        match write.action {
            WriteOp::DeleteRange(keys) => removed.insert(write.slot.id, keys),
            WriteOp::Point(key, _) if removed.has(write.slot.id, key) => continue,
            WriteOp::Point(..) => {}
        }
        writes.push(write);
    }
    writes.sort_by(|a, b| place(a).cmp(&place(b)));
    let mut net: Vec<Write<'a>> = Vec::with_capacity(writes.len());
    for write in writes {
        let last = net.last_mut().filter(|last| last.slot.id == write.slot.id);
        match (last.map(|last| &mut last.action), write.action) {
            // Operands apply to the earlier write of the key.
            (Some(WriteOp::Point(last, data)), WriteOp::Point(key, _))
                if *last == key && !data.is_operand() => {}
            (Some(WriteOp::DeleteRange(last)), WriteOp::DeleteRange(keys))
                if last.end.is_none_or(|end| keys.begin <= end) =>
            {
                last.end = last.end.zip(keys.end).map(|(a, b)| a.max(b));
            }
            _ => net.push(write),
        }
    }
    let is_same = |a: &Write<'_>, b: &Write<'_>| {
        a.slot.id == b.slot.id && a.action.key().is_some() && a.action.key() == b.action.key()
    };
    net.chunk_by_mut(is_same).for_each(<[Write<'_>]>::reverse);
    net
}

/// Removed ranges of several keyspaces.
///
/// Invariant: those of a keyspace share no key and do not touch.
#[derive(Debug, Default)]
struct Removed<'a> {
    /// Keyspace and first key of a range → the key behind its last one, where it has an end.
    ends: BTreeMap<(KeyspaceId, &'a [u8]), Option<&'a [u8]>>,
}

impl<'a> Removed<'a> {
    /// The last range that begins at or before `key`, if it contains the key or ends at it.
    fn around(&self, id: KeyspaceId, key: &'a [u8]) -> Option<KeyRange<'a>> {
        let (&(of, begin), &end) = self.ends.range(..=(id, key)).next_back()?;
        (of == id && end.is_none_or(|end| key <= end)).then_some(KeyRange { begin, end })
    }

    fn has(&self, id: KeyspaceId, key: &'a [u8]) -> bool {
        self.around(id, key).is_some_and(|keys| keys.has(key))
    }

    fn insert(&mut self, id: KeyspaceId, keys: KeyRange<'a>) {
        let begin = self.around(id, keys.begin).map_or(keys.begin, |before| before.begin);
        let mut end = keys.end;
        // Every range that begins in this one, or ends where it begins, becomes part of it.
        while let Some((&(of, start), &other)) = self.ends.range((id, begin)..).next()
            && of == id
            && end.is_none_or(|end| start <= end)
        {
            end = end.zip(other).map(|(end, other)| end.max(other));
            self.ends.remove(&(id, start));
        }
        self.ends.insert((id, begin), end);
    }
}

/// Ranges in front of keys; the sort is stable, so that of several calls on a key the last one
/// comes first.
fn place<'a>(write: &Write<'a>) -> (KeyspaceId, bool, &'a [u8]) {
    match write.action {
        WriteOp::DeleteRange(keys) => (write.slot.id, false, keys.begin),
        WriteOp::Point(key, _) => (write.slot.id, true, key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The keys that bound the ranges: the empty key and some short ones. A number beyond them
    /// means no end.
    const KEYS: [&[u8]; 8] = [b"", b"a", b"ab", b"b", b"c", b"cc", b"d", b"z"];

    proptest! {
        #[test]
        fn removed_ranges_have_what_any_of_them_has(
            ranges in proptest::collection::vec((1u32..3, 0..8_usize, 0..10_usize), 0..12),
        ) {
            let mut removed = Removed::default();
            let ranges: Vec<_> = ranges
                .into_iter()
                .map(|(id, begin, end)| (KeyspaceId(id), KEYS[begin], KEYS.get(end).copied()))
                .filter(|(_, begin, end)| end.is_none_or(|end| *begin < end))
                .map(|(id, begin, end)| (id, KeyRange { begin, end }))
                .collect();
            for (id, keys) in &ranges {
                removed.insert(*id, *keys);
            }
            for id in (1..3).map(KeyspaceId) {
                for key in KEYS {
                    let any = ranges.iter().any(|(of, keys)| *of == id && keys.has(key));
                    prop_assert_eq!(removed.has(id, key), any, "{:?} {:?}", id, key);
                }
                let of = removed.ends.iter().filter(|((of, _), _)| *of == id);
                let of: Vec<_> = of.map(|((_, begin), end)| (*begin, *end)).collect();
                let touch = of.windows(2).any(|pair| pair[0].1.is_none_or(|end| end >= pair[1].0));
                prop_assert!(!touch, "{:?}", of);
            }
        }
    }
}
