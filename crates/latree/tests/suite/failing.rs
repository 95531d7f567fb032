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
    /// Whether a page whose program fails has its bytes nevertheless.
    is_programmed: bool,
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
        if !self.fails(block as usize) {
            return self.chip.program(page, data);
        }
        if self.is_programmed {
            self.chip.program(page, data)?;
        }
        Err(Fault::Worn)
    }

    fn erase(&mut self, block: BlockNo) -> Result<(), Fault> {
        if self.fails(block.0 as usize) { Err(Fault::Worn) } else { self.chip.erase(block) }
    }
}

fn failing(every: u64, is_programmed: bool) -> Failing {
    let (chip, failed) = (small_pages(112), vec![false; 112]);
    Failing { chip, failed, next: every, every, most: 12, is_programmed }
}

/// Steps on a chip of which blocks fail. The tree is opened after each failure, and at the end.
fn history(chip: Failing, seed: u64, steps: usize) {
    let random = Random::new(seed);
    let options = options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive);
    let shape = Shape { keys: 2500, value_bytes: 24, lookups: 20, removals: 33 };
    let mut tree = LaTree::create(chip, options.clone()).unwrap();
    let (mut model, mut known) = (Model::new(), 0);
    for at in 0..steps {
        let step = step(&random, &shape);
        apply(&mut tree, &model, &step).unwrap_or_else(|what| panic!("step {at}: {what}"));
        apply_to_model(&mut model, &step);
        let failed = tree.chip().failed.iter().filter(|failed| **failed).count();
        if failed > known || at + 1 == steps {
            known = failed;
            tree.sync().unwrap();
            let mut again = LaTree::open(tree.chip().clone(), options.clone())
                .unwrap_or_else(|error| panic!("opened after step {at}: {error}"));
            compare(&mut again, &model)
                .unwrap_or_else(|what| panic!("opened after step {at}: {what}"));
        }
    }
    compare(&mut tree, &model).unwrap();
    assert!(known >= 5, "{known} blocks failed");
}

#[test]
fn failing_blocks_are_retired_and_nothing_is_lost() {
    for (seed, every) in [(1, 37), (2, 151), (3, 401)] {
        history(failing(every, false), seed, 25_000);
    }
}

#[test]
fn pages_that_were_programmed_when_their_block_failed_are_no_second_ones() {
    for seed in 0..12 {
        history(failing(61 + 7 * seed, true), seed, 7000);
    }
}
