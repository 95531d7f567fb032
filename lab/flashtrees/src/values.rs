//! Values of a fixed length, of 8 bytes or more: a number, repeated.
//!
//! Stores of longer entries are compared with a map of numbers, too: each byte of a value follows
//! from its number, and all of them are compared when it is read.

use crate::error::{Error, Result, broken};

/// The most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64;
const NUMBER_BYTES: usize = 8;

/// The length of all values of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    bytes: usize,
}

/// Values of 8 bytes.
impl Default for Values {
    fn default() -> Self {
        Self { bytes: NUMBER_BYTES }
    }
}

impl Values {
    /// Values of so many bytes.
    ///
    /// # Errors
    /// [`Error::Refused`] for fewer than 8 and for more than [`VALUE_BYTES_MAX`].
    pub fn of(bytes: usize) -> Result<Self> {
        if (NUMBER_BYTES..=VALUE_BYTES_MAX).contains(&bytes) {
            return Ok(Self { bytes });
        }
        let range = format!("{NUMBER_BYTES} to {VALUE_BYTES_MAX}");
        Err(Error::Refused(format!("values of {bytes} bytes: use {range}")))
    }

    /// Bytes of a value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// The bytes of a value.
    #[must_use]
    pub fn encode(self, number: u64) -> Encoded {
        let mut all = [0; VALUE_BYTES_MAX];
        let number = number.to_le_bytes();
        all.iter_mut().zip(number.iter().cycle()).for_each(|(byte, of)| *byte = *of);
        Encoded { all, len: self.bytes }
    }

    /// The number of a value.
    ///
    /// # Errors
    /// Bytes that [`Values::encode`] did not make: a bug of the store that has them.
    pub fn decode(self, bytes: &[u8]) -> Result<u64> {
        let Some(number) = bytes.first_chunk::<NUMBER_BYTES>() else {
            return broken(format!("a value has {} bytes, not {}", bytes.len(), self.bytes));
        };
        let number = u64::from_le_bytes(*number);
        if bytes == self.encode(number).bytes() {
            return Ok(number);
        }
        broken(format!(
            "a value of {} bytes is not {} bytes of one number",
            bytes.len(),
            self.bytes
        ))
    }
}

/// A value as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    all: [u8; VALUE_BYTES_MAX],
    len: usize,
}

impl Encoded {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.all.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_every_byte_counts() {
        for bytes in [8, 9, 56, VALUE_BYTES_MAX] {
            let values = Values::of(bytes).unwrap();
            let encoded = values.encode(0x0102_0304_0506_0708);
            assert_eq!(encoded.bytes().len(), bytes);
            assert_eq!(values.decode(encoded.bytes()).unwrap(), 0x0102_0304_0506_0708);
            let mut damaged = encoded.bytes().to_vec();
            assert!(values.decode(&damaged[1..]).is_err());
            damaged.push(8);
            assert!(values.decode(&damaged).is_err());
            damaged.pop();
            for at in 8..bytes {
                damaged[at] ^= 1;
                assert!(values.decode(&damaged).is_err(), "byte {at} of {bytes}");
                damaged[at] ^= 1;
            }
        }
    }

    #[test]
    fn lengths_that_no_store_here_has_are_refused() {
        assert!(Values::of(7).is_err() && Values::of(VALUE_BYTES_MAX + 1).is_err());
        assert_eq!(Values::default(), Values::of(8).unwrap());
    }
}
