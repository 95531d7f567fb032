//! The tree on a chip in a file: histories, power failures of the machine that keep any part of
//! what was not synced, the rules of a chip, and files that are refused.

use std::path::{Path, PathBuf};

use esker_device::file::Access;
use esker_device::sim::{CrashModel, SimDevice, Survivors};
use esker_device::{Caching, Device, Open};
use esker_harness::counts::budget;
use esker_harness::faults::power_off_at;
use esker_harness::random::Random;
use esker_latree::{
    BlockNo, Buffering, Chip, Error, Fault, FileChip, ImageError, ImageSizes, LaTree, Options,
    PageNo, Read, Scan,
};
use tempfile::TempDir;

use crate::common::options;
use crate::cuts::{State, recovered};
use crate::history::{Model, Shape, Step, apply, apply_to_model, compare, step};

const SIZES: ImageSizes =
    ImageSizes { page_bytes: 512, pages_per_block: 8, blocks: 31, subtree_levels: 2 };

fn small() -> Options {
    options(20 << 10, 2, Scan::Sorted, Buffering::Adaptive)
}

fn steps(seed: u64, count: usize) -> Vec<Step> {
    let random = Random::new(seed);
    let shape = Shape { keys: 400, value_bytes: 30, lookups: 10, removals: 33 };
    (0..count).map(|_| step(&random, &shape)).collect()
}

/// A folder with the path of an image that is not there yet.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chip.img");
    (folder, path)
}

#[test]
fn a_history_in_a_file_is_that_of_a_map_and_is_opened_again() {
    let (_folder, path) = folder();
    let mut tree = LaTree::create(FileChip::create(&path, SIZES).unwrap(), small()).unwrap();
    let mut model = Model::new();
    for step in steps(1, 4000) {
        apply(&mut tree, &model, &step).unwrap();
        apply_to_model(&mut model, &step);
    }
    let stats = tree.stats();
    assert!(stats.flash.erases > 2 * u64::from(SIZES.blocks), "{stats:?}");
    tree.sync().unwrap();
    drop(tree);
    let before = std::fs::read(&path).unwrap();
    // Opened for reading, twice at once, it stays as it is.
    let read = || LaTree::open(FileChip::open_read_only(&path).unwrap(), small()).unwrap();
    let (mut first, mut second) = (read(), read());
    compare(&mut first, &model).unwrap();
    second.put(b"key", b"in memory alone").unwrap();
    second.sync().unwrap();
    assert_eq!(second.get(b"key").unwrap().unwrap(), b"in memory alone");
    drop((first, second));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let mut tree = LaTree::open(FileChip::open(&path).unwrap(), small()).unwrap();
    compare(&mut tree, &model).unwrap();
    assert_eq!(tree.chip().sizes(), SIZES);
    let erases: Vec<u32> = tree.chip().erases().collect();
    let stats = tree.stats();
    let (least, greatest) = (erases.iter().min().unwrap(), erases.iter().max().unwrap());
    assert!(*least > 0 && *greatest >= stats.erases_greatest, "{erases:?} {stats:?}");
}

/// Runs a trace on a simulated disk whose power fails at an operation, which leaves a part of what
/// was not synced, and recovers.
pub fn crash(seed: u64) -> Result<(), String> {
    let disk = SimDevice::new();
    let file = disk.open("chip", Open::CreateNew, Caching::Buffered).unwrap();
    disk.sync_dir().unwrap();
    let chip = FileChip::format(file, SIZES).unwrap();
    let mut state = State::new(LaTree::create(chip, small()).unwrap());
    let at = 200 + seed.wrapping_mul(379) % 3000;
    disk.set_faults(power_off_at(at));
    let steps = steps(seed, 12_000);
    state.run(&steps);
    assert!(state.step < steps.len(), "the power fails before the end");
    let State { synced, later, .. } = state;
    let survivors = match seed % 4 {
        0 => Survivors::nothing(),
        1 => Survivors::AllBut(0..disk.pending_units() / 2),
        _ => Survivors::Random(seed),
    };
    let after = SimDevice::from_image(&disk.crash(&survivors, &CrashModel::default()));
    let file = after.open("chip", Open::Existing, Caching::Buffered).unwrap();
    let chip = FileChip::load(file, "chip", Access::Write).map_err(|error| error.to_string())?;
    let found = recovered(chip, &small(), synced, &later, &steps);
    found.map_err(|what| format!("seed {seed}, at operation {at}, {survivors} left: {what}"))
}

#[test]
fn a_power_failure_of_the_machine_loses_nothing_that_was_synced() {
    for seed in 0..300 * budget().min(10) {
        crash(seed).unwrap();
    }
}

