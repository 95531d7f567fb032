//! A full store is emptied: every delete succeeds, compaction frees space, writing goes on.
//!
//! The store is filled with random values in several keyspaces until values are refused for good.
//! It may be cut off there: by a killed process, or by a power cut that loses what was not synced.
//! A snapshot may be held: then deletes may be refused as long as it lives.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{Db, Error, IndexKind, Keyspace, KeyspaceOptions, Snapshot};
use esker_device::Device;
use esker_device::sim::{CrashModel, SimDevice, Survivors};

use super::broken;
use crate::config::Config;
use crate::counts::Counts;
use crate::random::Random;
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Refusals after which a store counts as full: what is refused may still let others in.
const REFUSALS: u32 = 8;
/// The largest device that is filled with short values.
const SHORT_VALUES_BYTES: u64 = 1400 << 10;
/// Ranges that are removed before a store is filled, in a trial that has some: fewer than those
/// because of which a compaction is due.
const EARLY_RANGES: usize = 1000;
/// One takes at most this number of bytes of the device.
const EARLY_RANGE_BYTES: u64 = 12_000;
/// Values written at most; far more than fits.
const VALUES_MAX: u64 = 100_000;

/// The event that strikes the full store before it is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    None,
    /// It is closed and opened.
    Closed,
    /// The process is killed: what was written is there.
    Killed,
    /// The power is cut: what was not synced may not be.
    PowerCut,
}

impl Cut {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Closed, Self::Killed, Self::PowerCut];
}

/// A store that is filled and emptied.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The options with which it is opened.
    pub config: Config,
    /// The capacity of the device, in bytes.
    pub capacity_bytes: u64,
    /// The number of its keyspaces.
    pub keyspaces: u64,
    /// Values are at most so long.
    pub value_bytes_max: usize,
    /// The event when it is full.
    pub cut: Cut,
    /// A snapshot of the full store is held while deletes begin.
    pub snapshot: bool,
    /// Whether others take the space that is free on the device when the store is full.
    pub others: bool,
    /// Its keyspaces are dropped and filled once more before it is emptied.
    pub drops: bool,
    /// It is emptied by range tombstones, each for this many keys; 0: key by key.
    pub range_keys: usize,
    /// This number of ranges without keys is removed in each keyspace before it is filled.
    pub early_ranges: usize,
    /// The memtables of the full store are flushed.
    pub flushes: bool,
    /// Of the values and their order.
    pub seed: u64,
}

/// The contents of a store: keyspace by keyspace.
type Contents = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

impl Trial {
    /// A trial that follows from its seed, on a device of this size.
    #[must_use]
    pub fn random(index: IndexKind, capacity_bytes: u64, seed: u64) -> Self {
        let random = Random::new(seed);
        let pick = |from: &[usize]| random.pick(from).copied().unwrap_or_default();
        let inline = pick(&[0, 600, 2000]) as u64;
        let config = Config {
            memory_budget_bytes: 2 << 20,
            memtable_bytes: pick(&[2 << 10, 8 << 10, 32 << 10]) as u64,
            merge_steps: pick(&[0, 1, 3]) as u32,
            inline_bytes_max: (inline > 0).then_some(inline),
            index,
            ..Config::default()
        };
        let keyspaces = 1 + random.below(3);
        let value_bytes_max = pick(&[16, 100, 1000, 3000, 12_000]);
        // Many short values take long.
        let most = if value_bytes_max <= 100 { SHORT_VALUES_BYTES } else { u64::MAX };
        let mut trial = Self {
            config,
            capacity_bytes: capacity_bytes.min(most),
            keyspaces,
            value_bytes_max,
            cut: random.pick(&Cut::ALL).copied().unwrap_or(Cut::None),
            snapshot: random.percent(25),
            others: random.percent(50),
            drops: random.percent(25),
            range_keys: pick(&[0, 0, 4, 20]),
            early_ranges: 0,
            flushes: false,
            seed,
        };
        if random.percent(25) {
            trial.add_early_ranges(2 << 20);
        }
        trial.flushes = random.percent(50);
        trial
    }

