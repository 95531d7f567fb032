//! A device that is as large as its data: fewer blocks and dies than its preset has.

use crate::nand::Sizes;

/// Blocks of a die below which garbage collection does worse than on a large device.
const BLOCKS_OF_DIE: u64 = 64;

/// Sizes that were given in place of a preset's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizesGiven {
    /// Channels.
    pub channels: Option<u32>,
    /// Dies of a channel.
    pub dies: Option<u32>,
    /// Planes of a die.
    pub planes: Option<u32>,
    /// Blocks of a plane.
    pub blocks: Option<u32>,
    /// Pages of a block.
    pub pages: Option<u32>,
    /// Bytes of a page.
    pub page_size: Option<u32>,
}

/// What a device must hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    /// Bytes that the host can use.
    pub logical_bytes: u64,
    /// Spare pages for each 1,000 logical ones.
    pub spare_permille: u32,
    /// Blocks of each die that are open, being emptied or in reserve.
    pub set_aside: u32,
}

impl SizesGiven {
    /// The sizes, with those of `own` where none are given. With a content and without a number of
    /// blocks, there are as many blocks as hold it, on fewer dies and channels than `own` has if a
    /// die had less than 64 blocks otherwise. A layer with a map on flash has a little less room.
    pub(super) fn over(self, own: &Sizes, content: Option<Content>) -> Sizes {
        let mut sizes = Sizes {
            channels: self.channels.unwrap_or(own.channels),
            dies_per_channel: self.dies.unwrap_or(own.dies_per_channel),
            planes_per_die: self.planes.unwrap_or(own.planes_per_die),
            blocks_per_plane: self.blocks.unwrap_or(own.blocks_per_plane),
            pages_per_block: self.pages.unwrap_or(own.pages_per_block),
            page_size: self.page_size.unwrap_or(own.page_size),
        };
        if let Some(content) = content.filter(|_| self.blocks.is_none()) {
            self.fit(&mut sizes, content);
        }
        sizes
    }

    fn fit(self, sizes: &mut Sizes, content: Content) {
        let block_bytes = u64::from(sizes.pages_per_block) * u64::from(sizes.page_size);
        let spare = 1_000 + u128::from(content.spare_permille);
        let bytes = u128::from(content.logical_bytes) * spare / 1_000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let blocks = bytes.div_ceil(block_bytes.max(1)).max(1);
        let dies_max = narrow(blocks / BLOCKS_OF_DIE).max(1);
        if self.channels.is_none() {
            sizes.channels = sizes.channels.min(dies_max);
        }
        if self.dies.is_none() {
            let of_channel = (dies_max / sizes.channels.max(1)).max(1);
            sizes.dies_per_channel = sizes.dies_per_channel.min(of_channel);
        }
        let dies = u64::from(sizes.channels) * u64::from(sizes.dies_per_channel);
        let of_die = blocks.div_ceil(dies.max(1)) + u64::from(content.set_aside);
        sizes.blocks_per_plane = narrow(of_die.div_ceil(u64::from(sizes.planes_per_die.max(1))));
    }
}

/// A number of blocks or dies; one that does not fit is beyond what a device can have.
fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
