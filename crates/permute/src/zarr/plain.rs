//! Chunks whose files hold their items as they are: read and written in parts, past the page cache
//! where ends of chunks allow it.

use std::path::Path;

use super::chunk_file::{ChunkFile, SECTOR};
use super::files::Files;
use super::grid::{Chunk, Grid};
use super::metadata::Array;
use crate::error::{Result, unusable};
use crate::file::{BLOCK, Sink, Source};

/// Bytes of the window through which the rows of edge chunks go, one a thread.
pub(super) const WINDOW: usize = 16 << 10;

/// An array that is there.
#[derive(Debug)]
pub(super) struct PlainSource {
    grid: Grid,
    fill: Vec<u8>,
    files: Files,
    alignment: usize,
}

/// Whether parts of chunks are parts of blocks of their files, too.
pub(super) fn is_blocked(grid: &Grid) -> bool {
    grid.is_even() && grid.chunk_bytes().is_multiple_of(BLOCK as u64)
}

impl PlainSource {
    pub(super) fn new(folder: &Path, array: &Array) -> Self {
        Self {
            grid: array.grid.clone(),
            fill: array.fill.clone(),
            files: Files::new(folder, array.keys, false, is_blocked(&array.grid)),
            alignment: if is_blocked(&array.grid) { SECTOR } else { 1 },
        }
    }

    fn read_chunk(&self, chunk: &Chunk, from: u64, buf: &mut [u8]) -> Result<()> {
        let Some(file) = self.files.get(chunk, |_| Ok(()))? else {
            fill(buf, &self.fill, from);
            return Ok(());
        };
        if self.grid.is_edge(chunk) {
            return self.read_rows(&file, chunk, from, buf);
        }
        let read = file.read(from, buf)?;
        self.whole(chunk, read == buf.len())
    }

    fn whole(&self, chunk: &Chunk, is_whole: bool) -> Result<()> {
        if is_whole {
            return Ok(());
        }
        let bytes = self.grid.chunk_bytes();
        let path = self.files.path(chunk);
        unusable(format!("{} is shorter than a chunk, which has {bytes} bytes", path.display()))
    }

    /// Rows are not contiguous in the file. Many short ones are read in one request, with the
    /// padding between them.
    fn read_rows(
        &self,
        file: &ChunkFile,
        chunk: &Chunk,
        mut from: u64,
        mut buf: &mut [u8],
    ) -> Result<()> {
        let mut window = Vec::new();
        while !buf.is_empty() {
            let (begin, run) = self.grid.padded(chunk, from);
            let first = buf.len().min(usize::try_from(run).unwrap_or(usize::MAX));
            if first >= WINDOW {
                let (row, rest) = buf.split_at_mut(first);
                self.whole(chunk, file.read(begin, row)? == first)?;
                (buf, from) = (rest, from + first as u64);
                continue;
            }
            let last = from + buf.len() as u64 - 1;
            let span = self.grid.padded(chunk, last).0 + 1 - begin;
            window.resize(usize::try_from(span).unwrap_or(usize::MAX).min(WINDOW), 0);
            let read = file.read(begin, &mut window)?;
            let mut taken = 0;
            while taken < buf.len() {
                let (place, run) = self.grid.padded(chunk, from + taken as u64);
                let place = usize::try_from(place - begin).unwrap_or(usize::MAX);
                let len = usize::try_from(run).unwrap_or(usize::MAX).min(buf.len() - taken);
                if place.saturating_add(len) > window.len() {
                    break;
                }
                self.whole(chunk, place + len <= read)?;
                buf[taken..taken + len].copy_from_slice(&window[place..place + len]);
                taken += len;
            }
            (buf, from) = (&mut buf[taken..], from + taken as u64);
        }
        Ok(())
    }
}

/// Items that are not there, from a byte of a chunk on.
pub(super) fn fill(buf: &mut [u8], item: &[u8], from: u64) {
    if item.iter().all(|byte| *byte == 0) {
        buf.fill(0);
        return;
    }
    let skip = usize::try_from(from % item.len() as u64).unwrap_or(0);
    let bytes = item.iter().cycle().skip(skip);
    buf.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
}

