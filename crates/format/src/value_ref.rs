//! Values outside their block: the reference that takes a value's place in an entry.
//!
//! ```text
//! varint moment of expiry + 1, 0 for none · varint length in bytes · varint generation ·
//! u32 CRC-32C of the checksums of all pieces · varint number of runs ·
//! for each run varint first unit · varint units
//! ```
//!
//! A value is a sequence of pieces ([`crate::value_piece`]), which fill its runs one after the
//! other. What is always true of a reference: the runs have exactly the units that the pieces
//! take, and each but the last has whole pieces. The reader refuses anything else.

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::{Generation, Moment};
use crate::ptr::{DATA_FILE_BYTES_MAX, Extent, UNIT_BYTES};
use crate::value_piece::{PIECE_DATA_BYTES, PIECE_UNITS, units_for};

/// The longest blob that a reference can describe, in bytes.
pub const LARGE_VALUE_BYTES_MAX: u64 = 1 << 30;
/// Most runs of one value.
pub const VALUE_RUNS_MAX: usize = 64;

/// The address of a blob, and its expected identity and checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// The moment from which on there is no value.
    pub until: Option<Moment>,
    /// Length of the value in bytes, at least 1.
    pub bytes: u64,
    /// Generation in which its pieces were written: of this value alone.
    pub generation: Generation,
    /// CRC-32C of the checksums of its pieces, in order.
    pub crc: u32,
    /// The runs that hold its pieces.
    pub runs: Vec<Extent>,
}

impl ValueRef {
    /// The number of pieces.
    #[must_use]
    pub const fn pieces(&self) -> u64 {
        self.bytes.div_ceil(PIECE_DATA_BYTES)
    }

    /// The address of piece `number`; `None` behind the last.
    #[must_use]
    pub fn piece(&self, number: u64) -> Option<Extent> {
        let before = number.saturating_mul(PIECE_DATA_BYTES);
        let left = self.bytes.checked_sub(before).filter(|left| *left > 0)?;
        let mut skip = number.saturating_mul(PIECE_UNITS);
        for run in &self.runs {
            if skip < run.units {
                let units = units_for(left.min(PIECE_DATA_BYTES));
                return Some(Extent { start: run.start.saturating_add(skip), units });
            }
            skip = skip.saturating_sub(run.units);
        }
        None
    }

