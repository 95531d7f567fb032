//! What is done to a store, and what it costs: updates, lookups, ranges, and a full chip.
//!
//! Before anything is measured, a store is filled with its keys and updated until it has programmed
//! as many pages as the chip has, and each key twice in the mean. The first third of each phase is
//! not measured. A phase ends early when a part of it has taken [`LIMIT_NS`] of the chip's time:
//! what takes so long is impractical, and would take long on the host, too.

use esker_flash::nand::Counters;
use esker_flashtrees::run::{Report, ranges};
use esker_flashtrees::{Error, FlashTree, Order, Result};
use esker_workload::Random;

use super::super::checked::Checked;
use super::super::measure::SEED;
use super::store::BATCH;

/// The most time of a chip that a part of a phase takes, beyond its last batch.
pub(super) const LIMIT_NS: u64 = 40_000_000_000;
/// The most time in which a chip is filled.
const FILL_LIMIT_NS: u64 = 20 * LIMIT_NS;
/// Entries of a range.
pub(super) const RANGE_ENTRIES: u64 = 100;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// The fewest: three for each key, if that is more, so that a tree empties its buffers in it.
    pub updates: u64,
    pub lookups: u64,
    pub ranges: u64,
}

impl Counts {
    /// Updates of a store of so many keys.
    pub(super) fn updates_of(self, keys: u64) -> u64 {
        self.updates.max(3 * keys)
    }
}

/// What a phase took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub operations: u64,
    pub device_ns: u64,
    pub erases: u64,
    /// Whether it ended before all operations were done.
    pub is_cut: bool,
}

impl Cost {
    /// Microseconds of an operation.
    pub(super) fn micros(&self) -> f64 {
        self.device_ns as f64 / 1e3 / self.operations.max(1) as f64
    }

    /// Erased blocks for each 1,000 operations.
    pub(super) fn erases_per_1000(&self) -> f64 {
        1e3 * self.erases as f64 / self.operations.max(1) as f64
    }
}

/// What a chip did since a moment.
struct Meter {
    start_ns: u64,
    before: Counters,
}

impl Meter {
    fn new(tree: &dyn FlashTree) -> Self {
        let chip = tree.chip();
        Self { start_ns: chip.end_ns, before: chip.counters }
    }

    fn device_ns(&self, tree: &dyn FlashTree) -> u64 {
        tree.chip().end_ns.saturating_sub(self.start_ns)
    }

    fn cost(&self, tree: &dyn FlashTree, operations: u64, wanted: u64) -> Cost {
        let counters = tree.chip().counters.since(&self.before);
        Cost {
            operations,
            device_ns: self.device_ns(tree),
            erases: counters.total().erases,
            is_cut: operations < wanted,
        }
    }
}

/// A store with all keys.
pub(super) struct Loaded {
    tree: Checked,
    keys: Vec<u64>,
    random: Random,
    /// [`LIMIT_NS`], or less in tests.
    limit_ns: u64,
}

