//! The rivals on the chip of the LA-tree's paper, in 128 KiB.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Bytes, Cause, preset};
use esker_flash::{NandSim, Timing};
use esker_flashtrees::bftl::{Bftl, Settings};
use esker_flashtrees::btree::PageNodes;
use esker_flashtrees::ekv::Ekv;
use esker_flashtrees::flashdb::{Costs, FlashDb};
use esker_flashtrees::inplace::InPlace;
use esker_flashtrees::ipl::Ipl;
use esker_flashtrees::page::LEAF_BYTES;
use esker_flashtrees::run::{Report, run};
use esker_flashtrees::sequential::Sequential;
use esker_flashtrees::space::{Pages, TableIn};
use esker_flashtrees::workload::Workload;
use esker_flashtrees::{FlashTree, Tree};

const MEMORY: usize = 128 << 10;

/// Updates, the first third of which are not measured: 150,000, or as many as the model has with a
/// budget of 2.
fn updates() -> u64 {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok());
    150_000 * budget.unwrap_or(1_u64).clamp(1, 20)
}

/// A chip on which garbage is collected in every run: 12 MiB for 300,000 updates.
fn small_chip(updates: u64) -> NandSim<Bytes> {
    chip((updates / 400) as u32)
}

fn chip(blocks: u32) -> NandSim<Bytes> {
    let preset = preset("slc512").unwrap();
    NandSim::with_clock(preset.geometry(Some(blocks)).unwrap(), preset.timing)
}

fn timing() -> Timing {
    preset("slc512").unwrap().timing
}

fn pages(nand: NandSim<Bytes>, table: TableIn) -> Pages<PageMapped<NandSim<Bytes>>> {
    Pages::new(PageMapped::format(nand, &Options::default()).unwrap(), table)
}

fn rival(name: &str, nand: NandSim<Bytes>) -> Box<dyn FlashTree> {
    match name {
        "btree" => {
            let nodes = PageNodes::new(pages(nand, TableIn::Host), LEAF_BYTES);
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "bftl" => {
            let nodes = Bftl::new(pages(nand, TableIn::Device), Settings::published());
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "bftl, 128 KiB" => {
            let nodes = Bftl::new(pages(nand, TableIn::Device), Settings::of_budget(MEMORY));
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "flashdb" => {
            let costs = Costs::new(&timing(), 512, 32);
            Box::new(
                Tree::new(FlashDb::new(pages(nand, TableIn::Host), costs, MEMORY), MEMORY).unwrap(),
            )
        }
        "ipl" => Box::new(Tree::new(Ipl::new(nand), MEMORY).unwrap()),
        "inplace" => Box::new(Tree::new(InPlace::new(nand), MEMORY).unwrap()),
        other => panic!("{other}"),
    }
}

fn measure(name: &str, workload: Workload, updates: u64) -> Report {
    let mut tree = rival(name, small_chip(updates));
    let report = run(tree.as_mut(), workload, updates / 3, updates).unwrap();
    println!("{name:<14} {}", report.line());
    assert!(report.memory_bytes <= MEMORY, "{name}: {} bytes", report.memory_bytes);
    report
}

/// A model of counts (two levels, entries of 24 bytes, no node table) expects 1.34 reads and 1.01
/// writes an update at 300,000 updates: what a cache as good as it can be leaves to the chip. Half
/// of the inner nodes and few leaves are cached then.
#[test]
fn the_btree_reads_and_writes_what_the_model_expects() {
    let full = 300_000;
    let nodes = PageNodes::new(pages(chip(1_024), TableIn::Device), 24);
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
        let of = |name| {
            let report = measure(name, Workload::synthetic(3, ltu), updates);
            assert!(report.erases_per_block > erases_min, "{name}: no garbage collection");
            report.micros()
        };
        let flashdb = of("flashdb");
        let others = ["bftl", "bftl, 128 KiB", "ipl"].map(of);
        assert!(others.iter().all(|micros| *micros > flashdb), "{others:?}, {flashdb}");
        let inplace = of("inplace");
        assert!(others.iter().all(|micros| *micros < inplace), "{others:?}, {inplace}");
        assert!(of("btree") < others[0]);
    }
}

/// What firmware uses, at the sizes that it is made for: `ekv` with changes in batches, and
/// `sequential-storage` with a thousand keys. Both run over a layer that emulates NOR.
#[test]
fn stores_of_firmware_run_on_the_same_chip() {
    let ftl = || PageMapped::format(chip(256), &Options::default()).unwrap();
    let mut ekv = Ekv::new(ftl(), TableIn::Host, MEMORY).unwrap();
    let updates = updates() / 5;
    let report = run(&mut ekv, Workload::synthetic(3, 0.1), updates / 3, updates).unwrap();
    println!("ekv            {}", report.line());
    assert!(report.memory_bytes <= MEMORY && report.micros() > 10.0);
    let btree = PageNodes::new(Pages::new(ftl(), TableIn::Host), LEAF_BYTES);
    let mut btree = Tree::new(btree, MEMORY).unwrap();
    let report = run(&mut btree, Workload::synthetic(3, 0.1), updates / 3, updates).unwrap();
    println!("btree          {}", report.line());
    let nand = PageMapped::format(chip(16), &Options::default()).unwrap();
    let mut sequential = Sequential::new(nand, TableIn::Host, 8 << 10).unwrap();
    let report = run(&mut sequential, Workload::synthetic(3, 0.1), 500, 2_000).unwrap();
    println!("sequential     {}", report.line());
    assert!(report.memory_bytes <= 8 << 10 && report.micros() > 10.0);
}

/// The stand-ins for the traces, on a larger chip: nodes that no one changes keep BFTL's sectors.
#[test]
fn the_traces_of_the_paper_run_on_all_of_them() {
    for name in ["btree", "bftl", "flashdb", "ipl"] {
        for workload in [Workload::radar(1), Workload::customer(1, 2), Workload::order(1, 2)] {
            let mut tree = rival(name, chip((updates() / 50) as u32));
            let report = run(tree.as_mut(), workload, updates() / 6, updates() / 2).unwrap();
            println!("{name:<14} {}", report.line());
            assert!(report.memory_bytes <= MEMORY && report.micros() < 2_000.0);
        }
    }
}
