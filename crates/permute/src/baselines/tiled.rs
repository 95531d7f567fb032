//! Tile by tile, as one would write it by hand: read, rearrange, write, and the next.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_device::AlignedBuf;

use super::{Work, on_threads, read_range};
use crate::copy::Program;
use crate::error::{Error, Result};
use crate::file::{BLOCK, Sink};
use crate::pass::Pass;
use crate::pieces::{Packing, pieces};
use crate::plan::cut::{Extent, Task};
use crate::plan::price::Figures;
use crate::runs::{Placement, Runs};
use crate::space::{Choice, Digit, Settings};

/// How many requests are in flight.
const IN_FLIGHT: usize = 16;
/// Bytes of the largest.
const REQUEST: usize = 256 << 10;
/// About so many tiles are compared.
const TILES: usize = 20_000;
/// Bytes that cost as much as a request does besides.
const REQUEST_COST: f64 = 32_768.0;

pub(super) fn run(work: &Work<'_>) -> Result<()> {
    let request = REQUEST.min(work.memory / (4 * IN_FLIGHT) / BLOCK * BLOCK).max(BLOCK);
    let buffers = IN_FLIGHT * (request + 2 * BLOCK);
    let records = work.memory.saturating_sub(buffers) / 2 / work.record;
    let pass = best(work.task, records as u64, work.record)?;
    let bytes = usize::try_from(pass.load_records()).unwrap_or(usize::MAX) * work.record;
    let mut tile =
        Tile { work, pass: &pass, request, read: vec![0; bytes], placed: vec![0; bytes] };
    let passive: Vec<Digit> =
        pass.output.iter().filter(|digit| !pass.is_action(**digit)).copied().collect();
    let mut choice = pass.open_choice();
    let mut settings = Settings::new(&pass.space, &passive, &choice);
    while settings.advance() {
        settings.apply(&mut choice);
        tile.move_one(&choice)?;
    }
    Ok(())
}

/// The tile of at most so many records that is read and written in the fewest requests, bytes
/// counted.
fn best(task: &Task, records: u64, record: usize) -> Result<Pass> {
    let trees = task.space.trees.len();
    let most = (TILES as f64).powf(1.0 / trees as f64) as usize;
    let extents: Vec<Vec<Extent>> = (0..trees).map(|tree| thinned(task, tree, most)).collect();
    let mut indices = vec![0; trees];
    let mut best: Option<(f64, Pass)> = None;
    loop {
        let acting: Vec<Extent> = indices.iter().zip(&extents).map(|(i, all)| all[*i]).collect();
        let pass = task.pass(&acting, &acting);
        let figures = Figures::of(&pass);
        if figures.load <= records {
            let requests = (figures.segments + figures.flushes) as f64;
            let price = requests * REQUEST_COST + 2.0 * (figures.records * record as u64) as f64;
            if best.as_ref().is_none_or(|(least, _)| price < *least) {
                best = Some((price, pass));
            }
        }
        let mut all = indices.iter_mut().zip(&extents);
        let moved = all.any(|(index, of)| {
            *index = (*index + 1) % of.len();
            *index > 0
        });
        if !moved {
            break;
        }
    }
    best.map(|(_, pass)| pass).ok_or(Error::Internal("no memory for one record"))
}

/// The extents of an axis, about `most` of them, each larger than the one before by a factor.
fn thinned(task: &Task, tree: usize, most: usize) -> Vec<Extent> {
    let mut all = vec![Extent::NONE];
    for (leaf, _) in task.space.trees[tree].leaves().iter().enumerate() {
        let lows = task.lows(Digit { tree, leaf });
        all.extend(lows.into_iter().map(|low| Extent { leaf, low }));
    }
    let keep = most.clamp(2, all.len());
    let at = |number: usize| all[number * (all.len() - 1) / (keep - 1).max(1)];
    let mut kept: Vec<Extent> = (0..keep).map(at).collect();
    kept.dedup();
    kept
}

/// The memory of a tile.
struct Tile<'a> {
    work: &'a Work<'a>,
    pass: &'a Pass,
    request: usize,
    /// The records in the order of the input.
    read: Vec<u8>,
    /// The records in the order of the output.
    placed: Vec<u8>,
}

/// A part of a tile in a file: at which offset, from where in the tile, how many bytes.
type Range = (u64, usize, usize);

impl Tile<'_> {
    fn move_one(&mut self, choice: &Choice) -> Result<()> {
        let Self { work, pass, .. } = *self;
        let flips = vec![false; pass.flips.len()];
        let input = Placement { space: &pass.space, order: &pass.input, flips: &pass.flips };
        let output = Placement { space: &pass.space, order: &pass.output, flips: &flips };
        let reads = self.ranges(Runs::new(input, choice.clone()), work.source.start);
        self.read_all(&reads)?;
        let settled: Vec<Vec<bool>> =
            pass.acts.iter().map(|leaves| leaves.iter().map(|acts| !acts).collect()).collect();
        let packing = |placement| Packing { placement, settled: &settled, window: None };
        for piece in pieces(&pass.space, choice, packing(input), packing(output)) {
            Program::new(&piece, work.record, 0, 0).run(&self.read, &mut self.placed);
        }
        let writes = self.ranges(Runs::new(output, choice.clone()), work.sink.start);
        self.write_all(&writes)
    }

    /// The runs in bytes, cut to the size of a request.
    fn ranges(&self, runs: Runs<'_>, start: u64) -> Vec<Range> {
        let mut at = 0;
        let mut ranges = Vec::new();
        for run in runs {
            let mut offset = start + run.address * self.work.record as u64;
            let mut left = run.records * self.work.record as u64;
            while left > 0 {
                let now = left.min(self.request as u64) as usize;
                ranges.push((offset, at, now));
                (offset, at, left) = (offset + now as u64, at + now, left - now as u64);
            }
        }
        ranges
    }

    fn read_all(&mut self, ranges: &[Range]) -> Result<()> {
        let lens = ranges.iter().map(|range| range.2);
        let mut rest = self.read.as_mut_slice();
        let mut parts = Vec::with_capacity(ranges.len());
        for (range, len) in ranges.iter().zip(lens) {
            let (part, after) = rest.split_at_mut(len);
            parts.push((range.0, part));
            rest = after;
        }
        let queue = Mutex::new(parts.into_iter());
        on_threads(IN_FLIGHT, || {
            let mut buf = AlignedBuf::zeroed(self.request + 2 * BLOCK);
            loop {
                let next = queue.lock().ok().and_then(|mut queue| queue.next());
                let Some((offset, into)) = next else { return Ok(()) };
                let skew = read_range(self.work.source.file, offset, into.len(), &mut buf)?;
                into.copy_from_slice(&buf[skew..skew + into.len()]);
            }
        })
    }

    fn write_all(&self, ranges: &[Range]) -> Result<()> {
        let next = AtomicUsize::new(0);
        on_threads(IN_FLIGHT, || {
            while let Some((offset, at, len)) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.work.sink.file.write_part(*offset, &self.placed[*at..at + len])?;
            }
            Ok(())
        })
    }
}
