//! A device that fills up: what was there stays readable, deletes go on, and deleting and
//! compacting makes room for new writes.

pub mod emptied;

use std::sync::Arc;

use esker::{Db, Error, IndexKind, Keyspace};
use esker_device::Device;
use esker_device::sim::SimDevice;

use crate::config::Config;
use crate::history::{key, value};
use crate::violation::{Oracle, Verdict, Violation, ensure};
use crate::{counts::Counts, verify};

/// Keys written at most; far more than fits.
const KEYS_MAX: u64 = 40_000;
/// The smallest device on which a store takes values.
const LEAST_BYTES: u64 = 450 << 10;

fn broken(what: &str) -> impl Fn(Error) -> Violation + '_ {
    move |error| Violation::new(Oracle::WorksOn, format!("{what}: {error}"))
}

/// The operations that are tried with a full store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is closed, opened and read.
    Open,
    /// It is emptied by deletes, compacted, and filled again, three times.
    Empty,
}

/// Fills a store on a device of `capacity_bytes`.
///
/// # Errors
/// The first broken promise.
pub fn fill_up(
    index: IndexKind,
    capacity_bytes: u64,
    value_bytes: usize,
    then: Then,
) -> Verdict<Counts> {
    let case = format!("{index}, {capacity_bytes} bytes, values of {value_bytes}");
    let mut counts = Counts::new("full", format!("{then:?}: {case}"));
    let device = Arc::new(SimDevice::new());
    device.set_capacity_bytes(capacity_bytes);
    let trial = Trial {
        config: Config { memtable_bytes: 8 << 10, index, ..Config::default() },
        device,
        value_bytes,
        capacity_bytes,
    };
    for round in 0..if then == Then::Empty { 3 } else { 1 } {
        let place = format!("{case}, round {round}");
        trial.round(then, &mut counts).map_err(|violation| violation.at(place))?;
    }
    Ok(counts)
}

struct Trial {
    config: Config,
    device: Arc<SimDevice>,
    value_bytes: usize,
    capacity_bytes: u64,
}

impl Trial {
    fn open(&self, what: &str) -> Verdict<(Db, Keyspace)> {
        let device: Arc<dyn Device> = Arc::clone(&self.device) as _;
        let db = self.config.open(&device).map_err(broken(what))?;
        let keyspace = db.keyspace("default", self.config.keyspace_options());
        let keyspace = keyspace.map_err(broken(what))?;
        Ok((db, keyspace))
    }

    fn round(&self, then: Then, counts: &mut Counts) -> Verdict {
        let (db, keyspace) = self.open("opening")?;
        let written = fill(&keyspace, self.value_bytes)?;
        counts.add("puts until full", written);
        // A smaller device has no room for what is kept for making room.
        let takes = self.capacity_bytes >= LEAST_BYTES;
        ensure(written > 0 || !takes, Oracle::WorksOn, || "no put was accepted".into())?;
        holds(&keyspace, written, self.value_bytes)?;
        drop(keyspace);
        // A full store need not have room for the mark of a clean close; it opens all the same.
        counts.add("closed cleanly", u64::from(db.close().is_ok()));
        let (db, keyspace) = self.open("opening full")?;
        holds(&keyspace, written, self.value_bytes).map_err(|v| v.at("opened full"))?;
        verify::check(&db)?;
        if then == Then::Open {
            return Ok(());
        }
        for number in 0..written {
            keyspace.remove(key(number)).map_err(broken("a delete"))?;
        }
        db.compact().map_err(broken("compacting"))?;
        let left = keyspace.first().map_err(broken("reading"))?;
        ensure(left.is_none(), Oracle::ContentMatches, || "something is left".into())?;
        verify::check(&db)?;
        db.close().map_err(broken("closing"))
    }
}

/// Puts until one is refused; answers how many were not.
fn fill(keyspace: &Keyspace, value_bytes: usize) -> Verdict<u64> {
    for number in 0..KEYS_MAX {
        match keyspace.insert(key(number), value(number as u32, value_bytes)) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return Ok(number),
            Err(error) => return Err(broken("filling")(error)),
        }
    }
    Err(Violation::new(Oracle::Harness, "the device is too large to fill"))
}

/// Whether the accepted puts are there. Keys of different numbers may be the same: the last wins.
fn holds(keyspace: &Keyspace, written: u64, value_bytes: usize) -> Verdict {
    let expected: std::collections::BTreeMap<_, _> =
        (0..written).map(|number| (key(number), value(number as u32, value_bytes))).collect();
    let found: esker::Result<std::collections::BTreeMap<_, _>> =
        keyspace.iter().and_then(Iterator::collect);
    let found = found.map_err(broken("reading a full store"))?;
    ensure(found == expected, Oracle::ContentMatches, || {
        format!("{} entries are there, {} were accepted", found.len(), expected.len())
    })
}