#[test]
fn a_page_is_programmed_once_and_in_order() {
    let (_folder, path) = folder();
    let mut chip = FileChip::create(&path, SIZES).unwrap();
    let (page, mut found) = ([7; 512], [0; 512]);
    let fails = |done: Result<(), Fault>, words: &str| {
        assert!(matches!(&done, Err(Fault::Other(what)) if what.contains(words)), "{done:?}");
    };
    assert_eq!(chip.read(PageNo(9), &mut found), Ok(Read::Erased));
    fails(chip.program(PageNo(9), &page), "after page 0");
    chip.program(PageNo(8), &page).unwrap();
    fails(chip.program(PageNo(8), &page), "was programmed");
    fails(chip.program(PageNo(10), &page), "after page 1");
    chip.program(PageNo(9), &[0xFF; 512]).unwrap();
    assert_eq!(chip.read(PageNo(8), &mut found), Ok(Read::Data));
    assert_eq!(found, page);
    assert_eq!(chip.read(PageNo(9), &mut found), Ok(Read::Data));
    assert_eq!(chip.read(PageNo(10), &mut found), Ok(Read::Erased));
    chip.erase(BlockNo(1)).unwrap();
    assert_eq!(chip.read(PageNo(8), &mut found), Ok(Read::Erased));
    assert_eq!(chip.erases().nth(1), Some(1));
    fails(chip.program(PageNo(0), &page[..511]), "511 bytes for a page of 512");
    fails(chip.program(PageNo(34 * 8), &page), "no block 34");
    fails(chip.erase(BlockNo(34)), "no block 34");
    assert!(chip.read(PageNo(u32::MAX), &mut found).is_err());
}

fn refusal(path: &Path) -> ImageError {
    let read = FileChip::open_read_only(path).map(drop).unwrap_err();
    let written = FileChip::open(path).map(drop).unwrap_err();
    let message = written.to_string();
    assert_eq!(read.to_string(), message);
    assert!(message.contains("chip.img") && !message.contains('\n'), "{message}");
    written
}

#[test]
fn files_that_are_no_image_are_refused_with_one_clear_error_each() {
    let (folder, path) = folder();
    assert!(matches!(refusal(&path), ImageError::Device(_)));
    for content in [&b""[..], b"EskrChi", b"a text", &[0; 10_000]] {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(refusal(&path), ImageError::NotAnImage { .. }), "{content:?}");
    }
    let exists = FileChip::create(&path, SIZES).map(drop).unwrap_err();
    assert!(matches!(exists, ImageError::Exists { .. }), "{exists}");
    std::fs::remove_file(&path).unwrap();
    drop(LaTree::create(FileChip::create(&path, SIZES).unwrap(), small()).unwrap());
    let image = std::fs::read(&path).unwrap();
    for len in [8, 31, 32, 4095, 4096, 8191, image.len() - 1, image.len() + 1] {
        let mut other = image.clone();
        other.resize(len, 0);
        std::fs::write(&path, other).unwrap();
        let error = refusal(&path);
        match error {
            ImageError::Length { .. } => assert!(len >= 32, "{len}: {error}"),
            ImageError::Damaged { .. } => assert!(len < 32, "{len}: {error}"),
            _ => panic!("{len}: {error}"),
        }
    }
    let with = |at: usize, byte: u8| {
        let mut other = image.clone();
        other[at] = byte;
        std::fs::write(&path, other).unwrap();
        refusal(&path)
    };
    assert!(matches!(with(8, 2), ImageError::Newer { version: 2, .. }));
    assert!(matches!(with(12, 7), ImageError::Damaged { offset: 0, .. }));
    assert!(matches!(with(4096 + 12, 9), ImageError::Damaged { offset: 4104, .. }));
    assert!(FileChip::open(folder.path()).is_err(), "a folder");
}

#[test]
fn an_image_is_locked() {
    let (_folder, path) = folder();
    let writer = FileChip::create(&path, SIZES).unwrap();
    for opened in [FileChip::open(&path), FileChip::open_read_only(&path)] {
        assert!(matches!(opened, Err(ImageError::Locked { .. })), "{opened:?}");
    }
    drop(writer);
    let readers = [FileChip::open_read_only(&path), FileChip::open_read_only(&path)];
    assert!(readers.iter().all(Result::is_ok));
    assert!(matches!(FileChip::open(&path), Err(ImageError::Locked { .. })));
    drop(readers);
    drop(FileChip::open(&path).unwrap());
}

#[test]
fn a_tree_of_another_geometry_is_refused() {
    let (_folder, path) = folder();
    drop(LaTree::create(FileChip::create(&path, SIZES).unwrap(), small()).unwrap());
    // The same bytes with a header of pages of twice the size, half as many in a block.
    let mut image = std::fs::read(&path).unwrap();
    let other = ImageSizes { page_bytes: 1024, pages_per_block: 4, ..SIZES };
    let model = path.with_extension("other");
    drop(FileChip::create(&model, other).unwrap());
    image[..4096].copy_from_slice(&std::fs::read(&model).unwrap()[..4096]);
    std::fs::write(&path, image).unwrap();
    let options = Options { memory_bytes: 64 << 10, ..small() };
    let error = LaTree::open(FileChip::open(&path).unwrap(), options).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Geometry(what) if what.contains("512 bytes")), "{error}");
}
