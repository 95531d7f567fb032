//! Limits are refused with an error that says what to do, and the device works on.

use esker_flash::ftl::{Options, Policy, TxId, mvftl, xftl};
use esker_flash::nand::{Geometry, Lpn, NandSim, Sizes, preset};
use esker_flash::{Error, Ftl, Nand, Transactional};

use crate::layer::{Flash, LOGICAL, Layer, PAGE, empty, mv_options, page, read, small, x_options};

fn fill<L: Layer>(layer: &mut L, value: u64) {
    for lpn in 0..LOGICAL {
        layer.write(Lpn(lpn), &page(lpn, value)).unwrap();
    }
    layer.flush().unwrap();
}

fn write_until_refused<L: Layer>(layer: &mut L, tx: TxId) -> (u32, String) {
    for lpn in 0..LOGICAL {
        match layer.write_in(tx, Lpn(lpn), &page(lpn, 77)) {
            Ok(()) => {}
            Err(Error::Refused(what)) => return (lpn, what),
            Err(error) => panic!("page {lpn}: {error}"),
        }
    }
    panic!("a transaction of {LOGICAL} pages was not refused");
}

#[test]
fn mvftl_refuses_what_does_not_fit_into_16_bytes_a_mapping() {
    let mut layer = empty::<mvftl::MvFtl<Flash>>();
    fill(&mut layer, 5);
    let (reader, writer) = (layer.begin().unwrap(), layer.begin().unwrap());
    let (written, what) = write_until_refused(&mut layer, writer);
    // 1,600 bytes for the tail, the plain writes, two transactions, and their mappings.
    assert!((40..=84).contains(&written), "{written}");
    assert!(what.contains("of 1600 bytes") && what.contains("commit, or end"), "{what}");
    assert_eq!(layer.activity().refused, 1);
    assert_eq!(layer.activity().entries_max, layer.diff_entries() as u64);
    assert_eq!(read(&mut layer, Some(reader), 3), Ok(5));
    assert_eq!(read(&mut layer, Some(writer), 3), Ok(77));
    layer.check().unwrap();
    layer.end(reader).unwrap();
    layer.commit(writer).unwrap();
    assert_eq!(read(&mut layer, None, 3), Ok(77));
    fill(&mut layer, 6);
    layer.check().unwrap();
}

#[test]
fn xftl_refuses_what_does_not_fit_into_its_table() {
    let mut layer = empty::<xftl::XFtl<Flash>>();
    fill(&mut layer, 5);
    let writer = layer.begin().unwrap();
    let (written, what) = write_until_refused(&mut layer, writer);
    assert_eq!(written, 24);
    assert!(what.contains("24 entries") && what.contains("commit or abort"), "{what}");
    layer.write(Lpn(100), &page(100, 9)).unwrap();
    layer.flush().unwrap();
    layer.check().unwrap();
    layer.abort(writer).unwrap();
    assert_eq!(read(&mut layer, None, 3), Ok(5));
    fill(&mut layer, 6);
    layer.check().unwrap();
}

/// Old versions of everything that fits are pinned, and the rest of the device is overwritten.
#[test]
fn a_device_without_free_pages_goes_on() {
    let mut layer = empty::<mvftl::MvFtl<Flash>>();
    fill(&mut layer, 1);
    let reader = layer.begin().unwrap();
    for round in 2..200 {
        for lpn in 0..20 {
            layer.write(Lpn(lpn), &page(lpn, round)).unwrap();
        }
    }
    layer.check().unwrap();
    for lpn in 0..LOGICAL {
        assert_eq!(read(&mut layer, Some(reader), lpn), Ok(1));
        assert_eq!(read(&mut layer, None, lpn), Ok(if lpn < 20 { 199 } else { 1 }));
    }
}

#[test]
fn a_reader_that_pins_too_much_stops_writes_until_it_ends() {
    let mut layer = empty::<mvftl::MvFtl<Flash>>();
    fill(&mut layer, 1);
    let reader = layer.begin().unwrap();
    let refused = (0..LOGICAL).find(|lpn| {
        let written = layer.write(Lpn(*lpn), &page(*lpn, 2));
        matches!(written, Err(Error::Refused(_)))
    });
    assert!(refused.is_some_and(|lpn| lpn > 50), "{refused:?}");
    layer.check().unwrap();
    layer.end(reader).unwrap();
    fill(&mut layer, 3);
}

