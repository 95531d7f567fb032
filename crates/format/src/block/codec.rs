//! Codecs: compression of a block's body (all between its header and its padding).
//!
//! A body is compressed when that saves a sector or more; else the block is stored without a codec,
//! so that no block is longer than it would be uncompressed. A [`Packer`] also guesses: after
//! several bodies that did not shrink it stores the next ones uncompressed and tries again at
//! intervals.
//!
//! Only bytes with a correct checksum are decompressed, and only into the number of bytes that the
//! header gives, which are within a block: corruption is found before a codec sees it, and no
//! content takes more memory than the longest block.
//!
//! A build may be without codecs (features `lz4` and `zstd`): [`Codec::is_available`]. Then their
//! blocks are refused with an error that names the feature, and never written.

use super::{BODY_BYTES_MAX, COMPRESSED_AT, TRAILER_BYTES};
use crate::error::{DecodeError, Result};
use crate::ptr::{BLOCK_BYTES_MAX, SECTOR_BYTES, UNIT_BYTES};

/// The compression of the body of a block. Each block names its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Codec {
    /// As it is.
    #[default]
    None = 0,
    /// As one LZ4 block.
    Lz4 = 1,
    /// As Zstandard frames, without dictionary.
    Zstd = 2,
}

/// The level that Zstandard compresses with: higher ones take several times as long on bodies of
/// this length, for a few per cent.
#[cfg(feature = "zstd")]
const ZSTD_LEVEL: i32 = 1;

/// After this many bodies in a row that did not shrink, the next ones are stored uncompressed.
const MISSES_MAX: u32 = 4;
/// Most bodies that are left alone before one is tried again.
const SKIPS_MAX: u32 = 64;

impl Codec {
    /// All codecs.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The codec with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| *codec as u8 == number)
    }

    /// As it is written, and the feature that it needs: `none`, `lz4` or `zstd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Whether this build has it.
    #[must_use]
    pub const fn is_available(self) -> bool {
        match self {
            Self::None => true,
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// The length that data blocks are filled to before they are compressed, in bytes.
    #[must_use]
    pub const fn target_bytes(self) -> usize {
        match self {
            Self::None => UNIT_BYTES as usize,
            Self::Lz4 | Self::Zstd => 2 * UNIT_BYTES as usize,
        }
    }
}

/// The state of a [`Packer`] for the block that is to be written next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Nothing: the block is written as it is.
    #[default]
    Direct,
    /// Its parts behind the header up to here, as they are.
    Plain { used: usize },
    /// The same, with the number of bytes after compression.
    Compressed { used: usize, len: usize },
}

/// Compresses the bodies of blocks, one after the other, and keeps its memory for the next one.
#[derive(Default)]
pub struct Packer {
    codec: Codec,
    /// The block as it is, header left out.
    pub(super) plain: Vec<u8>,
    pub(super) compressed: Vec<u8>,
    pub(super) form: Form,
    /// Blocks that are not compressed are as long as they have to be, too.
    pub(super) in_sectors: bool,
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Compressor<'static>>,
    guess: Guess,
}

impl core::fmt::Debug for Packer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Packer").field("codec", &self.codec).finish_non_exhaustive()
    }
}

/// A guess of which bodies are worth compressing.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    /// Bodies in a row that did not shrink.
    misses: u32,
    /// Bodies to leave alone.
    skips: u32,
}

impl Guess {
    const fn tries(&mut self) -> bool {
        let tries = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        tries
    }

    fn note(&mut self, shrank: bool) {
        self.misses = if shrank { 0 } else { self.misses.saturating_add(1) };
        if self.misses >= MISSES_MAX {
            let doublings = (self.misses - MISSES_MAX).min(SKIPS_MAX.ilog2());
            self.skips = (MISSES_MAX << doublings).min(SKIPS_MAX);
        }
    }
}

