//! Damages every byte of small stores, one at a time, and looks at what they answer.
//!
//! A byte that is never read while a store is opened, read whole and checked cannot change what
//! it answers; those are counted and skipped. All others are flipped, with a pattern that rotates
//! with the offset (all three patterns from budget 3 on). In long runs of zeros, which are padding
//! and room to grow, a budget of 1 flips every sixteenth byte and a budget of 16 all of them.
//!
//! [`stores`] makes the stores, [`verdict`] looks at one damaged copy.

pub mod stores;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_format::block::{BlockKind, BlockLayout, BlockView, Unpacker};

use crate::counts::{Counts, budget};
use crate::image::{Image, ImageDevice};
use crate::random::Random;
use crate::recovery::Point;
use crate::violation::{Oracle, Verdict, Violation, ensure, without_panic};

use stores::Specimen;
use verdict::{Class, Held};

/// The patterns.
const MASKS: [u8; 3] = [0x01, 0x80, 0xff];
const UNIT_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Zeros on both sides that make a zero part of a long run.
const RUN_BYTES: usize = 32;
/// Damage that is in no one block.
const ELSEWHERE: Range<usize> = usize::MAX..usize::MAX;
/// One byte in this many of a long run of zeros is flipped at budget 1.
const RUN_STRIDE: usize = 16;

/// Which bytes of an image are read by opening, reading everything and checking.
///
/// # Errors
/// When the undamaged store does not answer as it should.
pub fn touched(specimen: &Specimen) -> Verdict<BTreeMap<String, Vec<bool>>> {
    let device = ImageDevice::tracking(&specimen.image);
    let look = verdict::look(&specimen.held(), device.clone())?;
    ensure(look.class == Class::SameAnswer, Oracle::Harness, || {
        format!("the undamaged store is {:?}", look.class)
    })?;
    Ok(device.touched())
}

/// Flips bytes that are read, one at a time: one in `stride`, of some of the files.
///
/// # Errors
/// The first broken promise.
pub fn bytes_of(specimen: &Specimen, wanted: fn(&str) -> bool, stride: usize) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", specimen.name);
    let masks = usize::try_from(budget()).unwrap_or(1).clamp(1, MASKS.len());
    let mut tally = Tally::new(&specimen.image);
    for (file, touched) in touched(specimen)?.into_iter().filter(|(file, _)| wanted(file)) {
        counts.add("bytes", touched.len() as u64);
        counts.add("bytes never read", touched.iter().filter(|read| !**read).count() as u64);
        let bytes = specimen.image.bytes(&file);
        let read = touched.iter().enumerate().filter(|(_, read)| **read);
        for (offset, _) in read.step_by(stride.max(1)) {
            if is_sampled_out(&bytes, offset) {
                counts.add("bytes of padding left out", 1);
                continue;
            }
            for mask in (0..masks).filter_map(|turn| MASKS.get((offset + turn) % MASKS.len())) {
                let mut image = specimen.image.clone();
                image.flip(&file, offset, *mask);
                let place = format!("{} {file}@{offset} ^ {mask:#04x}", specimen.name);
                tally.add(&specimen.held(), &image, (&file, offset..offset + 1), &place)?;
            }
        }
    }
    tally.finish(specimen, counts)
}

/// Whether a byte lies in a long run of zeros and is not among those that are flipped there.
fn is_sampled_out(bytes: &[u8], offset: usize) -> bool {
    let stride = RUN_STRIDE / usize::try_from(budget()).unwrap_or(1).clamp(1, RUN_STRIDE);
    let around = bytes.get(offset.saturating_sub(RUN_BYTES)..(offset + RUN_BYTES).min(bytes.len()));
    !offset.is_multiple_of(stride)
        && around.is_some_and(|around| around.iter().all(|byte| *byte == 0))
}