fn without_a_transaction<L: Layer>() {
    let mut layer = empty::<L>();
    let tx = layer.begin().unwrap();
    layer.write_in(tx, Lpn(1), &page(1, 1)).unwrap();
    let ended = layer.end(tx).unwrap_err();
    assert!(ended.to_string().contains("commit or abort"), "{ended}");
    layer.commit(tx).unwrap();
    let mut bytes = [0; PAGE];
    let errors = [
        layer.commit(tx).unwrap_err(),
        layer.abort(tx).unwrap_err(),
        layer.end(tx).unwrap_err(),
        layer.read_in(tx, Lpn(0), &mut bytes).unwrap_err(),
        layer.write_in(TxId(u32::MAX), Lpn(0), &bytes).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("there is no transaction"), "{error}");
    }
    let tx = layer.begin().unwrap();
    let past = [
        layer.read(Lpn(LOGICAL), &mut bytes).unwrap_err(),
        layer.write(Lpn::NONE, &bytes).unwrap_err(),
        layer.trim(Lpn(LOGICAL)).unwrap_err(),
        layer.read_in(tx, Lpn(LOGICAL), &mut bytes).unwrap_err(),
        layer.write_in(tx, Lpn(LOGICAL), &bytes).unwrap_err(),
    ];
    for error in past {
        assert!(error.to_string().contains("the device has 120"), "{error}");
    }
    let short = layer.write(Lpn(0), &bytes[1..]).unwrap_err();
    assert_eq!(short, Error::Length { expected: PAGE, found: PAGE - 1 });
    layer.check().unwrap();
}

#[test]
fn wrong_arguments_are_refused() {
    without_a_transaction::<mvftl::MvFtl<Flash>>();
    without_a_transaction::<xftl::XFtl<Flash>>();
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let flash = || Flash::new(small(13));
    let invalid = |error: Error| assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    for logical_pages in [0, 10_000, u32::MAX] {
        let options = mvftl::Options { logical_pages, ..mv_options() };
        invalid(mvftl::MvFtl::format(flash(), options).map(drop).unwrap_err());
        let options = xftl::Options { logical_pages, ..x_options() };
        invalid(xftl::XFtl::format(flash(), options).map(drop).unwrap_err());
    }
    for diff_bytes in [0, 64, u32::MAX] {
        let options = mvftl::Options { diff_bytes, ..mv_options() };
        invalid(mvftl::MvFtl::format(flash(), options).map(drop).unwrap_err());
    }
    for table_entries in [0, 49, u32::MAX] {
        let options = xftl::Options { table_entries, ..x_options() };
        invalid(xftl::XFtl::format(flash(), options).map(drop).unwrap_err());
    }
}

/// Every size that is not refused works: a format, an overwrite, a restart.
#[test]
fn every_size_works_or_is_refused() {
    let mut worked = 0;
    let policies = [
        Policy::Greedy,
        Policy::CostBenefit,
        Policy::DChoices(4),
        Policy::DChoices(1),
        Policy::Fifo,
    ];
    for (blocks, pages, page_size) in [
        (1, 2, 16),
        (8, 2, 24),
        (64, 2, 32),
        (40, 3, 64),
        (17, 64, 512),
        (30, 32, 512),
        (200, 16, 128),
        (12, 256, 4096),
    ] {
        let sizes = Sizes {
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            blocks_per_plane: blocks,
            pages_per_block: pages,
            page_size,
        };
        let geometry = Geometry::new(sizes).unwrap();
        for logical_pages in [1, pages, blocks * pages / 2, blocks * pages * 3 / 4] {
            let policy = policies[worked as usize % policies.len()];
            let collection = mvftl::Collection { policy, ..mvftl::Collection::default() };
            let (diff_bytes, whole_dumps) = (640, false);
            let options = mvftl::Options { logical_pages, diff_bytes, whole_dumps, collection };
            let open = |flash: Flash| mvftl::MvFtl::recover(flash, options);
            worked += overwrite(geometry, open, mvftl::MvFtl::into_nand);
            let options = xftl::Options { logical_pages, table_entries: 12, collection };
            let open = |flash: Flash| xftl::XFtl::recover(flash, options);
            worked += overwrite(geometry, open, xftl::XFtl::into_nand);
        }
    }
    assert!(worked >= 12, "{worked}");
}

