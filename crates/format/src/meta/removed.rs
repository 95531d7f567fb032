//! Range tombstones: deleted ranges whose keys may still be in blocks.
//!
//! Invariants of the list: its ranges ascend and share no key; the numbers of each are those of its
//! deletions, newest first, at least one and none twice. The reader refuses anything else.

use std::sync::Arc;

use crate::action::KeyRange;
use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Seq;

/// A key range that was deleted, once or several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedRange {
    /// The first key.
    pub begin: Arc<[u8]>,
    /// The key behind the last one; `None`: there is no end.
    pub end: Option<Arc<[u8]>>,
    /// The numbers of the deletions, newest first: a version with a smaller number is hidden from a
    /// reader that sees one of them.
    pub seqs: Vec<Seq>,
}

impl RemovedRange {
    /// The keys.
    #[must_use]
    pub fn keys(&self) -> KeyRange<'_> {
        KeyRange { begin: &self.begin, end: self.end.as_deref() }
    }
}

pub(super) fn encode(ranges: &[RemovedRange], out: &mut Vec<u8>) {
    put_varint(out, ranges.len() as u64);
    for range in ranges {
        range.keys().encode(out);
        put_varint(out, range.seqs.len() as u64);
        range.seqs.iter().for_each(|seq| put_varint(out, seq.0));
    }
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Arc<[RemovedRange]>> {
    let mut ranges: Vec<RemovedRange> = Vec::new();
    for _ in 0..reader.length(usize::MAX)? {
        let at = reader.clone();
        let keys = KeyRange::decode(reader)?;
        let follows = |last: &RemovedRange| {
            last.end.as_deref().is_some_and(|last_end| last_end <= keys.begin)
        };
        if !ranges.last().is_none_or(follows) {
            return Err(at.error("removed ranges overlap or are out of order"));
        }
        let seqs = decode_seqs(reader)?;
        ranges.push(RemovedRange { begin: keys.begin.into(), end: keys.end.map(Arc::from), seqs });
    }
    Ok(ranges.into())
}

fn decode_seqs(reader: &mut Reader<'_>) -> Result<Vec<Seq>> {
    let at = reader.clone();
    let mut seqs: Vec<Seq> = Vec::new();
    for _ in 0..reader.length(usize::MAX)? {
        seqs.push(Seq(reader.varint()?));
    }
    let falls = seqs.is_sorted_by(|newer, older| newer > older);
    let ends = seqs.last().is_some_and(|oldest| oldest.0 > 0);
    if falls && ends { Ok(seqs) } else { Err(at.error("numbers of a removed range do not fall")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: &str, end: &str, seqs: &[u64]) -> RemovedRange {
        RemovedRange {
            begin: begin.as_bytes().into(),
            end: Some(end.as_bytes()).filter(|end| !end.is_empty()).map(Arc::from),
            seqs: seqs.iter().copied().map(Seq).collect(),
        }
    }

    fn decoded(ranges: &[RemovedRange]) -> Result<Arc<[RemovedRange]>> {
        let mut bytes = Vec::new();
        encode(ranges, &mut bytes);
        let mut reader = Reader::new(&bytes);
        let ranges = decode(&mut reader)?;
        reader.finish().map(|()| ranges)
    }

    #[test]
    fn ranges_round_trip() {
        let some = [range("", "a", &[9]), range("a", "c", &[12, 7, 1]), range("d", "", &[3])];
        assert_eq!(*decoded(&some).unwrap(), some);
        assert_eq!(*decoded(&[]).unwrap(), []);
    }

    #[test]
    fn disorder_is_refused() {
        for ranges in [
            [range("a", "c", &[9]), range("b", "d", &[9])],
            [range("c", "d", &[9]), range("a", "b", &[9])],
            [range("a", "", &[9]), range("b", "c", &[9])],
            [range("a", "b", &[9]), range("b", "c", &[])],
            [range("a", "b", &[9]), range("b", "c", &[3, 3])],
            [range("a", "b", &[9]), range("b", "c", &[3, 0])],
        ] {
            assert!(decoded(&ranges).is_err(), "{ranges:?}");
        }
    }
}
