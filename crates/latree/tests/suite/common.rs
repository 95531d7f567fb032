//! Chips and options for tests.

use esker_flash::nand::{Bytes, Sizes};
use esker_flash::{Geometry, NandSim};
use esker_latree::{Buffering, LaTree, Options, Scan, Simulated};

/// A chip that keeps its pages.
pub type Flash = Simulated<NandSim<Bytes>>;

/// A tree on it.
pub type Tree = LaTree<Flash>;

/// A chip of these blocks, of 32 pages of 512 bytes.
pub fn small_pages(blocks: u32) -> Flash {
    chip(blocks, 32, 512)
}

/// A chip of these blocks, of 64 pages of 4 KiB.
pub fn large_pages(blocks: u32) -> Flash {
    chip(blocks, 64, 4096)
}

pub fn chip(blocks_per_plane: u32, pages_per_block: u32, page_size: u32) -> Flash {
    let geometry = Geometry::new(Sizes {
        channels: 1,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane,
        pages_per_block,
        page_size,
    });
    Simulated(NandSim::new(geometry.unwrap()))
}

/// Options with little memory, so that short histories fill it.
pub fn options(memory_bytes: usize, levels: u8, scan: Scan, buffering: Buffering) -> Options {
    Options { memory_bytes, subtree_levels: levels, scan, buffering }
}
