//! The bytes of a file that is the image of a chip, and what is refused about it.
//!
//! ```text
//! 0      header: magic 8 bytes | version u32 | page bytes u32 | pages in a block u32 |
//!        blocks u32 | levels of a subtree u32 | crc u32 of the bytes before it; zeros up to 4096
//! 4096   for each block: erases u32 | pages programmed since u32; zeros up to a multiple of 4096
//! then   the pages, in the order of their numbers
//! ```
//! Numbers are little-endian, the checksum is a CRC-32. Pages of a block are programmed in
//! ascending order, so their number says which of them are erased. The levels of a subtree are of
//! the tree and not of the chip: who opens the image needs them.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::ops::RangeInclusive;

use esker_device::DeviceError;

use crate::page::u32_at;

/// Bytes of the header, and the unit to which the table of blocks is rounded up.
pub(crate) const SECTOR_BYTES: u64 = 4096;
/// Bytes of a block in the table.
pub(crate) const BLOCK_BYTES: usize = 8;
const MAGIC: [u8; 8] = *b"EskrChip";
const VERSION: u32 = 1;
const CRC_AT: usize = 28;
const PAGE_BYTES: RangeInclusive<u32> = 256..=32_768;
const PAGES_PER_BLOCK: RangeInclusive<u32> = 2..=4096;
/// So that no header makes a program take more than some 64 MiB for the table of blocks.
const BLOCKS: RangeInclusive<u32> = 1..=1 << 22;

/// The sizes of a chip in a file, and of the tree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSizes {
    /// Bytes of a page: 256 to 32,768.
    pub page_bytes: u32,
    /// Pages of a block: 2 to 4,096.
    pub pages_per_block: u32,
    /// Blocks: 1 to 4,194,304. A tree needs 16.
    pub blocks: u32,
    /// Levels of a subtree of the tree, 1 to 3.
    pub subtree_levels: u8,
}

impl ImageSizes {
    /// Refuses sizes that no chip has.
    ///
    /// # Errors
    /// [`ImageError::Sizes`].
    pub(crate) fn check(&self) -> Result<(), ImageError> {
        let pages = u64::from(self.blocks) * u64::from(self.pages_per_block);
        let is_possible = PAGE_BYTES.contains(&self.page_bytes)
            && PAGES_PER_BLOCK.contains(&self.pages_per_block)
            && BLOCKS.contains(&self.blocks)
            && pages < 1 << 31
            && (1..=3).contains(&self.subtree_levels);
        if is_possible {
            return Ok(());
        }
        Err(ImageError::Sizes(format!(
            "a chip of {} blocks of {} pages of {} bytes with {} levels in a subtree: use pages of \
             256 to 32768 bytes, 2 to 4096 in a block, at most {} blocks, fewer than 2^31 pages, \
             and 1 to 3 levels",
            self.blocks,
            self.pages_per_block,
            self.page_bytes,
            self.subtree_levels,
            BLOCKS.end()
        )))
    }

    /// Where the pages begin, in bytes.
    pub(crate) fn pages_at(&self) -> u64 {
        let table = u64::from(self.blocks) * BLOCK_BYTES as u64;
        SECTOR_BYTES + table.next_multiple_of(SECTOR_BYTES)
    }

    /// The length of the file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        let pages = u64::from(self.blocks) * u64::from(self.pages_per_block);
        self.pages_at() + pages * u64::from(self.page_bytes)
    }

    pub(crate) fn header(&self) -> [u8; SECTOR_BYTES as usize] {
        let mut header = [0; SECTOR_BYTES as usize];
        let numbers = [
            VERSION,
            self.page_bytes,
            self.pages_per_block,
            self.blocks,
            u32::from(self.subtree_levels),
        ];
        let bytes = MAGIC.into_iter().chain(numbers.into_iter().flat_map(u32::to_le_bytes));
        header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        let crc = checksum(&header).to_le_bytes();
        header.iter_mut().skip(CRC_AT).zip(crc).for_each(|(to, from)| *to = from);
        header
    }

    /// Reads a header of the file `name`, which has `file_bytes`.
    ///
    /// # Errors
    /// [`ImageError::NotAnImage`], [`ImageError::Newer`], [`ImageError::Damaged`],
    /// [`ImageError::Length`].
    pub(crate) fn read(header: &[u8], name: &str, file_bytes: u64) -> Result<Self, ImageError> {
        let file = || name.to_string();
        if !header.starts_with(&MAGIC) {
            return Err(ImageError::NotAnImage { file: file() });
        }
        let number = |at| u32_at(header, at).unwrap_or(0);
        let version = number(8);
        if version > VERSION {
            return Err(ImageError::Newer { file: file(), version });
        }
        let damaged = |what| ImageError::Damaged { file: file(), offset: 0, what };
        if number(CRC_AT) != checksum(header) {
            return Err(damaged("the checksum of its header is wrong"));
        }
        let sizes = Self {
            page_bytes: number(12),
            pages_per_block: number(16),
            blocks: number(20),
            subtree_levels: u8::try_from(number(24)).unwrap_or(u8::MAX),
        };
        sizes.check().map_err(|_| damaged("its header has sizes that no chip has"))?;
        let (found, expected) = (file_bytes, sizes.file_bytes());
        if found == expected {
            return Ok(sizes);
        }
        Err(ImageError::Length { file: file(), found, expected })
    }
}