/// Replaces each 4 KiB unit by zeros, by another unit of the same file, and by what an older
/// version of the store had there; cuts each file at many lengths; removes each file.
///
/// # Errors
/// The first broken promise.
pub fn units_and_lengths(specimen: &Specimen) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", format!("{}: units and lengths", specimen.name));
    let mut tally = Tally::new(&specimen.image);
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
                let damaged = unit * UNIT_BYTES..(unit + 1) * UNIT_BYTES;
                tally.add(&specimen.held(), &image, (&file, damaged), &place)?;
            }
        }
        for cut in cuts(len) {
            let mut image = specimen.image.clone();
            image.truncate(&file, cut);
            let place = format!("{} {file} cut from {len} to {cut}", specimen.name);
            tally.add(&specimen.held(), &image, (&file, ELSEWHERE), &place)?;
        }
        let mut image = specimen.image.clone();
        image.remove(&file);
        let place = format!("{} {file} removed", specimen.name);
        tally.add(&specimen.held(), &image, (&file, ELSEWHERE), &place)?;
    }
    tally.finish(specimen, counts)
}

/// Replaces the start of each file by zeros, up to many lengths; removes files in all combinations.
///
/// # Errors
/// The first broken promise: a new store in the place of what is left among them.
pub fn heads_and_files(specimen: &Specimen) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", format!("{}: heads and files", specimen.name));
    let mut tally = Tally::new(&specimen.image);
    let files: Vec<(String, usize)> = specimen
        .image
        .files()
        .filter(|(name, _)| *name != "lock")
        .map(|(name, len)| (name.to_owned(), len))
        .collect();
    for (file, len) in &files {
        for zeros in cuts(*len).into_iter().chain([*len]) {
            let mut image = specimen.image.clone();
            image.overwrite(file, 0, &vec![0; zeros]);
            let place = format!("{} {file}, {zeros} zeros of {len}", specimen.name);
            counts.add("heads", 1);
            tally.add(&specimen.held(), &image, (file, ELSEWHERE), &place)?;
        }
    }
    let all = 1_u32 << files.len().min(10);
    for removed in 1..all {
        let mut image = specimen.image.clone();
        let is_gone = |at: usize| removed >> at & 1 == 1;
        // With nothing left, or no byte, it is an empty folder, of which a store may be made.
        if files.iter().enumerate().all(|(at, (_, len))| is_gone(at) || *len == 0) {
            continue;
        }
        let gone = files.iter().enumerate().filter(|(at, _)| is_gone(*at));
        let names: Vec<&str> = gone.map(|(_, (name, _))| name.as_str()).collect();
        names.iter().for_each(|name| image.remove(name));
        let place = format!("{} without {names:?}", specimen.name);
        counts.add("combinations", 1);
        tally.add(&specimen.held(), &image, ("", ELSEWHERE), &place)?;
    }
    tally.finish(specimen, counts)
}

