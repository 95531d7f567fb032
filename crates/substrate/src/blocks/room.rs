//! Reservations: how much of the free space each purpose may take.
//!
//! The contents of memtables must fit into the data file, or the log could never become shorter
//! again: that amount is *owed*, and free space is kept for it, from the moment when a write is
//! admitted until its memtable has been flushed ([`Pot`]). In addition some space is kept
//! ([`Reserve`]) that no value takes: operations that free space on a full device (deletes, and the
//! merges that apply them) use it.
//!
//! | purpose | may not use |
//! |---|---|
//! | values | what is owed, and all of the reserve |
//! | deletes | what is owed, and the reserve for merges and the manifest |
//! | merges | what is owed except their own pot, and the reserve for the manifest |
//! | flushes | what is owed except their own pot |
//!
//! The manifest's next file is not part of the data file: the space kept for it is returned to the
//! device when it is needed ([`BlockStore::lend`]). A merge that used it could not be recorded, and
//! would never free old space. The range tombstones that no record has yet will make that file
//! longer: what they add is kept for it, too.
//!
//! Only space that the device has allocated counts: the space of a hole may be used by others by
//! now.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::Purpose;
use esker_device::buffer::AlignedBuf;
use esker_format::ptr::{Extent, UNIT_BYTES};

use super::{BlockStore, GROWTH_SHARE, GROWTH_UNITS, freed_twice, full};
use crate::error::{Error, Result};
use crate::planted::{self, Bug};
use crate::space::Space;
use crate::sync::MutexGuard;

/// Free space is overwritten in pieces of this many bytes.
const WIPE_BYTES: usize = 64 << 10;
/// Free space beyond all that is kept: for flushes that take more than was calculated.
pub(super) const MARGIN_UNITS: u64 = 4;
/// This share of the file is reserved for merges, in addition to the fixed part: fences of their
/// results.
const MERGE_SHARE: u64 = 128;
/// A writer of blocks takes at most this share of the spare space at once, so that other writers of
/// the same merge's levels find some too.
const EXTENT_SHARE: u64 = 4;

/// Free space that is kept for operations that free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// For merges, in addition to a share of the file.
    pub merge_bytes: u64,
    /// For deletes, until merges meet them.
    pub delete_bytes: u64,
}

/// The type of a write to a memtable, as far as it matters to a full device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It takes space permanently.
    Values,
    /// It frees space, once merges apply it.
    Deletes,
}

/// The reserve, and the space that is owed.
#[derive(Debug, Default)]
pub(super) struct Room {
    merge_units: AtomicU64,
    manifest_units: AtomicU64,
    /// Bytes that the range tombstones without a record add to the manifest's next file.
    tombstone_bytes: AtomicU64,
    delete_units: AtomicU64,
    /// Bytes that memtables take when they are written out, at most.
    owed_bytes: AtomicU64,
    /// The bytes that may be owed without a look at the free space: by values, and with deletes.
    credit_bytes: AtomicU64,
    delete_credit_bytes: AtomicU64,
    /// Free units that the device has set aside.
    backed_units: AtomicU64,
    /// The number of callers that are returning space to the device for other files of the store.
    lenders: AtomicU64,
}

impl Room {
    pub(super) fn owed_units(&self) -> u64 {
        self.owed_bytes.load(Ordering::Acquire).div_ceil(UNIT_BYTES)
    }

    /// The longest extent that may be taken where `spare` units are spare, and `least` are needed.
    pub(super) fn most(&self, spare: u64, least: u64, purpose: Purpose) -> u64 {
        let is_shared = purpose == Purpose::Merge || self.merge_units.load(Ordering::Relaxed) > 0;
        let share = if is_shared { spare / EXTENT_SHARE } else { spare };
        share.max(least).min(spare)
    }

