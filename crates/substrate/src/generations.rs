//! Generations: the numbers that, with their addresses, identify blocks and blobs.
//!
//! A block or a blob is on the device before a record of the manifest names it. A blob may be named
//! by the log alone, and be part of a backup in that state; a crash may leave its pieces in free
//! space, with nothing that names them. So generations are reserved: a number is assigned only
//! below one that the manifest has durably, and an opening begins with that one. Every record of
//! the manifest reserves some; a separate record is written when they are used up, and for the
//! first generation that is taken after an opening.
//!
//! Thread safety: everything may be called from any thread.
//! Invariant: an assigned generation is below what the manifest had durably before it was assigned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_format::ids::Generation;

use crate::blocks::BlockStore;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::planted::{self, Bug};
use crate::sync::Mutex;

/// The number of generations reserved at once.
const RESERVED: u64 = 1024;
/// The number of generations left out behind one that was found above all that the manifest knows:
/// a version that reserved none wrote it, and may have assigned more.
const LEFT_OUT: u64 = 1 << 20;

/// Hands out generations.
#[derive(Debug)]
pub(crate) struct Generations {
    next: AtomicU64,
    /// The first one that is not reserved.
    end: AtomicU64,
    /// The manifest in which they are reserved.
    manifest: OnceLock<Arc<Manifest>>,
    /// One thread reserves for all.
    reserving: Mutex<()>,
}

impl Generations {
    /// From `next` on, with nothing reserved and no manifest to reserve them in: each may be
    /// handed out.
    pub fn new(next: Generation) -> Self {
        Self {
            next: AtomicU64::new(next.0),
            end: AtomicU64::new(u64::MAX),
            manifest: OnceLock::new(),
            reserving: Mutex::new(()),
        }
    }

    /// From now on they are reserved in `manifest` first.
    pub fn reserve_in(&self, manifest: &Arc<Manifest>) {
        self.end.store(self.next.load(Ordering::Acquire), Ordering::Release);
        let _first_counts = self.manifest.set(Arc::clone(manifest));
    }

    /// One that was never handed out.
    ///
    /// Cost: none; once in 1,024 calls, and after an opening, a record of the manifest.
    ///
    /// # Errors
    /// Those of [`Manifest::commit`]; [`Error::Invalid`] when none is left.
    pub fn take(&self) -> Result<Generation> {
        loop {
            let end = self.end.load(Ordering::Acquire);
            let may_take = |next| next < end || planted::is(Bug::GenerationsNotReserved);
            let after = |next: u64| may_take(next).then(|| next.saturating_add(1));
            match self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, after) {
                Ok(taken) => return Ok(Generation(taken)),
                Err(_) => self.reserve()?,
            }
        }
    }

    fn reserve(&self) -> Result<()> {
        let _one_for_all = self.reserving.lock();
        if self.next() < Generation(self.end.load(Ordering::Acquire)) {
            return Ok(());
        }
        let end = self.to_record();
        let manifest = self.manifest.get().filter(|_| end > self.next());
        let manifest = manifest.ok_or_else(|| Error::Invalid {
            what: "the generations of blocks are used up: load a dump into a new store".into(),
        })?;
        manifest.reserve_generations(end)?;
        self.recorded(end);
        Ok(())
    }

    /// Above all that were handed out.
    pub fn next(&self) -> Generation {
        Generation(self.next.load(Ordering::Acquire))
    }

    /// The limit that the next record of the manifest contains: more than was assigned so far.
    pub fn to_record(&self) -> Generation {
        let more = if planted::is(Bug::GenerationsNotReserved) { 0 } else { RESERVED };
        Generation(self.next().0.saturating_add(more))
    }

    /// A record with that limit is durable.
    pub fn recorded(&self, end: Generation) {
        if self.manifest.get().is_some() {
            self.end.fetch_max(end.0, Ordering::AcqRel);
        }
    }

    /// Something of this generation is there.
    pub fn found(&self, generation: Generation) {
        if self.next() <= generation && !planted::is(Bug::GenerationsNotReserved) {
            self.next.fetch_max(generation.0.saturating_add(LEFT_OUT), Ordering::AcqRel);
        }
    }
}

