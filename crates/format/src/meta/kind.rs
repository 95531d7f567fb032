//! What one kind of index records beyond what all kinds record: a tag, and the kind's own part.
//!
//! The part has its length before it, so that its end does not depend on its content. A kind that a
//! reader does not know is refused.

use super::LsmMeta;
use crate::bytes::{Reader, put_byte_string};
use crate::error::Result;

const FDTREE: u8 = 1;
const LSM: u8 = 2;

/// The kind of an index, and its own part of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KindMeta {
    /// An FD+tree, which records nothing else.
    #[default]
    FdTree,
    /// An LSM index: its levels, which it has instead of a main tree.
    Lsm(Box<LsmMeta>),
}

impl KindMeta {
    /// An LSM index that nothing has been written to.
    #[must_use]
    pub fn empty_lsm() -> Self {
        Self::Lsm(Box::default())
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::FdTree => FDTREE,
            Self::Lsm(_) => LSM,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        let mut part = Vec::new();
        match self {
            Self::FdTree => {}
            Self::Lsm(lsm) => lsm.encode(&mut part),
        }
        put_byte_string(out, &part);
    }

    /// Reads the kind of an index of `runs` runs.
    pub(super) fn decode(reader: &mut Reader<'_>, runs: usize) -> Result<Self> {
        let at = reader.clone();
        let tag = reader.u8()?;
        let mut part = reader.part()?;
        let kind = match tag {
            FDTREE => Self::FdTree,
            LSM => Self::Lsm(Box::new(LsmMeta::decode(&mut part, runs)?)),
            _ => return Err(at.error("an index is of a kind that is unknown to this version")),
        };
        part.finish().map(|()| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Result<KindMeta> {
        let mut reader = Reader::new(bytes);
        let kind = KindMeta::decode(&mut reader, 0)?;
        reader.finish().map(|()| kind)
    }

    #[test]
    fn kinds_round_trip() {
        for kind in [KindMeta::FdTree, KindMeta::empty_lsm()] {
            let mut bytes = Vec::new();
            kind.encode(&mut bytes);
            assert_eq!(decoded(&bytes).unwrap(), kind);
        }
    }

    #[test]
    fn unknown_kinds_and_parts_of_another_length_are_refused() {
        assert_eq!(decoded(&[9, 0]).unwrap_err().offset, 0);
        assert_eq!(decoded(&[1, 1, 0]).unwrap_err().offset, 2, "an FD+tree has no part");
        assert_eq!(decoded(&[2, 5, 0, 0, 0, 0, 7]).unwrap_err().offset, 6, "a byte too many");
        assert!(decoded(&[2, 2, 0, 0]).is_err(), "a part that ends early");
        assert!(decoded(&[1, 4]).is_err(), "a length behind the end");
    }
}
