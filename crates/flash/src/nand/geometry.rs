//! The sizes of a device, and where its pages are.

use super::{BlockId, Lpn, Ppn};
use crate::error::{Error, Result};

/// The sizes that a [`Geometry`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Channels, each with a bus of its own.
    pub channels: u32,
    /// Dies on each channel, each busy with one operation at a time.
    pub dies_per_channel: u32,
    /// Planes of each die. They are not used at the same time: more planes are more blocks.
    pub planes_per_die: u32,
    /// Blocks of each plane.
    pub blocks_per_plane: u32,
    /// Pages of each block.
    pub pages_per_block: u32,
    /// Bytes of each page, without its spare area.
    pub page_size: u32,
}

/// Sizes that a device can have: all are 1 or more, a block has 2 to 65,535 pages, a page 16 bytes
/// to 1 MiB in a multiple of 8, and there are at most 2^31 - 1 pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    sizes: Sizes,
    dies: u32,
    blocks_per_die: u32,
    blocks: u32,
    pages: u32,
    /// log2 of `pages_per_block` where it is a power of two, 32 otherwise.
    page_shift: u32,
    /// log2 of `blocks_per_die` where it is a power of two, 32 otherwise.
    die_shift: u32,
}

/// The greatest number of pages: the highest bit of a number of a page is for layers.
const PAGES_MAX: u64 = (1 << 31) - 1;
/// The greatest number of pages in a block.
const BLOCK_PAGES_MAX: u32 = u16::MAX as u32;
/// The least and the greatest size of a page in bytes.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 16..=1 << 20;

impl Geometry {
    /// A device of these sizes.
    ///
    /// # Errors
    /// [`Error::Geometry`], with the first size that is out of bounds.
    pub fn new(sizes: Sizes) -> Result<Self> {
        let counts = [
            ("channels", sizes.channels),
            ("dies per channel", sizes.dies_per_channel),
            ("planes per die", sizes.planes_per_die),
            ("blocks per plane", sizes.blocks_per_plane),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(Error::Geometry(format!("0 {name}: use 1 or more")));
        }
        if !(2..=BLOCK_PAGES_MAX).contains(&sizes.pages_per_block) {
            let found = sizes.pages_per_block;
            let what = format!("{found} pages in a block: use 2 to {BLOCK_PAGES_MAX}");
            return Err(Error::Geometry(what));
        }
        if !PAGE_SIZES.contains(&sizes.page_size) || !sizes.page_size.is_multiple_of(8) {
            let (found, least, most) = (sizes.page_size, PAGE_SIZES.start(), PAGE_SIZES.end());
            let what =
                format!("pages of {found} bytes: use a multiple of 8 from {least} to {most}");
            return Err(Error::Geometry(what));
        }
        let too_many = |pages: Option<u64>| {
            let pages = pages.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            Error::Geometry(format!("{pages} pages: use at most {PAGES_MAX}, with fewer blocks"))
        };
        let product = |of: &[u32]| of.iter().try_fold(1_u64, |p, n| p.checked_mul((*n).into()));
        let all = counts.map(|(_, count)| count);
        let blocks = product(&all);
        let pages = blocks.and_then(|n| n.checked_mul(sizes.pages_per_block.into()));
        let (Some(blocks), Some(pages)) = (blocks, pages.filter(|n| *n <= PAGES_MAX)) else {
            return Err(too_many(pages));
        };
        let fits = |count: u64| u32::try_from(count).map_err(|_| too_many(Some(pages)));
        let shift = |n: u32| if n.is_power_of_two() { n.trailing_zeros() } else { 32 };
        let blocks_per_die = sizes.planes_per_die * sizes.blocks_per_plane;
        Ok(Self {
            sizes,
            dies: sizes.channels * sizes.dies_per_channel,
            blocks_per_die,
            blocks: fits(blocks)?,
            pages: fits(pages)?,
            page_shift: shift(sizes.pages_per_block),
            die_shift: shift(blocks_per_die),
        })
    }

    /// The same device with `blocks` blocks in each plane.
    ///
    /// # Errors
    /// Those of [`Geometry::new`].
    pub fn with_blocks_per_plane(&self, blocks: u32) -> Result<Self> {
        Self::new(Sizes { blocks_per_plane: blocks, ..self.sizes })
    }

    /// The sizes that it was made of.
    #[must_use]
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The number of channels.
    #[must_use]
    pub const fn channels(&self) -> u32 {
        self.sizes.channels
    }

    /// The number of dies on all channels.
    #[must_use]
    pub const fn dies(&self) -> u32 {
        self.dies
    }

    /// The number of blocks of a die, all planes together.
    #[must_use]
    pub const fn blocks_per_die(&self) -> u32 {
        self.blocks_per_die
    }

    /// The number of blocks of the device.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The number of pages of a block.
    #[must_use]
    pub const fn pages_per_block(&self) -> u32 {
        self.sizes.pages_per_block
    }

