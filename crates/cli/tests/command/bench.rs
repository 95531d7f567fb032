//! `bench`, at a scale of seconds, for Esker alone: every row in processes of its own, the one
//! that is killed included.

use esker::IndexKind;
use serde_json::Value;

use crate::support::esker;

#[test]
fn every_row_runs_and_leaves_nothing_behind() {
    for kind in IndexKind::ALL {
        every_row_runs(&format!("--index={kind}"));
    }
}

fn every_row_runs(index: &str) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("found.json");
    let place = folder.path().join("place");
    let answer = esker([
        "bench".as_ref(),
        "--scale=tiny".as_ref(),
        index.as_ref(),
        "--dir".as_ref(),
        place.as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);

    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let measured = found["measured"].as_array().unwrap();
    let value = |row: &str, metric: &str| {
        let of_row = measured.iter().find(|of| of["part"] == row && of["system"] == "esker");
        of_row.and_then(|of| of["runs"][0][metric].as_f64())
    };
    assert!(value("load", "rate") > Some(0.0));
    assert!(value("merge", "put_samples") > Some(0.0));
    assert!(value("reopen", "first_read_seconds") > Some(0.0), "{found}");
    assert_eq!(measured.len(), 21);
    assert_eq!(found["command"], format!("esker bench --scale=tiny {index}"));
    assert_eq!(format!("--index={}", found["settings"]["index"].as_str().unwrap()), index);
    let verdicts = found["verdicts"].as_array().unwrap().iter().map(|bar| &bar["outcome"]);
    assert!(verdicts.clone().any(|verdict| verdict == "met"));
    assert!(verdicts.clone().any(|verdict| verdict == "unknown"), "no peer ran");

    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(text.contains("reopen: seconds to the first read"), "{text}");
    assert!(answer.stderr().contains("esker: reopen: "), "{}", answer.stderr());
}

