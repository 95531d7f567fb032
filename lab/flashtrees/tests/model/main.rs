//! Every tree against a map, on small chips whose garbage is collected.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chip;
mod histories;
mod planted;

use esker_flash::Nand;
use esker_flash::ftl::PageMapped;
use esker_flash::nand::Cut;
use esker_flashtrees::block_mapped::BlockMapped;
use esker_flashtrees::latree::LaTreeMap;
use esker_flashtrees::rivals::{DEVICE_UNIT_PAGES, Rival};
use esker_flashtrees::{Error, FlashTree, Result};
use esker_latree::Options;
use esker_workload::Random;
use histories::{fills, histories};

/// A tree on the chip of this number, in a memory that caches fewer nodes than a history makes.
/// From 3 on the tables of a full chip fit, too.
fn on_chip(rival: Rival, seed: u64) -> Result<Box<dyn FlashTree>> {
    let memory = if seed >= 3 { 48 << 10 } else { [12, 12, 24][seed as usize] << 10 };
    let block = [8, 16, 16][seed as usize % 3] << 10;
    let memory = memory + if rival == Rival::InPlace { block } else { 0 };
    rival.on_chip(chip::nand(seed), &chip::options(), memory)
}

/// The stores of firmware on smaller chips, since they are slower.
fn on_tiny_chip(rival: Rival, seed: u64) -> Result<Box<dyn FlashTree>> {
    let (times, memory) = if rival == Rival::Ekv { (2, 32 << 10) } else { (1, 6 << 10) };
    rival.on_chip(chip::tiny(seed, times), &chip::options(), memory)
}

#[test]
fn a_btree_is_a_map() {
    histories(|seed| on_chip(Rival::BTree, seed), 45_000);
}

#[test]
fn bftl_is_a_map() {
    histories(|seed| on_chip(Rival::Bftl, seed), 45_000);
    histories(|seed| on_chip(Rival::BftlOfBudget, seed), 45_000);
}

#[test]
fn flashdb_is_a_map() {
    histories(|seed| on_chip(Rival::FlashDb, seed), 45_000);
}

#[test]
fn ipl_is_a_map() {
    histories(|seed| on_chip(Rival::Ipl, seed), 45_000);
}

#[test]
fn inplace_is_a_map() {
    histories(|seed| on_chip(Rival::InPlace, seed), 45_000);
}

#[test]
fn ekv_is_a_map() {
    histories(|seed| on_tiny_chip(Rival::Ekv, seed), 30_000);
}

#[test]
fn sequential_storage_is_a_map() {
    histories(|seed| on_tiny_chip(Rival::Sequential, seed), 3_000);
}

#[test]
fn all_are_maps_on_a_device_with_a_layer_inside() {
    for rival in [Rival::BTree, Rival::BftlOfBudget, Rival::FlashDb, Rival::Ipl] {
        let make = |seed| {
            let ftl = PageMapped::format(chip::nand(seed), &chip::options())?;
            rival.on_device(ftl, DEVICE_UNIT_PAGES, [12, 12, 24][seed as usize] << 10)
        };
        histories(make, 45_000);
    }
}

#[test]
fn btree_and_ipl_are_maps_on_a_block_mapped_device() {
    for rival in [Rival::BTree, Rival::Ipl] {
        let make = |seed| {
            let ftl = BlockMapped::format(chip::nand(seed), 3)?;
            rival.on_device(ftl, DEVICE_UNIT_PAGES, [12, 12, 24][seed as usize] << 10)
        };
        histories(make, 45_000);
    }
}

#[test]
fn an_latree_is_a_map_on_devices() {
    let options = |seed| {
        let memory_bytes = [24, 24, 72][seed as usize] << 10;
        Options { memory_bytes, ..Options::default() }
    };
    let over_pages = |seed| -> Result<Box<dyn FlashTree>> {
        let ftl = PageMapped::format(chip::nand(seed), &chip::options())?;
        Ok(Box::new(LaTreeMap::on_device(ftl, 8, options(seed), "latree")?))
    };
    histories(over_pages, 170_000);
    let over_blocks = |seed| -> Result<Box<dyn FlashTree>> {
        let nand = chip::nand(seed);
        let pages = nand.geometry().pages_per_block();
        let ftl = BlockMapped::format(nand, 3)?;
        Ok(Box::new(LaTreeMap::on_device(ftl, pages, options(seed), "latree")?))
    };
    histories(over_blocks, 170_000);
}

#[test]
fn a_full_chip_is_a_clear_error_and_removals_make_room() {
    for rival in Rival::ALL {
        if ![Rival::Ekv, Rival::Sequential].contains(&rival) {
            fills(on_chip(rival, 3).unwrap().as_mut());
        }
    }
}

#[test]
fn a_power_cut_is_an_error_and_so_is_what_follows() {
    for rival in Rival::ALL {
        for operations in [40, 123, 300] {
            let mut nand = chip::nand(1);
            nand.cut_after(operations, Cut::Torn);
            let Ok(mut tree) = rival.on_chip(nand, &chip::options(), 48 << 10) else { continue };
            let mut random = Random::new(operations);
            let cut = (0..20_000).find_map(|_| {
                let (key, value) = (random.bits(), random.bits());
                tree.put(key, value).and_then(|()| tree.get(value)).err()
            });
            let cut = cut.unwrap().to_string();
            assert!(cut.contains("power") || cut.contains("PowerCut"), "{rival:?}: {cut}");
            assert!(tree.flush().is_err(), "{rival:?}");
        }
    }
}

#[test]
fn a_memory_that_is_too_small_is_refused_with_the_least_that_works() {
    for rival in Rival::ALL {
        let refused = rival.on_chip(chip::nand(0), &chip::options(), 1_000).err().unwrap();
        let Error::Memory { needed_bytes, .. } = refused else { unreachable!("{refused}") };
        assert!(needed_bytes > 1_000, "{refused}");
        let enough = 2 * needed_bytes;
        assert!(rival.on_chip(chip::nand(0), &chip::options(), enough).is_ok(), "{rival:?}");
    }
    let ftl = PageMapped::format(chip::nand(0), &chip::options()).unwrap();
    let refused = Rival::InPlace.on_device(ftl, DEVICE_UNIT_PAGES, 1 << 20).err().unwrap();
    assert!(refused.to_string().ends_with("use btree"), "{refused}");
}
