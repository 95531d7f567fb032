//! The tree on NOR flash behind the traits of `embedded-storage`: histories, power cuts in the
//! middle of a word and of an erase, failing blocks, regions that cannot be.

use embedded_storage::nor_flash::{
    ErrorType, NorFlash, NorFlashErrorKind, ReadNorFlash, check_erase, check_read, check_write,
};
use esker_harness::counts::budget;
use esker_harness::random::Random;
use esker_latree::{
    BlockNo, Buffering, Chip, Error, Fault, LaTree, NorChip, NorRegion, Options, PageNo, Read, Scan,
};

use crate::common::options;
use crate::cuts::{State, recovered};
use crate::history::{Model, Shape, Step, apply, apply_to_model, compare, step};

const SECTOR: usize = 4096;
const REGION: NorRegion = NorRegion {
    offset: 8192,
    len: 80 * SECTOR as u32,
    page_bytes: 512,
    block_bytes: SECTOR as u32,
};

/// One of fewer blocks, which are erased more often.
const FEW: NorRegion = NorRegion { len: 36 * SECTOR as u32, ..REGION };

/// Flash in memory: words of 4 bytes, each written once between two erases of its sector.
#[derive(Clone)]
struct Nor {
    bytes: Vec<u8>,
    /// Words and sectors that are still written and erased before the power is cut.
    left: u64,
    done: u64,
    is_off: bool,
    /// Sectors that cannot be written or erased.
    worn: Vec<usize>,
}

impl Nor {
    fn new() -> Self {
        let bytes = vec![0xFF; 8192 + 82 * SECTOR];
        Self { bytes, left: u64::MAX, done: 0, is_off: false, worn: Vec::new() }
    }

    /// Counts a word or a sector, of which a cut leaves a part.
    fn is_cut(&mut self) -> bool {
        self.done += 1;
        self.left -= 1;
        self.is_off = self.left == 0;
        self.is_off
    }

    fn check(&self, at: u32) -> Result<(), NorFlashErrorKind> {
        if self.is_off || self.worn.contains(&(at as usize / SECTOR)) {
            return Err(NorFlashErrorKind::Other);
        }
        Ok(())
    }
}

impl ErrorType for Nor {
    type Error = NorFlashErrorKind;
}

impl ReadNorFlash for Nor {
    const READ_SIZE: usize = 1;

    fn read(&mut self, at: u32, bytes: &mut [u8]) -> Result<(), NorFlashErrorKind> {
        check_read(self, at, bytes.len())?;
        if self.is_off {
            return Err(NorFlashErrorKind::Other);
        }
        bytes.copy_from_slice(&self.bytes[at as usize..at as usize + bytes.len()]);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.bytes.len()
    }
}

impl NorFlash for Nor {
    const WRITE_SIZE: usize = 4;
    const ERASE_SIZE: usize = SECTOR;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), NorFlashErrorKind> {
        check_erase(self, from, to)?;
        for sector in (from..to).step_by(SECTOR) {
            self.check(sector)?;
            let sector = sector as usize;
            if self.is_cut() {
                // Some bits are erased, everywhere in the sector.
                self.bytes[sector..sector + SECTOR].iter_mut().for_each(|byte| *byte |= 0x5A);
                return Err(NorFlashErrorKind::Other);
            }
            self.bytes[sector..sector + SECTOR].fill(0xFF);
        }
        Ok(())
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), NorFlashErrorKind> {
        check_write(self, at, bytes.len())?;
        self.check(at)?;
        for (word, new) in (at as usize..).step_by(4).zip(bytes.chunks(4)) {
            assert_eq!(self.bytes[word..word + 4], [0xFF; 4], "a word is written twice");
            let is_cut = self.is_cut();
            for (byte, new) in self.bytes[word..].iter_mut().zip(new) {
                *byte = if is_cut { new | 0xA5 } else { *new };
            }
            if is_cut {
                return Err(NorFlashErrorKind::Other);
            }
        }
        Ok(())
    }
}

fn chip(region: NorRegion) -> NorChip<Nor> {
    NorChip::new(Nor::new(), region).unwrap()
}

fn steps(seed: u64, keys: u64, count: usize) -> Vec<Step> {
    let random = Random::new(seed);
    let shape = Shape { keys, value_bytes: 20, lookups: 10, removals: 33 };
    (0..count).map(|_| step(&random, &shape)).collect()
}

fn small() -> Options {
    options(20 << 10, 2, Scan::Sorted, Buffering::Adaptive)
}

#[test]
fn a_history_is_that_of_a_map() {
    for (page_bytes, block_bytes) in [(256, 4096), (512, 4096), (1024, 8192), (512, 8192)] {
        let region = NorRegion { page_bytes, block_bytes, ..REGION };
        let options = Options { memory_bytes: 48 * page_bytes as usize, ..small() };
        let mut tree = LaTree::create(chip(region), options.clone()).unwrap();
        let mut model = Model::new();
        for step in steps(u64::from(page_bytes), 1500, 16_000) {
            apply(&mut tree, &model, &step).unwrap();
            apply_to_model(&mut model, &step);
        }
        compare(&mut tree, &model).unwrap();
        let stats = tree.stats();
        assert!(stats.flash.erases > u64::from(tree.chip().blocks()), "{stats:?}");
        tree.sync().unwrap();
        let flash = tree.into_chip().into_flash();
        let outside = flash.bytes[..8192].iter().chain(&flash.bytes[8192 + 80 * SECTOR..]);
        assert!(outside.copied().all(|byte| byte == 0xFF), "a byte outside of the region");
        let mut tree = LaTree::open(NorChip::new(flash, region).unwrap(), options).unwrap();
        compare(&mut tree, &model).unwrap();
    }
}

