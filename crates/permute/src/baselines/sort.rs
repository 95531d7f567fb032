//! An external merge sort of records that carry the addresses they go to.
//!
//! Runs are sorted in memory and written, address before record; runs are merged until one merge
//! is left, which writes records alone, each where its address says. All threads sort, and all
//! merge: other groups of runs, at last other ranges of the output.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Mutex;

use esker_device::AlignedBuf;

use super::addresses::{Stretch, Stretches, of_output};
use super::{Work, cores, on_threads, read_range};
use crate::error::{Error, Result, input};
use crate::exec::Payload;
use crate::file::{BLOCK, File, Sink};
use crate::target::Target;

/// Records of a run are a multiple of this, so that runs begin where blocks do.
const PAIRS: usize = 4096;
/// Bytes of the smallest buffer of a run that is merged.
const BUFFER_MIN: usize = 32 << 10;
/// Bytes of the largest buffer.
const BUFFER_MAX: usize = 1 << 20;
/// Bytes of an address.
const ADDRESS: usize = 8;

pub(super) fn run(work: &Work<'_>) -> Result<()> {
    match work.record {
        1 => Sort::<1>::run(work),
        2 => Sort::<2>::run(work),
        4 => Sort::<4>::run(work),
        8 => Sort::<8>::run(work),
        16 => Sort::<16>::run(work),
        other => input(format!("sort moves records of 1, 2, 4, 8 or 16 bytes, not of {other}")),
    }
}

/// A sorted part of a scratch file.
#[derive(Clone, Debug, Default)]
struct Run {
    /// The first pair, counted from the beginning of the file.
    first: u64,
    pairs: u64,
    /// The address of every [`PAIRS`]th pair.
    samples: Vec<u64>,
}

/// A sort of records of `N` bytes.
struct Sort<'a, const N: usize> {
    work: &'a Work<'a>,
    threads: usize,
}

impl<'a, const N: usize> Sort<'a, N> {
    const PAIR: usize = ADDRESS + N;

    fn run(work: &'a Work<'a>) -> Result<()> {
        let sort = Self { work, threads: 2 * cores() };
        let bytes = work.task.space.records() * Self::PAIR as u64;
        let scratch = || Target::create(&work.request.output, bytes.next_multiple_of(BLOCK as u64));
        let mut from = scratch()?;
        let mut runs = sort.sorted(from.file())?;
        let fan_in = (sort.share() / BUFFER_MIN).saturating_sub(2).max(2);
        let merges = merges(runs.len(), fan_in);
        let ways = (runs.len() as f64).powf(1.0 / f64::from(merges)).ceil() as usize;
        for _ in 1..merges {
            let to = scratch()?;
            runs = sort.merged(from.file(), &runs, ways.max(2), to.file())?;
            from = to;
        }
        sort.placed(from.file(), &runs)
    }

    /// Bytes of memory of a thread.
    fn share(&self) -> usize {
        self.work.memory / self.threads
    }

    /// Reads the input in pieces, sorts them and writes them as runs.
    fn sorted(&self, to: &File) -> Result<Vec<Run>> {
        let buffer = buffer_bytes(self.share() / 8);
        let in_memory = size_of::<(u64, [u8; N])>();
        let pairs = self.share().saturating_sub(2 * buffer) / in_memory / PAIRS * PAIRS;
        let pairs = pairs.max(PAIRS);
        let addresses = Mutex::new(Input::new(of_output(self.work.task)?, pairs));
        let runs = Mutex::new(Vec::new());
        on_threads(self.threads, || {
            let mut all: Vec<(u64, [u8; N])> = Vec::with_capacity(pairs);
            let mut buf = AlignedBuf::zeroed(buffer + 2 * BLOCK);
            loop {
                all.clear();
                let first = lock(&addresses)?.take(|address| all.push((address, [0; N])));
                if all.is_empty() {
                    return Ok(());
                }
                self.read(first, &mut all, &mut buf)?;
                all.sort_unstable_by_key(|(address, _)| *address);
                let mut writer = Writer::<N>::new(to, first, &mut buf);
                all.iter().try_for_each(|(address, record)| writer.push(*address, record))?;
                let run = writer.finish()?;
                lock(&runs)?.push(run);
            }
        })?;
        runs.into_inner().map_err(|_| Error::Internal("a thread died"))
    }

    /// Reads the records of a run.
    fn read(&self, first: u64, all: &mut [(u64, [u8; N])], buf: &mut [u8]) -> Result<()> {
        let Payload { file, start } = self.work.source;
        let at_once = (buf.len() - 2 * BLOCK) / N;
        let mut offset = start + first * N as u64;
        for part in all.chunks_mut(at_once) {
            let skew = read_range(file, offset, part.len() * N, buf)?;
            for ((_, record), bytes) in part.iter_mut().zip(buf[skew..].chunks_exact(N)) {
                record.copy_from_slice(bytes);
            }
            offset += (part.len() * N) as u64;
        }
        Ok(())
    }

