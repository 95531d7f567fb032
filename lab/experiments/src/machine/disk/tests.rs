use super::*;

fn on(kind: LayerKind, board: Board, mib_per_die: u32) -> Disk {
    Disk::new(kind, board, mib_per_die).unwrap()
}

fn disk(kind: LayerKind) -> Disk {
    on(kind, Board::Plain, 16)
}

#[test]
fn halves_of_pages_are_read_and_programmed_whole() {
    let mut disk = disk(LayerKind::PageMapped);
    disk.write(0, (Purpose::Data, 2), &[7; 3 * BLOCK_BYTES], None).unwrap();
    assert_eq!(disk.flash().total().programs, 2);
    disk.write(0, (Purpose::Journal, 4), &[8; BLOCK_BYTES], None).unwrap();
    assert_eq!((disk.writes().blocks, disk.writes().total()), ([3, 1, 0], 4));
    let mut read = vec![0; 4 * BLOCK_BYTES];
    disk.read(0, 2, &mut read, None).unwrap();
    assert_eq!((read[0], read[BLOCK_BYTES * 2], read[BLOCK_BYTES * 3]), (7, 8, 0));
    disk.layer().as_ftl().check().unwrap();
}

/// By hand: a command takes 100 µs; a program 750 and its transfer.
#[test]
fn writes_are_buffered_and_barriers_wait_for_them() {
    let mut disk = disk(LayerKind::PageMapped);
    let transfer = Board::Plain.sized(16).unwrap().1.transfer_ns_per_page;
    // Formatting has kept the dies busy.
    let begun = 10_000_000;
    let first = disk.write(begun, (Purpose::Data, 0), &[1; PAGE_BYTES], None).unwrap();
    let second = disk.write(begun, (Purpose::Data, 2), &[1; PAGE_BYTES], None).unwrap();
    assert_eq!((first - begun, second - begun), (COMMAND_NS, 2 * COMMAND_NS));
    let flushed = disk.flush(second).unwrap();
    assert_eq!(flushed, second + 750_000 + transfer);
    assert_eq!(disk.flush(flushed).unwrap(), flushed + COMMAND_NS);
    let mut page = vec![0; PAGE_BYTES];
    let read = disk.read(flushed, 0, &mut page, None).unwrap();
    assert_eq!(read, flushed + 2 * COMMAND_NS + 50_000 + transfer);
}

/// By hand: 17 pages on each die, each with two transfers on its channel.
#[test]
fn the_boards_barriers_program_the_map() {
    let times = [(LayerKind::PageMapped, 17), (LayerKind::XFtl, 17), (LayerKind::MvFtl, 17)];
    let alone = [(LayerKind::PageMapped, 17), (LayerKind::XFtl, 0), (LayerKind::MvFtl, 0)];
    for (board, wanted) in [(Board::Jasmine, times), (Board::JasmineByRecords, alone)] {
        let transfer = board.sized(16).unwrap().1.transfer_ns_per_page;
        for (kind, pages) in wanted {
            let mut disk = on(kind, board, 16);
            let flushed = disk.flush(10_000_000).unwrap();
            // Nothing was written.
            let firmware = pages * (750_000 + 2 * transfer);
            assert_eq!(flushed, 10_000_000 + COMMAND_NS + firmware, "{kind:?}");
            assert_eq!(disk.writes().firmware_programs, 8 * pages);
        }
    }
}

/// The board reads 32 KiB for the 8 KiB of a page, and its processor does not wait for them.
#[test]
fn parts_of_pages_are_read_on_the_board() {
    let mut disk = on(LayerKind::PageMapped, Board::Jasmine, 16);
    let begun = 10_000_000;
    let whole = [5; 4 * PAGE_BYTES];
    let mut at = disk.write(begun, (Purpose::Data, 0), &whole, None).unwrap();
    at = disk.flush(at).unwrap();
    let before = disk.flash().total();
    let end = disk.write(at, (Purpose::Data, 2), &[6; PAGE_BYTES], None).unwrap();
    assert_eq!(end, at + COMMAND_NS);
    let after = disk.flash().total();
    assert_eq!((after.reads - before.reads, after.programs - before.programs), (1, 1));
    let mut read = vec![0; 4 * PAGE_BYTES];
    disk.read(end, 0, &mut read, None).unwrap();
    let firsts: Vec<u8> = read.chunks(PAGE_BYTES).map(|page| page[0]).collect();
    assert_eq!(firsts, [5, 6, 5, 5]);
}

#[test]
fn a_full_buffer_waits_for_a_program() {
    let mut disk = disk(LayerKind::PageMapped);
    let ends: Vec<u64> = (0..300)
        .map(|at| disk.write(0, (Purpose::Data, 16 * at), &[1; PAGE_BYTES], None).unwrap())
        .collect();
    let late = ends[299] - ends[298];
    assert!(late >= 700_000, "all on one die: {late}");
    assert_eq!(ends[40] - ends[39], COMMAND_NS);
}

/// Pages of a transaction go to different dies.
#[test]
fn pages_of_a_transaction_are_programmed_at_the_same_time() {
    for kind in [LayerKind::XFtl, LayerKind::MvFtl] {
        let mut disk = on(kind, Board::Plain, 64);
        let begun = 100_000_000;
        let (tx, mut at) = disk.begin(begun).unwrap();
        for page in 0..8 {
            let place = (Purpose::Data, page * PAGE_BLOCKS);
            at = disk.write(at, place, &[1; PAGE_BYTES], Some(tx)).unwrap();
        }
        let end = disk.commit(at, tx).unwrap();
        // Nine commands, the last program, and that of the record.
        let most = 9 * COMMAND_NS + 2 * 800_000;
        assert!(end - begun < most, "{kind:?}: {} ns", end - begun);
        assert_eq!(disk.entries(), (8, 8));
    }
}

#[test]
fn transactions_are_whole_or_absent() {
    for kind in [LayerKind::XFtl, LayerKind::MvFtl] {
        let mut disk = disk(kind);
        let mut page = vec![0; PAGE_BYTES];
        let (kept, _) = disk.begin(0).unwrap();
        disk.write(0, (Purpose::Data, 0), &[1; PAGE_BYTES], Some(kept)).unwrap();
        disk.read(0, 0, &mut page, None).unwrap();
        assert_eq!(page[0], 0);
        let end = disk.commit(0, kept).unwrap();
        assert!(end > 1_500_000, "two programs, one after the other: {end}");
        let (dropped, _) = disk.begin(0).unwrap();
        disk.write(0, (Purpose::Data, 0), &[2; PAGE_BYTES], Some(dropped)).unwrap();
        disk.abort(0, dropped).unwrap();
        disk.read(0, 0, &mut page, None).unwrap();
        assert_eq!(page[0], 1);
    }
    assert!(disk(LayerKind::PageMapped).begin(0).is_err());
}
