//! What trees run on: raw chips, and devices with a translation layer inside.
//!
//! The slides name a raw chip with pages of 512 bytes, a drive of 2008 (MTRON PRO 7000, SLC), and
//! "SD cards" and "large block raw NAND" without more. Ours are simulated: the times are those of
//! their kind of cell. The mapping of that drive is not published; that its random writes are slow
//! is. So there are two drives: one that maps pages, and one that maps blocks.

use esker_flash::ftl::{self, PageMapped};
use esker_flash::nand::{Bytes, Cell, Preset, Sizes, preset};
use esker_flash::{NandSim, Timing};
use esker_flashtrees::FlashTree;
use esker_flashtrees::block_mapped::BlockMapped;
use esker_flashtrees::latree::LaTreeMap;
use esker_flashtrees::rivals::DEVICE_UNIT_PAGES;
use esker_latree::Options;

use super::measure::System;

/// The chip of the slides: pages of 512 bytes, 32 in a block.
pub(super) const CHIP: &str = "slc512";

type Result<T> = std::result::Result<T, esker_flashtrees::Error>;

/// A chip or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    /// [`CHIP`].
    SmallBlocks,
    /// A raw chip with pages of 2 KiB.
    Large2K,
    /// A raw chip with pages of 4 KiB.
    Large4K,
    /// A drive that maps pages.
    Drive,
    /// A drive that maps blocks.
    BlockDrive,
    /// A memory card, which maps blocks.
    Card,
}

const fn one_die(page_size: u32, pages_per_block: u32) -> Sizes {
    Sizes {
        channels: 1,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 1_024,
        pages_per_block,
        page_size,
    }
}

/// A raw chip with large blocks: the array of [`CHIP`], and a bus with 25 ns a byte.
const fn large(name: &'static str, about: &'static str, page_size: u32) -> Preset {
    let timing = Timing {
        read_ns: 25_000,
        program_ns: 200_000,
        erase_ns: 2_000_000,
        transfer_ns_per_page: page_size as u64 * 25,
        copy_back: true,
        endurance: 100_000,
    };
    Preset { name, about, sizes: one_die(page_size, 64), timing }
}

const LARGE_2K: Preset = large("slc2k", "SLC: 1 chip, 2 KiB pages, 64 in a block", 2_048);
const LARGE_4K: Preset = large("slc4k", "SLC: 1 chip, 4 KiB pages, 64 in a block", 4_096);
const DRIVE: Preset = Preset {
    name: "drive",
    about: "an SLC drive: 4 channels x 1 die, 4 KiB pages, 64 in a block",
    sizes: Sizes { channels: 4, ..one_die(4_096, 64) },
    timing: Timing::of_cell(Cell::Slc, 4_096),
};
const BLOCK_DRIVE: Preset = Preset {
    name: "block-drive",
    about: "an SLC drive that maps blocks: 4 KiB pages, 64 in a block",
    sizes: one_die(4_096, 64),
    timing: Timing::of_cell(Cell::Slc, 4_096),
};
const CARD: Preset = Preset {
    name: "card",
    about: "an MLC card that maps blocks: 2 KiB pages, 128 in a block",
    sizes: one_die(2_048, 128),
    timing: Timing::of_cell(Cell::Mlc, 2_048),
};

/// Log blocks of the layers that map blocks: few on a card, more on a drive.
const CARD_LOGS: usize = 2;
const DRIVE_LOGS: usize = 8;
/// The fewest blocks of a chip or a die.
const BLOCKS_MIN: u64 = 64;

impl Device {
    fn preset(self) -> Result<Preset> {
        Ok(match self {
            Self::SmallBlocks => *preset(CHIP)?,
            Self::Large2K => LARGE_2K,
            Self::Large4K => LARGE_4K,
            Self::Drive => DRIVE,
            Self::BlockDrive => BLOCK_DRIVE,
            Self::Card => CARD,
        })
    }

    /// What it is, in one line, for settings.
    pub(super) fn about(self) -> &'static str {
        self.preset().map_or("", |preset| preset.about)
    }

    /// The blocks of a plane for a capacity in bytes, or the fewest.
    pub(super) fn blocks_for(self, bytes: u64) -> u32 {
        let Ok(Preset { sizes, .. }) = self.preset() else { return 0 };
        let block = u64::from(sizes.pages_per_block) * u64::from(sizes.page_size);
        let dies = u64::from(sizes.channels * sizes.dies_per_channel);
        let blocks = bytes.div_ceil(block).max(BLOCKS_MIN).div_ceil(dies);
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// An empty tree on an erased device of so many blocks in a plane.
    ///
    /// # Errors
    /// Too little memory, a device that is too small, those of the flash.
    pub(super) fn make(
        self,
        system: System,
        blocks: u32,
        memory_bytes: usize,
    ) -> Result<Box<dyn FlashTree>> {
        let preset = self.preset()?;
        let geometry = preset.geometry(Some(blocks))?;
        let nand = NandSim::<Bytes>::with_clock(geometry, preset.timing);
        let block_pages = geometry.pages_per_block();
        match self {
            Self::SmallBlocks | Self::Large2K | Self::Large4K => match system {
                System::LaTree(scan, buffering) => {
                    let options = Options { memory_bytes, scan, buffering, ..Options::default() };
                    Ok(Box::new(LaTreeMap::on_chip(nand, options, "latree")?))
                }
                System::Rival(rival) => rival.on_chip(nand, &ftl::Options::default(), memory_bytes),
            },
            Self::Drive => {
                let ftl = PageMapped::format(nand, &ftl::Options::default())?;
                over(ftl, DEVICE_UNIT_PAGES, system, memory_bytes)
            }
            Self::BlockDrive => {
                over(BlockMapped::format(nand, DRIVE_LOGS)?, block_pages, system, memory_bytes)
            }
            Self::Card => {
                over(BlockMapped::format(nand, CARD_LOGS)?, block_pages, system, memory_bytes)
            }
        }
    }
}

fn over<F: esker_flash::Ftl + 'static>(
    ftl: F,
    unit_pages: u32,
    system: System,
    memory_bytes: usize,
) -> Result<Box<dyn FlashTree>> {
    match system {
        System::LaTree(scan, buffering) => {
            let options = Options { memory_bytes, scan, buffering, ..Options::default() };
            Ok(Box::new(LaTreeMap::on_device(ftl, unit_pages, options, "latree")?))
        }
        System::Rival(rival) => rival.on_device(ftl, unit_pages, memory_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_in_whole_blocks_of_all_dies() {
        assert_eq!(Device::SmallBlocks.blocks_for(1), 64);
        assert_eq!(Device::SmallBlocks.blocks_for((750 << 14) - 1), 750);
        assert_eq!(Device::Drive.blocks_for(100 << 18), 25);
        assert_eq!(Device::Card.blocks_for(100 << 18), 100);
    }
}
