//! The erase counts of all blocks stay close, whatever each block is used for.

use esker_flash::ftl::{Options, Wear, mvftl, xftl};
use esker_flash::nand::{Cause, Geometry, Lpn, NandSim, Operations, Sizes};
use esker_flash::{Ftl, Transactional};
use esker_harness::random::Random;

const PAGES_PER_BLOCK: u32 = 16;

fn geometry() -> Geometry {
    Geometry::new(Sizes {
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 64,
        pages_per_block: PAGES_PER_BLOCK,
        page_size: 512,
    })
    .unwrap()
}

fn common(wear_spread: u32) -> Options {
    Options { wear_spread, spare_permille: 140, ..Options::default() }
}

fn mv(wear_spread: u32) -> mvftl::MvFtl<NandSim<()>> {
    let options = mvftl::Options::new(&geometry(), &common(wear_spread)).unwrap();
    let options = mvftl::Options { diff_bytes: 2048, ..options };
    mvftl::MvFtl::format(NandSim::new(geometry()), options).unwrap()
}

fn x(wear_spread: u32) -> xftl::XFtl<NandSim<()>> {
    let options = xftl::Options::new(&geometry(), &common(wear_spread)).unwrap();
    xftl::XFtl::format(NandSim::new(geometry()), options).unwrap()
}

/// Pages of a twentieth of the device are written again and again, alone or in transactions.
/// Answers what was done for wear, and all programs.
fn hot_and_cold<L: Transactional>(mut layer: L, in_transactions: bool) -> (Wear, Operations, u64) {
    let pages = layer.logical_pages();
    (0..pages).for_each(|lpn| layer.write(Lpn(lpn), &[]).unwrap());
    layer.flush().unwrap();
    let random = Random::new(5);
    for _ in 0..60_000 {
        let hot = || Lpn(random.below(u64::from(pages) / 20) as u32);
        if in_transactions {
            let tx = layer.begin().unwrap();
            (0..4).for_each(|_| layer.write_in(tx, hot(), &[]).unwrap());
            layer.commit(tx).unwrap();
        } else {
            (0..4).for_each(|_| layer.write(hot(), &[]).unwrap());
        }
    }
    layer.check().unwrap();
    (layer.wear(), layer.counters().of(Cause::Wear), layer.counters().total().programs)
}

fn is_bounded<L: Transactional>(layer: impl Fn(u32) -> L) {
    for in_transactions in [false, true] {
        let (unbounded, none, _) = hot_and_cold(layer(u32::MAX), in_transactions);
        assert!(unbounded.spread > 200, "{unbounded:?}");
        assert_eq!(none, Operations::default());
        let (bounded, moved, programs) = hot_and_cold(layer(50), in_transactions);
        eprintln!("{in_transactions}: {unbounded:?}; {bounded:?}, {moved:?}");
        assert!(bounded.spread <= 50 + PAGES_PER_BLOCK, "{bounded:?}");
        assert!(bounded.spread > 25 && moved.erases > 20 && moved.programs > 200, "{moved:?}");
        assert!(moved.programs < programs / 10, "{moved:?} of {programs}");
    }
}

#[test]
fn the_wear_of_mvftl_is_bounded() {
    is_bounded(mv);
}

#[test]
fn the_wear_of_xftl_is_bounded() {
    is_bounded(x);
}

/// Commits and flushes of nothing but trims program no data page: no data block is collected.
#[test]
fn the_wear_of_a_log_alone_is_bounded() {
    let mut layer = x(50);
    (0..200).for_each(|lpn| layer.write(Lpn(lpn), &[]).unwrap());
    layer.flush().unwrap();
    for lpn in (0..200).cycle().take(400_000) {
        layer.trim(Lpn(lpn)).unwrap();
        layer.flush().unwrap();
        if lpn == 199 {
            (0..200).for_each(|lpn| layer.write(Lpn(lpn), &[]).unwrap());
        }
    }
    layer.check().unwrap();
    assert!(layer.wear().spread <= 50 + PAGES_PER_BLOCK, "{:?}", layer.wear());
}