    /// One whose merges write many times what is kept for them, on a device of some 24 MiB.
    #[must_use]
    pub fn larger(index: IndexKind, seed: u64) -> Self {
        let random = Random::new(seed ^ 0x1a46);
        let pick = |from: &[usize]| random.pick(from).copied().unwrap_or_default();
        let mut trial = Self::random(index, 0, seed);
        trial.capacity_bytes = (20 << 20) + random.below(8 << 20);
        trial.value_bytes_max = pick(&[1000, 2000]);
        trial.range_keys = trial.range_keys.next_multiple_of(20);
        trial.config.memory_budget_bytes = 4 << 20;
        trial.config.memtable_bytes = pick(&[256 << 10, 1 << 20, 2 << 20]) as u64;
        trial.config.log_segment_bytes = 512 << 10;
        if random.percent(50) {
            trial.add_early_ranges(4 << 20);
        }
        trial
    }

    /// Ranges are removed early, into a memtable that is flushed when the device is full.
    fn add_early_ranges(&mut self, memtable_bytes: u64) {
        let most = self.capacity_bytes / self.keyspaces / EARLY_RANGE_BYTES;
        self.early_ranges = EARLY_RANGES.min(most as usize);
        self.config.memtable_bytes = memtable_bytes;
        self.config.memory_budget_bytes = 2 * memtable_bytes;
    }

    /// Fills the store, empties it and fills it again.
    ///
    /// # Errors
    /// The first broken promise.
    pub fn run(&self, counts: &mut Counts) -> Verdict {
        let case = format!("{self:?}");
        self.run_through(counts).map_err(|violation| violation.at(case))
    }

    fn run_through(&self, counts: &mut Counts) -> Verdict {
        let empty_bytes = self.empty_bytes()?;
        let mut device = self.device();
        let (db, keyspaces) = self.open(&device, "creating")?;
        self.remove_early(&keyspaces)?;
        let mut contents = vec![BTreeMap::new(); keyspaces.len()];
        let written = self.fill(&keyspaces, &mut contents)?;
        counts.add("values until full", written);
        ensure(written > 0, Oracle::WorksOn, || "no value was accepted".into())?;
        let full_bytes = device.used_bytes();
        let left_bytes = if self.others { full_bytes } else { self.capacity_bytes };
        device.set_capacity_bytes(left_bytes);
        let (db, keyspaces) = self.cut((&mut device, left_bytes), db, keyspaces)?;
        if self.cut == Cut::PowerCut {
            // A prefix of what was written is there.
            contents = read(&keyspaces)?;
        }
        holds(&keyspaces, &contents)?;
        verify::check(&db)?;
        if self.flushes {
            flush(&db)?;
            holds(&keyspaces, &contents)?;
        }
        let held =
            self.snapshot.then(|| db.snapshot().map_err(broken("a snapshot"))).transpose()?;
        if let Some(snapshot) = held {
            let refused = self.delete_under(&snapshot, &db, &keyspaces, &contents)?;
            counts.add("deletes refused under a snapshot", refused);
        }
        let keyspaces = match self.drops {
            false => keyspaces,
            true => {
                let keyspaces = self.drop_and_create(&db)?;
                contents = vec![BTreeMap::new(); keyspaces.len()];
                let again = self.fill(&keyspaces, &mut contents)?;
                counts.add("values behind dropped keyspaces", again);
                ensure(again >= written / 2, Oracle::WorksOn, || {
                    format!("{again} values behind dropped keyspaces, {written} before")
                })?;
                holds(&keyspaces, &contents)?;
                keyspaces
            }
        };
        self.delete(&keyspaces, &contents, false)?;
        db.compact().map_err(broken("compacting an emptied store"))?;
        for keyspace in &keyspaces {
            let left = keyspace.first().map_err(broken("reading"))?;
            ensure(left.is_none(), Oracle::ContentMatches, || "something is left".into())?;
        }
        verify::check(&db)?;
        let (used, most) = (device.used_bytes(), full_bytes.saturating_sub(empty_bytes) / 10);
        ensure(used <= empty_bytes + most, Oracle::WorksOn, || {
            format!("{used} of {full_bytes} bytes are in use, an empty store has {empty_bytes}")
        })?;
        device.set_capacity_bytes(self.capacity_bytes);
        let mut contents = vec![BTreeMap::new(); keyspaces.len()];
        let again = self.fill(&keyspaces, &mut contents)?;
        ensure(again >= written / 2, Oracle::WorksOn, || {
            format!("{again} values were accepted by the emptied store, {written} before")
        })?;
        holds(&keyspaces, &contents)?;
        db.close().map_err(broken("closing"))
    }

