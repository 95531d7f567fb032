//! Every byte of the file is damaged: what is read is right, or an error.
//!
//! After a clean close nothing older is read either. After a crash the last commit may be taken for
//! one that was cut off, because nothing was written after it that says otherwise.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;

use common::*;
use esker_device::sim::{SimDevice, SimImage};
use esker_harness::counts::budget;
use esker_pages::Result;
use session::Session;

/// A store on a disk that was left in some way.
struct Specimen {
    image: SimImage,
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
    Specimen { image: session.device.image(), session, is_closed }
}

impl Specimen {
    /// Reads everything; panics where it is wrong. Whether all of it was there.
    fn read(&self, device: &SimDevice) -> Result<()> {
        let store = open(device, &self.session.options)?;
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
        first
    }

    fn damaged(&self, offset: usize, mask: u8) -> bool {
        let device = SimDevice::from_image(&self.image);
        device.flip(FILE, offset as u64, mask);
        let read = || self.read(&device).is_err();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
        outcome.unwrap_or_else(|_| panic!("byte {offset} ^ {mask:#x}"))
    }
}

fn every_byte(seed: u64, is_closed: bool) -> u64 {
    let specimen = specimen(seed, is_closed);
    specimen.read(&SimDevice::from_image(&specimen.image)).unwrap();
    let bytes = specimen.image.files().remove(FILE).unwrap();
    let (mut judged, mut noticed) = (0, 0);
    for (offset, byte) in bytes.iter().enumerate() {
        // Long runs of zeros are space that has not been used yet, and the padding of nodes.
        let around = &bytes[offset.saturating_sub(64)..(offset + 64).min(bytes.len())];
        let is_sampled = around.iter().any(|byte| *byte != 0) || offset.is_multiple_of(61);
        if is_sampled {
            let mask = [0x01, 0x80, 0xff][(offset + usize::from(*byte)) % 3];
            noticed += usize::from(specimen.damaged(offset, mask));
            judged += 1;
        }
    }
    assert!(noticed > 4000, "{noticed} of {}", bytes.len());
    judged
}

#[test]
fn damage_after_a_clean_close_is_an_error_or_nothing() {
    let judged = (0..2 * budget()).map(|seed| every_byte(seed, true)).sum();
    count("a byte damaged after a clean close", 2 * budget(), judged);
}

#[test]
fn damage_after_a_crash_is_an_error_or_takes_the_last_commit() {
    let judged = (0..2 * budget()).map(|seed| every_byte(seed, false)).sum();
    count("a byte damaged after a crash", 2 * budget(), judged);
}

#[test]
fn zeroed_and_stale_sectors_and_short_files_are_errors_or_nothing() {
    let mut judged = 0;
    for (seed, is_closed) in [(2, true), (3, false)] {
        let specimen = specimen(seed, is_closed);
        let bytes = specimen.image.files().remove(FILE).unwrap();
        let mut judge = |bytes: Vec<u8>, place: String| {
            judged += 1;
            let files = [(FILE.to_owned(), bytes)].into();
            let device = SimDevice::from_files(&files);
            let read = || specimen.read(&device).is_err();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
            outcome.unwrap_or_else(|_| panic!("{place}"))
        };
        for sector in 0..bytes.len() / 512 {
            let range = sector * 512..(sector + 1) * 512;
            let mut zeroed = bytes.clone();
            zeroed[range.clone()].fill(0);
            judge(zeroed, format!("sector {sector} is zeros"));
            let mut moved = bytes.clone();
            let other = (sector * 7 + 3) % (bytes.len() / 512);
            moved[range].copy_from_slice(&bytes[other * 512..][..512]);
            judge(moved, format!("sector {sector} is that of {other}"));
            if sector > 0 {
                judge(bytes[..sector * 512 + 5].to_vec(), format!("cut in sector {sector}"));
            }
        }
    }
    count("sectors zeroed or moved, files cut", 2, judged);
}
