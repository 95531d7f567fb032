//! The output of `stats` for LSM indexes: how full their levels are, what is left of their runs,
//! and where the next merges begin.

use esker::{KeyspaceStats, LsmLearnt, LsmLevelStats, LsmRunStats, LsmStats, LsmWrites, Stats};
use esker_terminal::table::Table;
use serde_json::{Map, Value, json};

use super::{bytes, count};
use crate::text::Format;

/// Characters of a key that are shown in a table.
const KEY_SHOWN: usize = 24;

fn of(stats: &Stats) -> impl Iterator<Item = (&KeyspaceStats, &LsmStats)> {
    stats.keyspaces.iter().filter_map(|keyspace| Some((keyspace, keyspace.lsm.as_ref()?)))
}

/// Levels, in the order in which what is written comes to them; how many blocks were written for
/// each since the store was opened, and how many merges kept as they were.
pub(super) fn levels_table(stats: &Stats) -> Table {
    let mut table = Table::new(&[
        "LSM index",
        "blocks",
        "size",
        "may hold",
        "occupied",
        "waste",
        "fences",
        "written",
        "kept",
        "next merge at",
    ]);
    for (keyspace, lsm) in of(stats) {
        let none = "-".to_owned();
        let runs: u64 = lsm.runs.iter().map(|run| run.left_bytes).sum();
        table.row([
            format!("{} runs, {}", keyspace.name, lsm.policy),
            none.clone(),
            bytes(runs),
            bytes(lsm.runs_capacity_bytes),
            none.clone(),
            none.clone(),
            none.clone(),
            count(lsm.runs_written.blocks_written),
            none.clone(),
            shown(&lsm.next_key),
        ]);
        for (number, level) in (1..).zip(&lsm.levels) {
            let occupied = level.occupancy().map(|share| format!("{:.1} %", 100.0 * share));
            let is_last = number == lsm.levels.len();
            table.row([
                format!("{} {number}", keyspace.name),
                count(level.blocks),
                bytes(level.bytes),
                level.capacity_bytes.map_or_else(|| none.clone(), bytes),
                occupied.unwrap_or_else(|| none.clone()),
                bytes(level.waste_bytes()),
                bytes(level.fence_bytes),
                count(level.written.blocks_written),
                count(level.written.blocks_kept),
                if is_last { none.clone() } else { shown(&level.next_key) },
            ]);
        }
    }
    table
}

/// Runs, newest first.
pub(super) fn runs_table(stats: &Stats) -> Table {
    let mut table = Table::new(&["LSM run", "written", "left", "merged"]);
    for (keyspace, lsm) in of(stats) {
        for (number, LsmRunStats { bytes: written, left_bytes, .. }) in (1..).zip(&lsm.runs) {
            let merged = written.saturating_sub(*left_bytes) as f64 / (*written).max(1) as f64;
            table.row([
                format!("{} {number}", keyspace.name),
                bytes(*written),
                bytes(*left_bytes),
                format!("{:.0} %", 100.0 * merged),
            ]);
        }
    }
    table
}

/// The beginning of a key, safe on any terminal.
fn shown(key: &[u8]) -> String {
    if key.is_empty() {
        return "the first key".to_owned();
    }
    let mut line = Vec::new();
    Format::Tsv.encode(key, b"", &mut line);
    let text = String::from_utf8_lossy(&line);
    let text = text.trim_end_matches(['\n', '\t']);
    match text.char_indices().nth(KEY_SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
    }
}

pub(super) fn as_json(lsm: &LsmStats) -> Value {
    let run = |run: &LsmRunStats| json!({ "bytes": run.bytes, "left_bytes": run.left_bytes });
    with_key(
        &lsm.next_key,
        json!({
            "runs": lsm.runs.iter().map(run).collect::<Vec<_>>(),
            "levels": lsm.levels.iter().map(level_as_json).collect::<Vec<_>>(),
            "policy": lsm.policy.name(),
            "runs_capacity_bytes": lsm.runs_capacity_bytes,
            "runs_written": writes_as_json(&lsm.runs_written),
            "records_entered": lsm.records_entered,
            "learnt": lsm.learnt.as_ref().map(learnt_as_json),
        }),
    )
}

fn level_as_json(level: &LsmLevelStats) -> Value {
    with_key(
        &level.next_key,
        json!({
            "blocks": level.blocks,
            "bytes": level.bytes,
            "space_bytes": level.space_bytes,
            "fence_bytes": level.fence_bytes,
            "waste_bytes": level.waste_bytes(),
            "occupancy": level.occupancy(),
            "capacity_bytes": level.capacity_bytes,
            "written": writes_as_json(&level.written),
        }),
    )
}

fn learnt_as_json(learnt: &LsmLearnt) -> Value {
    json!({
        "thresholds": learnt.thresholds,
        "last_is_full": learnt.last_is_full,
        "phase": learnt.phase,
        "cost": learnt.cost,
    })
}

fn writes_as_json(writes: &LsmWrites) -> Value {
    json!({
        "blocks_written": writes.blocks_written,
        "blocks_packed": writes.blocks_packed,
        "blocks_kept": writes.blocks_kept,
        "node_bytes_written": writes.node_bytes_written,
    })
}

/// Adds where the next merge begins, as entries are written: `next_k64` where it is not UTF-8.
fn with_key(key: &[u8], mut object: Value) -> Value {
    let mut line = Vec::new();
    Format::Jsonl.encode(key, b"", &mut line);
    let entry: Map<String, Value> = serde_json::from_slice(&line).unwrap_or_default();
    if let Some(object) = object.as_object_mut() {
        let keys = entry.into_iter().filter(|(name, _)| name.starts_with('k'));
        object.extend(keys.map(|(name, key)| (format!("next_{name}"), key)));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_on_any_terminal() {
        assert_eq!(shown(b""), "the first key");
        assert_eq!(shown(b"a\tb\n"), "a\\tb\\n");
        assert_eq!(shown(b"\x1b\xff"), "\\x1b\\xff");
        assert_eq!(shown("é".repeat(25).as_bytes()), format!("{}…", "é".repeat(24)));
    }

    #[test]
    fn keys_are_json_as_those_of_entries() {
        assert_eq!(with_key(b"a", json!({})), json!({ "next_k": "a" }));
        assert_eq!(with_key(b"\xff", json!({})), json!({ "next_k64": "/w==" }));
    }
}
