//! Reading and writing integers and byte strings, checked at every step.

use crate::error::{DecodeError, Result};

/// A reader over untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `input`.
    pub const fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// The offset of the next byte.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// Whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.at >= self.input.len()
    }

    /// An error at the current offset.
    pub const fn error(&self, what: &'static str) -> DecodeError {
        DecodeError::new(self.at, what)
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let taken = rest.get(..len).ok_or_else(|| self.error("input ends early"))?;
        self.at = self.at.saturating_add(len);
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A LEB128 number of at most ten bytes; only the shortest spelling is accepted.
    pub fn varint(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0u64;
        let mut shift = 0u32;
        loop {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return Err(DecodeError::new(start, "number overflows 64 bits"));
            }
            value |= low.wrapping_shl(shift);
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(DecodeError::new(start, "number is not in its shortest form"));
                }
                return Ok(value);
            }
            shift = shift.saturating_add(7);
            if shift > 63 {
                return Err(DecodeError::new(start, "number overflows 64 bits"));
            }
        }
    }

    /// A varint that must fit a `usize` no larger than `max`.
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let start = self.at;
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(len) if len <= max => Ok(len),
            _ => Err(DecodeError::new(start, "length is out of bounds")),
        }
    }

    /// A varint that must fit 32 bits.
    pub fn varint_u32(&mut self) -> Result<u32> {
        let start = self.at;
        u32::try_from(self.varint()?)
            .map_err(|_| DecodeError::new(start, "number overflows 32 bits"))
    }

    /// A length-prefixed byte string of at most `max` bytes.
    pub fn byte_string(&mut self, max: usize) -> Result<&'a [u8]> {
        let len = self.length(max)?;
        self.take(len)
    }

    /// A reader of the next length-prefixed part, which ends with it and counts offsets as this
    /// one does.
    pub fn part(&mut self) -> Result<Self> {
        let len = self.length(usize::MAX)?;
        let start = self.at;
        self.take(len)?;
        Ok(Self { input: self.input.get(..self.at).unwrap_or_default(), at: start })
    }

    /// Succeeds only when everything has been read.
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(self.error("unexpected bytes follow")) }
    }
}

/// Appends `value` as LEB128.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes that [`put_varint`] appends for `value`.
pub const fn varint_len(value: u64) -> usize {
    let bits = 64u32.saturating_sub(value.leading_zeros());
    if bits == 0 { 1 } else { bits.div_ceil(7) as usize }
}

/// Appends a length-prefixed byte string.
pub fn put_byte_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), value);
            reader.finish().unwrap();
        }

        #[test]
        fn any_accepted_varint_is_the_shortest(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.varint() {
                prop_assert_eq!(reader.offset(), varint_len(value));
            }
        }
    }

    #[test]
    fn overlong_and_overflowing_varints_are_refused() {
        assert!(Reader::new(&[0x80, 0x00]).varint().is_err());
        assert!(Reader::new(&[0xff; 10]).varint().is_err());
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
        assert!(Reader::new(&[]).varint().is_err());
    }
}
