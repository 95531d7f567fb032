//! What waits for what, on a simulated clock.

use esker_flash::ftl::{mvftl, xftl};
use esker_flash::nand::{Cell, Geometry, Lpn, Sizes, Timing};

use crate::layer::{Flash, Layer, PAGE, page};

const TIMING: Timing = Timing::of_cell(Cell::Slc, PAGE as u32);

/// When the reads of the format have ended.
const NOW: u64 = 1_000_000_000;

/// One program, alone.
const PROGRAM: u64 = TIMING.program_ns + TIMING.transfer_ns_per_page;

/// Dies so small that commit records are on the first one, and data on the second one.
fn layer<L: Layer>() -> L {
    let sizes = Sizes {
        channels: 4,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 7,
        pages_per_block: 16,
        page_size: PAGE as u32,
    };
    L::format_small(Flash::with_clock(Geometry::new(sizes).unwrap(), TIMING)).unwrap()
}

/// A host with several requests outstanding issues the commit before its writes have ended.
fn a_commit_waits_for_data<L: Layer>() {
    let mut layer = layer::<L>();
    let tx = layer.begin().unwrap();
    for (lpn, ends) in [(1, PROGRAM), (2, TIMING.program_ns + PROGRAM)] {
        layer.issue_at(NOW);
        layer.write_in(tx, Lpn(lpn), &page(lpn, 1)).unwrap();
        assert_eq!(layer.end_ns(), NOW + ends, "{}", L::NAME);
    }
    layer.issue_at(NOW);
    layer.commit(tx).unwrap();
    assert_eq!(layer.end_ns(), NOW + TIMING.program_ns + 2 * PROGRAM, "{}", L::NAME);
    // What is issued later does not wait for anything.
    layer.issue_at(NOW + 1_000);
    layer.read(Lpn(50), &mut [0; PAGE]).unwrap();
    assert_eq!(layer.end_ns(), NOW + 1_000, "{}", L::NAME);
}

#[test]
fn a_commit_record_is_programmed_when_its_data_is() {
    a_commit_waits_for_data::<mvftl::MvFtl<Flash>>();
    a_commit_waits_for_data::<xftl::XFtl<Flash>>();
}
