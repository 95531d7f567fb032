//! Chunks whose files are compressed or summed: read and written whole.

use std::path::{Path, PathBuf};

use super::codec::{self, Codec};
use super::files::{created, opened};
use super::grid::{Chunk, Grid};
use super::keys::Keys;
use super::metadata::Array;
use super::plain::fill;
use crate::error::{Error, Result, unusable};
use crate::file::{Sink, Source};

/// An array of such chunks.
#[derive(Debug)]
pub(super) struct Coded {
    grid: Grid,
    codecs: Vec<Codec>,
    fill: Vec<u8>,
    folder: PathBuf,
    keys: Keys,
}

/// Bytes that the codecs hold for one chunk in addition to the caller's buffer: the file, the
/// padded chunk, what is between several codecs, and the blocks of Blosc.
pub(super) fn working_bytes(array: &Array) -> u64 {
    let is_blosc = |codec: &Codec| matches!(codec, Codec::Blosc { .. });
    let between = u64::from(array.codecs.len() > 1);
    let blocks = if array.codecs.iter().any(is_blosc) { 2 } else { 0 };
    codec::encoded_max(array.grid.chunk_bytes()).saturating_mul(2 + between + blocks)
}

impl Coded {
    pub(super) fn new(folder: &Path, array: &Array) -> Self {
        Self {
            grid: array.grid.clone(),
            codecs: array.codecs.clone(),
            fill: array.fill.clone(),
            folder: folder.to_owned(),
            keys: array.keys,
        }
    }

    fn path(&self, chunk: &Chunk) -> PathBuf {
        self.folder.join(self.keys.name(&chunk.place))
    }

    /// The items of a chunk.
    fn read_chunk(&self, chunk: &Chunk, buf: &mut [u8]) -> Result<()> {
        let path = self.path(chunk);
        let Some(file) = opened(path.clone(), false)? else {
            fill(buf, &self.fill, 0);
            return Ok(());
        };
        let bytes = self.grid.chunk_bytes();
        let len = file.len()?;
        if len > codec::encoded_max(bytes) {
            return unusable(format!("{}: it is longer than any encoded chunk", path.display()));
        }
        let mut encoded = vec![0; to_usize(len)];
        let read = file.read(0, &mut encoded)?;
        encoded.truncate(read);
        let expected = usize::try_from(bytes).unwrap_or(usize::MAX);
        let decoded = codec::decode(&self.codecs, encoded, expected);
        let decoded = decoded.map_err(|what| Error::File(what.into()).in_file(&path))?;
        let mut at = 0;
        while at < buf.len() {
            let (place, run) = self.grid.padded(chunk, at as u64);
            let (place, run) = (to_usize(place), to_usize(run).min(buf.len() - at));
            let Some(row) = decoded.get(place..place.saturating_add(run)) else {
                return Err(Error::Internal("a row leaves its chunk"));
            };
            buf[at..at + run].copy_from_slice(row);
            at += run;
        }
        Ok(())
    }

    /// Writes a chunk, or nothing where a chunk that is not there says the same.
    fn write_chunk(&self, chunk: &Chunk, items: &[u8]) -> Result<()> {
        if items.chunks(self.fill.len().max(1)).all(|item| item == self.fill) {
            return Ok(());
        }
        let mut padded = Vec::new();
        if self.grid.is_edge(chunk) {
            padded.resize(to_usize(self.grid.chunk_bytes()), 0);
            fill(&mut padded, &self.fill, 0);
            let mut at = 0;
            while at < items.len() {
                let (place, run) = self.grid.padded(chunk, at as u64);
                let (place, run) = (to_usize(place), to_usize(run).min(items.len() - at));
                let Some(row) = padded.get_mut(place..place.saturating_add(run)) else {
                    return Err(Error::Internal("a row leaves its chunk"));
                };
                row.copy_from_slice(&items[at..at + run]);
                at += run;
            }
        }
        let bytes = if padded.is_empty() { items } else { &padded };
        let Some(encoded) = codec::encode(&self.codecs, bytes) else {
            return Err(Error::Internal("a chunk cannot be encoded"));
        };
        created(&self.path(chunk), false)?.write(0, &encoded)
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Source for Coded {
    fn read(&self, mut offset: u64, buf: &mut [u8]) -> Result<usize> {
        let available = self.grid.bytes().saturating_sub(offset);
        let len = buf.len().min(to_usize(available));
        let mut left = &mut buf[..len];
        while !left.is_empty() {
            let chunk = self.grid.at(offset);
            if chunk.begin != offset || chunk.bytes > left.len() as u64 {
                return Err(Error::Internal("part of an encoded chunk is read"));
            }
            let (part, rest) = left.split_at_mut(to_usize(chunk.bytes));
            self.read_chunk(&chunk, part)?;
            (left, offset) = (rest, offset + chunk.bytes);
        }
        Ok(len)
    }

    fn alignment(&self) -> usize {
        1
    }
}

impl Sink for Coded {
    fn write_blocks(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_part(offset, buf)
    }

    fn write_part(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let chunk = self.grid.at(offset);
        if chunk.begin != offset || chunk.bytes != buf.len() as u64 {
            return Err(Error::Internal("part of an encoded chunk is written"));
        }
        self.write_chunk(&chunk, buf)
    }

    fn is_blocked(&self) -> bool {
        false
    }

    fn stretch(&self, offset: u64, _most: usize) -> usize {
        let chunk = self.grid.at(offset);
        to_usize(chunk.begin + chunk.bytes - offset)
    }
}
