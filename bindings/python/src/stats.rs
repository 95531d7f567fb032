//! Figures of a store as dictionaries, which `esker/_stats.py` turns into its classes.

use esker::{KeyspaceStats, LsmStats, LsmWrites, Stats};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// A dictionary of fields by their names.
macro_rules! dict {
    ($py:expr, $of:expr, $($field:ident)*) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), &$of.$field)?;)*
        dict
    }};
}

pub(crate) fn as_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, stats, user_bytes_written snapshots oldest_snapshot cache_hits
        cache_misses poisoned);
    dict.set_item("write_amplification", stats.write_amplification())?;
    dict.set_item("space_amplification", stats.space_amplification())?;
    let keyspaces = PyDict::new(py);
    for of in &stats.keyspaces {
        keyspaces.set_item(&of.name, keyspace(py, of)?)?;
    }
    dict.set_item("keyspaces", keyspaces)?;
    let io = PyDict::new(py);
    for of in &stats.io {
        io.set_item(of.purpose, dict!(py, of, reads bytes_read writes bytes_written syncs))?;
    }
    dict.set_item("io", io)?;
    let of = &stats.space;
    let space = dict!(py, of, data_file_bytes allocated_bytes free_bytes log_bytes manifest_bytes);
    dict.set_item("space", space)?;
    let of = &stats.memory;
    let memory = dict!(py, of, budget_bytes memtable_bytes fence_bytes cache_bytes buffer_bytes);
    dict.set_item("memory", memory)?;
    let of = &stats.transactions;
    dict.set_item("transactions", dict!(py, of, live conflicts remembered_bytes))?;
    let of = &stats.pins;
    let pins = dict!(py, of, writes_since_oldest kept_versions replaced_bytes backup log_keyspace);
    pins.set_item("oldest_snapshot_seconds", of.oldest_snapshot_age.map(|age| age.as_secs_f64()))?;
    dict.set_item("pins", pins)?;
    let waits = PyDict::new(py);
    for of in &stats.waits {
        let wait = dict!(py, of, waiting waits);
        wait.set_item("seconds", of.total.as_secs_f64())?;
        wait.set_item("longest_seconds", of.longest.as_secs_f64())?;
        waits.set_item(of.reason, wait)?;
    }
    dict.set_item("waits", waits)?;
    Ok(dict)
}

fn keyspace<'py>(py: Python<'py>, stats: &KeyspaceStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, stats, entries_estimate data_bytes stored_bytes value_bytes sorted_runs
        memtable_bytes memtable_entries history_from merges stalled merges_stopped flushing
        removed_ranges kept_versions replaced_bytes);
    dict.set_item("compression", stats.compression.to_string())?;
    dict.set_item("index", stats.index.name())?;
    dict.set_item("lsm", stats.lsm.as_ref().map(|of| lsm(py, of)).transpose()?)?;
    let levels = stats.levels.iter();
    let levels = levels.map(|of| Ok(dict!(py, of, rank blocks bytes puts tombstones)));
    dict.set_item("levels", levels.collect::<PyResult<Vec<_>>>()?)?;
    let past = stats.past_indexes.iter().map(|of| {
        let past = dict!(py, of, entries stored_bytes);
        past.set_item("from_version", of.from)?;
        past.set_item("until_version", of.until).map(|()| past)
    });
    dict.set_item("past_indexes", past.collect::<PyResult<Vec<_>>>()?)?;
    let of = &stats.shape;
    dict.set_item("shape", dict!(py, of, growth upper_levels sorted_runs memtable_bytes))?;
    let merge = stats.merge.as_ref().map(|of| {
        let merge = dict!(py, of, full levels written_bytes input_bytes);
        let wavefront = of.wavefront.as_ref().map(|key| PyBytes::new(py, key));
        merge.set_item("wavefront", wavefront).map(|()| merge)
    });
    dict.set_item("merge", merge.transpose()?)?;
    let next = stats.next.as_ref();
    let next = next.map(|of| -> PyResult<_> {
        Ok(dict!(py, of, after_bytes flush_bytes merge_bytes merge_levels merge_is_full))
    });
    dict.set_item("next", next.transpose()?)?;
    Ok(dict)
}

fn lsm<'py>(py: Python<'py>, stats: &LsmStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, stats, runs_capacity_bytes records_entered);
    dict.set_item("policy", stats.policy.name())?;
    dict.set_item("runs_written", writes(py, &stats.runs_written)?)?;
    let runs = stats.runs.iter().map(|of| Ok(dict!(py, of, bytes left_bytes)));
    dict.set_item("runs", runs.collect::<PyResult<Vec<_>>>()?)?;
    let levels = stats.levels.iter().map(|of| {
        let level = dict!(py, of, blocks bytes space_bytes fence_bytes capacity_bytes);
        level.set_item("written", writes(py, &of.written)?)?;
        level.set_item("next_key", PyBytes::new(py, &of.next_key)).map(|()| level)
    });
    dict.set_item("levels", levels.collect::<PyResult<Vec<_>>>()?)?;
    dict.set_item("next_key", PyBytes::new(py, &stats.next_key))?;
    let learnt = stats.learnt.as_ref();
    let learnt =
        learnt.map(|of| -> PyResult<_> { Ok(dict!(py, of, thresholds last_is_full phase cost)) });
    dict.set_item("learnt", learnt.transpose()?)?;
    Ok(dict)
}

fn writes<'py>(py: Python<'py>, of: &LsmWrites) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, of, blocks_written blocks_packed blocks_kept node_bytes_written))
}
