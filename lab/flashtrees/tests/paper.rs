//! The rivals on the chip of the LA-tree's paper, in 128 KiB.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use esker_flash::NandSim;
use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Bytes, Cause, preset};
use esker_flashtrees::btree::PageNodes;
use esker_flashtrees::rivals::{DEVICE_UNIT_PAGES, Rival};
use esker_flashtrees::run::{Report, ranges, run};
use esker_flashtrees::space::{Pages, TableIn};
use esker_flashtrees::workload::Workload;
use esker_flashtrees::{FlashTree, Order, Tree};

const MEMORY: usize = 128 << 10;

/// Updates, the first third of which are not measured: 150,000, or with a budget of 2 as many as
/// the model has. BFTL's table does not fit with many more.
fn updates() -> u64 {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok());
    150_000 * budget.unwrap_or(1_u64).clamp(1, 2)
}

/// A chip on which garbage is collected in every run: 12 MiB for 300,000 updates.
fn small_chip(updates: u64) -> NandSim<Bytes> {
    chip((updates / 400) as u32)
}

fn chip(blocks: u32) -> NandSim<Bytes> {
    let preset = preset("slc512").unwrap();
    NandSim::with_clock(preset.geometry(Some(blocks)).unwrap(), preset.timing)
}

fn rival(rival: Rival, nand: NandSim<Bytes>) -> Box<dyn FlashTree> {
    rival.on_chip(nand, &Options::default(), MEMORY).unwrap()
}

fn measure(of: Rival, workload: Workload, updates: u64) -> Report {
    let mut tree = rival(of, small_chip(updates));
    let report = run(tree.as_mut(), workload, updates / 3, updates).unwrap();
    println!("{:<12} {}", of.name(), report.line());
    assert!(report.memory_bytes <= MEMORY, "{of:?}: {} bytes", report.memory_bytes);
    report
}

/// A model of counts (two levels, entries of 24 bytes, no node table) expects 1.34 reads and 1.01
/// writes an update at 300,000 updates: what a cache as good as it can be leaves to the chip. Half
/// of the inner nodes and few leaves are cached then.
#[test]
fn the_btree_reads_and_writes_what_the_model_expects() {
    let full = 300_000;
    let ftl = PageMapped::format(chip(1_024), &Options::default()).unwrap();
    let nodes = PageNodes::new(Pages::new(ftl, TableIn::Device), 24);
    // The model's memory is that of 256 pages, without links and scratch pages.
    let mut tree = Tree::new(nodes, MEMORY + 256 * 16 + 2 * 512).unwrap();
    let report = run(&mut tree, Workload::synthetic(3, 0.000_1), full / 3, full).unwrap();
    println!("model          {}", report.line());
    let host = report.counters.of(Cause::Host);
    let of = |count: u64| count as f64 / report.operations as f64;
    assert!((of(host.reads) - 1.34).abs() < 0.05, "{} reads", of(host.reads));
    assert!((of(host.programs) - 1.01).abs() < 0.03, "{} writes", of(host.programs));
}

/// The order of the paper's table at LTU 10 %: BFTL and IPL are slower than FlashDB; and what
/// none of them should lose to.
#[test]
fn bftl_and_ipl_are_slower_than_flashdb_and_rewriting_in_place_is_the_slowest() {
    for (ltu, updates, erases_min) in [(0.1, updates(), 3.0), (2.0, updates() / 2, 0.0)] {
        println!("LTU {} %", ltu * 100.0);
        let of = |rival| {
            let report = measure(rival, Workload::synthetic(3, ltu), updates);
            assert!(report.erases_per_block > erases_min, "{rival:?}: no garbage collection");
            report.micros()
        };
        let flashdb = of(Rival::FlashDb);
        let others = [Rival::Bftl, Rival::BftlOfBudget, Rival::Ipl].map(of);
        assert!(others.iter().all(|micros| *micros > flashdb), "{others:?}, {flashdb}");
        let inplace = of(Rival::InPlace);
        assert!(others.iter().all(|micros| *micros < inplace), "{others:?}, {inplace}");
        assert!(of(Rival::BTree) < others[0]);
    }
}

