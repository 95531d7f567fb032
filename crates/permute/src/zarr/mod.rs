//! Zarr arrays in folders, versions 2 and 3: each chunk is a file, and a tile.
//!
//! Reading order: [`metadata`] (the array's metadata; `dtype` and [`keys`] belong to it), [`grid`]
//! (the mapping from bytes to chunks), [`codec`] (with [`blosc`] and `lz`) between bytes and files;
//! `chunk_file`, `files`, `plain` and `coded` (chunks as sources and sinks of the executor),
//! [`folder`] (an array opened, or made under a temporary name); `groups` (consolidated metadata).
//!
//! To the executor an array is its chunks one after the other, without padding; how dimensions
//! become digits of that order is [`layout`](crate::layout)'s.

pub mod blosc;
mod chunk_file;
pub mod codec;
mod coded;
mod dtype;
mod files;
pub mod folder;
pub mod grid;
pub(crate) mod groups;
pub mod keys;
mod lz;
pub mod metadata;
mod plain;

use std::path::Path;

use crate::file::{Sink, Source};
use crate::layout::Arrangement;
use crate::steps::{Coding, End};
use metadata::Array;

/// The properties of an array that the planner needs.
pub(crate) fn end(array: &Array) -> End<'_> {
    let grid = &array.grid;
    let coding = Coding { chunk: grid.chunk_bytes(), working: coded::working_bytes(array) };
    End {
        arrangement: Arrangement::Chunks { sizes: &grid.chunk, inner: &grid.inner },
        coded: (!array.codecs.is_empty()).then_some(coding),
        window: if grid.is_even() { 0 } else { plain::WINDOW as u64 },
    }
}

/// The chunks of an array that is there.
pub(crate) fn source(folder: &Path, array: &Array) -> Box<dyn Source> {
    if array.codecs.is_empty() {
        Box::new(plain::PlainSource::new(folder, array))
    } else {
        Box::new(coded::Coded::new(folder, array))
    }
}

/// The chunks of an array that is being made.
pub(crate) fn sink(folder: &Path, array: &Array) -> Box<dyn Sink> {
    if array.codecs.is_empty() {
        Box::new(plain::PlainSink::new(folder, array))
    } else {
        Box::new(coded::Coded::new(folder, array))
    }
}
