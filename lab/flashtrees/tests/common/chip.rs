//! Small chips.

use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Bytes, Sizes, preset};
use esker_flash::{Geometry, Nand, NandSim};
use esker_flashtrees::FlashTree;
use esker_flashtrees::flashdb::Costs;
use esker_flashtrees::space::{Pages, TableIn};

pub type Chip = NandSim<Bytes>;

/// A chip whose sizes follow from a number.
pub fn nand(seed: u64) -> Chip {
    let sizes = [(48, 16, 512), (64, 32, 512), (48, 8, 2048)];
    of(sizes[seed as usize % 3])
}

/// A layer over a chip of about 100 KiB, or `times` that.
pub fn tiny_ftl(seed: u64, times: u32) -> PageMapped<Chip> {
    let sizes = [(14, 16, 512), (28, 8, 512), (14, 4, 2048)];
    let (blocks, pages, bytes) = sizes[seed as usize % 3];
    let options = Options { spare_permille: 250, ..Options::default() };
    PageMapped::format(of((times * blocks, pages, bytes)), &options).unwrap()
}

/// One die with the timing of the preset `slc512`.
fn of((blocks_per_plane, pages_per_block, page_size): (u32, u32, u32)) -> Chip {
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

/// Memory for a tree on the chip of this number: fewer nodes than a history makes. From 3 on the
/// tables of a full chip fit.
pub fn memory(seed: u64) -> usize {
    if seed >= 3 { 48 << 10 } else { [12, 12, 24][seed as usize] << 10 }
}

pub fn pages(seed: u64) -> Pages<PageMapped<Chip>> {
    pages_in(seed, TableIn::Host)
}

pub fn device_pages(seed: u64) -> Pages<PageMapped<Chip>> {
    pages_in(seed, TableIn::Device)
}

fn pages_in(seed: u64, table: TableIn) -> Pages<PageMapped<Chip>> {
    Pages::new(ftl(seed), table)
}

pub fn ftl(seed: u64) -> PageMapped<Chip> {
    let options = Options { spare_permille: 250, ..Options::default() };
    PageMapped::format(nand(seed), &options).unwrap()
}

pub fn costs(seed: u64) -> Costs {
    let nand = nand(seed);
    let geometry = nand.geometry();
    let timing = preset("slc512").unwrap().timing;
    Costs::new(&timing, geometry.page_size() as usize, geometry.pages_per_block())
}

pub fn boxed<T: FlashTree + 'static>(tree: T) -> Box<dyn FlashTree> {
    Box::new(tree)
}
