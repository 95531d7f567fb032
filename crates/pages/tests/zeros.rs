//! A file that begins with zeros: a new store is made of nothing, and of what a creation left that
//! was cut off. Everything else is refused and left as it is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::*;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashOptions, SimDevice};
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_harness::counts::{Counts, assert_passes};
use esker_harness::image::Image;
use esker_harness::violation::{Oracle, Verdict, ensure};
use esker_harness::{crash, flips};
use esker_pages::planted::Bug;
use esker_pages::{Allocation, Durability, Error, Options, PageStore};

/// Lengths of zeros in the place of the head of a file, about.
const HEADS: usize = 150;

fn holding(bytes: &[u8]) -> Arc<dyn DeviceFile> {
    let file = MemoryDevice::new().open(FILE, Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(0, bytes, Purpose::User).unwrap();
    file
}

fn bytes_of(file: &dyn DeviceFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut bytes, Purpose::User).unwrap();
    bytes
}

/// The results of opening a file for writing, and of opening it for reading: an error leaves it as
/// it is.
fn opened(bytes: &[u8], options: &Options) -> [Result<Contents, Error>; 2] {
    let open_one = |open: fn(Arc<dyn DeviceFile>, Options) -> Result<PageStore, Error>| {
        let file = holding(bytes);
        let found =
            open(Arc::clone(&file), options.clone()).and_then(|store| read_all(&store.pin()));
        assert!(found.is_ok() || bytes_of(&*file) == bytes, "a file that is refused was changed");
        found
    };
    [open_one(PageStore::open), open_one(PageStore::open_read_only)]
}

/// A store after `commits`, reopened now and then, as its file is when it is closed or, where it
/// crashed, as it was left.
fn store_after(commits: u8, options: &Options, is_closed: bool) -> (Vec<u8>, Contents) {
    let file = holding(&[]);
    let open = || PageStore::open(Arc::clone(&file), options.clone()).unwrap();
    let mut store = open();
    for byte in 1..=commits {
        let mut writer = store.begin(&store.pin()).unwrap();
        for page in 0..u32::from(byte) * 3 {
            writer.write(page, 0, &[byte; 512]).unwrap();
        }
        writer.commit(Durability::Full).unwrap();
        if byte % 3 == 1 {
            store.close().unwrap();
            store = open();
        }
    }
    let contents = read_all(&store.pin()).unwrap();
    let left = bytes_of(&*file);
    store.close().unwrap();
    (if is_closed { bytes_of(&*file) } else { left }, contents)
}

/// Zeros in the place of the first bytes are found: what is read is what was there, or there is an
/// error.
fn lose_heads(counts: &mut Counts) -> Verdict {
    for allocation in [Allocation::Slot, Allocation::Segment] {
        for commits in [1, 2, 3, 4, 7] {
            for is_closed in [true, false] {
                let options = small().allocation(allocation);
                let (bytes, contents) = store_after(commits, &options, is_closed);
                counts.add("runs", 1);
                let image = Image::from_files([(FILE.to_owned(), bytes)]);
                let heads = flips::heads(&image, HEADS, &mut |damage| {
                    counts.add("judged", 1);
                    judge_head(&damage.image.bytes(FILE), &options, &contents)
                });
                let store = format!("{allocation:?} {commits} {is_closed}");
                heads.map_err(|violation| violation.at(store))?;
            }
        }
    }
    Ok(())
}

fn judge_head(bytes: &[u8], options: &Options, contents: &Contents) -> Verdict {
    // Of nothing but zeros a store may be made.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    for found in opened(bytes, options) {
        let is_right = match &found {
            Ok(found) => found == contents,
            Err(error) => matches!(error, Error::Foreign { .. } | Error::Corrupt { .. }),
        };
        let said = || found.map_or_else(|error| error.to_string(), |_| "something else".into());
        ensure(is_right, Oracle::DamageIsNotData, said)?;
    }
    Ok(())
}

#[test]
fn a_store_that_lost_its_head_is_refused() {
    let mut counts = Counts::new("page-store", "heads that are zeros");
    assert_passes(lose_heads(&mut counts).map(|()| counts));
}

#[test]
fn a_head_that_is_enough_is_found() {
    hunt(Bug::HeadIsEnough, [()], |(), counts| lose_heads(counts));
}

/// Files that begin with zeros, followed by data of another program.
#[test]
fn files_that_begin_with_zeros_are_left_alone() {
    let options = Options::new();
    for zeros in [1, 511, 4096, 16 * 1024, 64 * 1024, 1 << 20, 2 << 20] {
        let bytes = [&vec![0; zeros][..], &b"PRECIOUS".repeat(1000)].concat();
        for found in opened(&bytes, &options) {
            assert!(matches!(found, Err(Error::Foreign { .. })), "{zeros}: {found:?}");
        }
    }
    // Longer than a new store: another program has allocated the space.
    for found in opened(&vec![0; 5 * (256 << 10) + 1], &options) {
        let said = found.unwrap_err().to_string();
        assert!(said.contains("begins with zeros"), "{said}");
    }
    for len in [0, 1, 512, 16 * 1024, 5 * (256 << 10)] {
        for found in opened(&vec![0; len], &options) {
            assert_eq!(found.unwrap(), Contents::empty(4096), "{len}");
        }
    }
}

/// A creation that is cut off anywhere leaves what the next one makes a store of.
#[test]
fn a_creation_that_was_cut_off_is_begun_again() {
    let mut judged = 0;
    for seed in 0..8 {
        let options = Options { segment_bytes: (16 << 10) << (seed / 2 % 2), ..small_of(seed) };
        let device = disk();
        device.record();
        drop(open(&device, &options).unwrap());
        let trace = device.take_trace().unwrap();
        let limits = CrashOptions { limit: Some(400), seed, ..CrashOptions::default() };
        let crashes = crash::each(&trace, &limits, |_, device| {
            let left = device.image();
            let first: fn(&SimDevice, &Options) -> _ =
                if judged % 2 == 0 { open } else { open_late };
            let store = first(device, &options).unwrap();
            assert_eq!(read_all(&store.pin()).unwrap(), Contents::empty(512));
            assert!(store.check().unwrap().accounted);
            let mut writer = store.begin(&store.pin()).unwrap();
            writer.write(3, 0, &[7; 512]).unwrap();
            writer.commit(Durability::Full).unwrap();
            drop(store);
            assert_eq!(open(device, &options).unwrap().pin().pages(), 4);
            let reader = open_read_only(&SimDevice::from_image(&left), &options).unwrap();
            assert_eq!(reader.pin().pages(), 0);
            judged += 1;
            Ok(())
        });
        crashes.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(judged >= 60, "{judged}");
    count("a power cut in a creation", 8, judged);
}
