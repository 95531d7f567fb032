//! An external merge sort of records that carry their addresses.
//!
//! Runs are sorted in memory by two threads and merged with large buffers, as few times as memory
//! allows; the last merge leaves the addresses out, and each merge is done by two threads, one for
//! the lower addresses and one for the upper. Files are read and written in order, through the page
//! cache, which reads ahead and writes behind; what it holds is not counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{Turn, Walk};
use crate::error::{Error, Result, input};

/// Threads that sort and merge.
const THREADS: u64 = 2;
/// Bytes of a read of a run while it is merged, and of a write.
const BUFFER: u64 = 256 << 10;

/// A stretch of a file of records with addresses, ascending; in records.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    count: u64,
}

/// The work, with what is the same in all of it.
struct Sort<'a> {
    turn: &'a Turn,
    records: u64,
    /// Bytes of an address and a record.
    pair: u64,
}

/// Makes the result and syncs it. Records are of 1, 2, 4, 8 or 16 bytes.
pub fn run(turn: &Turn) -> Result<()> {
    let records = turn.records()?;
    let sort = Sort { turn, records, pair: 8 + turn.record as u64 };
    let done = match turn.record {
        1 => sort.run::<1>(),
        2 => sort.run::<2>(),
        4 => sort.run::<4>(),
        8 => sort.run::<8>(),
        16 => sort.run::<16>(),
        _ => return input("records of 1, 2, 4, 8 or 16 bytes are sorted"),
    };
    for number in 0..2 {
        let _gone = std::fs::remove_file(sort.scratch(number));
    }
    let path = turn.target.display().to_string();
    done.map_err(|source| Error::System { what: "sort into", path, source })
}