/// What firmware uses, at the sizes that it is made for: `ekv` with changes in batches, and
/// `sequential-storage` with a thousand keys. Both run over a layer that emulates NOR.
#[test]
fn stores_of_firmware_run_on_the_same_chip() {
    let updates = updates() / 6;
    for of in [Rival::Ekv, Rival::BTree] {
        let mut tree = rival(of, chip(256));
        let workload = Workload::synthetic(3, 0.1);
        let report = run(tree.as_mut(), workload, updates / 3, updates).unwrap();
        println!("{}", report.line());
        assert!(report.memory_bytes <= MEMORY && report.micros() > 10.0);
    }
    let memory = 8 << 10;
    for of in [Rival::Sequential, Rival::BTree] {
        let mut tree = of.on_chip(chip(16), &Options::default(), memory).unwrap();
        let report = run(tree.as_mut(), Workload::synthetic(3, 0.1), 500, 2_000).unwrap();
        println!("{}", report.line());
        assert!(report.memory_bytes <= memory && report.micros() > 10.0);
    }
}

/// Scans of 100 entries, in both directions: a B+tree reads few more leaves than it must.
#[test]
fn ranges_read_the_leaves_that_they_visit() {
    for of in [Rival::BTree, Rival::FlashDb, Rival::Ipl, Rival::BftlOfBudget, Rival::Ekv] {
        let mut tree = rival(of, chip(512));
        run(tree.as_mut(), Workload::synthetic(3, 0.0), 0, 60_000).unwrap();
        tree.flush().unwrap();
        for order in [Order::Ascending, Order::Descending] {
            if of == Rival::Ekv && order == Order::Descending {
                // It has none: it would read the whole rest of the store.
                continue;
            }
            let report = ranges(tree.as_mut(), 5, 300, 100, order).unwrap();
            println!("{:<12} {} {order:?}", of.name(), report.line());
            assert_eq!((report.operations, report.found), (300, 300 * 100), "{of:?}");
            // 100 entries are in 5 leaves that are 69 % full, or in 10 with the small ones of BFTL.
            assert!(of != Rival::BTree || (2.0..8.0).contains(&report.reads()));
        }
    }
}

/// The same on a device with pages of 4 KiB and a layer inside.
#[test]
fn the_trees_on_a_device() {
    let preset = preset("femu").unwrap();
    for of in [Rival::BTree, Rival::Bftl, Rival::BftlOfBudget, Rival::FlashDb, Rival::Ipl] {
        let geometry = preset.geometry(Some(8)).unwrap();
        let nand = NandSim::<Bytes>::with_clock(geometry, preset.timing);
        let ftl = PageMapped::format(nand, &Options::default()).unwrap();
        let mut tree = of.on_device(ftl, DEVICE_UNIT_PAGES, MEMORY).unwrap();
        let (workload, updates) = (Workload::synthetic(3, 0.1), updates() / 3);
        let report = run(tree.as_mut(), workload, updates / 3, updates).unwrap();
        println!("{:<12} {}", of.name(), report.line());
        assert!(report.memory_bytes <= MEMORY, "{of:?}");
    }
}

/// The stand-ins for the traces, on a larger chip: nodes that no one changes keep BFTL's sectors.
#[test]
fn the_traces_of_the_paper_run_on_all_of_them() {
    for name in [Rival::BTree, Rival::Bftl, Rival::FlashDb, Rival::Ipl] {
        for workload in [Workload::radar(1), Workload::customer(1, 2), Workload::order(1, 2)] {
            let mut tree = rival(name, chip(3_000));
            let report = run(tree.as_mut(), workload, 15_000, 45_000).unwrap();
            println!("{:<12} {}", name.name(), report.line());
            assert!(report.memory_bytes <= MEMORY && report.micros() < 2_000.0);
        }
    }
}