/// The one generation of a merge, taken when it writes its first block.
#[derive(Clone, Debug, Default)]
pub struct OneGeneration(Arc<OnceLock<Generation>>);

impl OneGeneration {
    /// The generation; the same each time.
    ///
    /// # Errors
    /// Those of [`BlockStore::take_generation`], as long as it has not been taken.
    pub fn get(&self, blocks: &BlockStore) -> Result<Generation> {
        match self.0.get() {
            Some(generation) => Ok(*generation),
            None => {
                let taken = blocks.take_generation()?;
                Ok(*self.0.get_or_init(|| taken))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use esker_device::Device;
    use esker_device::memory::MemoryDevice;
    use esker_format::ids::StoreId;

    use super::*;
    use crate::manifest::ManifestOptions;

    fn manifest(device: &Arc<dyn Device>) -> Arc<Manifest> {
        let options = ManifestOptions::default();
        let (poison, faults) = (Arc::default(), Arc::default());
        match Manifest::open(device, options, &poison, &faults) {
            Ok((manifest, _)) => manifest,
            Err(_) => Manifest::create(device, StoreId(7), options, &poison, &faults).unwrap(),
        }
    }

    fn opened(device: &Arc<dyn Device>) -> (Arc<Manifest>, Generations) {
        let manifest = manifest(device);
        let generations = Generations::new(manifest.state().next_generation);
        generations.reserve_in(&manifest);
        (manifest, generations)
    }

    #[test]
    fn none_is_handed_out_twice_however_often_a_store_ends() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let mut taken = BTreeSet::new();
        for count in [1, 0, RESERVED - 1, 1, RESERVED, 3 * RESERVED + 5, 2] {
            let (manifest, generations) = opened(&device);
            for _ in 0..count {
                let generation = generations.take().unwrap();
                assert!(taken.insert(generation), "{generation} was handed out before");
                assert!(generation < manifest.state().next_generation);
                assert!(generation < self::manifest(&device).state().next_generation);
            }
        }
    }

    #[test]
    fn threads_share_what_is_reserved() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (_, generations) = opened(&device);
        let take = || (0..2 * RESERVED).map(|_| generations.take().unwrap()).collect::<Vec<_>>();
        let taken: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let distinct: BTreeSet<_> = taken.iter().collect();
        assert_eq!(distinct.len(), taken.len());
    }

    #[test]
    fn records_reserve_too() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (manifest, generations) = opened(&device);
        let begun = manifest.state();
        let end = generations.to_record();
        manifest.reserve_generations(end).unwrap();
        generations.recorded(end);
        let before = manifest.state().next_generation;
        for expected in 1..end.0 {
            assert_eq!(generations.take().unwrap(), Generation(expected));
        }
        assert_eq!(manifest.state().next_generation, before);
        generations.take().unwrap();
        assert!(manifest.state().next_generation > before);
        assert_eq!(manifest.state().next_keyspace, begun.next_keyspace);
    }

    #[test]
    fn numbers_that_are_used_up_are_an_error() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (_, generations) = opened(&device);
        generations.found(Generation(u64::MAX));
        assert!(matches!(generations.take(), Err(Error::Invalid { .. })));
        let generations = Generations::new(Generation(u64::MAX));
        assert!(matches!(generations.take(), Err(Error::Invalid { .. })));
    }

    #[test]
    fn what_is_found_is_not_handed_out() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (manifest, generations) = opened(&device);
        generations.take().unwrap();
        generations.found(Generation(1));
        assert_eq!(generations.next(), Generation(2));
        generations.found(Generation(5000));
        let next = generations.take().unwrap();
        assert!(next > Generation(5000) && next < manifest.state().next_generation);
    }
}
