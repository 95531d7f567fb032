//! A control group with a limit of memory around each run, so that the page cache cannot hold
//! the whole store and make every device look like memory.
//!
//! Version 1 of the kernel's interface, because it is the one that counts page cache on the
//! machines at hand. Where no group can be made the run goes on without, and the report says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = "/sys/fs/cgroup/memory";
const LIMIT: &str = "memory.limit_in_bytes";
const PEAK: &str = "memory.max_usage_in_bytes";

/// A group. It is removed when this is dropped, if no process is left in it.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes a group with the given limit.
    ///
    /// # Errors
    /// One line that says why there is none.
    pub fn create(name: &str, limit_bytes: u64) -> Result<Self, String> {
        let root = Path::new(ROOT);
        if !root.join(LIMIT).exists() {
            mount(root);
        }
        if !root.join(LIMIT).exists() {
            return Err(format!("{ROOT} is not a memory controller of version 1"));
        }
        let folder = root.join(name);
        let say = |error: io::Error| format!("{}: {error}", folder.display());
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(say(error)),
            _ => {}
        }
        let group = Self { folder: folder.clone() };
        fs::write(folder.join(LIMIT), limit_bytes.to_string()).map_err(say)?;
        Ok(group)
    }

    /// The folder of the group.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A group with a process that will not die stays; the kernel refuses, and rightly so.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Moves this process into the group at `folder`.
///
/// # Errors
/// The kernel's.
pub fn enter(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

/// Moves this process back to the group of all.
///
/// # Errors
/// The kernel's.
pub fn leave() -> io::Result<()> {
    enter(Path::new(ROOT))
}

/// The most memory, page cache included, that the group at `folder` has used, in bytes.
#[must_use]
pub fn peak_bytes(folder: &Path) -> Option<u64> {
    fs::read_to_string(folder.join(PEAK)).ok()?.trim().parse().ok()
}

/// Tries to mount the controller where there is none; the caller checks whether it is there.
fn mount(root: &Path) {
    let made = fs::create_dir(root).is_ok();
    let _ = Command::new("mount")
        .args(["-t", "cgroup", "-o", "memory", "none"])
        .arg(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if made && !root.join(LIMIT).exists() {
        let _ = fs::remove_dir(root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_limits_and_goes_away_or_says_why_not() {
        let name = format!("esker-test-{}", std::process::id());
        match Cgroup::create(&name, 64 << 20) {
            Ok(group) => {
                let folder = group.folder().to_owned();
                let limit = fs::read_to_string(folder.join(LIMIT)).unwrap();
                assert_eq!(limit.trim(), (64u64 << 20).to_string());
                assert!(peak_bytes(&folder).is_some());
                drop(group);
                assert!(!folder.exists());
            }
            Err(why) => assert!(!why.is_empty() && !why.contains('\n'), "{why:?}"),
        }
    }

    #[test]
    fn a_group_that_is_not_there_cannot_be_entered() {
        assert!(enter(Path::new("/nonexistent")).is_err());
        assert_eq!(peak_bytes(Path::new("/nonexistent")), None);
    }
}