/// Overwrites a device of these sizes if there can be one.
fn overwrite<L: Ftl>(
    geometry: Geometry,
    open: impl Fn(Flash) -> esker_flash::Result<L>,
    close: impl Fn(L) -> Flash,
) -> u32 {
    let mut layer = match open(Flash::new(geometry)) {
        Ok(layer) => layer,
        Err(Error::InvalidArgument(_)) => return 0,
        Err(error) => panic!("{geometry:?}: {error}"),
    };
    let size = geometry.page_size() as usize;
    let pages = layer.logical_pages();
    for at in 0..pages * 3 {
        let lpn = if at < pages { at } else { at.wrapping_mul(2_654_435_761) % pages };
        layer.write(Lpn(lpn), &vec![at as u8; size]).unwrap();
    }
    layer.flush().unwrap();
    layer.check().unwrap();
    let mut layer = open(close(layer)).unwrap();
    layer.check().unwrap();
    let mut found = vec![0; size];
    for lpn in 0..pages {
        assert!(layer.read(Lpn(lpn), &mut found).unwrap());
    }
    1
}

/// The numbers of the paper's device: 8 KiB pages, 1 MiB blocks, 16 KiB for diffs.
#[test]
fn a_transaction_of_the_papers_device_costs_one_page_of_log() {
    let geometry = preset("jasmine").unwrap().geometry(Some(40)).unwrap();
    let options = mvftl::Options::new(&geometry, &Options::default()).unwrap();
    let mut layer = mvftl::MvFtl::format(NandSim::<()>::new(geometry), options).unwrap();
    for round in 0..200 {
        let tx = layer.begin().unwrap();
        for page in 0..13 {
            layer.write_in(tx, Lpn(round * 7 + page), &[]).unwrap();
        }
        layer.commit(tx).unwrap();
    }
    let commit = layer.counters().of(esker_flash::nand::Cause::Commit);
    assert_eq!(commit.programs, 200);
    layer.check().unwrap();
    let tx = layer.begin().unwrap();
    let written = (0..).take_while(|lpn| layer.write_in(tx, Lpn(*lpn), &[]).is_ok()).count();
    assert!((900..=1024).contains(&written), "{written} pages in a transaction");
    assert!(layer.nand().erase_count(esker_flash::nand::BlockId(0)) <= 1);
}

/// The layers have the same map, and different commit records.
#[test]
fn commit_records_of_the_other_layer_are_refused() {
    let error = mvftl::MvFtl::recover(committed::<xftl::XFtl<Flash>>(), mv_options()).map(drop);
    assert!(matches!(error, Err(Error::Foreign { .. })), "{error:?}");
    let error = xftl::XFtl::recover(committed::<mvftl::MvFtl<Flash>>(), x_options()).map(drop);
    assert!(matches!(error, Err(Error::Foreign { .. })), "{error:?}");
}

fn committed<L: Layer>() -> Flash {
    let mut layer = L::format_small(Flash::new(small(13))).unwrap();
    let tx = layer.begin().unwrap();
    layer.write_in(tx, Lpn(1), &page(1, 1)).unwrap();
    layer.commit(tx).unwrap();
    layer.into_flash()
}

/// A transaction that has begun reads the tail, which the one before it has filled.
#[test]
fn two_large_transactions_follow_each_other() {
    let mut layer = empty::<mvftl::MvFtl<Flash>>();
    fill(&mut layer, 5);
    for value in 6..12 {
        let (reader, tx) = (layer.begin().unwrap(), layer.begin().unwrap());
        for lpn in 0..40 {
            layer.write_in(tx, Lpn(lpn), &page(lpn, value)).unwrap();
        }
        layer.check().unwrap();
        assert_eq!(read(&mut layer, Some(reader), 3), Ok(value - 1));
        layer.end(reader).unwrap();
        layer.commit(tx).unwrap();
        assert_eq!(read(&mut layer, None, 39), Ok(value));
    }
}
