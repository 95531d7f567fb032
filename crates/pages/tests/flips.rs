//! Every byte of the file is damaged: what is read is right, or an error.
//!
//! After a clean close nothing older is read either. After a crash the last commit may be taken for
//! one that was cut off, because nothing was written after it that says otherwise.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;

use common::*;
use esker_device::{Caching, Device, Open};
use esker_harness::counts::{Counts, budget};
use esker_harness::flips::{self, Damage, Judge, Sampling};
use esker_harness::image::{Image, ImageDevice, Touched};
use esker_harness::violation::Verdict;
use esker_pages::{PageStore, Result};
use session::Session;

const SECTOR_BYTES: usize = 512;

/// A store on a disk that was left in some way.
struct Specimen {
    image: Image,
    session: Session,
    is_closed: bool,
}

fn specimen(seed: u64, is_closed: bool) -> Specimen {
    let mut options = small_of(seed);
    options.page_size = 512 << (seed % 2);
    let mut session = Session::start(disk(), options).unwrap();
    for op in history(seed, 150, 24) {
        if !matches!(op, Op::Prepare) {
            session.apply(&op).unwrap();
        }
    }
    session.writer = None;
    session.pins.clear();
    session.apply(&Op::PinNamed(2)).unwrap();
    for page in 0..4 {
        session.apply(&Op::Write(page, 9, vec![1; 5])).unwrap();
        session.apply(&Op::Commit(esker_pages::Durability::Full)).unwrap();
    }
    if is_closed {
        session.reopen().unwrap();
    }
    Specimen { image: Image::from_files(session.device.files()), session, is_closed }
}

impl Specimen {
    /// Reads and checks everything; panics where it is wrong. Whether all of it was there.
    fn read(&self, device: &ImageDevice) -> Result<()> {
        let file = device.open(FILE, Open::Existing, Caching::Buffered)?;
        let store = PageStore::open(file, self.session.options.clone())?;
        let snapshot = store.pin();
        let version = snapshot.version();
        let newest = self.session.newest();
        assert!(version == newest || (!self.is_closed && version + 1 == newest), "{version}");
        let expected = &self.session.versions[&version];
        assert_eq!(snapshot.pages() as usize, expected.pages.len());
        let mut first = Ok(());
        let mut check = |outcome: Result<()>, right: bool| match outcome {
            Ok(()) => assert!(right),
            Err(error) if first.is_ok() => first = Err(error),
            Err(_) => {}
        };
        for (page, bytes) in (0..).zip(&expected.pages) {
            let mut read = vec![0; bytes.len()];
            let outcome = snapshot.read(page, 0, &mut read);
            check(outcome, read == *bytes);
        }
        for (n, (version, contents)) in &self.session.names {
            let snapshot = store.at_named(&name(*n))?;
            assert_eq!(snapshot.version(), *version);
            let read = read_all(&snapshot);
            check(read.map(|read| assert_eq!(read, *contents)), true);
        }
        let report = store.check();
        assert!(first.is_ok() || report.is_err(), "reads fail, and check finds nothing");
        first.and(report.map(drop))
    }

    /// What is read of the undamaged store.
    fn touched(&self) -> Touched {
        let device = ImageDevice::tracking(&self.image);
        self.read(&device).unwrap();
        device.touched()
    }

    /// Judges all damages of some kinds. Counts what there was, and what was noticed.
    fn judge<T>(
        &self,
        counts: &mut Counts,
        damages: impl FnOnce(&mut Judge<'_>) -> Verdict<T>,
    ) -> T {
        let judged = damages(&mut |damage: &Damage<'_>| {
            // Of a file without a byte a store may be made.
            if damage.image.files().all(|(_, len)| len == 0) {
                return Ok(());
            }
            let outcome = self.read(&ImageDevice::new(damage.image));
            counts.add("judged", 1);
            counts.add("noticed", outcome.is_err().into());
            Ok(())
        });
        judged.unwrap_or_else(|violation| panic!("{violation}"))
    }
}

fn every_byte(case: &str, is_closed: bool) {
    let mut counts = Counts::new("page-store", case);
    let sampling = Sampling::one_in(1);
    // More zeros than elsewhere: the room in nodes is checksummed.
    let sampling = Sampling { run_stride: (sampling.run_stride / 5).max(1), ..sampling };
    for seed in 0..3 * budget() {
        let specimen = specimen(seed, is_closed);
        let touched = specimen.touched();
        let noticed = counts.get("noticed");
        let taken = specimen
            .judge(&mut counts, |judge| flips::bytes(&specimen.image, &touched, sampling, judge));
        counts.add("runs", 1);
        taken.add_to(&mut counts);
        assert!(counts.get("noticed") > noticed + 4000, "{counts:?}");
    }
    counts.record().unwrap();
}

#[test]
fn damage_after_a_clean_close_is_an_error_or_nothing() {
    every_byte("a byte damaged after a clean close", true);
}

#[test]
fn damage_after_a_crash_is_an_error_or_takes_the_last_commit() {
    every_byte("a byte damaged after a crash", false);
}

#[test]
fn zeroed_and_stale_sectors_and_short_files_are_errors_or_nothing() {
    let mut counts = Counts::new("page-store", "sectors zeroed or moved, files cut");
    for (seed, is_closed) in [(2, true), (3, false)] {
        let specimen = specimen(seed, is_closed);
        counts.add("runs", 1);
        specimen.judge(&mut counts, |judge| {
            flips::units(&specimen.image, None, SECTOR_BYTES, judge)?;
            flips::cuts(&specimen.image, usize::MAX, judge)
        });
    }
    counts.record().unwrap();
}
