//! `stats`: what the store holds and what it has done.

mod lsm;

use esker::{KeyspaceStats, NextStats, Stats};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Map, Value, json};

use super::{open_to_read, version};
use crate::args;

pub(super) fn run(args: &args::Stats) -> Result<(), Failure> {
    let mut stats = open_to_read(&args.store.path)?.stats()?;
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
        let tables = [
            keyspaces_table,
            next_table,
            levels_table,
            lsm::levels_table,
            lsm::runs_table,
            io_table,
            waits_table,
            sums_table,
        ];
        let tables = tables.map(|table| table(&stats));
        let texts = tables.iter().filter(|table| !table.is_empty()).map(ToString::to_string);
        let held = held(&stats).join("\n");
        let texts = texts.chain((!held.is_empty()).then_some(held));
        output.line(&texts.collect::<Vec<_>>().join("\n\n"))?;
    }
    output.flush()
}

pub(super) fn bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

pub(super) fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

pub(super) fn keyspaces_table(stats: &Stats) -> Table {
    let mut table = Table::new(&[
        "keyspace",
        "index",
        "entries, about",
        "data",
        "on the device",
        "large values",
        "codec",
        "in memory",
        "levels",
        "sorted runs",
        "merges",
        "growth",
    ]);
    for keyspace in &stats.keyspaces {
        table.row([
            keyspace.name.clone(),
            keyspace.index.to_string(),
            count(keyspace.entries_estimate),
            bytes(keyspace.data_bytes),
            bytes(keyspace.stored_bytes),
            bytes(keyspace.value_bytes),
            keyspace.compression.to_string(),
            bytes(keyspace.memtable_bytes),
            keyspace.levels.len().to_string(),
            count(keyspace.sorted_runs),
            count(keyspace.merges),
            format!("{:.1}", keyspace.shape.growth),
        ]);
    }
    table
}

/// The work that is under way, and the work that comes next.
fn next_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["keyspace", "under way", "next", "when"]);
    for keyspace in &stats.keyspaces {
        let under_way = under_way(keyspace);
        let (next, when) = match &keyspace.next {
            None => ("after that".to_owned(), "-".to_owned()),
            Some(next) => (next_work(next), when(next)),
        };
        table.row([keyspace.name.clone(), under_way, next, when]);
    }
    table
}

fn under_way(keyspace: &KeyspaceStats) -> String {
    if let Some(reason) = &keyspace.stalled {
        return format!("stopped: {reason}");
    }
    match &keyspace.merge {
        Some(merge) => {
            let kind = if merge.full { "full merge" } else { "merge" };
            let done = merge.written_bytes as f64 / merge.input_bytes.max(1) as f64;
            format!("{kind}, {:.0} %", 100.0 * done.min(1.0))
        }
        None if keyspace.flushing => "flush".to_owned(),
        None => "-".to_owned(),
    }
}

fn next_work(next: &NextStats) -> String {
    let kind = if next.merge_is_full { "full merge" } else { "merge" };
    match (next.flush_bytes, next.merge_bytes) {
        (flush, 0) => format!("flush of {}", bytes(flush)),
        (0, merge) => format!("{kind} of {}", bytes(merge)),
        (flush, merge) => format!("flush of {}, then {kind} of {}", bytes(flush), bytes(merge)),
    }
}

fn when(next: &NextStats) -> String {
    match next.after_bytes {
        0 => "now".to_owned(),
        left => format!("after {} more in memory", bytes(left)),
    }
}

fn waits_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["writers waited for", "times", "in all", "longest", "now"]);
    for of in stats.waits.iter().filter(|of| of.waits > 0) {
        let what = match of.reason {
            "memory" => "memory, while memtables are written out",
            "merge" => "a merge, to keep step with it",
            "turn" => "the writers' turn",
            other => other,
        };
        let times = [of.total, of.longest].map(|time| format!("{time:.1?}"));
        let [total, longest] = times;
        table.row([what.to_owned(), count(of.waits), total, longest, count(of.waiting)]);
    }
    table
}

/// The reasons for which space cannot be used again, a line each.
fn held(stats: &Stats) -> Vec<String> {
    let pins = &stats.pins;
    let mut lines = Vec::new();
    if let Some(age) = pins.oldest_snapshot_age {
        let (all, since) = (count(stats.snapshots), count(pins.writes_since_oldest));
        lines.push(format!(
            "{all} snapshots are held, the oldest for {age:.1?}: what {since} writes since have \
             replaced is kept"
        ));
    }
    if pins.kept_versions > 0 {
        let versions = count(pins.kept_versions);
        lines.push(format!("{versions} old versions were kept for snapshots by merges"));
    }
    if pins.replaced_bytes > 0 {
        let waiting = bytes(pins.replaced_bytes);
        let whom = if pins.backup { "the backup" } else { "reads that began before" };
        lines.push(format!("{waiting} that merges have replaced wait for {whom}"));
    }
    for keyspace in &stats.keyspaces {
        if let Some(from) = keyspace.history_from {
            let name = &keyspace.name;
            lines.push(format!("keyspace {name} has all versions from {from} on"));
        }
    }
    if let Some(name) = pins.log_keyspace.as_ref().filter(|_| stats.keyspaces.len() > 1) {
        lines.push(format!("the oldest part of the log is kept for keyspace {name}"));
    }
    lines
}

