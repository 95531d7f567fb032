//! Rot: every byte of a log.

use super::*;

type Files = BTreeMap<String, Vec<u8>>;

fn device_of(files: &Files) -> Arc<dyn Device> {
    Arc::new(SimDevice::from_files(files))
}

/// A store with a closed and an open segment, and the last number whose durability is recorded
/// outside its own record.
fn files(clean: bool) -> (Files, Seq, Seq) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    for _ in 0..20 {
        rig.put(2, 400, true).unwrap();
    }
    let known = rig.log.last_seq();
    rig.put(2, 30, true).unwrap();
    if clean {
        rig.clean_close().unwrap();
    }
    assert_eq!(rig.manifest.state().segments.len(), 2);
    let last = rig.log.last_seq();
    (sim.files(), last, if clean { last } else { known })
}

fn recover(files: &Files) -> Result<Seq> {
    open_rig(&device_of(files))?.replay_and_check()
}

/// Flips every byte of the segments from `first` on; returns how often that was an error,
/// harmless, and older.
fn flip_everywhere(clean: bool, first: &str) -> [usize; 3] {
    let (files, last, known) = files(clean);
    let mut verdicts = [0; 3];
    // Recovery writes nothing, so one device serves all.
    let sim = Arc::new(SimDevice::from_files(&files));
    let device: Arc<dyn Device> = sim.clone();
    let segments = files.range(first.to_string()..).filter(|(name, _)| name.starts_with("log-"));
    for (name, bytes) in segments {
        for at in 0..bytes.len() {
            let mask = [0x01, 0x80, 0xff][at % 3];
            sim.flip(name, at as u64, mask);
            let recovered = open_rig(&device).and_then(|rig| rig.replay_and_check());
            sim.flip(name, at as u64, mask);
            match recovered {
                Err(Error::Corrupt { file, offset, .. }) => {
                    assert_eq!(&file, name, "byte {at}");
                    assert!(offset <= at as u64, "{name} byte {at}: {offset}");
                    verdicts[0] += 1;
                }
                Err(error) => panic!("{name} byte {at}: {error}"),
                Ok(found) if found == last => verdicts[1] += 1,
                Ok(found) => {
                    assert_eq!(found, known, "{name} byte {at}");
                    verdicts[2] += 1;
                }
            }
        }
    }
    verdicts
}

#[test]
fn no_byte_of_a_cleanly_closed_log_takes_anything_back() {
    let [errors, harmless, older] = flip_everywhere(true, "log-00000001");
    assert!(errors > 20_000 && harmless > 1000, "{errors} {harmless}");
    assert_eq!(older, 0);
}

#[test]
fn no_byte_of_a_dirty_log_takes_more_back_than_the_last_group() {
    let [errors, harmless, older] = flip_everywhere(false, "log-00000002");
    assert!(errors > 5000 && harmless > 1000, "{errors} {harmless}");
    assert!((100..200).contains(&older), "{older}");
}

#[test]
fn check_names_what_is_damaged_while_open() {
    let (files, ..) = files(true);
    let sim = Arc::new(SimDevice::from_files(&files));
    let device: Arc<dyn Device> = sim.clone();
    let rig = open_rig(&device).unwrap();
    assert_eq!(rig.log.verify(), []);
    for name in ["log-00000001", "log-00000002"] {
        for offset in [20, 4100, 4400] {
            sim.flip(name, offset, 1);
            let problems = rig.log.verify();
            assert_eq!(problems.len(), 1, "{name} {offset}");
            assert_eq!(problems[0].file, name);
            assert!(problems[0].offset <= offset);
            sim.flip(name, offset, 1);
        }
    }
}

#[test]
fn a_missing_short_or_foreign_segment_is_named() {
    let (files, ..) = files(true);
    for name in ["log-00000001", "log-00000002"] {
        let refused = |damaged: Files| {
            let error = recover(&damaged).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { file, .. } if file == name), "{error}");
        };
        let mut damaged = files.clone();
        damaged.remove(name);
        refused(damaged);
        let mut damaged = files.clone();
        damaged.get_mut(name).unwrap().truncate(16_000);
        refused(damaged);
    }
    let mut swapped = files.clone();
    let (one, two) = (files["log-00000001"].clone(), files["log-00000002"].clone());
    swapped.insert("log-00000001".into(), two);
    swapped.insert("log-00000002".into(), one);
    assert!(matches!(recover(&swapped), Err(Error::Corrupt { .. })));
}

#[test]
fn an_older_copy_of_the_log_is_refused() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.put(3, 100, true).unwrap();
    let older = sim.files()["log-00000001"].clone();
    rig.put(3, 100, true).unwrap();
    rig.flush(1).unwrap();
    let mut files = sim.files();
    files.insert("log-00000001".into(), older);
    assert!(matches!(recover(&files), Err(Error::Corrupt { .. })));
}

#[test]
fn bytes_of_the_log_inside_a_value_are_no_record() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.put(3, 100, true).unwrap();
    // A copy of the log as a value: valid headers in the middle of a record.
    let copy = sim.files()["log-00000001"][4096..5096].to_vec();
    let (_, ticket) =
        rig.log.append(&encode(&[(1, b"copy".to_vec(), Some(copy))]), Claim::Values).unwrap();
    rig.log.wait_written(ticket).unwrap();
    let mut files = sim.files();
    // The record that holds the copy is torn at its start.
    let end = rig.log.live_bytes() as usize;
    files.get_mut("log-00000001").unwrap()[end - 900] ^= 1;
    assert_eq!(recover(&files).unwrap(), Seq(3));
}
