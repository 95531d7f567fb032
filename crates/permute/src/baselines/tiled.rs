//! A loop over tiles, as it is written by hand, in any number of dimensions: sixteen requests in
//! flight, and the tile that costs least by search.
//!
//! A tile is read past the page cache, moved with the same copies that passes use, and written
//! through the page cache, since its runs end inside of blocks: what that holds is not counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use esker_device::AlignedBuf;

use super::{Turn, Walk};
use crate::copy::Program;
use crate::error::{Error, Result, input};
use crate::file::{BLOCK, File, Sink, Source};
use crate::plan::price::Profile;
use crate::scatter::{Dim, Piece};

/// Requests in flight.
const IN_FLIGHT: usize = 16;
/// The largest request, in bytes.
const REQUEST: u64 = 512 << 10;

/// The tile with the least predicted cost: the number of values of each axis.
fn best_tile(turn: &Turn, records: u64) -> Vec<u64> {
    let axes: Vec<usize> = (0..turn.sizes.len()).collect();
    let mut best = (vec![1; axes.len()], f64::INFINITY);
    let mut wanted = 1.0;
    while wanted <= records as f64 {
        let mut tile = vec![1; axes.len()];
        fill(turn, &mut tile, &axes, wanted as u64);
        fill(turn, &mut tile, &turn.order, records);
        fill(turn, &mut tile, &axes, records);
        let price = price(turn, &tile);
        if price < best.1 {
            best = (tile, price);
        }
        wanted *= 1.25;
    }
    best.0
}

/// Grows a tile along an order from its fast end, up to this many records.
fn fill(turn: &Turn, tile: &mut [u64], order: &[usize], records: u64) {
    for axis in order.iter().rev() {
        let others = tile.iter().product::<u64>() / tile[*axis];
        tile[*axis] = (records / others).clamp(tile[*axis], turn.sizes[*axis]);
        if tile[*axis] < turn.sizes[*axis] {
            return;
        }
    }
}

/// Records that are contiguous in an order of the axes.
fn run_records(turn: &Turn, tile: &[u64], order: &[usize]) -> u64 {
    let mut records = 1;
    for axis in order.iter().rev() {
        records *= tile[*axis];
        if tile[*axis] < turn.sizes[*axis] {
            break;
        }
    }
    records
}

fn price(turn: &Turn, tile: &[u64]) -> f64 {
    let bytes = turn.sizes.iter().product::<u64>() as f64 * turn.record as f64;
    let axes: Vec<usize> = (0..turn.sizes.len()).collect();
    let requests = |order: &[usize]| {
        let run = run_records(turn, tile, order) * turn.record as u64;
        bytes / run.min(REQUEST) as f64
    };
    let Profile { read_request, write_request, .. } = Profile::NVME;
    read_request * requests(&axes) + write_request * requests(&turn.order)
}

