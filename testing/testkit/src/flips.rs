//! Damages every byte of small stores, one at a time, and looks at what they answer.
//!
//! A byte that is never read while a store is opened, read whole and checked cannot change what
//! it answers; those are counted and skipped. All others are flipped, with a pattern that rotates
//! with the offset (all three patterns from budget 3 on).
//!
//! [`stores`] makes the stores, [`verdict`] looks at one damaged copy.

pub mod stores;
pub mod verdict;

use std::collections::BTreeMap;

use crate::counts::{Counts, budget};
use crate::image::{Image, ImageDevice};
use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation, ensure, without_panic};

use stores::Specimen;
use verdict::{Class, Look};

/// The patterns.
const MASKS: [u8; 3] = [0x01, 0x80, 0xff];
const UNIT_BYTES: usize = 4096;

/// Which bytes of an image are read by opening, reading everything and checking.
///
/// # Errors
/// When the undamaged store does not answer as it should.
pub fn touched(specimen: &Specimen) -> Verdict<BTreeMap<String, Vec<bool>>> {
    let device = ImageDevice::tracking(&specimen.image);
    let look = verdict::look(specimen, device.clone())?;
    ensure(look.class == Class::SameAnswer, Oracle::Harness, || {
        format!("the undamaged store is {:?}", look.class)
    })?;
    Ok(device.touched())
}

/// Flips every byte that is read, one at a time.
///
/// # Errors
/// The first broken promise.
pub fn every_byte(specimen: &Specimen) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", specimen.name);
    let masks = usize::try_from(budget()).unwrap_or(1).clamp(1, MASKS.len());
    let mut tally = Tally::default();
    for (file, touched) in touched(specimen)? {
        counts.add("bytes", touched.len() as u64);
        counts.add("bytes never read", touched.iter().filter(|read| !**read).count() as u64);
        for (offset, _) in touched.iter().enumerate().filter(|(_, read)| **read) {
            for mask in (0..masks).filter_map(|turn| MASKS.get((offset + turn) % MASKS.len())) {
                let mut image = specimen.image.clone();
                image.flip(&file, offset, *mask);
                let place = format!("{} {file}@{offset} ^ {mask:#04x}", specimen.name);
                tally.add(specimen, &image, &file, &place)?;
            }
        }
    }
    tally.finish(specimen, counts)
}

/// Replaces each 4 KiB unit by zeros, by another unit of the same file, and by what an older
/// version of the store had there; cuts each file at many lengths; removes each file.
///
/// # Errors
/// The first broken promise.
pub fn units_and_lengths(specimen: &Specimen) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", format!("{}: units and lengths", specimen.name));
    let mut tally = Tally::default();
    let random = Random::new(7);
    let files: Vec<(String, usize)> =
        specimen.image.files().map(|(name, len)| (name.to_owned(), len)).collect();
    for (file, len) in files {
        let bytes = specimen.image.bytes(&file);
        let older = specimen.older.bytes(&file);
        let units = len.div_ceil(UNIT_BYTES);
        counts.add("units", units as u64);
        for unit in 0..units {
            let other = random.index(units);
            let replacements = [
                ("zeros", vec![0; UNIT_BYTES]),
                ("another unit", part(&bytes, other)),
                ("its older version", part(&older, unit)),
            ];
            for (what, replacement) in replacements {
                let room = len - unit * UNIT_BYTES;
                let replacement = replacement.get(..room.min(replacement.len()));
                let mut image = specimen.image.clone();
                image.overwrite(&file, unit * UNIT_BYTES, replacement.unwrap_or_default());
                let place = format!("{} {file} unit {unit} became {what}", specimen.name);
                tally.add(specimen, &image, &file, &place)?;
            }
        }
        for cut in cuts(len) {
            let mut image = specimen.image.clone();
            image.truncate(&file, cut);
            let place = format!("{} {file} cut from {len} to {cut}", specimen.name);
            tally.add(specimen, &image, &file, &place)?;
        }
        let mut image = specimen.image.clone();
        image.remove(&file);
        tally.add(specimen, &image, &file, &format!("{} {file} removed", specimen.name))?;
    }
    tally.finish(specimen, counts)
}

fn part(bytes: &[u8], unit: usize) -> Vec<u8> {
    let from = unit * UNIT_BYTES;
    bytes.get(from..bytes.len().min(from + UNIT_BYTES)).unwrap_or_default().to_vec()
}

/// Lengths to cut a file to: sector and unit boundaries, one more, one less, and a spread.
fn cuts(len: usize) -> Vec<usize> {
    let step = 512;
    let near = (0..len).step_by(step).flat_map(|at| [at.saturating_sub(1), at, at + 1]);
    let mut cuts: Vec<usize> = near.filter(|cut| *cut < len).collect();
    cuts.extend(len.checked_sub(1));
    cuts.dedup();
    let stride = (cuts.len() as u64 / (150 * budget())).max(1);
    cuts.into_iter().step_by(usize::try_from(stride).unwrap_or(1)).collect()
}

/// What the damaged copies of one store answered.
#[derive(Debug, Default)]
struct Tally {
    classes: BTreeMap<&'static str, u64>,
    damaged_data: u64,
    damaged_data_locally: u64,
}

impl Tally {
    fn add(&mut self, specimen: &Specimen, image: &Image, file: &str, place: &str) -> Verdict {
        let look = without_panic(|| verdict::look(specimen, ImageDevice::new(image)));
        let look = look.map_err(|violation| violation.at(place))?;
        *self.classes.entry(look.class.name()).or_default() += 1;
        self.note_locality(file, &look);
        Ok(())
    }

    fn note_locality(&mut self, file: &str, look: &Look) {
        if file == "data" && look.class == Class::SomeKeysUnreadable {
            self.damaged_data += 1;
            self.damaged_data_locally += u64::from(look.is_local);
        }
    }

    /// At least 90 % of the damage in data must leave the keys of other blocks readable.
    fn finish(self, specimen: &Specimen, mut counts: Counts) -> Verdict<Counts> {
        for class in Class::ALL {
            let name = class.name();
            counts.add(name, self.classes.get(name).copied().unwrap_or(0));
        }
        counts.add("data damage", self.damaged_data);
        counts.add("data damage that stayed local", self.damaged_data_locally);
        let local_enough = self.damaged_data_locally * 10 >= self.damaged_data * 9;
        if self.damaged_data >= 100 && !local_enough {
            let (local, all) = (self.damaged_data_locally, self.damaged_data);
            let detail = format!("{local} of {all} damages stayed in their block");
            return Err(Violation::new(Oracle::DamageStaysLocal, detail).at(specimen.name));
        }
        Ok(counts)
    }
}
