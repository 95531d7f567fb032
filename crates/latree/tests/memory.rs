//! Memory, counted by the allocator: all that a tree holds, at its peak.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use esker_device::counting_allocator::{CountingAllocator, counted, take_counts};
use esker_flash::nand::{Bytes, Sizes};
use esker_flash::{Geometry, NandSim};
use esker_harness::random::Random;
use esker_latree::Simulated;
use esker_latree::{
    BlockNo, Buffering, Chip, Direction, Fault, LaTree, Options, PageNo, Read, Scan,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A chip whose own memory is not counted.
struct Uncounted(Simulated<NandSim<Bytes>>);

impl Chip for Uncounted {
    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn pages_per_block(&self) -> u32 {
        self.0.pages_per_block()
    }

    fn blocks(&self) -> u32 {
        self.0.blocks()
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
        counted(false, || self.0.read(page, data))
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
        counted(false, || self.0.program(page, data))
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        counted(false, || self.0.erase(block))
    }
}

fn chip(blocks_per_plane: u32, pages_per_block: u32, page_size: u32) -> Uncounted {
    let geometry = Geometry::new(Sizes {
        channels: 1,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane,
        pages_per_block,
        page_size,
    });
    Uncounted(Simulated(NandSim::new(geometry.unwrap())))
}

/// A history: updates with some lookups, a range, and an opening.
fn history(chip: Uncounted, options: Options, keys: u64, lookups: u32, steps: u64) {
    let random = Random::new(11);
    let mut tree = LaTree::create(chip, options.clone()).unwrap();
    for _ in 0..steps {
        let key = random.below(keys).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        if random.percent(lookups) {
            drop(tree.get(&key).unwrap());
        } else if random.percent(67) {
            tree.put(&key, &random.bits().to_le_bytes()).unwrap();
        } else {
            tree.remove(&key).unwrap();
        }
    }
    let direction = Direction::Backward;
    assert!(tree.range(&[], None, direction).take(2000).all(|entry| entry.is_ok()));
    tree.sync().unwrap();
    let chip = tree.into_chip();
    let chip = LaTree::open(chip, options).unwrap().into_chip();
    counted(false, || drop(chip));
}

#[test]
fn a_tree_keeps_to_its_memory() {
    for memory_kib in [128, 256] {
        for (blocks, in_block, page) in [(1024, 32, 512), (96, 64, 4096)] {
            for (levels, lookups) in [(2, 1), (2, 60), (1, 20), (3, 20)] {
                let options = Options {
                    memory_bytes: memory_kib << 10,
                    subtree_levels: levels,
                    scan: Scan::Sorted,
                    buffering: Buffering::Adaptive,
                };
                let chip = chip(blocks, in_block, page);
                counted(true, || history(chip, options, 60_000, lookups, 100_000));
                let (held, peak) = take_counts();
                assert_eq!(held, 0, "all memory is given back, but that of the chip");
                let limit = (memory_kib as i64 + 16) << 10;
                let what = format!("{memory_kib} KiB, pages of {page}, {levels} levels, {lookups}");
                eprintln!("{what} % lookups: {peak} bytes, {} % of the limit", peak * 100 / limit);
                assert!(peak <= limit, "{what} % lookups: {peak} bytes, more than {limit}");
            }
        }
    }
}

#[test]
fn blocks_that_are_opened_take_no_memory() {
    let options = Options { memory_bytes: 40 << 10, ..Options::default() };
    let chip = chip(1024, 2, 512);
    counted(true, || {
        let mut tree = LaTree::create(chip, options).unwrap();
        for number in 0..160_000_u64 {
            tree.put(&(number % 64).to_be_bytes(), &[7; 100]).unwrap();
        }
        let stats = tree.stats();
        assert!(stats.flash.erases > 10_000 && stats.collected_blocks == 0, "{stats:?}");
        let chip = tree.into_chip();
        counted(false, || drop(chip));
    });
    let (held, peak) = take_counts();
    assert_eq!(held, 0, "all memory is given back, but that of the chip");
    assert!(peak <= 56 << 10, "{peak} bytes");
}