/// Does `work` for each number below `count`, sixteen at a time.
fn each(count: usize, work: impl Fn(usize, &mut [u8]) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..IN_FLIGHT.min(count) {
            scope.spawn(|| {
                let mut buffer = AlignedBuf::zeroed(64 << 10);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    if let Err(error) = work(number, &mut buffer) {
                        next.store(count, Ordering::Relaxed);
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// One tile: its first value along each axis, and how many it has.
struct Tile {
    first: Vec<u64>,
    sizes: Vec<u64>,
}

impl Tile {
    /// The first records of its runs in a file, in the order of the axes there; and the length of a
    /// run in records.
    fn runs(&self, turn: &Turn, order: &[usize], steps: &[u64]) -> (Vec<u64>, usize) {
        let len = run_records(turn, &self.sizes, order);
        let mut inside = 1;
        let outer = order.iter().rev().skip_while(|axis| {
            let is_inside = inside < len;
            inside *= self.sizes[**axis];
            is_inside
        });
        let outer: Vec<usize> = outer.copied().collect();
        let count: u64 = outer.iter().map(|axis| self.sizes[*axis]).product();
        let base: u64 = self.first.iter().zip(steps).map(|(first, step)| first * step).sum();
        let axes = outer.iter().rev().map(|axis| (self.sizes[*axis], steps[*axis]));
        let walk = Walk::new(axes, 0).take(usize::try_from(count).unwrap_or(0));
        (walk.map(|address| base + address).collect(), usize::try_from(len).unwrap_or(0))
    }

    /// The copy from its order in the source to that in the result.
    fn program(&self, turn: &Turn) -> Program {
        let small = Turn { sizes: self.sizes.clone(), ..turn.clone() };
        let (from, to) = (small.source_steps(), small.target_steps());
        let dim = |axis: usize| Dim {
            count: self.sizes[axis],
            from: i64::try_from(from[axis]).unwrap_or(i64::MAX),
            to: i64::try_from(to[axis]).unwrap_or(i64::MAX),
        };
        let dims = (0..self.sizes.len()).map(dim).filter(|dim| dim.count > 1).collect();
        Program::new(&Piece { from: 0, to: 0, dims }, turn.record, 0, 0)
    }
}

/// Reads one run to where it belongs, in pieces as large as the buffer of the thread.
fn read_run(file: &File, mut offset: u64, mut to: &mut [u8], buffer: &mut [u8]) -> Result<()> {
    while !to.is_empty() {
        let skew = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        let len = to.len().min(buffer.len() - skew);
        let window = &mut buffer[..(skew + len).next_multiple_of(BLOCK)];
        if file.read(offset - skew as u64, window)? < skew + len {
            return input("the array is shorter than its shape");
        }
        let (now, later) = to.split_at_mut(len);
        now.copy_from_slice(&window[skew..skew + len]);
        to = later;
        offset += len as u64;
    }
    Ok(())
}

fn move_tile(
    turn: &Turn,
    tile: &Tile,
    files: (&File, &File),
    memory: &mut [AlignedBuf; 2],
) -> Result<()> {
    let [from, to] = memory;
    let bytes = turn.record * usize::try_from(tile.sizes.iter().product::<u64>()).unwrap_or(0);
    let axes: Vec<usize> = (0..turn.sizes.len()).collect();
    let (reads, len) = tile.runs(turn, &axes, &turn.source_steps());
    let len = len * turn.record;
    let places: Vec<Mutex<&mut [u8]>> = from[..bytes].chunks_mut(len).map(Mutex::new).collect();
    each(reads.len(), |number, buffer| {
        let mut place = places[number].lock().unwrap_or_else(PoisonError::into_inner);
        read_run(files.0, turn.start + reads[number] * turn.record as u64, &mut place, buffer)
    })?;
    drop(places);
    tile.program(turn).run(&from[..bytes], &mut to[..bytes]);
    let (writes, len) = tile.runs(turn, &turn.order, &turn.target_steps());
    let len = len * turn.record;
    let to = &to[..bytes];
    each(writes.len(), |number, _| {
        let run = &to[number * len..(number + 1) * len];
        files.1.write_part(writes[number] * turn.record as u64, run)
    })
}

/// Makes the result and syncs it.
pub fn run(turn: &Turn) -> Result<()> {
    let records = turn.records()?;
    let (source, target) = (File::open(&turn.source)?, File::create(&turn.target)?);
    target.reserve(records * turn.record as u64)?;
    let buffers = (IN_FLIGHT as u64) * (64 << 10);
    let most = turn.memory.saturating_sub(buffers) / 2 / turn.record as u64;
    if most == 0 {
        return input(format!("tiles need more than {buffers} bytes of memory"));
    }
    let whole = best_tile(turn, most);
    let bytes = turn.record * usize::try_from(whole.iter().product::<u64>()).unwrap_or(0);
    let mut memory = [AlignedBuf::in_huge_pages(bytes), AlignedBuf::in_huge_pages(bytes)];
    let grid: Vec<u64> =
        turn.sizes.iter().zip(&whole).map(|(all, one)| all.div_ceil(*one)).collect();
    for number in 0..grid.iter().product::<u64>() {
        let mut rest = number;
        let mut tile = Tile { first: Vec::new(), sizes: Vec::new() };
        for (axis, count) in grid.iter().enumerate() {
            let first = rest % count * whole[axis];
            rest /= count;
            tile.first.push(first);
            tile.sizes.push(whole[axis].min(turn.sizes[axis] - first));
        }
        move_tile(turn, &tile, (&source, &target), &mut memory)?;
    }
    target.sync()
}