impl Source for PlainSource {
    fn read(&self, mut offset: u64, buf: &mut [u8]) -> Result<usize> {
        let bytes = self.grid.bytes();
        let available = bytes.saturating_sub(offset);
        let len = buf.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut left = &mut buf[..len];
        while !left.is_empty() {
            let chunk = self.grid.at(offset);
            let from = offset - chunk.begin;
            let here = usize::try_from(chunk.bytes - from).unwrap_or(usize::MAX).min(left.len());
            let (part, rest) = left.split_at_mut(here);
            self.read_chunk(&chunk, from, part)?;
            (left, offset) = (rest, offset + here as u64);
        }
        Ok(len)
    }

    fn alignment(&self) -> usize {
        self.alignment
    }
}

/// An array that is being made.
#[derive(Debug)]
pub(super) struct PlainSink {
    grid: Grid,
    files: Files,
    is_blocked: bool,
}

impl PlainSink {
    pub(super) fn new(folder: &Path, array: &Array) -> Self {
        Self {
            grid: array.grid.clone(),
            files: Files::new(folder, array.keys, true, is_blocked(&array.grid)),
            is_blocked: is_blocked(&array.grid),
        }
    }

    /// Calls `write` for the part of each chunk.
    fn parts(
        &self,
        mut offset: u64,
        mut buf: &[u8],
        mut write: impl FnMut(&ChunkFile, &Chunk, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        while !buf.is_empty() {
            let chunk = self.grid.at(offset);
            let from = offset - chunk.begin;
            let here = usize::try_from(chunk.bytes - from).unwrap_or(usize::MAX).min(buf.len());
            let (part, rest) = buf.split_at(here);
            // A chunk that is written in one request needs no room made for it.
            let is_whole = part.len() as u64 == self.grid.chunk_bytes();
            let room = if is_whole { 0 } else { self.grid.chunk_bytes() };
            if let Some(file) = self
                .files
                .get(&chunk, |file| if room == 0 { Ok(()) } else { file.reserve(room) })?
            {
                write(&file, &chunk, from, part)?;
            }
            (buf, offset) = (rest, offset + here as u64);
        }
        Ok(())
    }

    /// Rows are not contiguous in the file. Many short ones are written in one request, with zeros
    /// as the padding between them.
    fn write_rows(
        &self,
        file: &ChunkFile,
        chunk: &Chunk,
        mut from: u64,
        mut buf: &[u8],
    ) -> Result<()> {
        let mut window = Vec::new();
        while !buf.is_empty() {
            let (begin, run) = self.grid.padded(chunk, from);
            let first = buf.len().min(usize::try_from(run).unwrap_or(usize::MAX));
            if first >= WINDOW {
                let (row, rest) = buf.split_at(first);
                file.write(begin, row)?;
                (buf, from) = (rest, from + first as u64);
                continue;
            }
            window.clear();
            let mut taken = 0;
            while taken < buf.len() {
                let (place, run) = self.grid.padded(chunk, from + taken as u64);
                let place = usize::try_from(place - begin).unwrap_or(usize::MAX);
                let len = usize::try_from(run).unwrap_or(usize::MAX).min(buf.len() - taken);
                if place.saturating_add(len) > WINDOW {
                    break;
                }
                window.resize(place, 0);
                window.extend_from_slice(&buf[taken..taken + len]);
                taken += len;
            }
            file.write(begin, &window)?;
            (buf, from) = (&buf[taken..], from + taken as u64);
        }
        Ok(())
    }
}

impl Sink for PlainSink {
    fn write_blocks(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_part(offset, buf)
    }

    fn alignment(&self) -> usize {
        SECTOR
    }

    fn write_part(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.parts(offset, buf, |file, chunk, from, part| {
            if self.grid.is_edge(chunk) {
                self.write_rows(file, chunk, from, part)
            } else {
                file.write(from, part)
            }
        })
    }

    fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    fn stretch(&self, offset: u64, most: usize) -> usize {
        if self.is_blocked {
            return most - usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        }
        let chunk = self.grid.at(offset);
        let left = chunk.begin + chunk.bytes - offset;
        usize::try_from(left).unwrap_or(usize::MAX).min(most)
    }
}