/// Replaces files by those of another store, and by what they were earlier. Old files put back may
/// make the store older: every byte of them was right once.
///
/// # Errors
/// The first broken promise.
pub fn foreign_files(specimen: &Specimen, other: &Specimen) -> Verdict<Counts> {
    let mut counts = Counts::new("flips", format!("{}: foreign files", specimen.name));
    let mut tally = Tally::new(&specimen.image);
    let timeless = Point { durable: 0, ..specimen.point.clone() };
    let sources =
        [(other.name, &other.image, &specimen.point), ("its own past", &specimen.older, &timeless)];
    for (source, from, point) in sources {
        let held = Held { point, ..specimen.held() };
        let names: Vec<&str> = from.files().map(|(name, _)| name).collect();
        for (at, name) in names.iter().enumerate() {
            // Each file alone, then together with all before it, but never all of them.
            for first in [at, 0] {
                let mut image = specimen.image.clone();
                let replaced = names.get(first..=at).unwrap_or_default();
                // With every file of the other store it is that store, regardless of other files
                // next to them.
                let is_whole = replaced.len() == names.len();
                if is_whole || specimen.image.files().all(|(name, _)| replaced.contains(&name)) {
                    continue;
                }
                for name in replaced {
                    image.copy_file(name, from);
                }
                let place = format!("{} with {replaced:?} of {source}", specimen.name);
                counts.add("mixtures", 1);
                tally.add(&held, &image, (name, ELSEWHERE), &place)?;
            }
        }
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

/// The answers of the damaged copies of one store.
#[derive(Debug)]
struct Tally {
    classes: BTreeMap<&'static str, u64>,
    data_blocks: Vec<DataBlock>,
    damaged_data: u64,
    damaged_data_alone: u64,
    damaged_too_far: Option<String>,
}

impl Tally {
    fn new(image: &Image) -> Self {
        let data_blocks = data_blocks(&image.bytes("data"));
        Self {
            classes: BTreeMap::new(),
            data_blocks,
            damaged_data: 0,
            damaged_data_alone: 0,
            damaged_too_far: None,
        }
    }

    fn add(
        &mut self,
        held: &Held<'_>,
        image: &Image,
        (file, damaged): (&str, Range<usize>),
        place: &str,
    ) -> Verdict {
        let look = without_panic(|| verdict::look(held, ImageDevice::new(image)));
        let look = look.map_err(|violation| violation.at(place))?;
        *self.classes.entry(look.class.name()).or_default() += 1;
        let is_hit =
            |block: &&DataBlock| block.place.start < damaged.end && damaged.start < block.place.end;
        let hit: Vec<_> = self.data_blocks.iter().filter(is_hit).collect();
        if !hit.is_empty() && file == "data" && look.class != Class::SameAnswer {
            self.damaged_data += 1;
            self.damaged_data_alone += u64::from(look.blocks_lost <= hit.len());
            let reach = self.reach(hit);
            if look.blocks_lost > reach {
                let lost = look.blocks_lost;
                let far = format!("{place} took {lost} blocks with it, and leads to {reach}");
                self.damaged_too_far = Some(far);
            }
        }
        Ok(())
    }

    /// The number of blocks that are found through these, themselves and those further down
    /// included.
    fn reach<'a>(&'a self, mut next: Vec<&'a DataBlock>) -> usize {
        let mut found: BTreeSet<_> = next.iter().map(|block| block.place.start).collect();
        while let Some(block) = next.pop() {
            let below = self.data_blocks.iter().filter(|b| block.below.contains(&b.place.start));
            next.extend(below.filter(|below| found.insert(below.place.start)));
        }
        found.len()
    }

    /// Damage in data must leave all keys readable but those of its block, and of the blocks that
    /// only its block leads to.
    fn finish(self, specimen: &Specimen, mut counts: Counts) -> Verdict<Counts> {
        for class in Class::ALL {
            let name = class.name();
            counts.add(name, self.classes.get(name).copied().unwrap_or(0));
        }
        counts.add("damage to data blocks", self.damaged_data);
        counts.add("of which stayed in its block", self.damaged_data_alone);
        match self.damaged_too_far {
            None => Ok(counts),
            Some(far) => Err(Violation::new(Oracle::DamageStaysLocal, far).at(specimen.name)),
        }
    }
}

/// A block that holds data entries.
#[derive(Debug)]
struct DataBlock {
    /// Its place in the data file.
    place: Range<usize>,
    /// The places of the blocks of the level below to which it leads.
    below: Vec<usize>,
}

/// The blocks that hold data entries, live ones and stale ones.
fn data_blocks(data: &[u8]) -> Vec<DataBlock> {
    let (mut blocks, mut unpacker) = (Vec::new(), Unpacker::default());
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let len = rest.get(20..24).and_then(|len| len.first_chunk::<4>().copied());
        let len = len.map_or(0, u32::from_le_bytes) as usize;
        let block = rest.get(..len).unwrap_or_default();
        let parsed = BlockLayout::parse(block);
        // What was overwritten is not a block, and may reach into one that is.
        let step = if parsed.is_ok() { len } else { SECTOR_BYTES };
        match parsed {
            Ok(layout) if layout.kind == BlockKind::Data => {
                let mut unpacked = Vec::new();
                let plain = if layout.is_packed() {
                    let _shorter = layout.unpack(block, &mut unpacker, &mut unpacked);
                    unpacked.as_slice()
                } else {
                    block
                };
                let view = BlockView::new(plain, layout);
                let fences = (0..view.len()).filter_map(|index| view.fence(index).ok());
                let below = fences.filter_map(|fence| fence.ptr.offset().try_into().ok());
                blocks.push(DataBlock { place: at..at + len, below: below.collect() });
            }
            _ => {}
        }
        at += step;
    }
    blocks
}