    /// Appends the reference.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.until.map_or(0, |until| until.0.saturating_add(1)));
        put_varint(out, self.bytes);
        put_varint(out, self.generation.0);
        out.extend_from_slice(&self.crc.to_le_bytes());
        put_varint(out, self.runs.len() as u64);
        for run in &self.runs {
            put_varint(out, run.start);
            put_varint(out, run.units);
        }
    }

    /// Reads a reference that `content` consists of.
    pub fn decode(content: &[u8]) -> Result<Self> {
        let mut runs = Vec::new();
        let value = Self::read(&mut Reader::new(content), &mut |run| runs.push(run))?;
        Ok(Self { runs, ..value })
    }

    /// Whether [`decode`](Self::decode) would succeed.
    pub(crate) fn check(content: &[u8]) -> Result<()> {
        Self::read(&mut Reader::new(content), &mut |_| {}).map(drop)
    }

    /// The moment of expiry that a reference begins with.
    #[must_use]
    pub fn until_of(content: &[u8]) -> Option<Moment> {
        Reader::new(content).varint().ok().and_then(|until| until.checked_sub(1)).map(Moment)
    }

    /// Length of the blob that a reference describes, in bytes; 0 for an invalid reference.
    #[must_use]
    pub fn bytes_of(content: &[u8]) -> u64 {
        let mut reader = Reader::new(content);
        reader.varint().and_then(|_| reader.varint()).unwrap_or(0)
    }

    /// Reads all of it except the runs, which are passed on.
    fn read(reader: &mut Reader<'_>, each: &mut dyn FnMut(Extent)) -> Result<Self> {
        let until = reader.varint()?.checked_sub(1).map(Moment);
        let at = reader.clone();
        let bytes = reader.varint()?;
        if bytes == 0 || bytes > LARGE_VALUE_BYTES_MAX {
            return Err(at.error("length of a large value is out of range"));
        }
        let generation = Generation(reader.varint()?);
        let crc = reader.u32()?;
        let at = reader.clone();
        let mut left = units_for(bytes);
        for _ in 0..reader.length(VALUE_RUNS_MAX)? {
            let run = Extent { start: reader.varint()?, units: reader.varint()? };
            let end = run.start.checked_add(run.units);
            let is_last = run.units == left;
            let is_whole = is_last || run.units.is_multiple_of(PIECE_UNITS);
            let fits = end.is_some_and(|end| end <= DATA_FILE_BYTES_MAX / UNIT_BYTES);
            if run.units == 0 || run.units > left || !is_whole || !fits {
                return Err(at.error("run of a large value is out of range"));
            }
            left = left.saturating_sub(run.units);
            each(run);
        }
        if left > 0 {
            return Err(at.error("runs of a large value are shorter than it"));
        }
        reader.finish()?;
        Ok(Self { until, bytes, generation, crc, runs: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reference whose runs are cut after the given numbers of pieces.
    fn value(bytes: u64, cuts: &[u64], until: Option<u64>) -> ValueRef {
        let (mut left, mut start, mut runs) = (units_for(bytes), 7, Vec::new());
        for pieces in cuts {
            let units = pieces * PIECE_UNITS;
            if units < left {
                runs.push(Extent { start, units });
                (left, start) = (left - units, start + units + 3);
            }
        }
        runs.push(Extent { start, units: left });
        let until = until.map(Moment);
        ValueRef { until, bytes, generation: Generation(9), crc: 0xa1b2_c3d4, runs }
    }

    fn encoded(value: &ValueRef) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn references_round_trip(
            bytes in 1u64..4_000_000,
            cuts in proptest::collection::vec(1u64..9, 0..9),
            until in proptest::option::of(0u64..1 << 50),
        ) {
            let value = value(bytes, &cuts, until);
            let content = encoded(&value);
            prop_assert_eq!(ValueRef::decode(&content).unwrap(), value.clone());
            prop_assert_eq!(ValueRef::until_of(&content), value.until);
            prop_assert_eq!(ValueRef::bytes_of(&content), bytes);
            ValueRef::check(&content).unwrap();
            let pieces: Vec<_> = (0..value.pieces()).map(|at| value.piece(at).unwrap()).collect();
            prop_assert_eq!(value.piece(value.pieces()), None);
            let units: u64 = pieces.iter().map(|piece| piece.units).sum();
            prop_assert_eq!(units, units_for(bytes));
            let within = |piece: &Extent| {
                value.runs.iter().any(|run| run.start <= piece.start && piece.end() <= run.end())
            };
            prop_assert!(pieces.iter().all(within));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end() <= pair[1].start));
        }

        #[test]
        fn any_accepted_reference_lies_within_the_data_file(content: Vec<u8>) {
            if let Ok(value) = ValueRef::decode(&content) {
                let units: u64 = value.runs.iter().map(|run| run.units).sum();
                prop_assert_eq!(units, units_for(value.bytes));
                prop_assert!(value.runs.iter().all(|run| run.end() <= 1 << 44));
            }
        }
    }

    #[test]
    fn references_that_cannot_be_are_refused() {
        let good = value(200_000, &[1], None);
        let runs = |runs: &[(u64, u64)]| {
            runs.iter().map(|(start, units)| Extent { start: *start, units: *units }).collect()
        };
        let bad = [
            ValueRef { bytes: 0, runs: Vec::new(), ..good.clone() },
            ValueRef { bytes: u64::MAX, ..good.clone() },
            ValueRef { bytes: LARGE_VALUE_BYTES_MAX + 1, ..good.clone() },
            ValueRef { runs: runs(&[(0, 16)]), ..good.clone() },
            ValueRef { runs: runs(&[(0, 17), (40, 32)]), ..good.clone() },
            ValueRef { runs: runs(&[(0, 64)]), ..good.clone() },
            ValueRef { runs: runs(&[(u64::MAX, 49)]), ..good.clone() },
            ValueRef { runs: runs(&[(1 << 44, 49)]), ..good.clone() },
        ];
        assert!(ValueRef::check(&encoded(&good)).is_ok());
        for value in bad {
            assert!(ValueRef::decode(&encoded(&value)).is_err(), "{value:?}");
        }
        let mut longer = encoded(&good);
        longer.push(0);
        assert!(ValueRef::decode(&longer).is_err());
    }
}