impl Loaded {
    /// Stores `keys` keys, drawn from all numbers, and updates them as the module says.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn new(tree: Box<dyn FlashTree>, keys: u64) -> Result<Self> {
        let (mut random, mut tree) = (Random::new(SEED), Checked::new(tree));
        let keys: Vec<u64> = (0..keys).map(|_| random.bits()).collect();
        for batch in keys.chunks(BATCH as usize) {
            batch.iter().try_for_each(|key| tree.put(*key, !key))?;
            tree.flush()?;
        }
        let mut loaded = Self { tree, keys, random, limit_ns: LIMIT_NS };
        loaded.warm_up()?;
        Ok(loaded)
    }

    fn warm_up(&mut self) -> Result<()> {
        let (meter, mut done, keys) = (Meter::new(&self.tree), 0, self.keys.len() as u64);
        while meter.device_ns(&self.tree) < self.limit_ns {
            let chip = self.tree.chip();
            let is_worn = chip.counters.total().programs >= u64::from(chip.geometry.pages());
            if is_worn && done >= 2 * keys {
                break;
            }
            self.update(BATCH)?;
            done += BATCH;
        }
        Ok(())
    }

    /// Does something `count` times, in steps of `step`; the first third is not measured.
    fn repeat(
        &mut self,
        count: u64,
        step: u64,
        mut act: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<Cost> {
        let mut part = |of: &mut Self, count: u64| {
            let (meter, mut done) = (Meter::new(&of.tree), 0);
            while done < count && meter.device_ns(&of.tree) < of.limit_ns {
                act(of, step)?;
                done += step;
            }
            Ok::<_, Error>(meter.cost(&of.tree, done, count))
        };
        part(self, count / 3)?;
        part(self, count - count / 3)
    }

    /// Updates keys, with a commit after each `batch` of them.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn updates(&mut self, count: u64, batch: u64) -> Result<Cost> {
        self.repeat(count, batch, Self::update)
    }

    fn update(&mut self, batch: u64) -> Result<()> {
        for _ in 0..batch {
            let key = self.any_key();
            self.tree.put(key, self.random.bits())?;
        }
        self.tree.flush()
    }

    /// Looks up keys that are there.
    ///
    /// # Errors
    /// Those of the store; a wrong answer.
    pub(super) fn hits(&mut self, count: u64) -> Result<Cost> {
        self.repeat(count, 1, |this, _| {
            let key = this.any_key();
            this.tree.get(key).map(drop)
        })
    }

    /// Looks up keys that are not there.
    ///
    /// # Errors
    /// Those of the store; a wrong answer.
    pub(super) fn misses(&mut self, count: u64) -> Result<Cost> {
        self.repeat(count, 1, |this, _| {
            let key = this.random.bits();
            this.tree.get(key).map(drop)
        })
    }

    /// Reads ranges of [`RANGE_ENTRIES`] entries.
    ///
    /// # Errors
    /// Those of the store; fewer entries.
    pub(super) fn ranges(&mut self, count: u64, order: Order) -> Result<Report> {
        ranges(&mut self.tree, SEED, count / 3, RANGE_ENTRIES, order)?;
        let count = count - count / 3;
        let report = ranges(&mut self.tree, SEED + 1, count, RANGE_ENTRIES, order)?;
        if report.found == count * RANGE_ENTRIES {
            return Ok(report);
        }
        let what = format!("{} entries in {count} ranges of {}", report.found, self.tree.name());
        Err(Error::Invariant(what))
    }

    /// The store.
    pub(super) const fn tree(&self) -> &Checked {
        &self.tree
    }

    /// Compares all of it.
    ///
    /// # Errors
    /// A wrong entry; those of the store.
    pub(super) fn finish(self) -> Result<()> {
        self.tree.finish_in_one_pass()
    }

    fn any_key(&mut self) -> u64 {
        let at = self.random.below(self.keys.len() as u64);
        self.keys.get(at as usize).copied().unwrap_or_default()
    }
}

/// How many entries a store takes before it is full; none if that takes too long.
///
/// # Errors
/// Those of the store, except that it is full.
pub(super) fn filled(tree: &mut dyn FlashTree) -> Result<Option<u64>> {
    let (meter, mut random, mut entries) = (Meter::new(tree), Random::new(SEED), 0);
    while meter.device_ns(tree) < FILL_LIMIT_NS {
        let batch = (0..BATCH).try_for_each(|_| tree.put(random.bits(), random.bits()));
        match batch.and_then(|()| tree.flush()) {
            Ok(()) => entries += BATCH,
            Err(Error::Full(_) | Error::Flash(esker_flash::Error::Full(_))) => {
                return Ok(Some(entries));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::store::{Entries, ROOM, Store};
    use super::*;
    use esker_flashtrees::Values;

    fn loaded(store: Store) -> Loaded {
        let values = Values::of(56).unwrap();
        let entries = Entries { keys: 300, values, room: ROOM };
        Loaded::new(store.make(entries).unwrap().tree, entries.keys).unwrap()
    }

    #[test]
    fn a_phase_counts_what_it_does_and_commits_in_batches() {
        for store in [Store::LaTree, Store::Ekv, Store::Sequential] {
            let mut loaded = loaded(store);
            let each = loaded.updates(300, 1).unwrap();
            let batched = loaded.updates(6 * BATCH, BATCH).unwrap();
            assert_eq!((each.operations, each.is_cut), (200, false));
            assert_eq!((batched.operations, batched.is_cut), (4 * BATCH, false));
            // A page of its own for each commit.
            assert!(each.micros() > 200.0 && batched.micros() < each.micros(), "{store:?}");
            assert!(loaded.hits(30).unwrap().operations == 20);
            loaded.finish().unwrap();
        }
    }

    #[test]
    fn a_phase_that_takes_too_long_is_cut() {
        let mut loaded = loaded(Store::LaTree);
        loaded.limit_ns = 1_000_000;
        let cost = loaded.updates(3_000, 1).unwrap();
        assert!(cost.is_cut && cost.operations < 20, "{cost:?}");
        assert!(cost.device_ns >= loaded.limit_ns, "{cost:?}");
    }

    #[test]
    fn a_log_is_full_when_its_items_are() {
        let entries = Entries { keys: 300, values: Values::default(), room: ROOM };
        let mut made = Store::Sequential.to_be_filled(entries).unwrap();
        let filled = filled(made.tree.as_mut()).unwrap().unwrap();
        // Two pages of 4 KiB are kept free or have markers.
        assert!((7_000..=8_000).contains(&filled), "{filled}");
    }
}
