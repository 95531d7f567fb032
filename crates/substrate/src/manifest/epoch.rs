//! Beginning an epoch: the first of a new store, and the next one when a record does not fit.
//!
//! The manifest file is durable before its superblock: the new file with the whole state as its
//! first record, synced; the folder, synced; then the superblock. Up to the superblock nothing has
//! changed, so when there is no space the store simply continues.

use std::sync::Arc;

use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_format::frame::Seal;
use esker_format::ids::{Epoch, StoreId};
use esker_format::manifest_edit::MANIFEST_GRAIN_BYTES;
use esker_format::superblock::{
    REGION_BYTES_MAX, REGION_BYTES_MIN, SUPERBLOCK_FILE_BYTES, Superblock,
};

use super::files::{SUPERBLOCK, SUPERBLOCK_NEW, manifest_name};
use super::state::ManifestState;
use super::{
    Manifest, ManifestOptions, RESERVE_SHARE, RESERVED_REGION_BYTES, Writer, records, superblocks,
};
use crate::error::{Error, Result};
use crate::fault::{self, FaultPoints};
use crate::planted::{self, Bug};
use crate::sync::atomic::Ordering;

/// The bytes of a new file that are written at once.
const ZEROS_CHUNK_BYTES: u64 = 64 * 1024;

/// A new epoch's region has space for this multiple of the state; the second number is for a device
/// without space for the first.
const STATE_TIMES: u64 = 4;
const STATE_TIMES_LEAST: u64 = 2;

/// The most bytes of the next epoch's file for each byte of the state, on a nearly full device: two
/// regions, each of the power of two at or above `STATE_TIMES_LEAST` times the state.
const NEXT_TIMES: u64 = 2 * 2 * STATE_TIMES_LEAST;

/// The most bytes by which [`Manifest::next_bytes`] grows for each byte that the state grows by.
pub const KEPT_TIMES: u64 = 2 * NEXT_TIMES;

/// A region of this many times the length that a new one would have is worth a new epoch.
const SHRINK_TIMES: u64 = 2;

/// The space that a new epoch needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The multiple of the state's size.
    pub times: u64,
    /// The record that made the new epoch necessary.
    pub record_bytes: u64,
}

impl Wanted {
    /// The space that the first epoch of a store needs.
    pub const FIRST: Self = Self { times: STATE_TIMES, record_bytes: 0 };
}

/// The length of a new epoch's region.
fn region_bytes(options: ManifestOptions, snapshot_bytes: u64, wanted: Wanted) -> Result<u64> {
    let least = snapshot_bytes.saturating_add(wanted.record_bytes);
    let min = options.region_bytes_min;
    // On a full device a shorter one must do.
    let is_least = wanted.times <= STATE_TIMES_LEAST;
    let min = if is_least { min.min(RESERVED_REGION_BYTES) } else { min };
    let wanted = snapshot_bytes.saturating_mul(wanted.times).max(least);
    wanted
        .max(min)
        .max(REGION_BYTES_MIN)
        .checked_next_power_of_two()
        .filter(|bytes| *bytes <= REGION_BYTES_MAX)
        .ok_or_else(|| Error::Invalid { what: "the manifest would be too large".to_string() })
}

/// Converts `error` if nothing was changed before it: to `Full` where the device is full.
pub(crate) fn full_or(error: Error, what: &str) -> Error {
    match error {
        Error::Device(device) if device.is_full() => Error::Full { what: what.to_string() },
        other => other,
    }
}