impl Sort<'_> {
    fn scratch(&self, number: u32) -> PathBuf {
        let mut name = self.turn.target.clone().into_os_string();
        name.push(format!(".run{number}"));
        PathBuf::from(name)
    }

    fn run<const R: usize>(&self) -> io::Result<()> {
        let mut runs = self.sorted::<R>()?;
        let fan_in = (self.turn.memory / THREADS / BUFFER).saturating_sub(1).max(2);
        let mut from = 0;
        while runs.len() as u64 > fan_in {
            let to = File::create(self.scratch(1 - from))?;
            let source = File::open(self.scratch(from))?;
            let mut merged = Vec::new();
            for group in runs.chunks(usize::try_from(fan_in).unwrap_or(2)) {
                self.merge::<R>(&source, group, &to, true)?;
                let count = group.iter().map(|run| run.count).sum();
                merged.push(Run { first: group[0].first, count });
            }
            std::fs::remove_file(self.scratch(from))?;
            (runs, from) = (merged, 1 - from);
        }
        let target = File::create_new(&self.turn.target)?;
        self.merge::<R>(&File::open(self.scratch(from))?, &runs, &target, false)?;
        target.sync_data()
    }

    /// Sorted runs of about the memory of a thread, in the first scratch file.
    fn sorted<const R: usize>(&self) -> io::Result<Vec<Run>> {
        let source = File::open(&self.turn.source)?;
        let target = File::create(self.scratch(0))?;
        let held = size_of::<(u64, [u8; R])>() as u64;
        let each = ((self.turn.memory / THREADS).saturating_sub(BUFFER) / held).max(1);
        let count = self.records.div_ceil(each);
        let next = AtomicU64::new(0);
        let work = || -> io::Result<()> {
            let mut pairs: Vec<(u64, [u8; R])> = Vec::new();
            loop {
                let first = next.fetch_add(1, Ordering::Relaxed) * each;
                if first >= self.records {
                    return Ok(());
                }
                self.sorted_run(
                    &source,
                    &target,
                    first,
                    each.min(self.records - first),
                    &mut pairs,
                )?;
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(joined)
        })?;
        let run = |number| {
            let first = number * each;
            Run { first, count: each.min(self.records - first) }
        };
        Ok((0..count).map(run).collect())
    }

    fn sorted_run<const R: usize>(
        &self,
        source: &File,
        target: &File,
        first: u64,
        count: u64,
        pairs: &mut Vec<(u64, [u8; R])>,
    ) -> io::Result<()> {
        let begin = self.turn.start + first * R as u64;
        let mut reader = BufReader::with_capacity(128 << 10, At { file: source, offset: begin });
        let steps = self.turn.target_steps();
        let axes = self.turn.sizes.iter().copied().zip(steps);
        pairs.clear();
        for address in Walk::new(axes, first).take(usize::try_from(count).unwrap_or(0)) {
            let mut record = [0; R];
            reader.read_exact(&mut record)?;
            pairs.push((address, record));
        }
        pairs.sort_unstable_by_key(|(address, _)| *address);
        let at = At { file: target, offset: first * self.pair };
        let mut writer = BufWriter::with_capacity(128 << 10, at);
        for (address, record) in pairs {
            writer.write_all(&address.to_le_bytes())?;
            writer.write_all(record)?;
        }
        writer.flush()
    }

    /// Merges runs, which are neighbours in one file, to the same place in another.
    fn merge<const R: usize>(
        &self,
        source: &File,
        runs: &[Run],
        target: &File,
        keeps_addresses: bool,
    ) -> io::Result<()> {
        let Some(first) = runs.first().map(|run| run.first) else { return Ok(()) };
        let middle = self.records / 2;
        let lower: Vec<Run> = runs
            .iter()
            .map(|run| Ok(Run { count: self.below(source, *run, middle)?, ..*run }))
            .collect::<io::Result<_>>()?;
        let upper: Vec<Run> = runs
            .iter()
            .zip(&lower)
            .map(|(run, low)| Run { first: run.first + low.count, count: run.count - low.count })
            .collect();
        let before = first + lower.iter().map(|run| run.count).sum::<u64>();
        let half = |runs: Vec<Run>, first: u64| {
            let bytes = if keeps_addresses { self.pair } else { R as u64 };
            let at = At { file: target, offset: first * bytes };
            let writer = BufWriter::with_capacity(BUFFER as usize, at);
            self.merge_half::<R>(source, &runs, writer, keeps_addresses)
        };
        let half = &half;
        thread::scope(|scope| {
            let upper = scope.spawn(move || half(upper, before));
            half(lower, first)?;
            joined(upper)
        })
    }

    fn merge_half<const R: usize>(
        &self,
        source: &File,
        runs: &[Run],
        mut writer: impl Write,
        keeps_addresses: bool,
    ) -> io::Result<()> {
        let mut readers: Vec<_> = runs
            .iter()
            .map(|run| {
                let at = At { file: source, offset: run.first * self.pair };
                BufReader::with_capacity(BUFFER as usize, at.take(run.count * self.pair))
            })
            .collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (number, reader) in readers.iter_mut().enumerate() {
            heap.extend(
                pair::<R>(reader)?.map(|(address, record)| Reverse((address, number, record))),
            );
        }
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((address, number, record)) = *top;
            if keeps_addresses {
                writer.write_all(&address.to_le_bytes())?;
            }
            writer.write_all(&record)?;
            match pair::<R>(&mut readers[number])? {
                Some((address, record)) => *top = Reverse((address, number, record)),
                None => drop(PeekMut::pop(top)),
            }
        }
        writer.flush()
    }

    /// The number of records of a run with addresses below a bound.
    fn below(&self, source: &File, run: Run, bound: u64) -> io::Result<u64> {
        let (mut low, mut high) = (0, run.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut address = [0; 8];
            source.read_exact_at(&mut address, (run.first + middle) * self.pair)?;
            if u64::from_le_bytes(address) < bound { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// The next address and record; `None` at the end of a run.
fn pair<const R: usize>(reader: &mut impl Read) -> io::Result<Option<(u64, [u8; R])>> {
    let mut address = [0; 8];
    match reader.read_exact(&mut address) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut record = [0; R];
    reader.read_exact(&mut record)?;
    Ok(Some((u64::from_le_bytes(address), record)))
}

fn joined(thread: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the sort ended early")))
}

/// A file from an offset on, which several threads share.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Write for At<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(buf, self.offset)?;
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