    /// Deletes what a snapshot sees, as far as there is space, and answers the number of refusals.
    fn delete_under(
        &self,
        snapshot: &Snapshot,
        db: &Db,
        keyspaces: &[Keyspace],
        contents: &Contents,
    ) -> Verdict<u64> {
        let refused = self.delete(keyspaces, contents, true)?;
        let _may_be_full = db.compact();
        for (keyspace, contents) in keyspaces.iter().zip(contents) {
            for (key, value) in contents.iter().step_by(7) {
                let found = snapshot.get(keyspace, key).map_err(broken("a snapshot's value"))?;
                ensure(found.as_ref() == Some(value), Oracle::ContentMatches, || {
                    "a snapshot of a full store has lost a value".into()
                })?;
            }
        }
        Ok(refused)
    }

    fn device(&self) -> Arc<SimDevice> {
        let device = Arc::new(SimDevice::new());
        device.set_capacity_bytes(self.capacity_bytes);
        device
    }

    /// The bytes that a store takes which has been used and is empty.
    fn empty_bytes(&self) -> Verdict<u64> {
        let device = Arc::new(SimDevice::new());
        let (db, keyspaces) = self.open(&device, "creating")?;
        let mut log_bytes = 0;
        while log_bytes <= 4 * self.config.log_segment_bytes {
            for keyspace in &keyspaces {
                let value = vec![7; self.value_bytes_max.min(500)];
                log_bytes += value.len() as u64;
                keyspace.insert("key", value).map_err(broken("filling"))?;
                keyspace.remove("key").map_err(broken("a delete"))?;
            }
        }
        db.compact().map_err(broken("compacting"))?;
        Ok(device.used_bytes())
    }

    fn open(&self, device: &Arc<SimDevice>, what: &str) -> Verdict<(Db, Vec<Keyspace>)> {
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        let db = self.config.open(&device).map_err(broken(what))?;
        let keyspaces = self.keyspaces(&db).map_err(broken(what))?;
        Ok((db, keyspaces))
    }

    fn keyspaces(&self, db: &Db) -> esker::Result<Vec<Keyspace>> {
        let options = || -> KeyspaceOptions { self.config.keyspace_options() };
        (0..self.keyspaces).map(|number| db.keyspace(&name(number), options())).collect()
    }

    /// A full store drops its keyspaces, and creates new ones.
    fn drop_and_create(&self, db: &Db) -> Verdict<Vec<Keyspace>> {
        for number in 0..self.keyspaces {
            db.drop_keyspace(&name(number)).map_err(broken("dropping from a full store"))?;
        }
        self.keyspaces(db).map_err(broken("creating behind what was dropped"))
    }

    /// Removes ranges that have no keys.
    fn remove_early(&self, keyspaces: &[Keyspace]) -> Verdict {
        for keyspace in keyspaces {
            for number in 0..self.early_ranges {
                let keys = format!("early{number:06}")..=format!("early{number:06}");
                keyspace.remove_range(keys).map_err(broken("a range delete in an empty store"))?;
            }
        }
        Ok(())
    }