pub(super) fn levels_table(stats: &Stats) -> Table {
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
        ("  cached blocks", stats.memory.cache_bytes.saturating_sub(stats.memory.buffer_bytes)),
        ("  buffers of merges", stats.memory.buffer_bytes),
    ] {
        table.row([name.to_owned(), bytes(size_bytes)]);
    }
    for (name, factor) in [
        ("bytes written per user byte", stats.write_amplification()),
        ("bytes of files per byte of entries", stats.space_amplification()),
    ] {
        if let Some(factor) = factor {
            table.row([name.to_owned(), format!("{factor:.2}")]);
        }
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
    let waits = stats.waits.iter().map(|of| {
        let figures = json!({
            "waiting": of.waiting,
            "waits": of.waits,
            "seconds": of.total.as_secs_f64(),
            "longest_seconds": of.longest.as_secs_f64(),
        });
        (of.reason.to_owned(), figures)
    });
    json!({
        "keyspaces": stats.keyspaces.iter().map(keyspace_as_json).collect::<Vec<_>>(),
        "io": io.collect::<Map<_, _>>(),
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
            "buffer_bytes": stats.memory.buffer_bytes,
        },
        "write_amplification": stats.write_amplification(),
        "space_amplification": stats.space_amplification(),
        "snapshots": stats.snapshots,
        "oldest_snapshot": stats.oldest_snapshot,
        "pins": {
            "oldest_snapshot_seconds": stats.pins.oldest_snapshot_age.map(|age| age.as_secs_f64()),
            "writes_since_oldest": stats.pins.writes_since_oldest,
            "kept_versions": stats.pins.kept_versions,
            "replaced_bytes": stats.pins.replaced_bytes,
            "backup": stats.pins.backup,
            "log_keyspace": stats.pins.log_keyspace,
        },
        "waits": waits.collect::<Map<_, _>>(),
        "transactions": {
            "live": stats.transactions.live,
            "conflicts": stats.transactions.conflicts,
            "remembered_bytes": stats.transactions.remembered_bytes,
        },
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "poisoned": stats.poisoned,
    })
}

fn keyspace_as_json(keyspace: &KeyspaceStats) -> Value {
    let mut object = content_as_json(keyspace);
    object.extend(work_as_json(keyspace));
    object.into()
}

/// What a keyspace holds: another process reads it from the store.
pub(super) fn content_as_json(keyspace: &KeyspaceStats) -> Map<String, Value> {
    let levels = keyspace.levels.iter().map(|level| {
        json!({
            "rank": level.rank,
            "blocks": level.blocks,
            "bytes": level.bytes,
            "puts": level.puts,
            "tombstones": level.tombstones,
        })
    });
    fields([
        ("name", json!(keyspace.name)),
        ("index", json!(keyspace.index.to_string())),
        ("entries_estimate", json!(keyspace.entries_estimate)),
        ("compression", json!(keyspace.compression.to_string())),
        ("history_from", json!(keyspace.history_from)),
        ("data_bytes", json!(keyspace.data_bytes)),
        ("stored_bytes", json!(keyspace.stored_bytes)),
        ("value_bytes", json!(keyspace.value_bytes)),
        ("levels", levels.collect()),
        ("sorted_runs", json!(keyspace.sorted_runs)),
        ("memtable_bytes", json!(keyspace.memtable_bytes)),
        ("memtable_entries", json!(keyspace.memtable_entries)),
        ("merges", json!(keyspace.merges)),
        ("removed_ranges", json!(keyspace.removed_ranges)),
    ])
}

/// What is done in a keyspace, and what comes next: the process that writes knows it.
fn work_as_json(keyspace: &KeyspaceStats) -> Map<String, Value> {
    let shape = json!({
        "growth": keyspace.shape.growth,
        "upper_levels": keyspace.shape.upper_levels,
        "sorted_runs": keyspace.shape.sorted_runs,
        "memtable_bytes": keyspace.shape.memtable_bytes,
    });
    let merge = keyspace.merge.as_ref().map(|merge| {
        json!({
            "full": merge.full,
            "levels": merge.levels,
            "written_bytes": merge.written_bytes,
            "input_bytes": merge.input_bytes,
        })
    });
    let next = keyspace.next.map(|next| {
        json!({
            "after_bytes": next.after_bytes,
            "flush_bytes": next.flush_bytes,
            "merge_bytes": next.merge_bytes,
            "merge_levels": next.merge_levels,
            "merge_is_full": next.merge_is_full,
        })
    });
    fields([
        ("past_indexes", version::past_indexes(keyspace).into()),
        ("lsm", json!(keyspace.lsm.as_ref().map(lsm::as_json))),
        ("shape", shape),
        ("stalled", json!(keyspace.stalled)),
        ("flushing", json!(keyspace.flushing)),
        ("merge", json!(merge)),
        ("next", json!(next)),
        ("kept_versions", json!(keyspace.kept_versions)),
        ("replaced_bytes", json!(keyspace.replaced_bytes)),
    ])
}

fn fields<const N: usize>(named: [(&str, Value); N]) -> Map<String, Value> {
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
