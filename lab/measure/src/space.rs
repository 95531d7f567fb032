//! Space on the device: what the file system has given to all files of a folder (`st_blocks`),
//! preallocated space included, holes excluded.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::background::Stop;

/// The least unit of space in `st_blocks`, in bytes.
const SECTOR_BYTES: u64 = 512;
/// The interval at which the sampler looks.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Folders within folders deeper than this are not looked into; no store nests so deep.
const DEPTH_MAX: u32 = 8;

/// Bytes that the files below `folder` occupy. Files that vanish meanwhile count nothing.
#[must_use]
pub fn occupied_bytes(folder: &Path) -> u64 {
    occupied(folder, DEPTH_MAX)
}

fn occupied(folder: &Path, depth: u32) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        if metadata.is_dir() {
            return depth.checked_sub(1).map(|depth| occupied(&entry.path(), depth));
        }
        Some(metadata.blocks().saturating_mul(SECTOR_BYTES))
    });
    sizes.sum()
}

/// The most space that was seen.
#[derive(Debug, Default)]
pub struct Peak {
    bytes: AtomicU64,
}

impl Peak {
    /// Looks until it is stopped.
    pub fn run(&self, folder: &Path, stop: &Stop) {
        loop {
            self.bytes.fetch_max(occupied_bytes(folder), Ordering::Relaxed);
            if stop.wait(SAMPLE_INTERVAL) {
                return;
            }
        }
    }

    /// Begins anew from what is occupied now, which it answers.
    pub fn reset(&self, folder: &Path) -> u64 {
        let now = occupied_bytes(folder);
        self.bytes.store(now, Ordering::Relaxed);
        now
    }

    /// The most that was seen since then, now included.
    pub fn bytes(&self, folder: &Path) -> u64 {
        let now = occupied_bytes(folder);
        self.bytes.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn files_of_subfolders_count_and_holes_do_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("a"), vec![1; 64 << 10]).unwrap();
        fs::write(folder.path().join("sub/b"), vec![1; 64 << 10]).unwrap();
        let hole = fs::File::create(folder.path().join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        hole.sync_all().unwrap();
        let bytes = occupied_bytes(folder.path());
        assert!((128 << 10..1 << 20).contains(&bytes), "{bytes}");
        assert_eq!(occupied_bytes(&folder.path().join("absent")), 0);
    }

    #[test]
    fn the_peak_outlives_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (peak, stop) = (Peak::default(), Stop::default());
        let path = folder.path().join("a");
        thread::scope(|scope| {
            scope.spawn(|| peak.run(folder.path(), &stop));
            fs::write(&path, vec![1; 256 << 10]).unwrap();
            thread::sleep(4 * SAMPLE_INTERVAL);
            fs::remove_file(&path).unwrap();
            stop.ask();
        });
        assert!(peak.bytes(folder.path()) >= 256 << 10);
        assert!(peak.reset(folder.path()) < 256 << 10);
        assert!(peak.bytes(folder.path()) < 256 << 10);
    }
}
