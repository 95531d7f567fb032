//! A device that fills up: what was there stays readable, deletes go on, and deleting and
//! compacting makes room for new writes.

use std::sync::Arc;

use esker::{Error, Keyspace};
use esker_device::Device;
use esker_device::sim::SimDevice;

use crate::history::{key, value};
use crate::session::Config;
use crate::violation::{Oracle, Verdict, Violation, ensure};
use crate::{counts::Counts, verify};

/// Keys written at most; far more than fits.
const KEYS_MAX: u64 = 20_000;

fn broken(what: &str) -> impl Fn(Error) -> Violation + '_ {
    move |error| Violation::new(Oracle::WorksOn, format!("{what}: {error}"))
}

/// Fills a store on a device of `capacity_bytes`, empties it and fills it again, `rounds` times.
///
/// # Errors
/// The first broken promise.
pub fn fill_and_empty(capacity_bytes: u64, value_bytes: usize, rounds: u32) -> Verdict<Counts> {
    let mut counts = Counts::new("full", format!("{capacity_bytes} bytes"));
    let device = Arc::new(SimDevice::new());
    device.set_capacity_bytes(capacity_bytes);
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let config = Config { memtable_bytes: 8 << 10, ..Config::default() };
    for round in 0..rounds {
        let place = format!("round {round}");
        let db = config.open(&shared).map_err(broken("opening")).map_err(|v| v.at(&place))?;
        let opened = db.keyspace("default", config.keyspace_options());
        let keyspace = opened.map_err(broken("the keyspace"))?;
        let written = fill(&keyspace, value_bytes).map_err(|v| v.at(&place))?;
        counts.add("puts until full", written);
        ensure(written > 0, Oracle::WorksOn, || format!("{place}: no put was accepted"))?;
        holds(&keyspace, written, value_bytes).map_err(|v| v.at(&place))?;
        drop(keyspace);
        // A full store can be closed and opened as it is.
        db.close().map_err(broken("closing full"))?;
        let db = config.open(&shared).map_err(broken("opening full"))?;
        let opened = db.keyspace("default", config.keyspace_options());
        let keyspace = opened.map_err(broken("the keyspace of a full store"))?;
        holds(&keyspace, written, value_bytes).map_err(|v| v.at("opened full").at(&place))?;
        for number in 0..written {
            keyspace.remove(key(number)).map_err(broken("a delete")).map_err(|v| v.at(&place))?;
        }
        db.compact().map_err(broken("compacting")).map_err(|v| v.at(&place))?;
        let left = keyspace.first().map_err(broken("reading"))?;
        ensure(left.is_none(), Oracle::ContentMatches, || format!("{place}: something is left"))?;
        verify::check(&db).map_err(|v| v.at(&place))?;
        db.close().map_err(broken("closing"))?;
    }
    Ok(counts)
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
