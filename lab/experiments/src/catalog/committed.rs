//! The results in the repository are in step with the predictions: each file says of its series
//! what the experiment of its name says today, and is what is written of what is read.

use std::fs;
use std::path::PathBuf;

use esker_lab_result::Findings;
use serde_json::{Map, Value};

use super::*;
use crate::experiment::Series;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

/// Each file of results: its name, and its text.
fn files() -> Vec<(String, String)> {
    let paths = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let results = paths.filter(|path| path.extension().is_some_and(|of| of == "json"));
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    results.map(read).collect()
}

#[test]
fn results_say_what_their_series_show() {
    let (mut count, mut stale) = (0, Map::new());
    for (name, text) in files() {
        let found = Findings::from_json(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        let experiment = named(&name).unwrap_or_else(|| panic!("{name} is unknown"));
        let verdicts = experiment.judge(&Series::from(&found));
        if found.verdicts != verdicts {
            stale.insert(name.clone(), serde_json::to_value(verdicts).unwrap());
        }
        assert_eq!(found.what.name, name);
        assert_eq!(found.what.figure.as_deref(), Some(experiment.figure), "{name}");
        count += 1;
    }
    assert_eq!(count, EXPERIMENTS.len(), "an experiment has no results");
    assert!(stale.is_empty(), "their series show: {:#}", Value::from(stale));
}

#[test]
fn results_are_read_and_written_back() {
    for (name, text) in files() {
        let found = Findings::from_json(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(found.to_json().unwrap(), text, "{name}");
    }
}
