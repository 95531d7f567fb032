//! `stats`: what the store holds and what it has done.

use esker::{KeyspaceStats, Stats};
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::open;
use crate::args;
use crate::exit::Failure;
use crate::output::Output;
use crate::table::Table;

pub(super) fn run(args: &args::Stats) -> Result<(), Failure> {
    let mut stats = open(&args.store.path)?.stats()?;
    if let Some(name) = &args.keyspace {
        stats.keyspaces.retain(|keyspace| keyspace.name == *name);
        if stats.keyspaces.is_empty() {
            return Err(esker::Error::NoKeyspace { name: name.clone() }.into());
        }
    }
    let mut output = Output::new();
    if args.json {
        output.json(&as_json(&stats))?;
    } else {
        let tables =
            [keyspaces_table, levels_table, io_table, sums_table].map(|table| table(&stats));
        let texts = tables.iter().filter(|table| !table.is_empty()).map(ToString::to_string);
        output.line(&texts.collect::<Vec<_>>().join("\n\n"))?;
    }
    output.flush()
}

fn bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

fn keyspaces_table(stats: &Stats) -> Table {
    let mut table = Table::new(&[
        "keyspace",
        "entries, about",
        "data",
        "in memory",
        "levels",
        "spill runs",
        "merges",
        "growth",
    ]);
    for keyspace in &stats.keyspaces {
        table.row([
            keyspace.name.clone(),
            count(keyspace.entries_estimate),
            bytes(keyspace.data_bytes),
            bytes(keyspace.memtable_bytes),
            keyspace.levels.len().to_string(),
            count(keyspace.spills),
            count(keyspace.merges),
            format!("{:.1}", keyspace.shape.growth),
        ]);
    }
    table
}

fn levels_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["level", "blocks", "size", "puts", "tombstones"]);
    for keyspace in &stats.keyspaces {
        for level in &keyspace.levels {
            table.row([
                format!("{} {}", keyspace.name, level.rank),
                count(level.blocks),
                bytes(level.bytes),
                count(level.puts),
                count(level.tombstones),
            ]);
        }
    }
    table
}

fn io_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["since opened", "reads", "read", "writes", "written", "syncs"]);
    for io in &stats.io {
        table.row([
            io.purpose.to_owned(),
            count(io.reads),
            bytes(io.bytes_read),
            count(io.writes),
            bytes(io.bytes_written),
            count(io.syncs),
        ]);
    }
    table
}

fn sums_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["space and memory", ""]);
    for (name, size_bytes) in [
        ("data file", stats.space.data_file_bytes),
        ("  allocated", stats.space.allocated_bytes),
        ("  free", stats.space.free_bytes),
        ("log", stats.space.log_bytes),
        ("manifest", stats.space.manifest_bytes),
        ("memory budget", stats.memory.budget_bytes),
        ("  memtables", stats.memory.memtable_bytes),
        ("  fences and filters", stats.memory.fence_bytes),
        ("  cached blocks", stats.memory.cache_bytes),
    ] {
        table.row([name.to_owned(), bytes(size_bytes)]);
    }
    table.row(["cache hits".to_owned(), count(stats.cache_hits)]);
    table.row(["cache misses".to_owned(), count(stats.cache_misses)]);
    table
}

fn as_json(stats: &Stats) -> Value {
    let io = stats.io.iter().map(|io| {
        let counts = json!({
            "reads": io.reads,
            "bytes_read": io.bytes_read,
            "writes": io.writes,
            "bytes_written": io.bytes_written,
            "syncs": io.syncs,
        });
        (io.purpose.to_owned(), counts)
    });
    json!({
        "keyspaces": stats.keyspaces.iter().map(keyspace_as_json).collect::<Vec<_>>(),
        "io": io.collect::<serde_json::Map<_, _>>(),
        "user_bytes_written": stats.user_bytes_written,
        "space": {
            "data_file_bytes": stats.space.data_file_bytes,
            "allocated_bytes": stats.space.allocated_bytes,
            "free_bytes": stats.space.free_bytes,
            "log_bytes": stats.space.log_bytes,
            "manifest_bytes": stats.space.manifest_bytes,
        },
        "memory": {
            "budget_bytes": stats.memory.budget_bytes,
            "memtable_bytes": stats.memory.memtable_bytes,
            "fence_bytes": stats.memory.fence_bytes,
            "cache_bytes": stats.memory.cache_bytes,
        },
        "snapshots": stats.snapshots,
        "oldest_snapshot": stats.oldest_snapshot,
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "poisoned": stats.poisoned,
    })
}

fn keyspace_as_json(keyspace: &KeyspaceStats) -> Value {
    let levels = keyspace.levels.iter().map(|level| {
        json!({
            "rank": level.rank,
            "blocks": level.blocks,
            "bytes": level.bytes,
            "puts": level.puts,
            "tombstones": level.tombstones,
        })
    });
    json!({
        "name": keyspace.name,
        "entries_estimate": keyspace.entries_estimate,
        "data_bytes": keyspace.data_bytes,
        "levels": levels.collect::<Vec<_>>(),
        "spills": keyspace.spills,
        "memtable_bytes": keyspace.memtable_bytes,
        "memtable_entries": keyspace.memtable_entries,
        "shape": {
            "growth": keyspace.shape.growth,
            "upper_levels": keyspace.shape.upper_levels,
            "spill_runs": keyspace.shape.spill_runs,
            "memtable_bytes": keyspace.shape.memtable_bytes,
        },
        "merges": keyspace.merges,
        "stalled": keyspace.stalled,
        "removed_ranges": keyspace.removed_ranges,
    })
}