    /// The number of pages of the device.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// The size of a page in bytes.
    #[must_use]
    pub const fn page_size(&self) -> u32 {
        self.sizes.page_size
    }

    /// The size of the device in bytes, spare blocks included.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages as u64 * self.sizes.page_size as u64
    }

    /// The block of a page.
    #[must_use]
    #[inline]
    pub const fn block_of(&self, page: Ppn) -> BlockId {
        if self.page_shift < 32 {
            BlockId(page.0 >> self.page_shift)
        } else {
            BlockId(page.0 / self.sizes.pages_per_block)
        }
    }

    /// The index of a page in its block.
    #[must_use]
    #[inline]
    pub const fn index_of(&self, page: Ppn) -> u32 {
        page.0 - self.first_page(self.block_of(page)).0
    }

    /// The first page of a block.
    #[must_use]
    #[inline]
    pub const fn first_page(&self, block: BlockId) -> Ppn {
        Ppn(block.0 * self.sizes.pages_per_block)
    }

    /// The die of a block.
    #[must_use]
    #[inline]
    pub const fn die_of(&self, block: BlockId) -> u32 {
        if self.die_shift < 32 { block.0 >> self.die_shift } else { block.0 / self.blocks_per_die }
    }

    /// The channel of a die.
    #[must_use]
    #[inline]
    pub const fn channel_of(&self, die: u32) -> u32 {
        die % self.sizes.channels
    }

    /// The first block of a die.
    #[must_use]
    #[inline]
    pub const fn first_block(&self, die: u32) -> BlockId {
        BlockId(die * self.blocks_per_die)
    }

    /// The die that a logical page is striped to: channel first, then die.
    #[must_use]
    #[inline]
    pub const fn die_of_lpn(&self, lpn: Lpn) -> u32 {
        lpn.0 % self.dies
    }

    /// Refuses a page that the device does not have.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    #[inline]
    pub const fn require_page(&self, page: Ppn) -> Result<()> {
        if page.0 < self.pages { Ok(()) } else { Err(past("flash page", page.0, self.pages)) }
    }

    /// Refuses a block that the device does not have.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    #[inline]
    pub const fn require_block(&self, block: BlockId) -> Result<()> {
        if block.0 < self.blocks { Ok(()) } else { Err(past("block", block.0, self.blocks)) }
    }
}

const fn past(what: &'static str, number: u32, limit: u32) -> Error {
    Error::OutOfRange { what, number: number as u64, limit: limit as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Sizes = Sizes {
        channels: 2,
        dies_per_channel: 3,
        planes_per_die: 2,
        blocks_per_plane: 5,
        pages_per_block: 6,
        page_size: 512,
    };

    #[test]
    fn numbers_lead_to_places_and_back() {
        let geometry = Geometry::new(SMALL).unwrap();
        assert_eq!((geometry.dies(), geometry.blocks(), geometry.pages()), (6, 60, 360));
        for page in (0..360).map(Ppn) {
            let block = geometry.block_of(page);
            assert_eq!(geometry.first_page(block).0 + geometry.index_of(page), page.0);
            let die = geometry.die_of(block);
            assert!(block.0 >= geometry.first_block(die).0 && die < 6);
        }
        assert_eq!(geometry.channel_of(3), 1);
        assert_eq!(geometry.die_of_lpn(Lpn(13)), 1);
        assert_eq!(geometry.bytes(), 360 * 512);
    }

    #[test]
    fn impossible_sizes_are_refused_by_name() {
        let refused = |change: fn(&mut Sizes)| {
            let mut sizes = SMALL;
            change(&mut sizes);
            Geometry::new(sizes).unwrap_err().to_string()
        };
        assert!(refused(|s| s.channels = 0).contains("0 channels"));
        assert!(refused(|s| s.blocks_per_plane = 0).contains("0 blocks per plane"));
        assert!(refused(|s| s.pages_per_block = 1).contains("1 pages in a block"));
        assert!(refused(|s| s.page_size = 100).contains("pages of 100 bytes"));
        assert!(refused(|s| s.page_size = u32::MAX).contains("pages of"));
        assert!(refused(|s| s.blocks_per_plane = 1 << 30).contains("at most 2147483647"));
        let huge = |s: &mut Sizes| {
            (s.channels, s.dies_per_channel, s.planes_per_die, s.blocks_per_plane) =
                (u32::MAX, u32::MAX, u32::MAX, u32::MAX);
        };
        assert!(refused(huge).contains("more than 2^64"));
    }

    #[test]
    fn the_limits_are_limits() {
        let geometry = Geometry::new(SMALL).unwrap();
        assert!(geometry.require_page(Ppn(359)).is_ok());
        assert!(geometry.require_page(Ppn(360)).is_err());
        assert!(geometry.require_block(BlockId(60)).is_err());
        assert_eq!(geometry.with_blocks_per_plane(7).unwrap().blocks(), 84);
        assert!(geometry.with_blocks_per_plane(0).is_err());
    }
}
