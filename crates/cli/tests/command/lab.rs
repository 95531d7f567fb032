//! `lab`, at a scale of seconds.

use serde_json::Value;

use crate::support::esker;

#[test]
fn an_experiment_prints_what_it_found_and_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("found.json");
    let answer = esker([
        "lab".as_ref(),
        "run".as_ref(),
        "stall".as_ref(),
        "--scale=tiny".as_ref(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    assert!(answer.stderr().contains("stall: FC, run 1 of 1: "), "{}", answer.stderr());
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(text.contains("fc-never-stalls: "), "{text}");
    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(found["command"], "esker lab run stall --scale tiny");
    assert_eq!(found["verdicts"].as_array().unwrap().len(), 2);
    // Two systems: six places each, and the whole run.
    assert_eq!(found["measured"].as_array().unwrap().len(), 14);
}

#[test]
fn the_list_names_every_experiment_and_others_are_refused() {
    let answer = esker(["lab", "list"]);
    let names =
        ["stall", "lookup-ratio", "ablation", "index-size", "level-skipping", "merge-policies"];
    assert!(names.iter().all(|name| answer.text().contains(name)));
    esker(["lab", "run", "walk"]).fails(2, &["walk", "stall", "level-skipping"]);
    esker(["lab"]).fails(2, &["--help"]);
}
