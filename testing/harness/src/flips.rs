//! Every damage of a kind, each in a copy of an [`Image`] of its own: bytes flipped, units and
//! heads replaced, files cut, removed, and exchanged with those of another image.
//!
//! A byte that is never read while the undamaged image is opened, read whole and checked cannot
//! change what it answers; those are counted and skipped. All others are flipped, with a pattern
//! that rotates with the offset. In long runs of zeros, which are padding and room to grow, only
//! some are.

use std::ops::Range;

use crate::counts::{Counts, budget};
use crate::image::{Image, Touched};
use crate::random::Random;
use crate::violation::{Verdict, without_panic};

/// The patterns.
const MASKS: [u8; 3] = [0x01, 0x80, 0xff];
/// Zeros on both sides that make a zero part of a long run.
const RUN_BYTES: usize = 32;
/// One byte in this many of a long run of zeros is flipped at budget 1.
const RUN_STRIDE: usize = 16;
/// Files are cut at the boundaries of sectors, and next to them.
const SECTOR_BYTES: usize = 512;
/// Files of which every combination is removed; further ones stay.
const COMBINED_MAX: usize = 10;

/// A damaged copy of an image.
#[derive(Clone, Debug)]
pub struct Damage<'a> {
    /// The copy.
    pub image: &'a Image,
    /// The file that is damaged, the last one of several.
    pub file: &'a str,
    /// The damaged range within it; `None` where the file is another one, shorter or gone.
    pub range: Option<Range<usize>>,
    /// What was done to it.
    pub place: String,
}

/// Judges a damaged copy. A panic is a violation, and every violation gets the place of the damage.
pub type Judge<'a> = dyn FnMut(&Damage<'_>) -> Verdict + 'a;

/// Which bytes are flipped of those that are read, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// One in this many.
    pub stride: usize,
    /// Of those in long runs of zeros, the ones whose offset is a multiple of this.
    pub run_stride: usize,
    /// The number of patterns, of three.
    pub masks: usize,
}

impl Sampling {
    /// One byte in `stride`: with one pattern and a sixteenth of the zeros at budget 1, with all
    /// patterns from budget 3 on, and all zeros at budget 16.
    #[must_use]
    pub fn one_in(stride: usize) -> Self {
        let budget = usize::try_from(budget()).unwrap_or(usize::MAX);
        let run_stride = RUN_STRIDE / budget.clamp(1, RUN_STRIDE);
        Self { stride, run_stride, masks: budget.clamp(1, MASKS.len()) }
    }

    /// Whether a byte lies in a long run of zeros and is not among those that are flipped there.
    fn leaves_out(self, bytes: &[u8], offset: usize) -> bool {
        let run = offset.saturating_sub(RUN_BYTES)..(offset + RUN_BYTES).min(bytes.len());
        let is_zeros = |around: &[u8]| around.iter().all(|byte| *byte == 0);
        !offset.is_multiple_of(self.run_stride.max(1)) && bytes.get(run).is_some_and(is_zeros)
    }

    /// The patterns for the byte at `offset`.
    fn masks_at(self, offset: usize) -> impl Iterator<Item = u8> {
        let start = offset % MASKS.len();
        MASKS.into_iter().cycle().skip(start).take(self.masks.min(MASKS.len()))
    }
}

/// What became of the bytes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// All of them.
    pub bytes: u64,
    /// Those that are never read.
    pub never_read: u64,
    /// Those of long runs of zeros that were left out.
    pub left_out: u64,
    /// Damaged copies.
    pub judged: u64,
}

impl Taken {
    /// Adds the bytes, and which of them were left out for which reason.
    pub fn add_to(self, counts: &mut Counts) {
        counts.add("bytes", self.bytes);
        counts.add("bytes never read", self.never_read);
        counts.add("bytes of padding left out", self.left_out);
    }
}

/// Flips bytes that were read, one at a time, of the files of `read`.
///
/// # Errors
/// The first violation.
pub fn bytes(
    image: &Image,
    read: &Touched,
    sampling: Sampling,
    judge: &mut Judge<'_>,
) -> Verdict<Taken> {
    let mut taken = Taken::default();
    for (file, read) in read {
        let bytes = image.bytes(file);
        taken.bytes += read.len() as u64;
        taken.never_read += read.iter().filter(|read| !**read).count() as u64;
        let read = read.iter().enumerate().filter(|(_, read)| **read);
        for (offset, _) in read.step_by(sampling.stride.max(1)) {
            if sampling.leaves_out(&bytes, offset) {
                taken.left_out += 1;
                continue;
            }
            for mask in sampling.masks_at(offset) {
                let mut damaged = image.clone();
                damaged.flip(file, offset, mask);
                let place = format!("{file}@{offset} ^ {mask:#04x}");
                let range = Some(offset..offset + 1);
                look(judge, &Damage { image: &damaged, file, range, place })?;
                taken.judged += 1;
            }
        }
    }
    Ok(taken)
}

