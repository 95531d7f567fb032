//! Reading on in the manifest of a store that another process writes.
//!
//! A record counts as soon as one copy of it is valid, as for an opening. Nothing behind the last
//! one is taken as evidence of damage, because the writer may be writing it.
//!
//! Invariant: the state moves forward by whole records, or to the first record of a later epoch,
//! which has the state of the last record before it.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::sync::atomic::Ordering;
use esker_device::{Caching, Open, Purpose};
use esker_format::ids::Epoch;
use esker_format::superblock::Superblock;

use super::files::{SUPERBLOCK, manifest_name};
use super::records::Contents;
use super::{Manifest, ManifestState, Writer, no_record, superblocks};
use crate::error::{Error, Result};

/// The number of times that a new epoch is looked for: each failure means that the writer has begun
/// the one after it meanwhile.
const TRIES_MAX: u32 = 16;

impl Manifest {
    /// The current epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.position().0
    }

    /// The epoch, and the number of its last record.
    #[must_use]
    pub fn position(&self) -> (Epoch, u64) {
        let writer = self.writer.lock();
        (writer.superblock.epoch, writer.next_number.saturating_sub(1))
    }

    /// Takes in the records that another process has written since. Whether there were any.
    ///
    /// Cost: six small reads and the opening of a file where there are none; two to four reads for
    /// each record, and a copy of the state; a new epoch costs what opening costs.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a record cannot be applied, or the folder has the manifest of
    /// another store, or an older one, now. Nothing has changed in this case.
    pub fn follow(&self) -> Result<bool> {
        let mut writer = self.writer.lock();
        for _ in 1..TRIES_MAX {
            match self.follow_once(&mut writer) {
                Err(error) if is_missing(&error) => {}
                followed => return followed,
            }
        }
        self.follow_once(&mut writer)
    }

    fn follow_once(&self, writer: &mut Writer) -> Result<bool> {
        // By its name, because the first commit of another writer may put a new file in its place.
        let file = self.device.open(SUPERBLOCK, Open::Existing, Caching::Buffered)?;
        let location = self.device.location();
        let newest = superblocks::read(file.as_ref(), &location, Purpose::Recovery)?.superblock;
        let now = writer.superblock;
        if newest.store != now.store || newest.epoch < now.epoch {
            return Err(Error::Corrupt {
                file: SUPERBLOCK.to_string(),
                offset: 0,
                what: "the folder has another or an older store now: open it again".to_string(),
            });
        }
        if newest.epoch == now.epoch { self.read_on(writer) } else { self.change(writer, newest) }
    }

    /// Reads on in the same epoch.
    fn read_on(&self, writer: &mut Writer) -> Result<bool> {
        let last_number = writer.next_number.saturating_sub(1);
        if !writer.regions(Purpose::Recovery).has_record(writer.tail, last_number)? {
            return Ok(false);
        }
        let state = ManifestState::clone(&self.state.read());
        let mut contents =
            Contents { state, last_number, tail: writer.tail, ..Contents::default() };
        writer.regions(Purpose::Recovery).read_on(&mut contents)?;
        self.take(writer, contents);
        Ok(true)
    }

    /// Reads the manifest of a later epoch.
    fn change(&self, writer: &mut Writer, superblock: Superblock) -> Result<bool> {
        let name = manifest_name(superblock.epoch);
        let file = self.device.open(&name, Open::Existing, Caching::Buffered)?;
        let superblocks = Arc::clone(&writer.superblocks);
        let mut next = Writer::begin(superblocks, (file, superblock, 0));
        let contents = next.regions(Purpose::Recovery).read_whole()?;
        if contents.last_number == 0 {
            return Err(no_record(&name));
        }
        self.take(&mut next, contents);
        *writer = next;
        self.features.store(superblock.features, Ordering::Release);
        self.region_bytes.store(superblock.region_bytes, Ordering::Relaxed);
        Ok(true)
    }

    fn take(&self, writer: &mut Writer, contents: Contents) {
        writer.next_number = contents.last_number.saturating_add(1);
        writer.tail = contents.tail;
        writer.doubt = Some(contents.last);
        *self.state.write() = Arc::new(contents.state);
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Device(device) if device.source.kind() == ErrorKind::NotFound)
}
