//! Readers: a batch is read into a buffer, and copied from there to its places.

use std::sync::atomic::Ordering;

use super::Shared;
use super::flow::{Flow, Load};
use crate::batches::Batch;
use crate::copy::Program;
use crate::error::{Error, Result};
use crate::runs::Run;

/// The records that one batch has for one part.
struct Copies {
    part: usize,
    records: u64,
    programs: Vec<Program>,
}

/// Reads and places batches until there are no more. Reader `number` looks at the parts from
/// another one on, so that readers seldom meet.
pub(super) fn read_batches(
    shared: &Shared<'_>,
    flow: &Flow<'_, '_>,
    number: usize,
    buffer: &mut [u8],
) -> Result<()> {
    while let Some((batch, load)) = flow.next_batch() {
        let begin = read_batch(shared, flow, &batch, buffer)?;
        let mut copies = copies(shared, &batch, &load, begin);
        let turn = number % copies.len().max(1);
        copies.rotate_left(turn);
        place(flow, &load, copies, buffer)?;
    }
    flow.leave()
}

/// Reads the runs of a batch, one after the other in memory; answers where the first begins.
fn read_batch(
    shared: &Shared<'_>,
    flow: &Flow<'_, '_>,
    batch: &Batch,
    buffer: &mut [u8],
) -> Result<usize> {
    let record = shared.record as u64;
    let (mut begin, mut end) = (0, 0);
    for Run { address, records } in shared.plan.reads(shared.plan.read_choice(batch)) {
        if flow.is_over() {
            return Err(Error::Interrupted);
        }
        let offset = shared.source.start + address * record;
        let len = usize::try_from(records * record).unwrap_or(usize::MAX);
        let at = read_run(shared, buffer, end, offset, len)?;
        if end == 0 {
            // The first run stays where it was read.
            (begin, end) = (at, at + len);
        } else {
            buffer.copy_within(at..at + len, end);
            end += len;
        }
        shared.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(begin)
}

/// Reads `len` bytes into memory that begins at or after `from`; answers where.
fn read_run(
    shared: &Shared<'_>,
    buffer: &mut [u8],
    from: usize,
    offset: u64,
    len: usize,
) -> Result<usize> {
    let align = shared.source.file.alignment();
    let skew = usize::try_from(offset % align as u64).unwrap_or(0);
    let place = from.next_multiple_of(align);
    let cover = (skew + len).next_multiple_of(align);
    let Some(target) = buffer.get_mut(place..place.saturating_add(cover)) else {
        return Err(Error::Internal("a batch is larger than its buffer"));
    };
    let read = shared.source.file.read(offset - skew as u64, target)?;
    shared.reads.fetch_add(1, Ordering::Relaxed);
    shared.read_device_bytes.fetch_add(cover as u64, Ordering::Relaxed);
    if read < skew + len {
        return Err(Error::File("the input ends early: it was cut while it was read".into()));
    }
    Ok(place + skew)
}

/// The copies of a batch whose records begin at `begin` to the parts of its load.
fn copies(shared: &Shared<'_>, batch: &Batch, load: &Load<'_, '_>, begin: usize) -> Vec<Copies> {
    let record = shared.record;
    let mut all = Vec::with_capacity(load.parts.len());
    for (number, stretch) in load.parts.iter().enumerate() {
        if stretch.part.records == 0 {
            continue;
        }
        let before = isize::try_from(stretch.part.base).unwrap_or(isize::MAX) * record as isize;
        let to = stretch.start as isize - before;
        let mut copies = Copies { part: number, records: 0, programs: Vec::new() };
        for piece in shared.plan.copies(batch, number as u64) {
            copies.records += piece.dims.iter().map(|dim| dim.count).product::<u64>();
            copies.programs.push(Program::new(&piece, record, begin as isize, to));
        }
        if copies.records > 0 {
            all.push(copies);
        }
    }
    all
}

/// Copies a batch to its places, in the parts that are free first.
fn place<'p, 'm>(
    flow: &Flow<'p, 'm>,
    load: &Load<'p, 'm>,
    mut copies: Vec<Copies>,
    buffer: &[u8],
) -> Result<()> {
    let mut parts: Vec<usize> = copies.iter().map(|copies| copies.part).collect();
    while !copies.is_empty() {
        let filled = flow.fill(load, &parts, |index, memory| {
            for program in &copies[index].programs {
                if !program.fits(buffer.len(), memory.len()) {
                    return Err(Error::Internal("a copy leaves its buffers"));
                }
                program.run(buffer, memory);
            }
            Ok(copies[index].records)
        })?;
        let Some(index) = filled else { return Err(Error::Interrupted) };
        copies.remove(index);
        parts.remove(index);
    }
    Ok(())
}