#[test]
fn rows_run_on_a_simulated_ssd() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("found.json");
    let answer = esker([
        "bench".as_ref(),
        "--scale=tiny".as_ref(),
        "--rows=load,overwrite,values-1000,reopen".as_ref(),
        "--media=nand:slc512".as_ref(),
        "--capacity=24".as_ref(),
        "--placement=purpose".as_ref(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let measured = found["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 4, "{found}");
    for of in measured {
        let value = |metric: &str| of["runs"][0][metric].as_f64().unwrap();
        let product = value("device_written_bytes") * value("device_amplification");
        assert!((product / value("device_programmed_bytes") - 1.0).abs() < 1e-6, "{of}");
        assert!(value("device_amplification") >= 1.0 && value("device_used_share") > 0.0, "{of}");
    }
    assert_eq!(found["verdicts"].as_array().unwrap().len(), 0, "no bar is for simulated devices");
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    for words in ["device_amplification", "device_erases", "values of 1,000 bytes", "simulated SSD"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    esker(["bench", "--media=femu"]).fails(2, &["nand:PRESET", "femu"]);
    esker(["bench", "--media=nand:optane"]).fails(2, &["optane", "mqsim, femu"]);
    esker(["bench", "--media=nand:femu", "--op=0"]).fails(2, &["percentage"]);
    esker(["bench", "--op=7"]).fails(2, &["--media"]);
    esker(["bench", "--media=nand:femu", "--live"]).fails(2, &["--live"]);
    let small = ["bench", "--scale=tiny", "--rows=load", "--media=nand:slc512", "--capacity=1"];
    let answer = esker(small);
    assert_eq!(answer.code(), 5);
    assert!(answer.stderr().contains("no space left"), "{}", answer.stderr());
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_runs() {
    esker(["bench", "--rows=load,walk"]).fails(2, &["walk", "merge-space"]);
    esker(["bench", "--rate=0"]).fails(2, &["rate"]);
    esker(["bench", "--index=btree"]).fails(2, &["btree", "fdtree, lsm"]);
    esker(["bench", "--index=lsm", "--policy=best"]).fails(2, &["best", "choose-best"]);
    esker(["bench", "--policy=mixed"]).fails(2, &["--policy mixed", "--index lsm"]);
    esker(["bench", "--systems=sled"]).fails(2, &["sled", "--features peers"]);
    let answer = esker(["bench", "--child", "{}"]);
    assert_eq!(answer.code(), 2, "{}", answer.stderr());
}

#[test]
fn arrays_are_rearranged_by_every_system() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("found.json");
    let answer = esker([
        "bench".as_ref(),
        "permute".as_ref(),
        "--tiny".as_ref(),
        "--repeat=1".as_ref(),
        "--case=a1,c".as_ref(),
        "--systems=copy,esker,tiled,sort,lru".as_ref(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(found["verdicts"].as_array().unwrap().len(), 2);
    let sort = found["measured"].as_array().unwrap().iter().find(|of| of["system"] == "sort");
    assert!(sort.unwrap()["runs"][0]["seconds"].as_f64() > Some(0.0), "{found}");
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(text.lines().count() == 3 && text.contains("x copy"), "{text}");
    esker(["bench", "permute", "--case=z"]).fails(2, &["a1, a4, b1, b2, c, d"]);
}

#[test]
fn sqlite_is_measured_with_and_without_the_page_store() {
    let folder = tempfile::tempdir().unwrap();
    let (json, place) = (folder.path().join("found.json"), folder.path().join("a place"));
    let answer = esker([
        "bench".as_ref(),
        "sqlite".as_ref(),
        "--scale=small".as_ref(),
        "--seconds=1".as_ref(),
        "--warmup=0".as_ref(),
        "--mode=esker,wal".as_ref(),
        "--dir".as_ref(),
        place.as_os_str(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let [probe, esker_run, _] = found["measured"].as_array().unwrap().as_slice() else {
        panic!("{found}")
    };
    assert!(esker_run["runs"][0]["notpm"].as_f64() > Some(0.0), "{found}");
    assert!(probe["runs"][0]["growing_micros"].as_f64() > Some(0.0), "{found}");
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    for word in ["NOTPM", "\nesker ", "\nwal ", "fdatasync", "must be at least"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(answer.stderr().contains("NOTPM"), "{}", answer.stderr());
    let short = ["bench", "sqlite", "--scale=small", "--seconds=1", "--warmup=0", "--mode=wal"];
    let answer = esker(short.into_iter().chain(["--no-bars"]));
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(text.contains("NOTPM") && !text.contains("must be"), "{text}");
    let short = ["bench", "sqlite", "--scale=small", "--seconds=1", "--warmup=0", "--no-bars"];
    let several = ["--mode=esker,wal", "--processes=2", "--reader-processes=1", "--held-reader"];
    let answer = esker(short.into_iter().chain(several).chain(["--kills=3"]));
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    let rates = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(rates.contains("New-Orders") && !rates.contains(" 0 New-Orders"), "{rates}");
    esker(["bench", "sqlite", "--child={}"]).fails(2, &["cannot be read"]);
    esker(["bench", "sqlite", "--mode=off"]).fails(2, &["esker-relaxed", "delete"]);
    let answer = esker(["bench", "sqlite", "--help"]);
    let help = answer.text();
    assert!(help.contains("NOTPM are") && help.contains("--held-reader"), "{help}");
}

#[test]
fn operations_are_measured_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("found.json");
    let answer = esker([
        "bench".as_ref(),
        "operations".as_ref(),
        "--entries=1000".as_ref(),
        "--memory=4".as_ref(),
        "--repeat=1".as_ref(),
        "--json".as_ref(),
        json.as_os_str(),
    ]);
    assert_eq!(answer.code(), 0, "{}", answer.stderr());
    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let batch = found["measured"].as_array().unwrap().iter().find(|of| of["system"] == "batch");
    assert!(batch.unwrap()["runs"][0]["commit_us"].as_f64() > Some(0.0), "{found}");
    let text = String::from_utf8(answer.0.stdout.clone()).unwrap();
    assert!(text.contains("transaction over batch"), "{text}");
    esker(["bench", "operations", "--case=zip"]).fails(2, &["compression", "backup"]);
}
