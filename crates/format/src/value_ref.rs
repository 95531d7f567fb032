//! Values outside their block: the reference that takes a value's place in an entry.
//!
//! Reserved: entry kind 3 is spoken for and its bytes are fixed here, but this version keeps
//! every value inline (up to [`crate::VALUE_BYTES_MAX`]) and refuses the kind when reading.
//!
//! ```text
//! varint start unit · varint length in bytes · varint generation · u32 CRC-32C of the value
//! ```

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Generation;
use crate::ptr::{DATA_FILE_BYTES_MAX, Extent, UNIT_BYTES};

/// Where a value lies and what it must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRef {
    /// First 4 KiB unit of the run that holds the value.
    pub start: u64,
    /// Length of the value in bytes, at least 1.
    pub bytes: u64,
    /// Generation in which the run was written.
    pub generation: Generation,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl ValueRef {
    /// The run that holds the value.
    #[must_use]
    pub const fn extent(&self) -> Extent {
        Extent { start: self.start, units: self.bytes.div_ceil(UNIT_BYTES) }
    }

    /// Appends the reference.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.start);
        put_varint(out, self.bytes);
        put_varint(out, self.generation.0);
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads a reference and checks that it lies within the largest data file.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let value = Self {
            start: reader.varint()?,
            bytes: reader.varint()?,
            generation: Generation(reader.varint()?),
            crc: reader.u32()?,
        };
        let units_max = DATA_FILE_BYTES_MAX / UNIT_BYTES;
        if value.bytes == 0 || value.start > units_max || value.extent().end() > units_max {
            return Err(at.error("value reference is out of range"));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn references_round_trip(start in 0u64..1 << 43, bytes in 1u64..1 << 40, crc: u32, g: u64) {
            let value = ValueRef { start, bytes, generation: Generation(g), crc };
            let mut out = Vec::new();
            value.encode(&mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(ValueRef::decode(&mut reader).unwrap(), value);
            reader.finish().unwrap();
        }

        #[test]
        fn any_accepted_reference_lies_within_the_data_file(bytes: Vec<u8>) {
            if let Ok(value) = ValueRef::decode(&mut Reader::new(&bytes)) {
                prop_assert!(value.extent().end() <= DATA_FILE_BYTES_MAX / UNIT_BYTES);
            }
        }
    }

    #[test]
    fn a_reference_beyond_the_largest_file_is_refused() {
        for (start, bytes) in [(0, 0), (u64::MAX, 1), (1 << 44, 1), (0, u64::MAX)] {
            let value = ValueRef { start, bytes, generation: Generation(1), crc: 0 };
            let mut out = Vec::new();
            value.encode(&mut out);
            assert!(ValueRef::decode(&mut Reader::new(&out)).is_err());
        }
    }
}