    /// Writes values until several in a row are refused; answers how many were not.
    fn fill(&self, keyspaces: &[Keyspace], contents: &mut Contents) -> Verdict<u64> {
        let random = Random::new(self.seed ^ 0xf111);
        let (mut written, mut refused) = (0, 0);
        for _ in 0..VALUES_MAX {
            let at = random.index(keyspaces.len());
            let (Some(keyspace), Some(model)) = (keyspaces.get(at), contents.get_mut(at)) else {
                break;
            };
            // Some are written over.
            let key = format!("{:08}", random.below(written + 20)).into_bytes();
            let value = random.bytes(random.within(&(0..=self.value_bytes_max)));
            match keyspace.insert(&key, &value) {
                Ok(()) => {
                    model.insert(key, value);
                    (written, refused) = (written + 1, 0);
                }
                Err(Error::Full { .. }) if refused + 1 == REFUSALS => return Ok(written),
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => return Err(broken("filling")(error)),
            }
        }
        Err(Violation::new(Oracle::Harness, "the device is too large to fill"))
    }

    /// Deletes everything. Answers how many deletes were refused for want of room, if any may be.
    fn delete(
        &self,
        keyspaces: &[Keyspace],
        contents: &Contents,
        may_refuse: bool,
    ) -> Verdict<u64> {
        let mut refused = 0;
        for (keyspace, contents) in keyspaces.iter().zip(contents) {
            let keys: Vec<_> = contents.keys().collect();
            for keys in keys.chunks(self.range_keys.max(1)) {
                let (Some(first), Some(last)) = (keys.first(), keys.last()) else { continue };
                let deleted = match self.range_keys {
                    0 => keyspace.remove(first),
                    _ => keyspace.remove_range::<&Vec<u8>>(*first..=*last),
                };
                match deleted {
                    Ok(()) => {}
                    Err(Error::Full { .. }) if may_refuse => refused += 1,
                    Err(error) => return Err(broken("a delete in a full store")(error)),
                }
            }
        }
        Ok(refused)
    }

    fn cut(
        &self,
        (device, left_bytes): (&mut Arc<SimDevice>, u64),
        db: Db,
        keyspaces: Vec<Keyspace>,
    ) -> Verdict<(Db, Vec<Keyspace>)> {
        let image = match self.cut {
            Cut::None => return Ok((db, keyspaces)),
            Cut::Closed => {
                drop(keyspaces);
                // A full store need not have room for the mark of a clean close.
                let _opens_all_the_same = db.close();
                return self.open(device, "opening full");
            }
            Cut::Killed => device.image(),
            Cut::PowerCut => device.crash(&Survivors::Only(0..0), &CrashModel::default()),
        };
        device.power_off();
        let _it_is_gone = db.close();
        *device = Arc::new(SimDevice::from_image(&image));
        // Room that a power cut has taken back was not given to others before it was sure.
        device.set_capacity_bytes(left_bytes.max(device.used_bytes()));
        self.open(device, "opening what was cut off full")
    }
}

fn name(number: u64) -> String {
    format!("k{number}")
}

/// Flushes a full store. Where sorted runs wait for a merge that finds no space, memtables wait,
/// too.
fn flush(db: &Db) -> Verdict {
    let flushed = db.flush();
    let stats = db.stats().map_err(broken("statistics"))?;
    let waiting = stats.keyspaces.iter().any(|keyspace| keyspace.memtable_entries > 0);
    match flushed {
        Err(Error::Full { .. }) if waiting => Ok(()),
        flushed => flushed.map_err(broken("flushing a full store")),
    }
}

fn read(keyspaces: &[Keyspace]) -> Verdict<Contents> {
    let contents = |keyspace: &Keyspace| {
        let entries: esker::Result<_> = keyspace.iter().and_then(Iterator::collect);
        entries.map_err(broken("reading a full store"))
    };
    keyspaces.iter().map(contents).collect()
}

fn holds(keyspaces: &[Keyspace], expected: &Contents) -> Verdict {
    let found = read(keyspaces)?;
    let entries = |contents: &Contents| contents.iter().map(BTreeMap::len).sum::<usize>();
    ensure(found == *expected, Oracle::ContentMatches, || {
        format!("{} entries are there, {} were accepted", entries(&found), entries(expected))
    })
}
