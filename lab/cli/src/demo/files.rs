//! The files below a folder: the reference with which the store's answers are compared.
//!
//! Invariants: files are sorted by path, whatever order the file system lists folders in; what
//! the store should hold of each follows from this list alone, and never from the store.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker_terminal::exit::Failure;
use esker_terminal::signals::Interrupt;

/// Beyond this many the list itself would be what fills the memory.
const FILES_MAX: usize = 1_000_000;

/// One file, as it was when the walk came by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct File {
    pub(super) path: Vec<u8>,
    pub(super) state: State,
    size_bytes: u64,
    mode: u32,
    modified_seconds: i64,
}

/// The last operation on a file's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Stored,
    Overwritten,
    Deleted,
}

impl File {
    /// The record that the store should hold: JSON, so that a dump can be read.
    pub(super) fn record(&self) -> Option<Vec<u8>> {
        let Self { size_bytes, mode, modified_seconds, .. } = self;
        let visits = match self.state {
            State::Stored => 1,
            State::Overwritten => 2,
            State::Deleted => return None,
        };
        let record = format!(
            "{{\"size\":{size_bytes},\"mode\":\"{mode:04o}\",\"mtime\":{modified_seconds},\
             \"visits\":{visits}}}"
        );
        Some(record.into_bytes())
    }
}

/// Every file below a folder.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) list: Vec<File>,
    /// Folders and files that could not be read, and are left out.
    pub(super) unreadable: u64,
    /// Whether the walk ended early, at the most files it takes.
    pub(super) truncated: bool,
}

impl Files {
    /// Reads the metadata of every regular file below `root`; links are not followed.
    pub(super) fn below(
        root: &Path,
        interrupt: &Interrupt,
        progress: impl Fn(usize),
    ) -> Result<Self, Failure> {
        fs::read_dir(root).map_err(|error| {
            Failure::Input(format!("cannot read the folder {}: {error}", root.display()))
        })?;
        let mut files = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            interrupt.check()?;
            files.add_folder(&folder, &mut folders);
            progress(files.list.len());
            if files.list.len() > FILES_MAX {
                files.list.truncate(FILES_MAX);
                files.truncated = true;
                break;
            }
        }
        files.list.sort_unstable();
        Ok(files)
    }

    fn add_folder(&mut self, folder: &Path, folders: &mut Vec<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else {
            self.unreadable += 1;
            return;
        };
        for entry in entries {
            // The metadata of a `DirEntry` is that of a link, not of what it points to.
            let Ok((path, metadata)) =
                entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))
            else {
                self.unreadable += 1;
                continue;
            };
            if metadata.is_dir() {
                folders.push(path);
            } else if metadata.is_file() {
                self.list.push(File {
                    path: path.into_os_string().into_vec(),
                    state: State::Stored,
                    size_bytes: metadata.len(),
                    mode: metadata.mode() & 0o7777,
                    modified_seconds: metadata.mtime(),
                });
            }
        }
    }

    /// The entries that a scan of `prefix` must answer.
    pub(super) fn with_prefix(&self, prefix: &[u8]) -> impl Iterator<Item = (&[u8], Vec<u8>)> {
        let start = self.list.partition_point(|file| file.path.as_slice() < prefix);
        self.list
            .iter()
            .skip(start)
            .take_while(move |file| file.path.starts_with(prefix))
            .filter_map(|file| Some((file.path.as_slice(), file.record()?)))
    }

    /// The folders that hold files, each with its final slash, sorted.
    pub(super) fn folders(&self) -> BTreeSet<&[u8]> {
        let folder = |file: &File| {
            let slash = file.path.iter().rposition(|&byte| byte == b'/');
            slash.map_or(0, |slash| slash + 1)
        };
        self.list.iter().map(|file| &file.path[..folder(file)]).collect()
    }

    /// Key and value bytes of all that the store should hold.
    pub(super) fn live_bytes(&self) -> u64 {
        self.with_prefix(b"").map(|(path, record)| (path.len() + record.len()) as u64).sum()
    }
}

/// The numbers below `count`, each once, in an order that is scattered and the same every time.
pub(super) fn scattered(count: usize) -> impl Iterator<Item = usize> {
    // Near the golden section, so that neighbours in the order are distant numbers.
    let golden = (count as f64 * 0.618) as usize;
    let coprime = |stride: &usize| greatest_common_divisor(*stride, count) == 1;
    let stride = (golden.max(1)..).find(coprime).unwrap_or(1);
    (0..count).scan(0, move |next, _| {
        let number = *next;
        *next = (number + stride) % count;
        Some(number)
    })
}

const fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_order_visits_each_number_once() {
        for count in (0..200).chain([1000, 4096, 130_081]) {
            let mut seen: Vec<usize> = scattered(count).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
        }
    }

    fn file(path: &str, state: State) -> File {
        let path = path.into();
        File { path, state, size_bytes: 7, mode: 0o644, modified_seconds: -1 }
    }

    #[test]
    fn a_prefix_holds_what_is_below_it_and_was_not_deleted() {
        let list = vec![
            file("/a", State::Stored),
            file("/a/b", State::Overwritten),
            file("/a/c", State::Deleted),
            file("/a/d/e", State::Stored),
            file("/ab", State::Stored),
        ];
        let files = Files { list, ..Files::default() };
        let below: Vec<(&[u8], Vec<u8>)> = files.with_prefix(b"/a/").collect();
        let record = |visits| {
            format!("{{\"size\":7,\"mode\":\"0644\",\"mtime\":-1,\"visits\":{visits}}}")
                .into_bytes()
        };
        assert_eq!(below, [(&b"/a/b"[..], record(2)), (&b"/a/d/e"[..], record(1))]);
        assert!(files.folders().into_iter().eq([&b"/"[..], b"/a/", b"/a/d/"]));
        assert_eq!(files.with_prefix(b"").count(), 4);
    }
}