/// Writes zeros through the whole of a new file, so that later writes neither grow it nor
/// allocate.
pub(crate) fn write_zeros(file: &dyn DeviceFile, len: u64, purpose: Purpose) -> Result<()> {
    file.preallocate(len, purpose)?;
    let zeros = vec![0; len.min(ZEROS_CHUNK_BYTES) as usize];
    let mut at = 0;
    while at < len {
        let part = zeros.get(..(len - at).min(ZEROS_CHUNK_BYTES) as usize).unwrap_or(&zeros);
        file.write_at(at, part, purpose)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Makes a superblock file and puts it in place, durably. Its name appears only when all of it
/// is durable, and so are the names of all files that were created before.
pub(super) fn put_superblocks(
    device: &dyn Device,
    superblock: &Superblock,
) -> Result<Arc<dyn DeviceFile>> {
    let file = device.open(SUPERBLOCK_NEW, Open::CreateNew, Caching::Buffered)?;
    file.preallocate(SUPERBLOCK_FILE_BYTES, Purpose::Manifest)?;
    superblocks::write(file.as_ref(), superblock)?;
    file.sync(Purpose::Manifest)?;
    device.sync_dir()?;
    device.rename(SUPERBLOCK_NEW, SUPERBLOCK)?;
    device.sync_dir()?;
    Ok(device.open(SUPERBLOCK, Open::Existing, Caching::Buffered)?)
}

/// The first record of an epoch: the whole state.
pub(super) fn first_record(seal: Seal, state: &ManifestState) -> Result<Vec<u8>> {
    let (durable, generation) = (state.durable_seq, state.next_generation);
    records::encode(seal, 1, durable, generation, &state.to_edits())
}

/// Makes an epoch's file with the whole state as its first record, and syncs it. Returns the
/// file, the superblock that will name it and where its second record goes.
pub(super) fn write_epoch(
    device: &dyn Device,
    store: StoreId,
    epoch: Epoch,
    options: ManifestOptions,
    state: &ManifestState,
    wanted: Wanted,
    faults: &FaultPoints,
) -> Result<(Arc<dyn DeviceFile>, Superblock, u64)> {
    let frame = first_record(records::seal(store, epoch), state)?;
    let region_bytes = region_bytes(options, frame.len() as u64, wanted)?;
    faults.hit(fault::MANIFEST_ROLL)?;
    let file = device.open(&manifest_name(epoch), Open::CreateNew, Caching::Buffered)?;
    write_zeros(file.as_ref(), region_bytes.saturating_mul(2), Purpose::Manifest)?;
    file.write_at(0, &frame, Purpose::Manifest)?;
    file.write_at(region_bytes, &frame, Purpose::Manifest)?;
    if !planted::is(Bug::NoBarrierBeforeSuperblock) {
        file.sync(Purpose::Manifest)?;
    }
    Ok((file, Superblock { store, epoch, region_bytes, features: 0 }, frame.len() as u64))
}

impl Manifest {
    /// The bytes to keep for the next epoch's file on a device that is nearly full: its length,
    /// and what it is longer than the present file by, so that its length is kept once more when
    /// the present file is gone. When the state grows, this grows by at most [`KEPT_TIMES`] times
    /// the growth, up to the next record's end.
    #[must_use]
    pub fn next_bytes(&self) -> u64 {
        let next = self.next_file_bytes();
        next.saturating_add(next.saturating_sub(self.file_bytes()))
    }

    /// The most bytes that the next epoch's file takes on such a device.
    fn next_file_bytes(&self) -> u64 {
        let state_bytes = self.state_bytes.load(Ordering::Relaxed);
        let least =
            region_bytes(self.options, 0, Wanted { times: STATE_TIMES_LEAST, record_bytes: 0 });
        // One that would be too large is never begun.
        let most = 2 * REGION_BYTES_MAX;
        let record_bytes = state_bytes.checked_next_multiple_of(MANIFEST_GRAIN_BYTES);
        let bytes = record_bytes.unwrap_or(u64::MAX).saturating_mul(NEXT_TIMES).min(most);
        bytes.max(least.unwrap_or_default().saturating_mul(2))
    }

    /// Begins a new epoch where the region has little space left beyond that reserved for records
    /// that free space.
    ///
    /// Cost: nothing where there is more space; else about ten writes and four syncs.
    ///
    /// # Errors
    /// [`Error::Full`] when the device is full: nothing has changed. Every other failure poisons
    /// the store.
    pub fn make_room(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.poison.check()?;
        let region_bytes = writer.superblock.region_bytes;
        let room = region_bytes.saturating_sub(writer.tail);
        if room > 4 * (region_bytes / RESERVE_SHARE) {
            return Ok(());
        }
        self.renew(&mut writer)
    }

    /// Begins a new epoch where the region is at least twice as long as a new one would be.
    ///
    /// Cost: that of [`Manifest::make_room`].
    ///
    /// # Errors
    /// Those of [`Manifest::make_room`].
    pub fn shrink(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.poison.check()?;
        let state_bytes = self.state_bytes.load(Ordering::Relaxed);
        let wanted = region_bytes(self.options, state_bytes, Wanted::FIRST)?;
        if writer.superblock.region_bytes < wanted.saturating_mul(SHRINK_TIMES) {
            return Ok(());
        }
        self.renew(&mut writer)
    }

    /// Begins the next epoch with the present state.
    fn renew(&self, writer: &mut Writer) -> Result<()> {
        self.poison.on_error(self.rewrite_last_record(writer))?;
        let features = writer.superblock.features;
        self.begin_epoch(writer, 0, features)
    }

    /// Begins the next epoch with the present state, in which a record of `record_bytes` fits, and
    /// which asks its readers for `features`.
    pub(super) fn begin_epoch(
        &self,
        writer: &mut Writer,
        record_bytes: u64,
        features: u32,
    ) -> Result<()> {
        let next = writer.superblock.epoch.0.checked_add(1).map(Epoch);
        let epoch = next.ok_or_else(|| Error::Invalid {
            what: "the manifest epochs are used up".to_string(),
        })?;
        let written = match self.write_next_epoch(epoch, STATE_TIMES, record_bytes) {
            Err(Error::Full { .. }) if !planted::is(Bug::RegionNotMadeSmaller) => {
                self.write_next_epoch(epoch, STATE_TIMES_LEAST, record_bytes)
            }
            written => written,
        };
        let (file, superblock, tail) = written?;
        if !planted::is(Bug::NoDirectorySync) {
            self.poison.on_error(self.device.sync_dir().map_err(Error::from))?;
        }
        let old = writer.superblock.epoch;
        let superblock = Superblock { features, ..superblock };
        let copy = writer.copy.take();
        let superblocks = Arc::clone(&writer.superblocks);
        self.state_bytes.store(tail, Ordering::Relaxed);
        self.region_bytes.store(superblock.region_bytes, Ordering::Relaxed);
        *writer = Writer { copy, ..Writer::begin(superblocks, (file, superblock, tail)) };
        self.poison.on_error(self.write_superblock(writer))?;
        let _stays_behind = self.device.remove(&manifest_name(old));
        Ok(())
    }

    /// Writes the next epoch's file, which has space for `times` times the present state.
    fn write_next_epoch(
        &self,
        epoch: Epoch,
        times: u64,
        record_bytes: u64,
    ) -> Result<(Arc<dyn DeviceFile>, Superblock, u64)> {
        let name = manifest_name(epoch);
        // A file of this name is from an attempt that failed before its superblock was written.
        let _may_be_missing = self.device.remove(&name);
        let (device, wanted) = (self.device.as_ref(), Wanted { times, record_bytes });
        let (state, faults) = (self.state(), &self.faults);
        write_epoch(device, self.store, epoch, self.options, &state, wanted, faults)
            .map_err(|error| self.epoch_failed(&name, error))
    }

    /// Without space nothing has changed, and the store can continue; any other failure poisons it.
    fn epoch_failed(&self, name: &str, error: Error) -> Error {
        let error = full_or(error, "the manifest");
        if matches!(error, Error::Full { .. }) {
            let _stays_behind = self.device.remove(name);
            return error;
        }
        self.poison.set(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_room_for_the_state_four_times_and_for_the_record() {
        let region_bytes = |options, snapshot_bytes, record_bytes| {
            region_bytes(options, snapshot_bytes, Wanted { times: STATE_TIMES, record_bytes })
        };
        let options = ManifestOptions { region_bytes_min: 5000 };
        assert_eq!(region_bytes(options, 512, 512).unwrap(), 8192);
        assert_eq!(region_bytes(options, 3000, 512).unwrap(), 16384);
        assert_eq!(region_bytes(options, 512, 40_000).unwrap(), 65536);
        assert!(region_bytes(options, 1 << 30, 512).is_err());
        assert!(region_bytes(options, 512, u64::MAX).is_err());
        let tiny = ManifestOptions { region_bytes_min: 0 };
        assert_eq!(region_bytes(tiny, 512, 512).unwrap(), REGION_BYTES_MIN);
    }

    #[test]
    fn a_region_on_a_full_device_has_room_for_the_state_twice_and_for_the_record() {
        let options = ManifestOptions { region_bytes_min: 5000 };
        let least = |snapshot_bytes, record_bytes| {
            let wanted = Wanted { times: STATE_TIMES_LEAST, record_bytes };
            region_bytes(options, snapshot_bytes, wanted).unwrap()
        };
        assert_eq!(least(512, 512), 8192);
        assert_eq!(least(6000, 512), 16384);
        assert_eq!(least(6000, 12_000), 32768);
        let wanted = Wanted { times: STATE_TIMES_LEAST, record_bytes: 512 };
        assert_eq!(region_bytes(ManifestOptions::default(), 512, wanted).unwrap(), 32768);
    }
}
