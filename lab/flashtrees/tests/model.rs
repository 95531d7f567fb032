//! Every tree against a map, on small chips whose garbage is collected.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod common;

use common::{chip, fills, histories, histories_of};
use esker_flashtrees::bftl::{Bftl, Settings};
use esker_flashtrees::btree::PageNodes;
use esker_flashtrees::ekv::Ekv;
use esker_flashtrees::flashdb::FlashDb;
use esker_flashtrees::inplace::InPlace;
use esker_flashtrees::ipl::Ipl;
use esker_flashtrees::page::LEAF_BYTES;
use esker_flashtrees::sequential::Sequential;
use esker_flashtrees::space::TableIn;
use esker_flashtrees::{FlashTree, Result, Tree};

fn btree(seed: u64) -> Result<Box<dyn FlashTree>> {
    let nodes = PageNodes::new(chip::pages(seed), LEAF_BYTES);
    Tree::new(nodes, chip::memory(seed)).map(chip::boxed)
}

fn bftl(seed: u64) -> Result<Box<dyn FlashTree>> {
    Tree::new(Bftl::new(chip::device_pages(seed), Settings::published()), chip::memory(seed))
        .map(chip::boxed)
}

fn bftl_of_budget(seed: u64) -> Result<Box<dyn FlashTree>> {
    let memory = chip::memory(seed);
    let settings = Settings::of_budget(memory / 4);
    Tree::new(Bftl::new(chip::device_pages(seed), settings), memory).map(chip::boxed)
}

fn flashdb(seed: u64) -> Result<Box<dyn FlashTree>> {
    let nodes = FlashDb::new(chip::pages(seed), chip::costs(seed), chip::memory(seed));
    Tree::new(nodes, chip::memory(seed)).map(chip::boxed)
}

fn ipl(seed: u64) -> Result<Box<dyn FlashTree>> {
    Tree::new(Ipl::new(chip::nand(seed)), chip::memory(seed)).map(chip::boxed)
}

fn inplace(seed: u64) -> Result<Box<dyn FlashTree>> {
    let block = [8, 16, 16][seed as usize % 3] << 10;
    Tree::new(InPlace::new(chip::nand(seed)), chip::memory(seed) + block).map(chip::boxed)
}

fn ekv(seed: u64) -> Result<Box<dyn FlashTree>> {
    Ekv::new(chip::tiny_ftl(seed, 2), TableIn::Host, chip::memory(seed) + (16 << 10))
        .map(chip::boxed)
}

fn sequential(seed: u64) -> Result<Box<dyn FlashTree>> {
    Sequential::new(chip::tiny_ftl(seed, 1), TableIn::Host, 6 << 10).map(chip::boxed)
}

#[test]
fn a_btree_is_a_map() {
    histories(btree);
}

#[test]
fn bftl_is_a_map() {
    histories(bftl);
    histories(bftl_of_budget);
}

#[test]
fn flashdb_is_a_map() {
    histories(flashdb);
}

#[test]
fn ipl_is_a_map() {
    histories(ipl);
}

#[test]
fn inplace_is_a_map() {
    histories(inplace);
}

#[test]
fn ekv_is_a_map() {
    histories_of(ekv, 30_000);
}

#[test]
fn sequential_storage_is_a_map() {
    histories_of(sequential, 3_000);
}

#[test]
fn a_full_chip_is_a_clear_error_and_removals_make_room() {
    for make in [btree, bftl, bftl_of_budget, flashdb, ipl, inplace] {
        fills(make(3).unwrap().as_mut());
    }
}
