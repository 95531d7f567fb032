//! Chips of which programs and erases fail: blocks are retired, and nothing is lost.

use esker_harness::random::Random;
use esker_latree::{BlockNo, Buffering, Chip, Fault, LaTree, PageNo, Read, Scan};

use crate::common::{Flash, options, small_pages};
use crate::history::{Model, Shape, apply, apply_to_model, compare, step};

/// A chip of which some operations fail, each for the rest of its block's life.
#[derive(Clone, Debug)]
struct Failing {
    chip: Flash,
    failed: Vec<bool>,
    /// The operation that fails next, and how many come between two.
    next: u64,
    every: u64,
    most: usize,
}

impl Failing {
    fn fails(&mut self, block: usize) -> bool {
        if self.failed[block] {
            return true;
        }
        self.next = self.next.saturating_sub(1);
        if self.next == 0 && self.failed.iter().filter(|failed| **failed).count() < self.most {
            (self.next, self.failed[block]) = (self.every, true);
        }
        self.failed[block]
    }
}

impl Chip for Failing {
    fn page_bytes(&self) -> usize {
        self.chip.page_bytes()
    }

    fn pages_per_block(&self) -> u32 {
        self.chip.pages_per_block()
    }

    fn blocks(&self) -> u32 {
        self.chip.blocks()
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> Result<Read, Fault> {
        self.chip.read(page, data)
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> Result<(), Fault> {
        let block = page.0 / self.chip.pages_per_block();
        if self.fails(block as usize) { Err(Fault::Worn) } else { self.chip.program(page, data) }
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        if self.fails(block.0 as usize) { Err(Fault::Worn) } else { self.chip.erase(block) }
    }
}

#[test]
fn failing_blocks_are_retired_and_nothing_is_lost() {
    for (seed, every) in [(1, 37), (2, 151), (3, 401)] {
        let chip = Failing {
            chip: small_pages(112),
            failed: vec![false; 112],
            next: every,
            every,
            most: 12,
        };
        let random = Random::new(seed);
        let options = options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive);
        let shape = Shape { keys: 2500, value_bytes: 24, lookups: 20, removals: 33 };
        let mut tree = LaTree::create(chip, options.clone()).unwrap();
        let mut model = Model::new();
        for at in 0..25_000 {
            let step = step(&random, &shape);
            apply(&mut tree, &model, &step).unwrap_or_else(|what| panic!("step {at}: {what}"));
            apply_to_model(&mut model, &step);
        }
        compare(&mut tree, &model).unwrap();
        tree.sync().unwrap();
        let mut tree = LaTree::open(tree.into_chip(), options).unwrap();
        compare(&mut tree, &model).unwrap();
        let failed = tree.chip().failed.iter().filter(|failed| **failed).count();
        assert!(failed >= 5, "{failed} blocks failed");
    }
}