    fn disown(&self, bytes: u64) {
        let less = |owed: u64| Some(owed.saturating_sub(bytes));
        let _always_some = self.owed_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// The space that deletes may not use, in addition to what is owed.
    fn for_merges(&self, space: &Space) -> u64 {
        let least = self.merge_units.load(Ordering::Relaxed);
        let share = if least == 0 { 0 } else { space.end() / MERGE_SHARE };
        (least + share).max(space.reserved_units()).saturating_add(self.kept_from_merges())
    }

    /// The space that merges may not use, in addition to what is owed: for the manifest's next
    /// file.
    pub(super) fn kept_from_merges(&self) -> u64 {
        if planted::is(Bug::ManifestRoomTaken) {
            return MARGIN_UNITS;
        }
        let tombstones = self.tombstone_bytes.load(Ordering::Relaxed).div_ceil(UNIT_BYTES);
        let manifest = self.manifest_units.load(Ordering::Relaxed);
        manifest.saturating_add(tombstones).saturating_add(MARGIN_UNITS)
    }

    /// The space that values may not use.
    pub(super) fn reserve(&self, space: &Space) -> u64 {
        if planted::is(Bug::ReserveTaken) {
            return MARGIN_UNITS;
        }
        self.for_merges(space).saturating_add(self.delete_units.load(Ordering::Relaxed))
    }

    fn credit_bytes(&self, claim: Claim) -> u64 {
        let credit = match claim {
            Claim::Values => &self.credit_bytes,
            Claim::Deletes => &self.delete_credit_bytes,
        };
        credit.load(Ordering::Acquire)
    }

    fn is_lending(&self) -> bool {
        self.lenders.load(Ordering::Acquire) > 0
    }

    /// The space that is owed, without the caller's own pot.
    pub(super) fn owed_to_others(&self, pot: Option<&Pot>) -> u64 {
        self.owed_units().saturating_sub(pot.map_or(0, Pot::units))
    }

    /// All that is kept.
    pub(super) fn kept(&self, space: &Space) -> u64 {
        self.reserve(space).saturating_add(self.owed_units())
    }
}

/// The space under its lock. The amount that may be owed is recomputed when it is released.
pub(super) struct Held<'a> {
    space: MutexGuard<'a, Space>,
    room: &'a Room,
}

impl Deref for Held<'_> {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Space {
        &mut self.space
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let credit = |kept: u64| {
            let units = self.space.backed_units().saturating_sub(kept);
            units.saturating_mul(UNIT_BYTES)
        };
        let (values, merges) = (self.room.reserve(&self.space), self.room.for_merges(&self.space));
        self.room.credit_bytes.store(credit(values), Ordering::Release);
        self.room.delete_credit_bytes.store(credit(merges), Ordering::Release);
        self.room.backed_units.store(self.space.backed_units(), Ordering::Release);
    }
}

/// Space for a write to a memtable, until the memtable contains it.
#[derive(Debug)]
#[must_use = "the room is kept only while the claim lives"]
pub struct Claimed<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.room.disown(self.bytes);
    }
}

/// While it lives the data file takes no space of the device.
#[derive(Debug)]
#[must_use = "the device's space is left alone only while this lives"]
pub struct Lending<'a> {
    room: &'a Room,
}

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        self.room.lenders.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The space owed for one memtable, used by the flush or merge that writes it out: each extent
/// taken reduces it.
#[derive(Debug)]
pub struct Pot {
    blocks: Arc<BlockStore>,
    bytes: AtomicU64,
}

impl Pot {
    /// A pot of bytes that [`BlockStore::owe`] has counted.
    #[must_use]
    pub const fn new(blocks: Arc<BlockStore>, bytes: u64) -> Self {
        Self { blocks, bytes: AtomicU64::new(bytes) }
    }

    pub(super) fn units(&self) -> u64 {
        self.bytes.load(Ordering::Acquire) / UNIT_BYTES
    }

    pub(super) fn take(&self, units: u64) {
        let wanted = units.saturating_mul(UNIT_BYTES);
        let less = |bytes: u64| Some(bytes.saturating_sub(wanted));
        let before = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        let before = before.unwrap_or_else(|bytes| bytes);
        self.blocks.room.disown(wanted.min(before));
    }

    /// The memtable is written out: nothing more is owed for it.
    pub fn release(&self) {
        self.blocks.room.disown(self.bytes.swap(0, Ordering::AcqRel));
    }
}