/// Replaces each unit of each file by zeros, by another unit of the same file and, where an older
/// image is there, by what that has in its place. Says how many units there are.
///
/// # Errors
/// The first violation.
pub fn units(
    image: &Image,
    older: Option<&Image>,
    unit_bytes: usize,
    judge: &mut Judge<'_>,
) -> Verdict<u64> {
    let random = Random::new(7);
    let mut seen = 0;
    for (file, len) in image.files() {
        let bytes = image.bytes(file);
        let older = older.map(|older| older.bytes(file));
        let units = len.div_ceil(unit_bytes);
        for unit in 0..units {
            let range = unit * unit_bytes..(unit + 1) * unit_bytes;
            let other = random.index(units) * unit_bytes;
            let replacements = [
                ("zeros", Some(vec![0; unit_bytes])),
                ("another unit", Some(part(&bytes, other, unit_bytes))),
                ("its older version", older.as_ref().map(|o| part(o, range.start, unit_bytes))),
            ];
            for (what, replacement) in replacements {
                let Some(mut replacement) = replacement else { continue };
                replacement.truncate(len - range.start);
                let mut damaged = image.clone();
                damaged.overwrite(file, range.start, &replacement);
                let place = format!("{file} unit {unit} became {what}");
                let range = Some(range.clone());
                look(judge, &Damage { image: &damaged, file, range, place })?;
            }
        }
        seen += units as u64;
    }
    Ok(seen)
}

/// Cuts each file at up to about `most` lengths. Says how many.
///
/// # Errors
/// The first violation.
pub fn cuts(image: &Image, most: usize, judge: &mut Judge<'_>) -> Verdict<u64> {
    let mut judged = 0;
    for (file, len) in image.files() {
        for cut in lengths(len, most) {
            let mut damaged = image.clone();
            damaged.truncate(file, cut);
            let place = format!("{file} cut from {len} to {cut}");
            look(judge, &Damage { image: &damaged, file, range: None, place })?;
            judged += 1;
        }
    }
    Ok(judged)
}

/// Replaces the start of each file by zeros, of up to about `most` lengths, and the whole. Says how
/// many there are.
///
/// # Errors
/// The first violation.
pub fn heads(image: &Image, most: usize, judge: &mut Judge<'_>) -> Verdict<u64> {
    let mut judged = 0;
    for (file, len) in image.files().filter(|(_, len)| *len > 0) {
        for zeros in lengths(len, most).into_iter().chain([len]) {
            let mut damaged = image.clone();
            damaged.overwrite(file, 0, &vec![0; zeros]);
            let place = format!("{file}, {zeros} zeros of {len}");
            look(judge, &Damage { image: &damaged, file, range: None, place })?;
            judged += 1;
        }
    }
    Ok(judged)
}

/// Removes each file.
///
/// # Errors
/// The first violation.
pub fn removals(image: &Image, judge: &mut Judge<'_>) -> Verdict {
    image.files().try_for_each(|(file, _)| without(image, &[file], judge))
}

/// Removes files in all combinations that leave some byte: with none it is an empty folder, of
/// which something new may be made. Says how many.
///
/// # Errors
/// The first violation.
pub fn combinations(image: &Image, judge: &mut Judge<'_>) -> Verdict<u64> {
    let files: Vec<(&str, usize)> = image.files().collect();
    let mut judged = 0;
    for removed in 1..1_u32 << files.len().min(COMBINED_MAX) {
        let is_gone = |at: usize| at < COMBINED_MAX && removed >> at & 1 == 1;
        if files.iter().enumerate().all(|(at, (_, len))| is_gone(at) || *len == 0) {
            continue;
        }
        let gone = files.iter().enumerate().filter(|(at, _)| is_gone(*at));
        let gone: Vec<&str> = gone.map(|(_, (name, _))| *name).collect();
        without(image, &gone, judge)?;
        judged += 1;
    }
    Ok(judged)
}

/// Replaces each file by that of another image, alone and then together with all before it, but
/// never all of them: with every file of the other image it is that one, whatever is next to them.
/// Says how many mixtures there are.
///
/// # Errors
/// The first violation.
pub fn mixtures(image: &Image, from: &Image, judge: &mut Judge<'_>) -> Verdict<u64> {
    let names: Vec<&str> = from.files().map(|(name, _)| name).collect();
    let mut judged = 0;
    for (at, file) in names.iter().copied().enumerate() {
        for first in [at, 0] {
            let replaced = names.get(first..=at).unwrap_or_default();
            let is_whole = replaced.len() == names.len();
            if is_whole || image.files().all(|(name, _)| replaced.contains(&name)) {
                continue;
            }
            let mut damaged = image.clone();
            replaced.iter().for_each(|name| damaged.copy_file(name, from));
            let place = format!("with {replaced:?} of another");
            look(judge, &Damage { image: &damaged, file, range: None, place })?;
            judged += 1;
        }
    }
    Ok(judged)
}

fn look(judge: &mut Judge<'_>, damage: &Damage<'_>) -> Verdict {
    without_panic(|| judge(damage)).map_err(|violation| violation.at(&damage.place))
}

fn without(image: &Image, files: &[&str], judge: &mut Judge<'_>) -> Verdict {
    let mut damaged = image.clone();
    files.iter().for_each(|file| damaged.remove(file));
    let file = files.last().copied().unwrap_or_default();
    let place = format!("without {files:?}");
    look(judge, &Damage { image: &damaged, file, range: None, place })
}

fn part(bytes: &[u8], from: usize, len: usize) -> Vec<u8> {
    bytes.get(from..bytes.len().min(from + len)).unwrap_or_default().to_vec()
}

/// Lengths below `len`, about `most` at most: boundaries of sectors, one more, one less, and one
/// less than all.
fn lengths(len: usize, most: usize) -> Vec<usize> {
    let near = (0..len).step_by(SECTOR_BYTES).flat_map(|at| [at.saturating_sub(1), at, at + 1]);
    let mut lengths: Vec<usize> = near.filter(|cut| *cut < len).collect();
    lengths.extend(len.checked_sub(1));
    lengths.dedup();
    let stride = (lengths.len() / most.max(1)).max(1);
    lengths.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests;
