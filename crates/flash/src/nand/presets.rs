//! Devices that others simulate or build, by name.

use super::geometry::{Geometry, Sizes};
use super::timing::{Cell, Timing, transfer_ns};
use crate::error::{Error, Result};

/// A named device.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Its sizes.
    pub sizes: Sizes,
    /// Its times.
    pub timing: Timing,
}

impl Preset {
    /// The device, with `blocks` blocks in each plane instead of its own number, to fit a memory.
    ///
    /// # Errors
    /// [`Error::Geometry`] for a number of blocks that is not possible.
    pub fn geometry(&self, blocks: Option<u32>) -> Result<Geometry> {
        let blocks_per_plane = blocks.unwrap_or(self.sizes.blocks_per_plane);
        Geometry::new(Sizes { blocks_per_plane, ..self.sizes })
    }
}

/// All presets.
pub const PRESETS: [Preset; 5] = [
    // Tavakkol et al., FAST 2018; times of its code, which are newer than those of its paper.
    Preset {
        name: "mqsim",
        about: "MQSim's default: 8 channels x 8 dies x 2 planes, 8 KiB pages, 512 GiB MLC",
        sizes: Sizes {
            channels: 8,
            dies_per_channel: 8,
            planes_per_die: 2,
            blocks_per_plane: 2048,
            pages_per_block: 256,
            page_size: 8192,
        },
        timing: Timing {
            read_ns: 75_000,
            program_ns: 750_000,
            erase_ns: 3_800_000,
            transfer_ns_per_page: transfer_ns(8192),
            copy_back: false,
            endurance: 10_000,
        },
    },
    // Li et al., FAST 2018. Its channels take no time.
    Preset {
        name: "femu",
        about: "FEMU's black-box default: 8 channels x 8 LUNs, 4 KiB pages, 16 GiB",
        sizes: Sizes {
            channels: 8,
            dies_per_channel: 8,
            planes_per_die: 1,
            blocks_per_plane: 256,
            pages_per_block: 256,
            page_size: 4096,
        },
        timing: Timing {
            read_ns: 40_000,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            transfer_ns_per_page: 0,
            copy_back: true,
            endurance: 10_000,
        },
    },
    // The OpenSSD Jasmine board as the paper on MV-FTL has it: 32 GB of Samsung MLC in 8 banks.
    Preset {
        name: "jasmine",
        about: "OpenSSD Jasmine: 8 banks on 4 channels, 8 KiB pages, blocks of 1 MiB, 32 GiB MLC",
        sizes: Sizes {
            channels: 4,
            dies_per_channel: 2,
            planes_per_die: 1,
            blocks_per_plane: 4096,
            pages_per_block: 128,
            page_size: 8192,
        },
        timing: Timing {
            read_ns: 50_000,
            program_ns: 750_000,
            erase_ns: 3_000_000,
            transfer_ns_per_page: transfer_ns(8192),
            copy_back: true,
            endurance: 3_000,
        },
    },
    // Small-block flash as studies of indexes on raw flash use it: 50 ns a byte on the bus.
    Preset {
        name: "slc512",
        about: "small-block SLC: 1 chip, 512 B pages, 32 in a block, 64 MiB",
        sizes: Sizes {
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            blocks_per_plane: 4096,
            pages_per_block: 32,
            page_size: 512,
        },
        timing: Timing {
            read_ns: 25_000,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            transfer_ns_per_page: 512 * 50,
            copy_back: true,
            endurance: 100_000,
        },
    },
    Preset {
        name: "tlc",
        about: "a TLC drive: 8 channels x 4 dies x 2 planes, 16 KiB pages, 512 in a block, 512 GiB",
        sizes: Sizes {
            channels: 8,
            dies_per_channel: 4,
            planes_per_die: 2,
            blocks_per_plane: 1024,
            pages_per_block: 512,
            page_size: 16_384,
        },
        timing: Timing::of_cell(Cell::Tlc, 16_384),
    },
];

/// The preset of this name.
///
/// # Errors
/// [`Error::UnknownPreset`], which names all of them.
pub fn preset(name: &str) -> Result<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| Error::UnknownPreset {
        name: name.to_owned(),
        known: PRESETS.map(|preset| preset.name).join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_sizes_that_they_say() {
        let gib = |name: &str| {
            preset(name).unwrap().geometry(None).unwrap().bytes() as f64 / f64::from(1 << 30)
        };
        assert_eq!(gib("mqsim"), 512.0);
        assert_eq!(gib("femu"), 16.0);
        assert_eq!(gib("jasmine"), 32.0);
        assert_eq!(gib("slc512"), 0.0625);
        assert_eq!(gib("tlc"), 512.0);
    }

    #[test]
    fn a_preset_is_scaled_by_its_blocks() {
        let geometry = preset("mqsim").unwrap().geometry(Some(16)).unwrap();
        assert_eq!(geometry.blocks(), 8 * 8 * 2 * 16);
        assert!(preset("mqsim").unwrap().geometry(Some(0)).is_err());
    }

    #[test]
    fn an_unknown_preset_lists_those_that_there_are() {
        let message = preset("optane").unwrap_err().to_string();
        assert_eq!(
            message,
            "there is no preset optane: the presets are mqsim, femu, jasmine, slc512, tlc"
        );
    }
}
