//! One version, readable for as long as it is held.

use std::fmt;
use std::sync::Arc;

use esker_device::Purpose;

use crate::engine::Engine;
use crate::error::{Error, Result, invalid};
use crate::place::Sector;
use crate::version::mapping::Mapping;
use crate::version::view::{Held, View};

/// One version of the database. Its contents never change, and nothing waits for it. Clones hold
/// the same version; when the last one is dropped, the pages that only this version needed become
/// free.
///
/// Thread safety: any number of threads read at the same time, without a lock.
pub struct Snapshot {
    pub(crate) engine: Arc<Engine>,
    version: u64,
    view: View,
    pages: u32,
    page_size: u32,
    /// Whether its version is kept for it: not where the version could not be pinned in the
    /// meeting of several processes. Then it cannot be read.
    is_held: bool,
}

impl Snapshot {
    /// Holds the newest version.
    pub(crate) fn newest(engine: &Arc<Engine>) -> Self {
        Self::begin(engine).unwrap_or_else(|_| {
            let (version, root) = {
                let versions = engine.versions.lock();
                let (version, root) = versions.newest();
                (version, Arc::clone(root))
            };
            Self::over(engine, version, View::Fixed(root), false)
        })
    }

    /// Holds the newest version of all processes that have the store open.
    pub(crate) fn begin(engine: &Arc<Engine>) -> Result<Self> {
        let (version, view) = engine.pin_newest()?;
        Ok(Self::over(engine, version, view, true))
    }

    /// Holds a version that is kept.
    pub(crate) fn of(engine: &Arc<Engine>, version: u64) -> Option<Self> {
        let view = engine.pin_version(version)?;
        Some(Self::over(engine, version, view, true))
    }

    /// Holds the version with a name.
    pub(crate) fn named(engine: &Arc<Engine>, name: &str) -> Result<Option<Self>> {
        let found = engine.pin_name(name)?;
        Ok(found.map(|(version, view)| Self::over(engine, version, view, true)))
    }

    fn over(engine: &Arc<Engine>, version: u64, view: View, is_held: bool) -> Self {
        let root = view.root();
        let (pages, page_size) = (root.pages, root.page_size);
        drop(root);
        Self { engine: Arc::clone(engine), version, view, pages, page_size, is_held }
    }

    /// The root that leads to its pages, valid for as long as the answer lives.
    pub(crate) fn root(&self) -> Held<'_> {
        self.view.root()
    }

    /// The number of the version. Every commit that changes something has a greater one than all
    /// before it, also after a restart.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether it can be read: not where several processes have the store open, and this one could
    /// not find out which version is the newest.
    #[doc(hidden)]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Pages of the database; 0 for an empty one.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Fills `buf` from `offset` in a page; pages count from 0. One device read of the whole page,
    /// whose checksum is verified; none for a page of zeros.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a range outside the database or the page;
    /// [`crate::Error::Corrupt`] when the device has other bytes than were written.
    pub fn read(&self, page: u32, offset: u32, buf: &mut [u8]) -> Result<()> {
        check_range(self.page_size, offset, buf.len())?;
        if page >= self.pages {
            return invalid(format!("page {page} is past the last of {}", self.pages));
        }
        if !self.is_held {
            return Err(Error::Busy);
        }
        let root = self.root();
        self.engine.read_part(&root.map.get(page), self.page_size, offset, buf)
    }
}

/// Fails unless the range is within a page.
pub(crate) fn check_range(page_size: u32, offset: u32, len: usize) -> Result<()> {
    if u64::from(offset).saturating_add(len as u64) <= page_size.into() {
        return Ok(());
    }
    invalid(format!("{len} bytes from {offset} on are not within a page of {page_size}"))
}

impl Engine {
    /// Reads a range within a page.
    pub(crate) fn read_part(
        &self,
        mapping: &Mapping,
        page_size: u32,
        offset: u32,
        buf: &mut [u8],
    ) -> Result<()> {
        if buf.len() == page_size as usize {
            return self.read_mapping(mapping, buf, Purpose::User);
        }
        if mapping.entry.slot == Sector::NONE && mapping.delta.is_none() {
            buf.fill(0);
            return Ok(());
        }
        let mut page = vec![0; page_size as usize];
        self.read_mapping(mapping, &mut page, Purpose::User)?;
        let part = page.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(part.unwrap_or_default());
        Ok(())
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        // The version is in the list for as long as `self` holds it. A child by `fork` has no list.
        if self.is_held && self.engine.process.is_current() {
            self.engine.pin_again(self.version);
        }
        let (engine, view) = (Arc::clone(&self.engine), self.view.clone());
        let Self { version, pages, page_size, is_held, .. } = *self;
        Self { engine, version, view, pages, page_size, is_held }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.is_held && self.engine.process.is_current() {
            self.engine.unpin(self.version);
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, pages) = (self.version, self.pages);
        f.debug_struct("Snapshot").field("version", &version).field("pages", &pages).finish()
    }
}
