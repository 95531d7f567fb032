use super::*;
use crate::nand::geometry::Sizes;
use crate::nand::timing::Cell;
use crate::nand::{Bytes, Lpn, PageKind};

const PAGE: usize = 16;

fn geometry() -> Geometry {
    Geometry::new(Sizes {
        channels: 1,
        dies_per_channel: 2,
        planes_per_die: 1,
        blocks_per_plane: 2,
        pages_per_block: 4,
        page_size: PAGE as u32,
    })
    .unwrap()
}

fn flash() -> NandSim<Bytes> {
    NandSim::new(geometry())
}

fn spare(lpn: u32) -> Spare {
    Spare { lpn: Lpn(lpn), kind: PageKind::Data, seq: u64::from(lpn) + 7 }
}

fn program(flash: &mut NandSim<Bytes>, page: u32) -> Result<()> {
    flash.program(Ppn(page), &[page as u8; PAGE], spare(page), Cause::Host)
}

fn read(flash: &mut NandSim<Bytes>, page: u32) -> Result<(Spare, [u8; PAGE])> {
    let mut data = [0; PAGE];
    flash.read(Ppn(page), &mut data, Cause::Host).map(|spare| (spare, data))
}

#[test]
fn pages_read_as_they_were_programmed() {
    let mut flash = flash();
    for page in 0..4 {
        program(&mut flash, page).unwrap();
    }
    assert_eq!(read(&mut flash, 2), Ok((spare(2), [2; PAGE])));
    assert_eq!(flash.read(Ppn(3), &mut [], Cause::Recovery), Ok(spare(3)), "the spare area alone");
    flash.erase(BlockId(0), Cause::Gc).unwrap();
    assert_eq!(read(&mut flash, 2), Err(Error::Erased(Ppn(2))));
    assert_eq!((flash.next_page(BlockId(0)), flash.erase_count(BlockId(0))), (0, 1));
    let counters = flash.counters();
    assert_eq!(counters.of(Cause::Host).programs, 4);
    assert_eq!(counters.of(Cause::Host).reads, 2, "an erased page is read, too");
    assert_eq!((counters.of(Cause::Gc).erases, counters.of(Cause::Recovery).reads), (1, 1));
}

#[test]
fn pages_are_programmed_once_and_in_order() {
    let mut flash = flash();
    let out_of_order =
        |page, next| Err(Error::OutOfOrder { page: Ppn(page), block: BlockId(page / 4), next });
    assert_eq!(program(&mut flash, 1), out_of_order(1, 0));
    program(&mut flash, 0).unwrap();
    assert_eq!(program(&mut flash, 0), out_of_order(0, 1));
    assert_eq!(program(&mut flash, 2), out_of_order(2, 1));
    program(&mut flash, 4).unwrap();
    assert_eq!(flash.counters().of(Cause::Host).programs, 2);
}

#[test]
fn copies_stay_on_their_die() {
    let mut flash = flash();
    program(&mut flash, 0).unwrap();
    assert_eq!(flash.copy(Ppn(0), Ppn(4), Cause::Gc), Ok(spare(0)));
    assert_eq!(read(&mut flash, 4), Ok((spare(0), [0; PAGE])));
    assert!(matches!(flash.copy(Ppn(0), Ppn(8), Cause::Gc), Err(Error::InvalidArgument(_))));
    assert_eq!(flash.copy(Ppn(1), Ppn(5), Cause::Gc), Err(Error::Erased(Ppn(1))));
    assert_eq!(
        flash.copy(Ppn(0), Ppn(1), Cause::Gc).map(|_| flash.next_page(BlockId(0))),
        Ok(2),
        "within a block"
    );
}

