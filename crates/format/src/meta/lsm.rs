//! The record of an LSM index in the manifest: its levels, and how far its runs have been merged.
//!
//! The blocks of a level may be anywhere in the data file, and each is owned separately: no extents
//! are listed. Their space is part of the space that the manifest counts as the keyspace's blobs.

use crate::KEY_BYTES_MAX;
use crate::action::{KeyRange, KeyRangeBuf};
use crate::bytes::{Reader, put_varint};
use crate::error::Result;

use super::{LEVELS_MAX, LearntMeta, SORTED_RUNS_MAX, TreeMeta, count, encode_flag, flag};

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LsmLevel {
    /// Its blocks, under nodes that hold nothing but fences. Lists no extents.
    pub tree: TreeMeta,
    /// The units of its data blocks.
    pub units: u64,
    /// The units of its fence-only blocks.
    pub node_units: u64,
    /// The key at which the next merge into the level below begins.
    pub cursor: Vec<u8>,
}

/// An LSM index below its memtable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LsmMeta {
    /// Levels, from the first down. The last has blocks, others may have none.
    pub levels: Vec<LsmLevel>,
    /// The keys that each of the index's runs has no more, although its blocks may hold them; as
    /// many sets as there are runs, newest first.
    pub gone: Vec<Vec<KeyRangeBuf>>,
    /// The key at which the next merge of the runs begins.
    pub cursor: Vec<u8>,
    /// The state of a policy that learns.
    pub learnt: Option<LearntMeta>,
}

impl LsmMeta {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_key(out, &self.cursor);
        put_varint(out, self.gone.len() as u64);
        for ranges in &self.gone {
            put_varint(out, ranges.len() as u64);
            ranges.iter().for_each(|range| range.as_range().encode(out));
        }
        put_varint(out, self.levels.len() as u64);
        for level in &self.levels {
            level.tree.encode(out);
            put_varint(out, level.units);
            put_varint(out, level.node_units);
            put_key(out, &level.cursor);
        }
        encode_flag(out, self.learnt.is_some());
        if let Some(learnt) = &self.learnt {
            learnt.encode(out);
        }
    }

    /// Reads what belongs to an index of `runs` runs.
    pub(super) fn decode(reader: &mut Reader<'_>, runs: usize) -> Result<Self> {
        let cursor = key(reader)?;
        let at = reader.clone();
        let mut gone = Vec::new();
        for _ in 0..reader.length(SORTED_RUNS_MAX)? {
            gone.push(decode_gone(reader)?);
        }
        if gone.len() != runs {
            return Err(at.error("consumed key ranges are missing for some runs"));
        }
        let mut levels = Vec::new();
        for _ in 0..reader.length(LEVELS_MAX)? {
            let tree = TreeMeta::decode(reader)?;
            if tree.extents().next().is_some() {
                return Err(reader.error("a level of an LSM index lists extents"));
            }
            let (units, node_units) = (count(reader)?, count(reader)?);
            levels.push(LsmLevel { tree, units, node_units, cursor: key(reader)? });
        }
        let learnt = if flag(reader)? { Some(LearntMeta::decode(reader)?) } else { None };
        Ok(Self { levels, gone, cursor, learnt })
    }
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    put_varint(out, key.len() as u64);
    out.extend_from_slice(key);
}

fn key(reader: &mut Reader<'_>) -> Result<Vec<u8>> {
    Ok(reader.byte_string(KEY_BYTES_MAX)?.to_vec())
}

/// Ranges ascend and do not touch.
fn decode_gone(reader: &mut Reader<'_>) -> Result<Vec<KeyRangeBuf>> {
    let mut ranges: Vec<KeyRangeBuf> = Vec::new();
    for _ in 0..reader.length(usize::MAX)? {
        let at = reader.clone();
        let keys = KeyRange::decode(reader)?;
        let follows = |last: &KeyRangeBuf| last.end.as_deref().is_some_and(|end| end < keys.begin);
        if !ranges.last().is_none_or(follows) {
            return Err(at.error("ranges that are gone of a run touch or are out of order"));
        }
        ranges.push(keys.into());
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{IndexMeta, KindMeta, LevelCounts, LevelMeta};
    use crate::ptr::Extent;

    fn range(begin: &str, end: &str) -> KeyRangeBuf {
        let end = Some(end.as_bytes().to_vec()).filter(|end| !end.is_empty());
        KeyRangeBuf { begin: begin.as_bytes().to_vec(), end }
    }

    fn decoded(meta: &LsmMeta, runs: usize) -> Result<LsmMeta> {
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        let decoded = LsmMeta::decode(&mut reader, runs)?;
        reader.finish().map(|()| decoded)
    }

    #[test]
    fn an_lsm_index_round_trips() {
        let level =
            LsmLevel { units: 7, node_units: 3, cursor: b"k".to_vec(), ..LsmLevel::default() };
        let meta = LsmMeta {
            levels: vec![LsmLevel::default(), level],
            gone: vec![Vec::new(), vec![range("", "b"), range("c", "")]],
            cursor: b"m".to_vec(),
            learnt: None,
        };
        assert_eq!(decoded(&meta, 2).unwrap(), meta);
        assert!(decoded(&meta, 3).is_err());
    }

    /// By hand: four of ten blocks are left of the run, and the level contains all of its own.
    #[test]
    fn a_run_counts_as_much_as_is_left_of_it() {
        let level = |blocks, puts, extents| TreeMeta {
            levels: vec![LevelMeta {
                counts: LevelCounts { blocks, puts, ..LevelCounts::default() },
                extents,
                ..LevelMeta::default()
            }],
            ..TreeMeta::default()
        };
        let lsm = LsmLevel { tree: level(3, 30, Vec::new()), ..LsmLevel::default() };
        let index = IndexMeta {
            sorted_runs: vec![level(10, 100, vec![Extent { start: 7, units: 4 }])],
            kind: KindMeta::Lsm(Box::new(LsmMeta { levels: vec![lsm], ..LsmMeta::default() })),
            ..IndexMeta::default()
        };
        let counts: Vec<_> = index.counts().map(|counts| (counts.blocks, counts.puts)).collect();
        assert_eq!(counts, [(3, 30), (4, 40)]);
    }

    #[test]
    fn disorder_is_refused() {
        for ranges in [
            [range("a", "c"), range("b", "d")],
            [range("c", "d"), range("a", "b")],
            [range("a", ""), range("b", "c")],
            [range("a", "b"), range("b", "c")],
        ] {
            let meta = LsmMeta { gone: vec![ranges.to_vec()], ..LsmMeta::default() };
            assert!(decoded(&meta, 1).is_err(), "{ranges:?}");
        }
    }
}
