//! Ranges: limits, and entries that are lent, against a map.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::common::{self, small};
use esker::{Keyspace, Range};
use esker_device::memory::MemoryDevice;
use esker_harness::random::Random;

type Entry = (Vec<u8>, Vec<u8>);

/// Entries of up to 40,000 bytes, of which those above 3,000 are blobs, some of them removed.
fn filled(keyspace: &Keyspace, random: &Random) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    for _ in 0..2_500 {
        let key = format!("{:05}", random.below(4_000)).into_bytes();
        let longest = [1, 40, 300, 5_000, 40_000][random.below(5) as usize];
        let value = vec![key[4]; random.below(longest) as usize];
        if random.below(5) == 0 {
            keyspace.remove(&key).unwrap();
            all.remove(&key);
        } else {
            keyspace.insert(&key, &value).unwrap();
            all.insert(key, value);
        }
    }
    all
}

/// Takes up to `most` entries, each from the front, lent or copied, or from the back.
fn taken(range: &mut Range, most: usize, random: &Random, backwards: bool) -> [Vec<Entry>; 2] {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    for _ in 0..most {
        let found = match random.below(if backwards { 4 } else { 3 }) {
            0 => range.next().transpose().unwrap(),
            3 => {
                back.extend(range.next_back().transpose().unwrap());
                continue;
            }
            _ => range.next_entry().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec())),
        };
        front.extend(found);
    }
    [front, back]
}

#[test]
fn entries_that_are_lent_or_limited_are_those_of_the_map() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = db.keyspace("k", common::options().inline_bytes_max(3_000)).unwrap();
    let random = Random::new(7);
    let map = filled(&keyspace, &random);
    for round in 0..400 {
        let from = format!("{:05}", random.below(4_200)).into_bytes();
        let all: Vec<Entry> = map
            .range((Bound::Included(from.clone()), Bound::Unbounded))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let limit = [0, 1, 2, 100, 129, 3_000, usize::MAX][random.below(7) as usize];
        let mut range = keyspace.range(from..).unwrap().limit(limit);
        let (most, backwards) = (random.below(1_500) as usize, random.below(3) == 0);
        let [front, back] = taken(&mut range, most, &random, backwards);
        let count = most.min(limit).min(all.len());
        assert_eq!(front.len() + back.len(), count, "round {round}, limit {limit}");
        assert_eq!(front, all[..front.len()]);
        assert!(back.iter().eq(all.iter().rev().take(back.len())));
        if count == limit || count == all.len() {
            assert_eq!(range.next_entry().unwrap(), None);
            assert!(range.next().is_none() && range.next_back().is_none());
        }
    }
}

#[test]
fn a_limit_is_read_and_nothing_beyond() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let keyspace = db.keyspace("k", common::options()).unwrap();
    for number in 0..2_000 {
        keyspace.insert(format!("{number:05}"), [7; 2_000]).unwrap();
    }
    db.compact().unwrap();
    let bytes_read = || {
        let io = db.stats().unwrap().io;
        io.iter().filter(|of| of.purpose == "user").map(|of| of.bytes_read).sum::<u64>()
    };
    let scan = |from: &str, limit| {
        let before = bytes_read();
        let mut range = keyspace.range(from..).unwrap().limit(limit);
        let mut seen = 0;
        while seen < 10 && range.next_entry().unwrap().is_some() {
            seen += 1;
        }
        bytes_read() - before
    };
    let (limited, not_limited) = (scan("00700", 10), scan("01400", usize::MAX));
    assert!(limited <= 15 * 4096, "{limited} bytes are read for ten entries");
    assert!(not_limited > 2 * limited, "{not_limited}");
}
