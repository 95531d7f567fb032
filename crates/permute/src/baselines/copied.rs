//! The copy of a file by two threads, in direct requests of 8 MiB: what a device gives to a program
//! that changes nothing.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use esker_device::AlignedBuf;

use crate::error::{Error, Result};
use crate::file::{BLOCK, File, Sink, Source};

const THREADS: usize = 2;
/// Bytes of a request; a multiple of [`BLOCK`].
const REQUEST: usize = 8 << 20;

/// Copies a file to one that does not exist, and makes it durable.
///
/// # Errors
/// Those of the system; a file that becomes shorter meanwhile.
pub fn run(source: &Path, target: &Path) -> Result<()> {
    let from = File::open(source)?;
    let to = File::create(target)?;
    to.reserve(from.len())?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| part(&from, &to, &next))).collect();
        let died = || Err(Error::Internal("a thread died"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| died()))
    })?;
    to.sync()
}

/// Copies what no other thread has taken.
fn part(from: &File, to: &File, next: &AtomicU64) -> Result<()> {
    let mut buffer = AlignedBuf::in_huge_pages(REQUEST);
    loop {
        let offset = next.fetch_add(REQUEST as u64, Ordering::Relaxed);
        let left = from.len().saturating_sub(offset);
        if left == 0 {
            return Ok(());
        }
        let len = usize::try_from(left).map_or(REQUEST, |left| left.min(REQUEST));
        if from.read(offset, &mut buffer)? < len {
            return Err(Error::File("the file became shorter while it was copied".into()));
        }
        let blocks = len / BLOCK * BLOCK;
        to.write_blocks(offset, &buffer[..blocks])?;
        if blocks < len {
            to.write_part(offset + blocks as u64, &buffer[blocks..len])?;
        }
    }
}
