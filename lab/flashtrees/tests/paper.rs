//! The rivals on the chip of the LA-tree's paper, in 128 KiB.

use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Bytes, preset};
use esker_flash::{NandSim, Timing};
use esker_flashtrees::bftl::{Bftl, Settings};
use esker_flashtrees::btree::PageNodes;
use esker_flashtrees::flashdb::{Costs, FlashDb};
use esker_flashtrees::inplace::InPlace;
use esker_flashtrees::ipl::Ipl;
use esker_flashtrees::page::LEAF_BYTES;
use esker_flashtrees::run::{Report, run};
use esker_flashtrees::space::{Pages, TableIn};
use esker_flashtrees::workload::Workload;
use esker_flashtrees::{FlashTree, Tree};

const MEMORY: usize = 128 << 10;
const UPDATES: u64 = 300_000;
const WARM_UP: u64 = 100_000;
/// Blocks of 16 KiB: with 16 MiB garbage is collected in every run.
const BLOCKS: u32 = 1_024;

fn nand() -> NandSim<Bytes> {
    let preset = preset("slc512").unwrap();
    NandSim::with_clock(preset.geometry(Some(BLOCKS)).unwrap(), preset.timing)
}

fn timing() -> Timing {
    preset("slc512").unwrap().timing
}

fn pages(table: TableIn) -> Pages<PageMapped<NandSim<Bytes>>> {
    Pages::new(PageMapped::format(nand(), &Options::default()).unwrap(), table)
}

fn rival(name: &str) -> Box<dyn FlashTree> {
    match name {
        "btree" => {
            let nodes = PageNodes::new(pages(TableIn::Host), LEAF_BYTES);
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "bftl" => {
            let nodes = Bftl::new(pages(TableIn::Device), Settings::published());
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "bftl, 128 KiB" => {
            let nodes = Bftl::new(pages(TableIn::Device), Settings::of_budget(MEMORY));
            Box::new(Tree::new(nodes, MEMORY).unwrap())
        }
        "flashdb" => {
            let costs = Costs::new(&timing(), 512, 32);
            Box::new(Tree::new(FlashDb::new(pages(TableIn::Host), costs), MEMORY).unwrap())
        }
        "ipl" => Box::new(Tree::new(Ipl::new(nand()), MEMORY).unwrap()),
        "inplace" => Box::new(Tree::new(InPlace::new(nand()), MEMORY).unwrap()),
        other => panic!("{other}"),
    }
}

fn measure(name: &str, workload: Workload) -> Report {
    let mut tree = rival(name);
    let report = run(tree.as_mut(), workload, WARM_UP, UPDATES).unwrap();
    println!("{name:<14} {}", report.line());
    assert!(report.memory_bytes <= MEMORY, "{name}");
    assert!(report.erases_per_block > 3.0, "{name}: garbage collection is not reached");
    report
}

/// `la_sim`, a model of counts: 1.34 reads and 1.01 writes an update, with entries of 24 bytes and
/// a node table that is not counted.
#[test]
fn the_btree_reads_and_writes_what_the_model_expects() {
    let mut tree =
        Tree::new(PageNodes::new(pages(TableIn::Device), 24), MEMORY + (4 << 10)).unwrap();
    let report = run(&mut tree, Workload::synthetic(3, 0.000_1), WARM_UP, UPDATES).unwrap();
    println!("model          {}", report.line());
    let host = report.counters.of(esker_flash::nand::Cause::Host);
    let of = |count: u64| count as f64 / report.operations as f64;
    assert!((of(host.reads) - 1.34).abs() < 0.07, "{} reads", of(host.reads));
    assert!((of(host.programs) - 1.01).abs() < 0.05, "{} writes", of(host.programs));
}

#[test]
fn the_order_of_the_rivals() {
    for ltu in [0.1, 2.0] {
        println!("LTU {} %", ltu * 100.0);
        for name in ["btree", "bftl", "bftl, 128 KiB", "flashdb", "ipl", "inplace"] {
            measure(name, Workload::synthetic(3, ltu));
        }
    }
}