    /// Merges groups of `ways` runs.
    fn merged(&self, from: &File, runs: &[Run], ways: usize, to: &File) -> Result<Vec<Run>> {
        let buffer = buffer_bytes(self.share() / (ways + 1));
        let mut first = 0;
        let place = |group: &[Run]| {
            let place = first;
            first += group.iter().map(|run| run.pairs).sum::<u64>().next_multiple_of(PAIRS as u64);
            place
        };
        let groups: Vec<&[Run]> = runs.chunks(ways).collect();
        let places: Vec<u64> = groups.iter().copied().map(place).collect();
        let queue = Mutex::new(groups.into_iter().zip(places));
        let done = Mutex::new(Vec::new());
        on_threads(self.threads, || {
            let mut out = AlignedBuf::zeroed(buffer + BLOCK);
            loop {
                let next = lock(&queue)?.next();
                let Some((group, first)) = next else { return Ok(()) };
                let mut writer = Writer::<N>::new(to, first, &mut out);
                let mut merge = Merge::<N>::new(from, group, 0, buffer)?;
                while let Some((address, record)) = merge.next()? {
                    writer.push(address, &record)?;
                }
                let run = writer.finish()?;
                lock(&done)?.push(run);
            }
        })?;
        done.into_inner().map_err(|_| Error::Internal("a thread died"))
    }

    /// The last merge: every record to its place.
    fn placed(&self, from: &File, runs: &[Run]) -> Result<()> {
        let records = self.work.task.space.records();
        let buffer = buffer_bytes(self.share() / (runs.len() + 1));
        let threads = self.threads as u64;
        let parts =
            Mutex::new((0..threads).map(|n| n * records / threads..(n + 1) * records / threads));
        let Payload { file, start } = self.work.sink;
        on_threads(self.threads, || {
            let next = lock(&parts)?.next();
            let Some(part) = next else { return Ok(()) };
            let mut merge = Merge::<N>::new(from, runs, part.start, buffer)?;
            let mut out = Vec::with_capacity(buffer);
            let mut offset = start + part.start * N as u64;
            for _ in part {
                let (_, record) = merge.next()?.ok_or(Error::Internal("a record is missing"))?;
                if out.len() + N > buffer {
                    file.write_part(offset, &out)?;
                    offset += out.len() as u64;
                    out.clear();
                }
                out.extend_from_slice(&record);
            }
            file.write_part(offset, &out)
        })
    }
}

/// How many merges make one of so many runs.
fn merges(runs: usize, fan_in: usize) -> u32 {
    let mut merges = 1;
    let mut left = runs;
    while left > fan_in {
        left = left.div_ceil(fan_in);
        merges += 1;
    }
    merges
}

fn buffer_bytes(most: usize) -> usize {
    (most / BLOCK * BLOCK).clamp(BLOCK, BUFFER_MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> Result<std::sync::MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| Error::Internal("a thread died"))
}

/// The addresses of the input, given out in pieces.
struct Input<'a> {
    stretches: Stretches<'a>,
    /// What is left of the last one.
    rest: Stretch,
    /// How many records were given out.
    given: u64,
    at_once: usize,
}

impl<'a> Input<'a> {
    fn new(stretches: Stretches<'a>, at_once: usize) -> Self {
        let rest = Stretch { address: 0, step: 0, records: 0 };
        Self { stretches, rest, given: 0, at_once }
    }

    /// The next piece; answers which record is its first.
    fn take(&mut self, mut give: impl FnMut(u64)) -> u64 {
        let first = self.given;
        let mut left = self.at_once as u64;
        while left > 0 {
            if self.rest.records == 0 {
                match self.stretches.next() {
                    Some(stretch) => self.rest = stretch,
                    None => break,
                }
            }
            let now = left.min(self.rest.records);
            for _ in 0..now {
                give(self.rest.address);
                self.rest.address = self.rest.address.wrapping_add_signed(self.rest.step);
            }
            self.rest.records -= now;
            left -= now;
        }
        self.given += self.at_once as u64 - left;
        first
    }
}

/// Writes a run.
struct Writer<'a, const N: usize> {
    file: &'a File,
    run: Run,
    buf: &'a mut [u8],
    /// Bytes in the buffer, and where it goes.
    held: usize,
    offset: u64,
}

impl<'a, const N: usize> Writer<'a, N> {
    fn new(file: &'a File, first: u64, buf: &'a mut [u8]) -> Self {
        let offset = first * (ADDRESS + N) as u64;
        Self { file, run: Run { first, ..Run::default() }, buf, held: 0, offset }
    }

