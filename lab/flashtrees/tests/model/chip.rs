//! Small chips of one die, with the timing of the preset `slc512`.

use esker_flash::ftl::Options;
use esker_flash::nand::{Bytes, Sizes, preset};
use esker_flash::{Geometry, NandSim};

pub fn options() -> Options {
    Options { spare_permille: 250, ..Options::default() }
}

/// A chip whose sizes follow from a number.
pub fn nand(seed: u64) -> NandSim<Bytes> {
    let sizes = [(48, 16, 512), (48, 32, 512), (48, 8, 2048)];
    of(sizes[seed as usize % 3])
}

/// A chip of about 100 KiB, or `times` that.
pub fn tiny(seed: u64, times: u32) -> NandSim<Bytes> {
    let sizes = [(14, 16, 512), (28, 8, 512), (14, 4, 2048)];
    let (blocks, pages, bytes) = sizes[seed as usize % 3];
    of((times * blocks, pages, bytes))
}

fn of((blocks_per_plane, pages_per_block, page_size): (u32, u32, u32)) -> NandSim<Bytes> {
    let sizes = Sizes {
        channels: 1,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane,
        pages_per_block,
        page_size,
    };
    NandSim::with_clock(Geometry::new(sizes).unwrap(), preset("slc512").unwrap().timing)
}
