//! The entries of one key in two neighbouring levels, merged: pure functions.
//!
//! Both sides are sorted by begin, and no entry of the lower level is newer than one of the upper.
//! So the last of the lower and the first of the upper alone meet: what is open below ends where
//! the upper one begins.

use super::run::{Entry, Kind};

/// Merges two levels, sorted by key and begin; `is_last` if no deeper level has entries.
#[must_use]
pub fn merge(upper: &[Entry], lower: &[Entry], is_last: bool) -> Vec<Entry> {
    let mut merged = Vec::with_capacity(upper.len() + lower.len());
    let (mut upper, mut lower) = (upper, lower);
    while let Some(key) = first_key(upper, lower) {
        let (above, rest) = upper.split_at(upper.partition_point(|of| of.key <= key));
        upper = rest;
        let (below, rest) = lower.split_at(lower.partition_point(|of| of.key <= key));
        lower = rest;
        join(above, below, is_last, &mut merged);
    }
    merged
}

fn first_key(upper: &[Entry], lower: &[Entry]) -> Option<u64> {
    let keys = [upper.first(), lower.first()];
    keys.into_iter().flatten().map(|entry| entry.key).min()
}

/// Merges the entries of one key.
fn join(upper: &[Entry], lower: &[Entry], is_last: bool, merged: &mut Vec<Entry>) {
    let start = merged.len();
    let mut upper = upper;
    merged.extend_from_slice(lower);
    if let (Some(first), Some(last)) = (upper.first().copied(), lower.last().copied())
        && meet(merged, first, last)
    {
        upper = upper.get(1..).unwrap_or_default();
    }
    merged.extend_from_slice(upper);
    if is_last {
        let rest = merged.split_off(start);
        merged.extend(rest.into_iter().filter(|entry| entry.kind != Kind::Tomb));
    }
}

/// Lets the first entry of the upper level meet the last one of the lower, which is the last of
/// `merged`; says whether the upper one is done with.
fn meet(merged: &mut Vec<Entry>, first: Entry, last: Entry) -> bool {
    let is_tomb = first.kind == Kind::Tomb;
    if first.begin == last.begin {
        merged.pop();
        let before = merged.last().filter(|of| of.key == first.key && of.kind == Kind::Data);
        return is_tomb && before.is_some();
    }
    if let Some(last) = merged.last_mut().filter(|_| last.is_open()) {
        last.end = first.begin;
    }
    is_tomb
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiversion::OPEN;

    fn data(key: u64, begin: u32, end: u32) -> Entry {
        Entry { key, begin, end, kind: Kind::Data, payload: 0 }
    }

    fn tomb(key: u64, begin: u32) -> Entry {
        Entry::tomb(key, begin)
    }

    #[test]
    fn a_newer_entry_ends_an_older_one() {
        let merged = merge(&[data(1, 5, OPEN)], &[data(1, 2, OPEN)], true);
        assert_eq!(merged, [data(1, 2, 5), data(1, 5, OPEN)]);
        let ended = merge(&[data(1, 5, 7)], &[data(1, 2, 3)], true);
        assert_eq!(ended, [data(1, 2, 3), data(1, 5, 7)]);
    }

    #[test]
    fn a_tombstone_goes_where_it_met_something_and_at_the_end() {
        assert_eq!(merge(&[tomb(1, 5)], &[data(1, 2, OPEN)], false), [data(1, 2, 5)]);
        assert_eq!(merge(&[tomb(1, 5)], &[data(1, 2, 3)], false), [data(1, 2, 3)]);
        assert_eq!(merge(&[tomb(1, 5)], &[tomb(1, 2)], false), [tomb(1, 2)]);
        assert_eq!(merge(&[tomb(1, 5)], &[data(2, 2, 3)], false), [tomb(1, 5), data(2, 2, 3)]);
        assert_eq!(merge(&[tomb(1, 5)], &[data(2, 2, 3)], true), [data(2, 2, 3)]);
    }

    #[test]
    fn of_one_version_the_upper_entry_stays() {
        assert_eq!(merge(&[data(1, 5, 6)], &[data(1, 5, OPEN)], false), [data(1, 5, 6)]);
        assert_eq!(merge(&[tomb(1, 5)], &[data(1, 5, OPEN)], false), [tomb(1, 5)]);
        let lower = [data(1, 2, 5), data(1, 5, OPEN)];
        assert_eq!(merge(&[tomb(1, 5)], &lower, false), [data(1, 2, 5)]);
    }

    /// Algorithm 2 as it is printed: equal keys advance both levels, and the shorter ends.
    fn printed(upper: &[Entry], lower: &[Entry]) -> Vec<Entry> {
        let (mut at, mut below, mut merged) = (0, 0, Vec::new());
        while let (Some(p), Some(q)) = (upper.get(at), lower.get(below)) {
            let (passes_p, passes_q) = (p.key <= q.key, q.key <= p.key);
            let end = if p.end == OPEN { p.begin } else { p.end };
            match p.key.cmp(&q.key) {
                std::cmp::Ordering::Less => merged.push(*p),
                std::cmp::Ordering::Greater => merged.push(*q),
                _ if p.begin > q.begin => merged.push(Entry { end, ..*q }),
                _ => {}
            }
            (at, below) = (at + usize::from(passes_p), below + usize::from(passes_q));
        }
        merged
    }

    #[test]
    fn the_printed_merge_loses_entries() {
        let (upper, lower) = ([data(1, 5, OPEN)], [data(1, 2, OPEN), data(2, 1, OPEN)]);
        assert_eq!(printed(&upper, &lower), [data(1, 2, 5)]);
        let all = [data(1, 2, 5), data(1, 5, OPEN), data(2, 1, OPEN)];
        assert_eq!(merge(&upper, &lower, true), all);
    }

    #[test]
    fn levels_are_merged_to_the_end_of_both() {
        let upper = [data(1, 9, OPEN), data(5, 9, OPEN), data(6, 9, OPEN)];
        let lower = [data(0, 1, OPEN), data(5, 1, 2), data(5, 3, OPEN)];
        let merged = merge(&upper, &lower, true);
        let begins: Vec<_> = merged.iter().map(|of| (of.key, of.begin, of.end)).collect();
        let open = OPEN;
        assert_eq!(
            begins,
            [(0, 1, open), (1, 9, open), (5, 1, 2), (5, 3, 9), (5, 9, open), (6, 9, open)]
        );
    }
}
