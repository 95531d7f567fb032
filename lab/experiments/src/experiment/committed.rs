//! The results in the repository are in step with the predictions: each file says of its series
//! what the experiment of its name says today.

use std::fs;
use std::path::PathBuf;

use serde_json::Map;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results")
}

/// The points of a file, by system and place.
fn read(points: &Value, mut add: impl FnMut(&'static str, f64, Metrics)) {
    for point in points.as_array().unwrap() {
        let system: &'static str = Box::leak(point["system"].as_str().unwrap().into());
        let median = point["median"].as_object().unwrap();
        let metrics = median.iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap()));
        add(system, point["at"].as_f64().unwrap(), metrics.collect());
    }
}

fn series(file: &Value) -> Series {
    let mut series = Series::default();
    read(&file["series"], |system, at, metrics| series.add(system, at, metrics));
    read(&file["totals"], |system, _, metrics| series.add_total(system, metrics));
    series
}

#[test]
fn results_say_what_their_series_show() {
    let (mut files, mut stale) = (0, Map::new());
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let experiment = Experiment::named(name).unwrap_or_else(|| panic!("{name} is unknown"));
        let outcomes = experiment.judge(&series(&file));
        let found: Vec<Value> = outcomes.iter().map(Outcome::json).collect();
        let recorded = file["predictions"].as_array().unwrap();
        if recorded != &found {
            stale.insert(name.to_owned(), Value::from(found));
        }
        assert_eq!(file["figure"], experiment.figure, "{}", path.display());
        files += 1;
    }
    assert_eq!(files, EXPERIMENTS.len(), "an experiment has no results");
    assert!(stale.is_empty(), "their series show: {:#}", Value::from(stale));
}
