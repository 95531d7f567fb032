//! Stores that are not files of the file system, for tests: on devices that fail and lose power.
//!
//! A folder represents them. Databases with paths in this folder are opened by a function; all
//! other files in the folder, super-journals among them, remain the system's.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use esker_pages::{DeviceFile, Options};

use crate::open_stores::Access;

/// The file of that name, and how its store is opened.
pub type Found = (Arc<dyn DeviceFile>, Options);

/// Opens the file of that name.
pub type Opener = dyn Fn(&str, Access) -> esker_pages::Result<Found> + Send + Sync;

static FOLDERS: LazyLock<Mutex<HashMap<PathBuf, Arc<Opener>>>> = LazyLock::new(Mutex::default);

fn folders() -> MutexGuard<'static, HashMap<PathBuf, Arc<Opener>>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this value exists, databases in a folder are opened by a function.
pub struct Mounted(PathBuf);

/// Has databases in `folder`, an absolute path without links, opened by `opener`.
#[must_use]
pub fn mount(folder: &Path, opener: Arc<Opener>) -> Mounted {
    folders().insert(folder.to_owned(), opener);
    Mounted(folder.to_owned())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        folders().remove(&self.0);
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mounted").field(&self.0).finish()
    }
}

/// The opener of the database at `path`, and its name, if it is not in the file system.
pub(crate) fn opener(path: &Path) -> Option<(Arc<Opener>, &str)> {
    let opener = Arc::clone(folders().get(path.parent()?)?);
    Some((opener, path.file_name()?.to_str()?))
}
