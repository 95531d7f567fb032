//! Loading and looking up with each codec: data that does not compress, and text that does.

use esker::{Compression, KeyspaceOptions};
use esker_lab_result::{Metrics, Part, Verdict};
use esker_workload::entry;
use esker_workload::random::mixed;

use super::{Bench, metrics, timed, wait_idle};
use crate::Result;

/// Lookups for each hundred entries.
const LOOKUPS_PERCENT: u64 = 10;

#[derive(Clone, Copy, Debug)]
enum Data {
    Random,
    Text,
}

impl Data {
    fn value(self, number: u64) -> Vec<u8> {
        match self {
            Self::Random => entry::value(1, number, 0).to_vec(),
            Self::Text => text(number),
        }
    }

    fn way(self, compression: Compression) -> String {
        let data = match self {
            Self::Random => "random",
            Self::Text => "text",
        };
        format!("{data}, {compression}")
    }
}

/// An object of about a hundred bytes, as programs store them.
fn text(number: u64) -> Vec<u8> {
    let drawn = mixed(number);
    let city = ["Aarhus", "Bologna", "Coimbra", "Dresden"][(drawn >> 62) as usize];
    let (cents, day) = (drawn % 1_000_000, drawn >> 20 & 0xff);
    let value = format!(
        "{{\"id\":{number},\"city\":\"{city}\",\"balance\":{cents},\"day\":{day},\
         \"active\":true,\"tags\":[\"a\"]}}"
    );
    value.into_bytes()
}

pub(super) fn round(bench: &Bench<'_>) -> Result<Vec<(String, Metrics)>> {
    let mut found = Vec::new();
    for data in [Data::Random, Data::Text] {
        for compression in Compression::ALL {
            found.push((data.way(compression), one(bench, data, compression)?));
        }
    }
    Ok(found)
}

fn one(bench: &Bench<'_>, data: Data, compression: Compression) -> Result<Metrics> {
    let entries = bench.plan.entries;
    let options = KeyspaceOptions::default().compression(compression);
    let (db, keyspace) = bench.store("store", options)?;
    let (loading, ()) = timed(|| {
        for number in 0..entries {
            keyspace.insert(entry::key(number), data.value(number))?;
        }
        wait_idle(&db)
    })?;
    let stats = db.stats()?;
    let of_keyspace = stats.keyspaces.first();
    let on_device = of_keyspace.map_or(0, |of| of.stored_bytes);
    let before = of_keyspace.map_or(0, |of| of.data_bytes);
    let lookups = (entries * LOOKUPS_PERCENT / 100).max(1);
    let (looking, ()) = timed(|| {
        for number in 0..lookups {
            keyspace.get(entry::key(mixed(number) % entries.max(1)))?;
        }
        Ok(())
    })?;
    drop(keyspace);
    db.close()?;
    bench.remove("store")?;
    Ok(metrics([
        ("load_rate", entries as f64 / loading),
        ("written_per_byte", stats.write_amplification().unwrap_or_default()),
        ("stored_over_data", on_device as f64 / before.max(1) as f64),
        ("lookup_rate", lookups as f64 / looking),
    ]))
}

pub(super) fn bars(found: Part<'_>) -> Vec<Verdict> {
    let random = |compression| Data::Random.way(compression);
    let (lz4, none) = (random(Compression::Lz4), random(Compression::None));
    vec![Verdict::at_least(
        "load rate of random data: lz4 over none",
        found.ratio(&lz4, &none, "load_rate"),
        0.85,
    )]
}