impl Drop for Pot {
    fn drop(&mut self) {
        self.release();
    }
}

impl BlockStore {
    pub(super) fn held(&self) -> Held<'_> {
        Held { space: self.space.lock(), room: &self.room }
    }

    /// Keeps this reserve from now on, as far as there is free space or will be.
    pub fn keep(&self, reserve: Reserve) {
        let units = |bytes: u64| bytes.div_ceil(UNIT_BYTES);
        self.room.merge_units.store(units(reserve.merge_bytes), Ordering::Relaxed);
        self.room.delete_units.store(units(reserve.delete_bytes), Ordering::Relaxed);
        drop(self.held());
    }

    /// Keeps this many bytes for the manifest's next file from now on.
    pub fn keep_for_manifest(&self, bytes: u64) {
        let units = bytes.div_ceil(UNIT_BYTES);
        if self.room.manifest_units.swap(units, Ordering::Relaxed) != units {
            drop(self.held());
        }
    }

    /// Keeps `bytes` in place of `before` bytes for what a keyspace's range tombstones add to the
    /// manifest's next file: those that no record has yet.
    pub fn keep_for_tombstones(&self, before: u64, bytes: u64) {
        if before != bytes && !planted::is(Bug::TombstonesNotKept) {
            self.room.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.room.tombstone_bytes.fetch_sub(before, Ordering::Relaxed);
            drop(self.held());
        }
    }

    /// Counts what was inserted into a memtable, whether there is space for it or not. Its owner
    /// turns it into a [`Pot`], or drops it.
    pub fn owe(&self, bytes: u64) {
        self.room.owed_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Makes sure that `bytes` bytes about to be written to a memtable can be flushed.
    ///
    /// Cost: none while the file has space; else it grows by a share of itself.
    ///
    /// # Errors
    /// [`Error::Full`] when the device is full; nothing has changed in this case.
    pub fn claim_room(&self, bytes: u64, claim: Claim) -> Result<Claimed<'_>> {
        let claimed = Claimed { room: &self.room, bytes };
        let owed = self.room.owed_bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes);
        if planted::is(Bug::OwedNotKept) || owed <= self.room.credit_bytes(claim) {
            return Ok(claimed);
        }
        let mut space = self.held();
        let grown = self.back(&mut space, Room::reserve, 0, Purpose::User);
        match grown {
            // The space of the holes that were filled may be enough.
            Err(Error::Full { .. }) if claim == Claim::Deletes => {
                self.back(&mut space, Room::for_merges, 0, Purpose::User)?;
            }
            grown => grown?,
        }
        drop(space);
        Ok(claimed)
    }

    /// Whether a merge can get `units` more; `pot` is its part of what is owed. If not, it should
    /// record its progress, so that old space becomes free.
    ///
    /// Cost: none while there is free space; else the file grows by a share of itself, if the
    /// device has space.
    pub fn merge_finds(&self, units: u64, pot: Option<&Pot>) -> bool {
        let kept = self.room.owed_to_others(pot).saturating_add(self.room.kept_from_merges());
        let wanted = kept.saturating_add(units);
        if wanted <= self.room.backed_units.load(Ordering::Acquire) {
            return true;
        }
        if self.room.is_lending() {
            // The missing space is used by another file at this moment.
            return true;
        }
        let mut space = self.held();
        let missing = wanted.saturating_sub(space.backed_units());
        let grown = self.fill_or_grow(&mut space, missing, Purpose::Merge);
        // Any other error is reported when space is taken.
        !matches!(grown, Err(Error::Full { .. }))
    }

    /// Whether the reserve is complete when `freed_units` more are free.
    ///
    /// Cost: as [`BlockStore::merge_finds`].
    pub fn keeps_reserve(&self, freed_units: u64) -> bool {
        if self.room.is_lending() {
            // The missing space is used by another file at this moment.
            return true;
        }
        let mut space = self.held();
        let free_units = space.backed_units().saturating_add(freed_units);
        let missing = self.room.kept(&space).saturating_sub(free_units);
        let grown = self.fill_or_grow(&mut space, missing, Purpose::Merge);
        // Any other error is reported when space is taken.
        !matches!(grown, Err(Error::Full { .. }))
    }

    /// Makes sure that the device has space for `units` free units beyond what is owed and kept.
    pub(super) fn back(
        &self,
        space: &mut Space,
        kept: impl Fn(&Room, &Space) -> u64,
        units: u64,
        purpose: Purpose,
    ) -> Result<()> {
        // As the file grows, so does a share of it.
        for _ in 0..4 {
            let wanted = kept(&self.room, space).saturating_add(self.room.owed_units());
            let missing = wanted.saturating_add(units).saturating_sub(space.backed_units());
            if missing == 0 {
                return Ok(());
            }
            match self.fill_or_grow(space, missing, purpose) {
                Err(error @ Error::Full { .. }) => {
                    self.grow_by_the_rest(space, missing, purpose)?;
                    return Err(error);
                }
                grown => grown?,
            }
        }
        Ok(())
    }

    /// Takes what the device has left where it has less than `units`: others cannot take from what
    /// is kept then.
    fn grow_by_the_rest(&self, space: &mut Space, units: u64, purpose: Purpose) -> Result<()> {
        let halves = std::iter::successors(Some(units / 2), |units| Some(units / 2));
        for units in halves.take_while(|units| *units > 0) {
            match self.grow(space, units, purpose) {
                Err(Error::Full { .. }) => {}
                grown => grown?,
            }
        }
        Ok(())
    }

    /// Takes space of the device for at least `units` more free units: for holes first, then
    /// behind the end of the file.
    pub(super) fn fill_or_grow(
        &self,
        space: &mut Space,
        units: u64,
        purpose: Purpose,
    ) -> Result<()> {
        if self.room.is_lending() {
            return Err(full(units));
        }
        let mut left = units;
        while left > 0
            && let Some(hole) = space.hole(left)
        {
            self.fill(space, hole, purpose)?;
            left -= hole.units;
        }
        if left == 0 { Ok(()) } else { self.grow_by_some(space, left, purpose) }
    }

    /// Takes space of the device for a hole.
    fn fill(&self, space: &mut Space, hole: Extent, purpose: Purpose) -> Result<()> {
        match self.file.allocate(hole.offset(), hole.bytes(), purpose) {
            Ok(()) => space.fill(hole).map_err(freed_twice),
            Err(error) if error.is_full() => Err(full(hole.units)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the last units of a free run to the device, `units` at most; answers how many.
    fn dig(&self, space: &mut Space, run: Extent, units: u64) -> Result<u64> {
        let units = run.units.min(units);
        let hole = Extent { start: run.end() - units, units };
        self.file.discard(hole.offset(), hole.bytes())?;
        space.dig(hole).map_err(freed_twice)?;
        Ok(units)
    }

    /// Grows the file by at least `units`, and by more where there is space.
    pub(super) fn grow_by_some(
        &self,
        space: &mut Space,
        units: u64,
        purpose: Purpose,
    ) -> Result<()> {
        let (least, most) = GROWTH_UNITS;
        let growth = (space.end() / GROWTH_SHARE).clamp(least, most).max(units);
        self.grow(space, growth, purpose).or_else(|error| {
            let worth_less = matches!(error, Error::Full { .. }) && growth > units;
            if worth_less { self.grow(space, units, purpose) } else { Err(error) }
        })
    }

    fn grow(&self, space: &mut Space, units: u64, purpose: Purpose) -> Result<()> {
        if self.room.is_lending() {
            return Err(full(units));
        }
        match self.file.allocate(space.end() * UNIT_BYTES, units * UNIT_BYTES, purpose) {
            Ok(()) => {
                space.grow(units);
                Ok(())
            }
            Err(error) if error.is_full() => Err(full(units)),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes `units` free units adjacent: moves space of the device to them from other free units.
    pub(super) fn join_free(&self, space: &mut Space, units: u64, purpose: Purpose) -> Result<()> {
        // Another file, to which space is lent, would take what is moved.
        if self.room.is_lending() {
            return Err(full(units));
        }
        let place = space.place(units);
        let holes = space.holes_in(place);
        let behind = place.end().saturating_sub(space.end());
        let mut missing = holes.iter().map(|hole| hole.units).sum::<u64>().saturating_add(behind);
        while missing > 0
            && let Some(run) = space.last_backed_outside(place)
        {
            missing -= self.dig(space, run, missing)?;
        }
        for hole in holes {
            self.fill(space, hole, purpose)?;
        }
        if behind == 0 { Ok(()) } else { self.grow(space, behind, purpose) }
    }

    /// Returns free space beyond what is kept to the device: the end of the file, and gaps between
    /// used extents.
    ///
    /// Cost: a call of the device for each gap; after an opening for each free extent.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn discard_free(&self) -> Result<()> {
        let mut space = self.held();
        self.discard_unknown(&mut space)?;
        let kept = if planted::is(Bug::ReserveDiscarded) { 0 } else { self.room.kept(&space) };
        self.discard_beyond(&mut space, kept)
    }

    /// Writes zeros over the free space that stays the data file's: nothing of what was there is
    /// left. Space is allocated and freed meanwhile, between pieces of 64 KiB.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn wipe_free(&self) -> Result<()> {
        let zeros = AlignedBuf::zeroed(WIPE_BYTES);
        let mut from = 0;
        loop {
            let space = self.held();
            let Some(run) = space.backed_runs().find(|run| run.end() > from) else {
                return Ok(());
            };
            let start = run.start.max(from);
            let units = (run.end() - start).min(WIPE_BYTES as u64 / UNIT_BYTES);
            let piece = Extent { start, units };
            let part = zeros.get(..piece.bytes() as usize).unwrap_or_default();
            self.file.write_at(piece.offset(), part, Purpose::Gc)?;
            from = piece.end();
        }
    }

    /// Until the guard is dropped the data file takes no space of the device: lent space is not
    /// taken back before it has been used.
    pub fn lending(&self) -> Lending<'_> {
        self.room.lenders.fetch_add(1, Ordering::AcqRel);
        Lending { room: &self.room }
    }

    /// Returns this many bytes of free space to the device, even kept space: for another file of
    /// the store that frees space.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn lend(&self, bytes: u64) -> Result<()> {
        let mut space = self.held();
        let kept = space.backed_units().saturating_sub(bytes.div_ceil(UNIT_BYTES));
        self.discard_beyond(&mut space, kept.max(self.room.owed_units()))
    }

    /// Takes space of the device in place of the lent space, as far as there is any.
    ///
    /// # Errors
    /// Errors of the device, except a lack of space.
    pub fn refill(&self) -> Result<()> {
        self.fill_reserve(&mut self.held())
    }

    fn fill_reserve(&self, space: &mut Space) -> Result<()> {
        match self.back(space, Room::reserve, 0, Purpose::Gc) {
            Err(Error::Full { .. }) => Ok(()),
            filled => filled,
        }
    }

    /// After an opening it is not known which free space the device has allocated: what is kept of
    /// it is allocated, the rest is returned.
    fn discard_unknown(&self, space: &mut Space) -> Result<()> {
        // What is kept cannot be allocated while space is lent: then later.
        if planted::is(Bug::UnknownNotDiscarded) || self.room.is_lending() {
            return Ok(());
        }
        if space.unknown_holes().next().is_none() {
            return Ok(());
        }
        self.fill_reserve(space)?;
        for hole in space.unknown_holes() {
            self.file.discard(hole.offset(), hole.bytes())?;
        }
        space.note_discarded();
        Ok(())
    }

    fn discard_beyond(&self, space: &mut Space, kept: u64) -> Result<()> {
        let (tail, backed) = space.tail();
        let spare = space.backed_units().saturating_sub(kept);
        // Without what is kept of it, where the tail has all that is free.
        let cut = if spare >= backed { tail } else { spare };
        self.trim(space, cut)?;
        let mut spare = space.backed_units().saturating_sub(kept);
        while spare > 0
            && let Some(run) = space.last_backed_run()
        {
            spare -= self.dig(space, run, spare)?;
        }
        Ok(())
    }
}
