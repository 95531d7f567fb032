//! Damages every byte of small stores, one at a time, and looks at what they answer; then every
//! unit, the lengths of files, and files.
//!
//! [`stores`] makes the stores, [`verdict`] looks at one damaged copy. `esker_harness::flips` makes
//! the copies.

pub mod stores;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_format::block::{BlockKind, BlockLayout, BlockView, Unpacker};
use esker_harness::flips::{self, Damage, Sampling};

use crate::counts::{Counts, budget};
use crate::image::{ImageDevice, Touched};
use crate::recovery::Point;
use crate::violation::{Oracle, Verdict, Violation, ensure};

use stores::Specimen;
use verdict::{Class, Held};

const UNIT_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;
/// Lengths to which a file is cut at budget 1, about.
const LENGTHS: u64 = 150;

/// Which bytes of an image are read by opening, reading everything and checking.
///
/// # Errors
/// When the undamaged store does not answer as it should.
pub fn touched(specimen: &Specimen) -> Verdict<Touched> {
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
    let mut read = touched(specimen)?;
    read.retain(|file, _| wanted(file));
    let mut tally = Tally::new(specimen, "");
    let taken = flips::bytes(&specimen.image, &read, Sampling::one_in(stride), &mut |damage| {
        tally.add(&specimen.held(), damage)
    });
    let taken = taken.map_err(|violation| violation.at(specimen.name))?;
    taken.add_to(&mut tally.counts);
    tally.finish()
}

/// Replaces each 4 KiB unit by zeros, by another unit of the same file, and by what an older
/// version of the store had there; cuts each file at many lengths; removes each file.
///
/// # Errors
/// The first broken promise.
pub fn units_and_lengths(specimen: &Specimen) -> Verdict<Counts> {
    let Specimen { image, older, .. } = specimen;
    let mut tally = Tally::new(specimen, ": units and lengths");
    let all = |judge: &mut flips::Judge<'_>| {
        let units = flips::units(image, Some(older), UNIT_BYTES, judge)?;
        flips::cuts(image, lengths_max(), judge)?;
        flips::removals(image, judge)?;
        Ok(units)
    };
    let units = all(&mut |damage| tally.add(&specimen.held(), damage));
    let units = units.map_err(|violation: Violation| violation.at(specimen.name))?;
    tally.counts.add("units", units);
    tally.finish()
}

/// Replaces the start of each file by zeros, up to many lengths; removes files in all combinations.
///
/// # Errors
/// The first broken promise: a new store in the place of what is left among them.
pub fn heads_and_files(specimen: &Specimen) -> Verdict<Counts> {
    let mut tally = Tally::new(specimen, ": heads and files");
    let all = |judge: &mut flips::Judge<'_>| {
        let heads = flips::heads(&specimen.image, lengths_max(), judge)?;
        Ok((heads, flips::combinations(&specimen.image, judge)?))
    };
    let done = all(&mut |damage| tally.add(&specimen.held(), damage));
    let (heads, combinations) = done.map_err(|violation: Violation| violation.at(specimen.name))?;
    tally.counts.add("heads", heads);
    tally.counts.add("combinations", combinations);
    tally.finish()
}

/// Replaces files by those of another store, and by what they were earlier. Old files put back may
/// make the store older: every byte of them was right once.
///
/// # Errors
/// The first broken promise.
pub fn foreign_files(specimen: &Specimen, other: &Specimen) -> Verdict<Counts> {
    let mut tally = Tally::new(specimen, ": foreign files");
    let timeless = Point { durable: 0, ..specimen.point.clone() };
    let sources =
        [(other.name, &other.image, &specimen.point), ("its own past", &specimen.older, &timeless)];
    for (source, from, point) in sources {
        let held = Held { point, ..specimen.held() };
        let mixtures =
            flips::mixtures(&specimen.image, from, &mut |damage| tally.add(&held, damage));
        let mixtures = mixtures.map_err(|violation| violation.at(source).at(specimen.name))?;
        tally.counts.add("mixtures", mixtures);
    }
    tally.finish()
}

fn lengths_max() -> usize {
    usize::try_from(LENGTHS * budget()).unwrap_or(usize::MAX)
}

/// The answers of the damaged copies of one store.
#[derive(Debug)]
struct Tally {
    name: &'static str,
    counts: Counts,
    classes: BTreeMap<&'static str, u64>,
    data_blocks: Vec<DataBlock>,
    damaged_data: u64,
    damaged_data_alone: u64,
    damaged_too_far: Option<String>,
}

impl Tally {
    fn new(specimen: &Specimen, what: &str) -> Self {
        let name = specimen.name;
        Self {
            name,
            counts: Counts::new("flips", format!("{name}{what}")),
            classes: BTreeMap::new(),
            data_blocks: data_blocks(&specimen.image.bytes("data")),
            damaged_data: 0,
            damaged_data_alone: 0,
            damaged_too_far: None,
        }
    }

    fn add(&mut self, held: &Held<'_>, damage: &Damage<'_>) -> Verdict {
        let look = verdict::look(held, ImageDevice::new(damage.image))?;
        *self.classes.entry(look.class.name()).or_default() += 1;
        let Some(damaged) = damage.range.as_ref().filter(|_| damage.file == "data") else {
            return Ok(());
        };
        let is_hit =
            |block: &&DataBlock| block.place.start < damaged.end && damaged.start < block.place.end;
        let hit: Vec<_> = self.data_blocks.iter().filter(is_hit).collect();
        if !hit.is_empty() && look.class != Class::SameAnswer {
            self.damaged_data += 1;
            self.damaged_data_alone += u64::from(look.blocks_lost <= hit.len());
            let reach = self.reach(hit);
            if look.blocks_lost > reach {
                let (place, lost) = (&damage.place, look.blocks_lost);
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
    fn finish(self) -> Verdict<Counts> {
        let mut counts = self.counts;
        for class in Class::ALL {
            let name = class.name();
            counts.add(name, self.classes.get(name).copied().unwrap_or(0));
        }
        counts.add("damage to data blocks", self.damaged_data);
        counts.add("of which stayed in its block", self.damaged_data_alone);
        match self.damaged_too_far {
            None => Ok(counts),
            Some(far) => Err(Violation::new(Oracle::DamageStaysLocal, far).at(self.name)),
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