#[test]
fn after_a_cut_in_a_word_or_an_erase_nothing_that_was_synced_is_lost() {
    let steps = steps(7, 400, 3000);
    let mut state = State::new(LaTree::create(chip(FEW), small()).unwrap());
    let mut states = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        if at % 100 == 0 {
            states.push(state.clone());
        }
        state.apply(step).unwrap();
    }
    let done = |state: &State<NorChip<Nor>>| state.tree.chip().flash().done;
    let (first, last) = (done(&states[0]), done(&state));
    let stride = ((last - first) / (300 * budget().min(10))).max(1);
    let mut tried = 0;
    for at in (first..last).step_by(stride as usize) {
        let before = states.partition_point(|state| done(state) <= at);
        let mut state = states[before - 1].clone();
        state.tree.chip_mut().flash_mut().left = at + 1 - done(&states[before - 1]);
        state.run(&steps);
        let State { tree, synced, later, .. } = state;
        let mut flash = tree.into_chip().into_flash();
        assert!(flash.is_off, "the power was cut");
        (flash.is_off, flash.left) = (false, u64::MAX);
        let chip = NorChip::new(flash, FEW).unwrap();
        recovered(chip, &small(), synced, &later, &steps).unwrap_or_else(|what| {
            panic!("cut at {at} of {last}: {what}");
        });
        tried += 1;
    }
    eprintln!("{tried} cuts in {last} words and sectors");
    assert!(tried >= 300);
}

#[test]
fn a_block_that_fails_is_retired_and_a_flash_that_is_off_is_an_error() {
    let mut tree = LaTree::create(chip(REGION), small()).unwrap();
    let mut model = Model::new();
    for (at, step) in steps(3, 400, 6000).into_iter().enumerate() {
        match at {
            1500 => tree.chip_mut().flash_mut().worn = vec![5, 9],
            3000 => tree.chip_mut().flash_mut().worn.push(20),
            _ => {}
        }
        apply(&mut tree, &model, &step).unwrap();
        apply_to_model(&mut model, &step);
    }
    compare(&mut tree, &model).unwrap();
    tree.sync().unwrap();
    let mut tree = LaTree::open(tree.into_chip(), small()).unwrap();
    compare(&mut tree, &model).unwrap();
    tree.chip_mut().flash_mut().is_off = true;
    let error = (0..).find_map(|key: u32| tree.put(&key.to_be_bytes(), &[1; 60]).err()).unwrap();
    assert!(matches!(&error, Error::Chip(what) if what.contains("flash cannot")), "{error}");
    assert_eq!(tree.get(b"key"), Err(Error::Poisoned));
}

#[test]
fn regions_that_cannot_be_are_refused_in_one_line() {
    for region in [
        NorRegion { offset: 100, ..REGION },
        NorRegion { offset: u32::MAX - 4095, ..REGION },
        NorRegion { len: 83 * SECTOR as u32, ..REGION },
        NorRegion { len: 80 * SECTOR as u32 + 512, ..REGION },
        NorRegion { page_bytes: 0, ..REGION },
        NorRegion { page_bytes: 258, ..REGION },
        NorRegion { page_bytes: 128, ..REGION },
        NorRegion { page_bytes: 4096, ..REGION },
        NorRegion { page_bytes: 768, ..REGION },
        NorRegion { block_bytes: 0, ..REGION },
        NorRegion { block_bytes: 2048, ..REGION },
    ] {
        let error = NorChip::new(Nor::new(), region).map(drop).unwrap_err().to_string();
        assert!(error.contains("a region of") && !error.contains('\n'), "{region:?}: {error}");
    }
    let few = NorRegion { len: 15 * SECTOR as u32, ..REGION };
    let error = LaTree::create(chip(few), small()).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Options(what) if what.contains("16 blocks")), "{error}");
}

#[test]
fn a_flash_with_other_content_is_foreign_and_an_erased_one_blank() {
    let refusal = |chip| LaTree::open(chip, small()).map(drop).unwrap_err();
    assert_eq!(refusal(chip(REGION)), Error::Blank);
    let mut flash = Nor::new();
    flash.bytes.fill(0x55);
    assert_eq!(refusal(NorChip::new(flash, REGION).unwrap()), Error::Foreign);
}

#[test]
fn pages_outside_of_the_region_and_of_another_length_are_faults() {
    let mut chip = chip(REGION);
    let mut page = [0; 512];
    assert_eq!(chip.read(PageNo(0), &mut page), Ok(Read::Erased));
    assert!(matches!(chip.read(PageNo(640), &mut page), Err(Fault::Other(_))));
    assert!(matches!(chip.read(PageNo(u32::MAX), &mut page), Err(Fault::Other(_))));
    assert!(matches!(chip.read(PageNo(0), &mut page[..256]), Err(Fault::Other(_))));
    assert!(matches!(chip.program(PageNo(640), &page), Err(Fault::Other(_))));
    assert!(matches!(chip.program(PageNo(0), &page[..4]), Err(Fault::Other(_))));
    assert!(matches!(chip.erase(BlockNo(80)), Err(Fault::Other(_))));
    assert!(matches!(chip.erase(BlockNo(u32::MAX)), Err(Fault::Other(_))));
}