    fn push(&mut self, address: u64, record: &[u8; N]) -> Result<()> {
        if self.run.pairs.is_multiple_of(PAIRS as u64) {
            self.run.samples.push(address);
        }
        self.run.pairs += 1;
        self.buf[self.held..self.held + ADDRESS].copy_from_slice(&address.to_le_bytes());
        self.buf[self.held + ADDRESS..self.held + ADDRESS + N].copy_from_slice(record);
        self.held += ADDRESS + N;
        // A pair more would not fit.
        if self.held + ADDRESS + N > self.buf.len() {
            self.write(self.held / BLOCK * BLOCK)?;
        }
        Ok(())
    }

    /// Writes the beginning of the buffer, whole blocks, and keeps the rest.
    fn write(&mut self, len: usize) -> Result<()> {
        self.file.write_blocks(self.offset, &self.buf[..len])?;
        self.buf.copy_within(len..self.held, 0);
        self.held -= len;
        self.offset += len as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<Run> {
        self.write(self.held / BLOCK * BLOCK)?;
        self.file.write_part(self.offset, &self.buf[..self.held])?;
        Ok(self.run)
    }
}

/// Reads a run.
struct Reader<'a, const N: usize> {
    file: &'a File,
    buf: AlignedBuf,
    /// Where the next pair is in the buffer, and where what was read ends.
    at: usize,
    end: usize,
    /// Where the next read begins, and where the run ends.
    offset: u64,
    upto: u64,
}

impl<'a, const N: usize> Reader<'a, N> {
    const PAIR: usize = ADDRESS + N;

    /// Begins at a pair at or before the first whose address is not below `least`.
    fn new(file: &'a File, run: &Run, least: u64, buffer: usize) -> Self {
        let skipped = run.samples.partition_point(|sample| *sample <= least).saturating_sub(1);
        let first = run.first + (skipped * PAIRS) as u64;
        let buf = AlignedBuf::zeroed(buffer + BLOCK);
        let upto = (run.first + run.pairs) * Self::PAIR as u64;
        Self { file, buf, at: BLOCK, end: BLOCK, offset: first * Self::PAIR as u64, upto }
    }

    fn next(&mut self) -> Result<Option<(u64, [u8; N])>> {
        if self.end - self.at < Self::PAIR && !self.fill()? {
            return Ok(None);
        }
        let pair = &self.buf[self.at..self.at + Self::PAIR];
        self.at += Self::PAIR;
        let mut address = [0; ADDRESS];
        let mut record = [0; N];
        address.copy_from_slice(&pair[..ADDRESS]);
        record.copy_from_slice(&pair[ADDRESS..]);
        Ok(Some((u64::from_le_bytes(address), record)))
    }

    /// Reads on, behind what is left, which goes before the first block of the buffer.
    fn fill(&mut self) -> Result<bool> {
        let left = self.end - self.at;
        self.buf.copy_within(self.at..self.end, BLOCK - left);
        self.at = BLOCK - left;
        let most = usize::try_from(self.upto.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let wanted = most.min(self.buf.len() - BLOCK);
        let upto = BLOCK + wanted.next_multiple_of(BLOCK);
        let found = crate::file::Source::read(self.file, self.offset, &mut self.buf[BLOCK..upto])?;
        self.end = BLOCK + found.min(wanted);
        self.offset += found.min(wanted) as u64;
        Ok(self.end - self.at >= Self::PAIR)
    }
}

/// Several runs as one.
struct Merge<'a, const N: usize> {
    readers: Vec<Reader<'a, N>>,
    /// The next pair of each.
    heads: BinaryHeap<Reverse<(u64, usize, [u8; N])>>,
}

impl<'a, const N: usize> Merge<'a, N> {
    /// Begins at the first pair whose address is not below `least`.
    fn new(file: &'a File, runs: &[Run], least: u64, buffer: usize) -> Result<Self> {
        let mut merge = Self { readers: Vec::new(), heads: BinaryHeap::new() };
        for (number, run) in runs.iter().enumerate() {
            let mut reader = Reader::new(file, run, least, buffer);
            let head = loop {
                match reader.next()? {
                    Some((address, _)) if address < least => {}
                    other => break other,
                }
            };
            merge.heads.extend(head.map(|(address, record)| Reverse((address, number, record))));
            merge.readers.push(reader);
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<(u64, [u8; N])>> {
        let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
        let Reverse((address, number, record)) = *head;
        match self.readers[number].next()? {
            Some((next, bytes)) => *head = Reverse((next, number, bytes)),
            None => drop(PeekMut::pop(head)),
        }
        Ok(Some((address, record)))
    }
}