#[test]
fn wrong_arguments_are_refused() {
    let mut flash = flash();
    assert!(matches!(program(&mut flash, 16), Err(Error::OutOfRange { .. })));
    assert!(matches!(read(&mut flash, u32::MAX), Err(Error::OutOfRange { .. })));
    assert!(matches!(flash.erase(BlockId(4), Cause::Gc), Err(Error::OutOfRange { .. })));
    let short = flash.program(Ppn(0), &[0; 5], spare(0), Cause::Host);
    assert_eq!(short, Err(Error::Length { expected: PAGE, found: 5 }));
    assert!(matches!(flash.program(Ppn(0), &[], spare(0), Cause::Host), Err(Error::Length { .. })));
    assert_eq!(flash.next_page(BlockId(9)), 0);
}

#[test]
fn a_program_that_is_cut_leaves_a_torn_page_and_the_next_may_follow() {
    let mut flash = flash();
    flash.cut_after(1, Cut::Torn);
    program(&mut flash, 0).unwrap();
    assert_eq!(program(&mut flash, 1), Err(Error::PowerCut));
    assert_eq!(read(&mut flash, 0), Err(Error::PowerCut), "the power is off");
    assert_eq!(flash.erase(BlockId(1), Cause::Gc), Err(Error::PowerCut));
    flash.power_on();
    assert_eq!(read(&mut flash, 0), Ok((spare(0), [0; PAGE])));
    assert_eq!(read(&mut flash, 1), Err(Error::Torn(Ppn(1))));
    assert_eq!(flash.copy(Ppn(1), Ppn(2), Cause::Gc), Err(Error::Torn(Ppn(1))));
    program(&mut flash, 2).unwrap();
    flash.erase(BlockId(0), Cause::Gc).unwrap();
    program(&mut flash, 0).unwrap();
    program(&mut flash, 1).unwrap();
    assert!(read(&mut flash, 1).is_ok());
}

#[test]
fn an_operation_can_end_although_its_caller_does_not_learn_it() {
    let mut flash = flash();
    flash.cut_after(0, Cut::Whole);
    assert_eq!(program(&mut flash, 0), Err(Error::PowerCut));
    flash.power_on();
    assert!(read(&mut flash, 0).is_ok());
    flash.cut_after(0, Cut::Whole);
    assert_eq!(flash.erase(BlockId(0), Cause::Gc), Err(Error::PowerCut));
    flash.power_on();
    assert_eq!(read(&mut flash, 0), Err(Error::Erased(Ppn(0))));
}

#[test]
fn a_block_whose_erase_was_cut_must_be_erased_again() {
    for cut in [Cut::Torn, Cut::Partial] {
        let mut flash = flash();
        for page in 0..3 {
            program(&mut flash, page).unwrap();
        }
        flash.cut_after(0, cut);
        assert_eq!(flash.erase(BlockId(0), Cause::Gc), Err(Error::PowerCut));
        flash.power_on();
        let readable: Vec<bool> = (0..4).map(|page| read(&mut flash, page).is_ok()).collect();
        assert_eq!(readable, [false, cut == Cut::Partial, false, false]);
        assert_eq!(read(&mut flash, 3), Err(Error::Torn(Ppn(3))), "not erased either");
        assert_eq!(program(&mut flash, 3), Err(Error::NeedsErase(BlockId(0))));
        assert_eq!(flash.erase_count(BlockId(0)), 0);
        flash.erase(BlockId(0), Cause::Gc).unwrap();
        program(&mut flash, 0).unwrap();
        assert_eq!(read(&mut flash, 1), Err(Error::Erased(Ppn(1))));
    }
}

#[test]
fn without_data_the_rules_are_the_same() {
    let mut flash = NandSim::<()>::with_clock(geometry(), Timing::of_cell(Cell::Slc, 16));
    flash.issue_at(0);
    flash.program(Ppn(0), &[], spare(0), Cause::Host).unwrap();
    assert_eq!(flash.end_ns(), 250_000 + 48);
    assert!(flash.program(Ppn(0), &[], spare(0), Cause::Host).is_err());
    assert_eq!(flash.read(Ppn(0), &mut [], Cause::Host), Ok(Spare::UNKNOWN));
    assert!(matches!(flash.read(Ppn(1), &mut [], Cause::Host), Err(Error::Erased(_))));
    assert!(!flash.keeps_data() && flash.ram_bytes() < 4 * 12 + 100);
}
