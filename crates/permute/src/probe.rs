//! Measures a device: what a request costs, and what a byte costs, with requests in flight.
//!
//! A scratch file is written and read past the page cache in scattered requests of two sizes; two
//! times give the two unknowns of time = requests · r + bytes · b.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use esker_device::AlignedBuf;

use crate::error::{Error, Result, input};
use crate::file::{File, Sink, Source};
use crate::plan::price::Profile;
use crate::target::{Target, check_space};

/// Bytes of the scratch file.
const FILE_BYTES: u64 = 256 << 20;
/// Requests in flight, as the executor has them.
const THREADS: u64 = 16;
/// The two sizes, and how many bytes are moved in each, so that both take about as long.
const SIZES: [(u64, u64); 2] = [(16 << 10, 64 << 20), (1 << 20, 256 << 20)];

/// One measurement: bytes of a request, requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Bytes of a request.
    pub bytes: u64,
    /// Whether it was a write.
    pub is_write: bool,
    /// Seconds a request, with all in flight: the time over their number.
    pub seconds: f64,
}

/// Measures the device of a folder. Takes a few seconds, needs 256 MiB there for as long, and
/// leaves nothing.
pub fn probe(folder: &Path) -> Result<(Profile, Vec<Sample>)> {
    if !folder.is_dir() {
        let folder = folder.display();
        return input(format!("{folder} is not a folder; name one on the device to measure"));
    }
    let path = folder.join("esker-permute-probe");
    check_space(&path, FILE_BYTES)?;
    let target = Target::scratch(&path, FILE_BYTES)?;
    let file = target.file();
    // Written once before, so that no extent is made while it is measured.
    pass(file, 1 << 20, FILE_BYTES, true)?;
    let mut samples = Vec::new();
    for is_write in [true, false] {
        for (bytes, total) in SIZES {
            let seconds = pass(file, bytes, total, is_write)?;
            samples.push(Sample { bytes, is_write, seconds });
        }
    }
    let (read_request, read_byte) = fit(samples[2], samples[3]);
    let (write_request, write_byte) = fit(samples[0], samples[1]);
    Ok((Profile { read_request, read_byte, write_request, write_byte }, samples))
}

/// The line through two samples, with neither part below a hundredth of what was measured.
fn fit(small: Sample, large: Sample) -> (f64, f64) {
    let apart = (large.bytes - small.bytes) as f64;
    let byte =
        ((large.seconds - small.seconds) / apart).max(large.seconds / large.bytes as f64 / 100.0);
    let request = (small.seconds - byte * small.bytes as f64).max(small.seconds / 100.0);
    (request, byte)
}

/// Moves `total` bytes in scattered requests; answers seconds a request.
fn pass(file: &File, bytes: u64, total: u64, is_write: bool) -> Result<f64> {
    let places = FILE_BYTES / bytes;
    let requests = total / bytes;
    let next = AtomicU64::new(0);
    let started = Instant::now();
    let work = || -> Result<()> {
        let mut buffer = AlignedBuf::zeroed(usize::try_from(bytes).unwrap_or(0));
        // Zeros may be left out by what is below; nothing here repeats.
        for (number, byte) in (0_u64..).zip(buffer.iter_mut()) {
            *byte = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= requests {
                return Ok(());
            }
            // An odd factor visits every place once.
            let offset = number.wrapping_mul(0x9e37_79b1) % places * bytes;
            if is_write {
                file.write_blocks(offset, &buffer)?;
            } else {
                file.read(offset, &mut buffer)?;
            }
        }
    };
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or(Err(Error::Internal("a thread of the probe ended early")))
        };
        threads.into_iter().map(ended).collect()
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    if is_write {
        file.sync()?;
    }
    Ok(started.elapsed().as_secs_f64() / requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_give_two_costs() {
        let sample = |bytes, seconds| Sample { bytes, is_write: false, seconds };
        let (request, byte) = fit(sample(1000, 30e-6), sample(11_000, 40e-6));
        assert!((request - 29e-6).abs() < 1e-12 && (byte - 1e-9).abs() < 1e-15);
        let (request, byte) = fit(sample(1000, 30e-6), sample(11_000, 20e-6));
        assert!(request > 0.0 && byte > 0.0);
    }
}