impl Packer {
    /// One that compresses with `codec`.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self { codec, ..Self::default() }
    }

    /// From now on, for blocks whose lengths show how full they are.
    pub const fn set_in_sectors(&mut self) {
        self.in_sectors = true;
    }

    /// The codec.
    #[must_use]
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// Whether the next body should be compressed.
    pub(super) const fn tries(&mut self) -> bool {
        self.guess.tries()
    }

    /// Compresses the body of the block in `plain`, which ends at `used`, and returns the length of
    /// the block that comes of it.
    pub(super) fn pack(&mut self, body_at: usize, used: usize) -> usize {
        let plain_bytes = whole_sectors(used + TRAILER_BYTES);
        let most =
            plain_bytes.saturating_sub(SECTOR_BYTES as usize + COMPRESSED_AT + TRAILER_BYTES);
        let packed = self.compress(body_at, used).filter(|len| *len > 0 && *len <= most);
        self.guess.note(packed.is_some());
        match packed {
            Some(len) => {
                self.form = Form::Compressed { used, len };
                whole_sectors(COMPRESSED_AT + len + TRAILER_BYTES)
            }
            None => {
                self.form = Form::Plain { used };
                plain_bytes
            }
        }
    }

    /// The length that the body is compressed to, in `compressed`.
    #[cfg_attr(
        not(any(feature = "lz4", feature = "zstd")),
        expect(unused_variables, reason = "there is no codec to give them to")
    )]
    fn compress(&mut self, body_at: usize, used: usize) -> Option<usize> {
        let body = self.plain.get(body_at..used)?;
        match self.codec {
            Codec::None => None,
            #[cfg(feature = "lz4")]
            Codec::Lz4 => {
                let most = lz4_flex::block::get_maximum_output_size(body.len());
                self.compressed.resize(most.max(self.compressed.len()), 0);
                lz4_flex::block::compress_into(body, &mut self.compressed).ok()
            }
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                }
                self.compressed.resize(body.len().max(self.compressed.len()), 0);
                // Longer than the body is of no use, and refused.
                let place = self.compressed.get_mut(..body.len())?;
                self.zstd.as_mut()?.compress_to_buffer(body, place).ok()
            }
            // Stored as it is.
            #[cfg(not(all(feature = "lz4", feature = "zstd")))]
            _ => None,
        }
    }
}

/// A length as whole sectors, within the longest block.
pub(super) fn whole_sectors(bytes: usize) -> usize {
    bytes.next_multiple_of(SECTOR_BYTES as usize).min(BLOCK_BYTES_MAX)
}

/// Decompresses bodies, and keeps its memory for the next one.
#[derive(Default)]
pub struct Unpacker {
    #[cfg(feature = "zstd")]
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl core::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Decompresses `from` to exactly `to`.
    #[cfg_attr(
        not(any(feature = "lz4", feature = "zstd")),
        expect(unused_variables, reason = "there is no codec to give them to")
    )]
    pub(super) fn unpack(&mut self, codec: Codec, from: &[u8], to: &mut [u8]) -> Result<()> {
        if to.len() > BODY_BYTES_MAX {
            return Err(DecodeError::new(72, "block would be too long decompressed"));
        }
        let expected = to.len();
        let len = match codec {
            Codec::None => None,
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4_flex::block::decompress_into(from, to).ok(),
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Decompressor::new().ok();
                }
                self.zstd.as_mut().and_then(|zstd| zstd.decompress_to_buffer(from, to).ok())
            }
            #[cfg(not(feature = "lz4"))]
            Codec::Lz4 => return Err(DecodeError::new(6, "block needs the feature lz4 of esker")),
            #[cfg(not(feature = "zstd"))]
            Codec::Zstd => {
                return Err(DecodeError::new(6, "block needs the feature zstd of esker"));
            }
        };
        if len == Some(expected) {
            return Ok(());
        }
        Err(DecodeError::new(COMPRESSED_AT, "block does not decompress to its recorded length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: four misses, then 4, 8, 16, 32 and from then on 64 bodies are left alone between
    /// two tries.
    #[test]
    fn what_does_not_shrink_is_tried_less_and_less_often() {
        let mut guess = Guess::default();
        let mut tried = Vec::new();
        for body in 0..300 {
            if guess.tries() {
                tried.push(body);
                guess.note(false);
            }
        }
        assert_eq!(tried, [0, 1, 2, 3, 8, 17, 34, 67, 132, 197, 262]);
        while !guess.tries() {}
        guess.note(true);
        assert!((0..MISSES_MAX).all(|_| {
            let tries = guess.tries();
            guess.note(false);
            tries
        }));
        assert!(!guess.tries());
    }

    #[test]
    fn numbers_name_codecs() {
        for codec in Codec::ALL {
            assert_eq!(Codec::from_number(codec as u8), Some(codec));
        }
        assert_eq!(Codec::from_number(3), None);
    }
}
