//! The files of chunks, a bounded number of them open.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::chunk_file::{Access, ChunkFile};
use super::grid::Chunk;
use super::keys::Keys;
use crate::error::{Error, Result};

/// The number of files that are open at the same time; each has one or two descriptors, and
/// processes may have 1,024 as a rule.
const OPEN_MAX: usize = 128;

/// The files of one array.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    keys: Keys,
    is_new: bool,
    is_direct: bool,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// By the address of the chunk; `None` for one that is not there.
    files: HashMap<u64, Option<Arc<ChunkFile>>>,
    /// The oldest first.
    ages: VecDeque<u64>,
}

impl Files {
    /// Those of an array that is there, or is being made (`is_new`); with direct requests if
    /// `is_direct`.
    pub(super) fn new(folder: &Path, keys: Keys, is_new: bool, is_direct: bool) -> Self {
        Self { folder: folder.to_owned(), keys, is_new, is_direct, open: Mutex::default() }
    }

    /// The path of the file of a chunk.
    pub(super) fn path(&self, chunk: &Chunk) -> PathBuf {
        self.folder.join(self.keys.name(&chunk.place))
    }

    /// The file of a chunk, opened if need be; `None` if it is not there. In an array that is
    /// being made, `prepare` is called with each file that is created.
    pub(super) fn get(
        &self,
        chunk: &Chunk,
        prepare: impl FnOnce(&ChunkFile) -> Result<()>,
    ) -> Result<Option<Arc<ChunkFile>>> {
        if let Some(found) = self.lock().files.get(&chunk.begin) {
            return Ok(found.clone());
        }
        // Two threads may open the same file, each for itself; the later one stays.
        let path = self.path(chunk);
        let file = if self.is_new {
            Some(edited(path, self.is_direct, prepare)?)
        } else {
            opened(path, self.is_direct)?
        };
        let file = file.map(Arc::new);
        let mut open = self.lock();
        if open.files.insert(chunk.begin, file.clone()).is_none() {
            open.ages.push_back(chunk.begin);
        }
        if open.ages.len() > OPEN_MAX
            && let Some(oldest) = open.ages.pop_front()
        {
            open.files.remove(&oldest);
        }
        Ok(file)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that may be missing.
pub(super) fn opened(path: PathBuf, is_direct: bool) -> Result<Option<ChunkFile>> {
    match ChunkFile::open(path, Access::Read, is_direct) {
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// A new file, or one that was created before.
fn edited(
    path: PathBuf,
    is_direct: bool,
    prepare: impl FnOnce(&ChunkFile) -> Result<()>,
) -> Result<ChunkFile> {
    match created(&path, is_direct) {
        Ok(file) => prepare(&file).map(|()| file),
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
            ChunkFile::open(path, Access::Edit, is_direct)
        }
        Err(error) => Err(error),
    }
}

/// A new file, in folders that are made if need be.
pub(super) fn created(path: &Path, is_direct: bool) -> Result<ChunkFile> {
    match ChunkFile::open(path.to_owned(), Access::Create, is_direct) {
        Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(|source| {
                    let path = folder.display().to_string();
                    Error::System { what: "create the folder", path, source }
                })?;
            }
            ChunkFile::open(path.to_owned(), Access::Create, is_direct)
        }
        outcome => outcome,
    }
}
