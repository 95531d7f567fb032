//! Garbage collection moves as many pages as theory expects.

use esker_flash::Transactional;
use esker_flash::closed_form;
use esker_flash::ftl::{Options, Policy, mvftl, xftl};
use esker_flash::nand::{Cause, Geometry, Lpn, NandSim, Sizes};
use esker_harness::random::Random;

fn geometry(blocks: u32) -> Geometry {
    Geometry::new(Sizes {
        channels: 1,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: blocks,
        pages_per_block: 32,
        page_size: 512,
    })
    .unwrap()
}

/// Pages that garbage collection moves for each page of the host, under uniform random writes.
fn moved<L: Transactional>(mut layer: L) -> f64 {
    let random = Random::new(9);
    let pages = layer.logical_pages();
    for lpn in 0..pages {
        layer.write(Lpn(lpn), &[]).unwrap();
    }
    let overwrite = |layer: &mut L, writes: u32| {
        for _ in 0..writes {
            layer.write(Lpn(random.below(pages.into()) as u32), &[]).unwrap();
        }
    };
    overwrite(&mut layer, pages * 5);
    let before = *layer.counters();
    overwrite(&mut layer, pages * 2);
    let counts = layer.counters().since(&before);
    counts.of(Cause::Gc).programs as f64 / counts.of(Cause::Host).programs as f64
}

/// FIFO has the closed form of greedy, whatever is valid in the oldest block, and a random choice
/// moves 1 / spare pages: as with the page-mapped layer, where all full blocks are candidates.
#[test]
fn policies_mean_what_they_mean_to_other_layers() {
    let geometry = geometry(512);
    let measure = |policy| {
        let common = Options { spare_permille: 280, policy, ..Options::default() };
        let options = xftl::Options::new(&geometry, &common).unwrap();
        let options = xftl::Options { table_entries: 100, ..options };
        moved(xftl::XFtl::format(NandSim::<()>::new(geometry), options).unwrap())
    };
    let (fifo, one) = (measure(Policy::Fifo), measure(Policy::DChoices(1)));
    let (two, greedy) = (measure(Policy::DChoices(2)), measure(Policy::Greedy));
    eprintln!("moved: FIFO {fifo:.3}, d-choices {one:.3} {two:.3}, greedy {greedy:.3}");
    let expected = closed_form::greedy(0.28).write_amplification - 1.0;
    assert!((fifo / expected - 1.0).abs() < 0.15, "{fifo} moved, expected {expected}");
    assert!((one * 0.28 - 1.0).abs() < 0.15, "{one} moved");
    assert!(greedy < fifo && fifo < two && two < one, "{greedy} {fifo} {two} {one}");
}

#[test]
fn collections_move_as_many_pages_as_the_closed_form_expects() {
    let geometry = geometry(1024);
    let common = Options { spare_permille: 280, ..Options::default() };
    let expected = closed_form::greedy(0.28).write_amplification - 1.0;
    let options =
        mvftl::Options { diff_bytes: 2048, ..mvftl::Options::new(&geometry, &common).unwrap() };
    let mv = moved(mvftl::MvFtl::format(NandSim::<()>::new(geometry), options).unwrap());
    let options =
        xftl::Options { table_entries: 100, ..xftl::Options::new(&geometry, &common).unwrap() };
    let x = moved(xftl::XFtl::format(NandSim::<()>::new(geometry), options).unwrap());
    eprintln!("moved: MV-FTL {mv:.3}, X-FTL {x:.3}, closed form {expected:.3}");
    for found in [mv, x] {
        assert!((found / expected - 1.0).abs() < 0.1, "{found} moved, expected {expected}");
    }
}
