//! The cost of one small durable write on a disk: where the file grows, and where it does not.
//!
//! That a commit rewrites written blocks is where its speed over a log that grows comes from, so
//! what can be won differs between disks and file systems.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use esker_lab_result::Findings;

use crate::{Error, Result};

/// Writes of each kind.
const WRITES: u64 = 200;
const BLOCK: u64 = 4096;

/// The part of what is found, its one system, and its metrics.
const PART: &str = "probe";
const DISK: &str = "disk";
const GROWING: &str = "growing_micros";
const REWRITING: &str = "rewriting_micros";

/// Medians, in microseconds, of a write of 4 KiB and `fdatasync`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Probe {
    /// At the end of the file.
    pub growing_micros: f64,
    /// Over blocks that were written before.
    pub rewriting_micros: f64,
}

impl Probe {
    /// The time where the file grows, over that for written blocks.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.growing_micros / self.rewriting_micros.max(1e-3)
    }

    /// Adds it to what was found.
    pub(super) fn record(&self, found: &mut Findings) {
        let run = [(GROWING, self.growing_micros), (REWRITING, self.rewriting_micros)];
        let run = run.map(|(name, value)| (name.to_owned(), value)).into();
        found.add(Some(PART), DISK, None, run);
    }

    /// What was found of the disk.
    #[must_use]
    pub fn of(found: &Findings) -> Self {
        let median = |metric| found.part(PART).median(DISK, metric).unwrap_or_default();
        Self { growing_micros: median(GROWING), rewriting_micros: median(REWRITING) }
    }
}

/// Writes 1.6 MB into a file of the folder, and removes it.
pub fn probe(folder: &Path) -> Result<Probe> {
    let path = folder.join("probe");
    let measured = measure(&path).map_err(Error::system(format!("write {}", path.display())));
    let _gone = fs::remove_file(&path);
    measured
}

fn measure(path: &Path) -> io::Result<Probe> {
    let file = File::create(path)?;
    // The first sync of a file also makes its name durable.
    file.sync_all()?;
    let growing_micros = each(&file)?;
    Ok(Probe { growing_micros, rewriting_micros: each(&file)? })
}

/// Writes the first blocks of the file one by one; the median of what one costs.
fn each(file: &File) -> io::Result<f64> {
    let mut micros = Vec::new();
    for at in 0..WRITES {
        let block = [at as u8 | 1; BLOCK as usize];
        let begun = Instant::now();
        file.write_all_at(&block, at * BLOCK)?;
        file.sync_data()?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    Ok(micros.get(micros.len() / 2).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_cost_something_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let probe = probe(folder.path()).unwrap();
        assert!(probe.growing_micros > 0.0 && probe.rewriting_micros > 0.0, "{probe:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
