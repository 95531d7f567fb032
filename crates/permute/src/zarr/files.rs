//! The files of chunks, a bounded number of them open.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::grid::Chunk;
use super::keys::Keys;
use crate::error::{Error, Result};
use crate::file::File;

/// Files open at once; each has two descriptors, and processes may have 1,024 as a rule.
const OPEN_MAX: usize = 128;

/// The files of one array.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    keys: Keys,
    is_new: bool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By the address of the chunk; `None` for one that is not there.
    files: HashMap<u64, Option<Arc<File>>>,
    /// The oldest first.
    ages: VecDeque<u64>,
}

impl Files {
    /// Those of an array that is there.
    pub(super) fn of(folder: &Path, keys: Keys) -> Self {
        Self { folder: folder.to_owned(), keys, is_new: false, open: Mutex::default() }
    }

    /// Those of an array that is being made.
    pub(super) fn new(folder: &Path, keys: Keys) -> Self {
        Self { is_new: true, ..Self::of(folder, keys) }
    }

    /// Where the file of a chunk is.
    pub(super) fn path(&self, chunk: &Chunk) -> PathBuf {
        self.folder.join(self.keys.name(&chunk.place))
    }

    /// The file of a chunk, opened if need be; `None` if it is not there. In an array that is
    /// being made, `prepare` is called with each file that is created.
    pub(super) fn get(
        &self,
        chunk: &Chunk,
        prepare: impl FnOnce(&File) -> Result<()>,
    ) -> Result<Option<Arc<File>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.files.get(&chunk.begin) {
            return Ok(found.clone());
        }
        let path = self.path(chunk);
        let file = if self.is_new { Some(edited(&path, prepare)?) } else { opened(&path)? };
        let file = file.map(Arc::new);
        if open.ages.len() >= OPEN_MAX
            && let Some(oldest) = open.ages.pop_front()
        {
            open.files.remove(&oldest);
        }
        open.files.insert(chunk.begin, file.clone());
        open.ages.push_back(chunk.begin);
        Ok(file)
    }
}

/// A file that may be missing.
pub(super) fn opened(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// A new file, or one that was created before.
fn edited(path: &Path, prepare: impl FnOnce(&File) -> Result<()>) -> Result<File> {
    match created(path) {
        Ok(file) => prepare(&file).map(|()| file),
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
            File::edit(path)
        }
        Err(error) => Err(error),
    }
}

/// A new file, in folders that are made if need be.
pub(super) fn created(path: &Path) -> Result<File> {
    match File::create(path) {
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|source| {
                    let path = folder.display().to_string();
                    Error::System { what: "create the folder", path, source }
                })?;
            }
            File::create(path)
        }
        outcome => outcome,
    }
}