fn checksum(header: &[u8]) -> u32 {
    crc32fast::hash(header.get(..CRC_AT).unwrap_or(header))
}

/// Why an image cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// The file does not begin as an image does.
    NotAnImage {
        /// The file.
        file: String,
    },
    /// The image has a format of a later version.
    Newer {
        /// The file.
        file: String,
        /// The version that was found.
        version: u32,
    },
    /// The file has another length than its header says, in bytes.
    Length {
        /// The file.
        file: String,
        /// Its length.
        found: u64,
        /// The length that follows from its header.
        expected: u64,
    },
    /// The header or the table of blocks is damaged.
    Damaged {
        /// The file.
        file: String,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// No chip can have these sizes.
    Sizes(String),
    /// A file to be created is there.
    Exists {
        /// The file.
        file: String,
    },
    /// Another opening has the file.
    Locked {
        /// The file.
        file: String,
    },
    /// The operating system or the device refused an operation.
    Device(DeviceError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnImage { file } => {
                write!(f, "{file} is not the image of a chip: create one with another name")
            }
            Self::Newer { file, version } => write!(
                f,
                "{file} has format {version} of images, which is newer than this version reads: \
                 use a later version"
            ),
            Self::Length { file, found, expected } => write!(
                f,
                "{file} has {found} bytes and needs {expected} for the sizes in its header: it was \
                 cut off or extended; restore a copy"
            ),
            Self::Damaged { file, offset, what } => {
                write!(f, "{file} is damaged at byte {offset}: {what}; restore a copy")
            }
            Self::Sizes(what) => f.write_str(what),
            Self::Exists { file } => {
                write!(f, "{file} exists: remove it, or choose another name")
            }
            Self::Locked { file } => {
                write!(f, "{file} is open in another process: wait until that has ended")
            }
            Self::Device(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(&error.source),
            _ => None,
        }
    }
}

impl From<DeviceError> for ImageError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: ImageSizes =
        ImageSizes { page_bytes: 512, pages_per_block: 32, blocks: 600, subtree_levels: 2 };

    #[test]
    fn a_header_is_read_back() {
        let found = ImageSizes::read(&SIZES.header(), "chip", SIZES.file_bytes());
        assert_eq!(found.unwrap(), SIZES);
        assert_eq!(SIZES.file_bytes(), 4096 + 8192 + 600 * 32 * 512);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_refused() {
        for bit in 0..8 * (CRC_AT + 4) {
            let mut header = SIZES.header();
            header[bit / 8] ^= 1 << (bit % 8);
            let error = ImageSizes::read(&header, "chip", SIZES.file_bytes()).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with("chip ") && message.contains(": "), "{message}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_in_an_intact_header() {
        for sizes in [
            ImageSizes { page_bytes: 255, ..SIZES },
            ImageSizes { page_bytes: 32_769, ..SIZES },
            ImageSizes { pages_per_block: 1, ..SIZES },
            ImageSizes { blocks: 0, ..SIZES },
            ImageSizes { blocks: u32::MAX, ..SIZES },
            ImageSizes { blocks: (1 << 22) + 1, pages_per_block: 2, ..SIZES },
            ImageSizes { subtree_levels: 4, ..SIZES },
        ] {
            assert!(matches!(sizes.check(), Err(ImageError::Sizes(_))), "{sizes:?}");
            let found = ImageSizes::read(&sizes.header(), "chip", u64::MAX);
            assert!(matches!(found, Err(ImageError::Damaged { .. })), "{found:?}");
        }
    }
}
