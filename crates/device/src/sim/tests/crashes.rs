//! The images that a crash may leave, and a check that all of them are tried.

use super::*;

type Files = BTreeMap<String, Vec<u8>>;

/// The files of all crash images of a trace.
pub(super) fn all_files(trace: &Trace, options: &CrashOptions) -> Result<BTreeSet<Files>> {
    let mut all = BTreeSet::new();
    trace.for_each_crash(options, |_, device| -> Result<()> {
        all.insert(device.files());
        Ok(())
    })?;
    Ok(all)
}

fn traced(work: impl FnOnce(&SimDevice) -> Result<()>, on: &SimDevice) -> Result<Trace> {
    on.record();
    work(on)?;
    Ok(taken(on))
}

/// The first byte of each sector of `a` in each image, with its length.
fn shapes(all: &BTreeSet<Files>) -> BTreeSet<(usize, Vec<u8>)> {
    let shape = |files: &Files| {
        let bytes = files.get("a").cloned().unwrap_or_default();
        (bytes.len(), bytes.iter().step_by(SECTOR).copied().collect())
    };
    all.iter().map(shape).collect()
}

#[test]
fn writes_tear_at_sectors_in_any_order() -> Result<()> {
    let (device, file) = with_synced_file(3)?;
    let trace = traced(|_| write(&file, 0, &[2; 3 * SECTOR]), &device)?;
    let got = shapes(&all_files(&trace, &CrashOptions::default())?);
    let expected: BTreeSet<_> = (0..8)
        .map(|mask| (3 * SECTOR, (0..3).map(|bit| 1 + (mask >> bit & 1)).collect()))
        .collect();
    assert_eq!(got, expected);
    let model = CrashModel { ordered: true, ..CrashModel::default() };
    let got = shapes(&all_files(&trace, &CrashOptions { model, ..CrashOptions::default() })?);
    let prefixes = [[1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2]];
    assert_eq!(got, prefixes.iter().map(|p| (3 * SECTOR, p.to_vec())).collect());
    Ok(())
}

#[test]
fn an_older_version_may_survive() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    let trace = traced(
        |_| {
            write(&file, 0, &[2; SECTOR])?;
            write(&file, 0, &[3; SECTOR])
        },
        &device,
    )?;
    let got = shapes(&all_files(&trace, &CrashOptions::default())?);
    assert_eq!(got, (1..=3).map(|byte| (SECTOR, vec![byte])).collect());
    Ok(())
}

#[test]
fn lengths_and_contents_are_distinct() -> Result<()> {
    let work = |file: &Arc<dyn DeviceFile>| {
        write(file, SECTOR, &[2; SECTOR])?;
        write(file, 2 * SECTOR, &[3; 100])
    };
    let expected = |unwritten: u8| {
        let grown = [vec![1], vec![1, unwritten], vec![1, 2]];
        let longest = [[1, unwritten, unwritten], [1, 2, unwritten], [1, unwritten, 3], [1, 2, 3]];
        let grown = grown.into_iter().map(|bytes| (bytes.len() * SECTOR, bytes));
        let longest = longest.into_iter().map(|bytes| (2 * SECTOR + 100, bytes.to_vec()));
        grown.chain(longest).collect::<BTreeSet<_>>()
    };
    let garbage = sectors::SectorStore::new(SECTOR).get(sectors::GARBAGE)[0];
    for (unwritten, byte) in [(Unwritten::Zeros, 0), (Unwritten::Garbage, garbage)] {
        let (device, file) = with_synced_file(1)?;
        let trace = traced(|_| work(&file), &device)?;
        let model = CrashModel { unwritten, ..CrashModel::default() };
        let options = CrashOptions { model, ..CrashOptions::default() };
        assert_eq!(shapes(&all_files(&trace, &options)?), expected(byte), "{unwritten:?}");
    }
    Ok(())
}

#[test]
fn old_data_may_come_back() -> Result<()> {
    let (device, _) = with_synced_file(2)?;
    device.remove("a")?;
    device.sync_dir()?;
    let trace = traced(
        |device| {
            let file = create(device, "a")?;
            device.sync_dir()?;
            file.preallocate(SECTOR as u64, Purpose::User)?;
            file.sync(Purpose::User)
        },
        &device,
    )?;
    let model = CrashModel { unwritten: Unwritten::OldData, ..CrashModel::default() };
    let options = CrashOptions { model, ..CrashOptions::default() };
    let got = shapes(&all_files(&trace, &options)?);
    assert_eq!(got, BTreeSet::from([(0, vec![]), (SECTOR, vec![1]), (SECTOR, vec![0])]));
    Ok(())
}

#[test]
fn growing_after_a_crash_shows_zeros() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    file.truncate(100)?;
    file.sync(Purpose::User)?;
    let trace = traced(|_| write(&file, 100, &[2; 300]), &device)?;
    let mut cut = 0;
    trace.for_each_crash(&CrashOptions::default(), |_, device| -> Result<()> {
        let file = open(device, "a")?;
        if file.len()? == 100 {
            cut += 1;
            file.preallocate(SECTOR as u64, Purpose::User)?;
            assert!(device.files()["a"][100..].iter().all(|byte| *byte == 0));
        }
        Ok(())
    })?;
    assert!(cut > 0);
    Ok(())
}

#[test]
fn names_need_the_folder_synced() -> Result<()> {
    let (device, _) = with_synced_file(1)?;
    let work = |device: &SimDevice| {
        let file = create(device, "b")?;
        write(&file, 0, &[2; 10])?;
        file.sync(Purpose::User)?;
        device.rename("b", "a")
    };
    let trace = traced(work, &device)?;
    let got = all_files(&trace, &CrashOptions::default())?;
    let old = ("a".to_owned(), vec![1; SECTOR]);
    let files = |entries: &[(&str, usize)]| -> Files {
        entries.iter().map(|(name, len)| ((*name).to_owned(), vec![2; *len])).collect()
    };
    let with_old = |mut files: Files| {
        files.insert(old.0.clone(), old.1.clone());
        files
    };
    let expected = BTreeSet::from([
        with_old(files(&[])),
        with_old(files(&[("b", 0)])),
        with_old(files(&[("b", 10)])),
        with_old(BTreeMap::from([("b".to_owned(), vec![0; 10])])),
        files(&[("a", 10)]),
    ]);
    assert_eq!(got, expected);
    Ok(())
}

#[test]
fn removal_and_truncation_may_be_lost() -> Result<()> {
    let (device, file) = with_synced_file(2)?;
    let trace = traced(
        |device| {
            file.truncate(10)?;
            device.remove("a")
        },
        &device,
    )?;
    let got = shapes(&all_files(&trace, &CrashOptions::default())?);
    let expected = [(0, vec![]), (10, vec![1]), (2 * SECTOR, vec![1, 1])];
    assert_eq!(got, BTreeSet::from(expected));
    Ok(())
}

#[test]
fn a_lying_disk_loses_what_was_synced() -> Result<()> {
    let device = SimDevice::new();
    let work = |device: &SimDevice| {
        let file = create(device, "a")?;
        write(&file, 0, &[2; 10])?;
        file.sync(Purpose::User)?;
        device.sync_dir()?;
        device.mark(1);
        Ok(())
    };
    let trace = traced(work, &device)?;
    for honours_syncs in [true, false] {
        let model = CrashModel { honours_syncs, ..CrashModel::default() };
        let mut lost = 0;
        let options = CrashOptions { model, ..CrashOptions::default() };
        trace.for_each_crash(&options, |state, device| -> Result<()> {
            let is_kept = device.files().get("a") == Some(&vec![2; 10]);
            lost += u32::from(state.acknowledged() == Some(1) && !is_kept);
            Ok(())
        })?;
        assert_eq!(lost == 0, honours_syncs);
    }
    Ok(())
}

#[test]
fn every_image_is_made_again_from_its_description() -> Result<()> {
    for seed in 0..10 {
        let trace = recorded(seed, 60)?;
        for unwritten in [Unwritten::Zeros, Unwritten::Garbage, Unwritten::OldData] {
            let model = CrashModel { unwritten, ..CrashModel::default() };
            let options = CrashOptions { model, exhaustive_units: 6, ..CrashOptions::default() };
            let mut digests = BTreeSet::new();
            trace.for_each_crash(&options, |state, device| -> Result<()> {
                let again = trace.crash_image(state.position, state.survivors, &model);
                assert_eq!(again.digest(), state.digest, "{state}");
                assert_eq!(again.files(), device.files(), "{state}");
                // The digest must not depend on how the image came about.
                let rebuilt = SimImage::from_files(&again.files());
                assert_eq!(rebuilt.digest(), state.digest, "{state}");
                assert_eq!(state.marks, trace.marks_before(state.position));
                digests.insert((state.digest, state.marks.len()));
                Ok(())
            })?;
            let counts = trace.count_crashes(&options);
            assert_eq!(digests.len() as u64, counts.distinct, "no image twice");
        }
    }
    Ok(())
}

#[test]
fn visits_leave_no_traces() -> Result<()> {
    let trace = recorded(3, 40)?;
    let options = CrashOptions::default();
    let plain = all_files(&trace, &options)?;
    let mut seen = BTreeSet::new();
    trace.for_each_crash(&options, |_, device| -> Result<()> {
        seen.insert(device.files());
        churn(device, 1, 20)?;
        for name in device.list()? {
            open(device, &name)?.sync(Purpose::User)?;
        }
        device.sync_dir()
    })?;
    assert_eq!(seen, plain);
    Ok(())
}

#[test]
fn a_limit_spreads_over_all_crashes() -> Result<()> {
    let trace = recorded(5, 80)?;
    let all = CrashOptions { exhaustive_units: 6, ..CrashOptions::default() };
    let positions = |options: &CrashOptions| -> Result<Vec<(usize, u64)>> {
        let mut visited = Vec::new();
        let counts = trace.for_each_crash(options, |state, _| -> Result<()> {
            visited.push((state.position, state.digest));
            Ok(())
        })?;
        assert_eq!(counts.visited, visited.len() as u64);
        Ok(visited)
    };
    let everything = positions(&all)?;
    for limit in [0, 1, 7, 50] {
        let some = positions(&CrashOptions { limit: Some(limit), ..all.clone() })?;
        assert_eq!(some.len() as u64, limit);
    }
    let some = positions(&CrashOptions { limit: Some(50), ..all.clone() })?;
    let quarter = everything.len() / 4;
    for part in everything.chunks(quarter).take(4) {
        // Even over the choices made, of which some give more different images than others.
        let hits = some.iter().filter(|state| part.contains(state)).count();
        assert!((6..=25).contains(&hits), "{hits} of 50 in a quarter");
    }
    let most = positions(&CrashOptions { limit: Some(u64::MAX), ..all })?;
    assert_eq!(most, everything);
    Ok(())
}

#[test]
fn recoveries_crash_too() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    let trace = traced(|_| write(&file, 0, &[2; SECTOR]), &device)?;
    let mut nested = BTreeSet::new();
    let outcome = trace.for_each_crash(&CrashOptions::default(), |_, device| -> Result<()> {
        device.record();
        let file = open(device, "a")?;
        write(&file, 0, &[3; SECTOR])?;
        let inner = taken(device);
        nested.extend(shapes(&all_files(&inner, &CrashOptions::default())?));
        Ok(())
    })?;
    assert_eq!(nested, (1..=3).map(|byte| (SECTOR, vec![byte])).collect());
    assert_eq!((outcome.distinct, outcome.visited), (2, 2));
    Ok(())
}

#[test]
fn the_first_error_ends_the_walk() -> Result<()> {
    let trace = recorded(1, 40)?;
    let mut visited = 0;
    let outcome = trace.for_each_crash(&CrashOptions::default(), |state, _| {
        visited += 1;
        if visited == 3 { Err(state.to_string()) } else { Ok(()) }
    });
    assert!(outcome.is_err_and(|text| text.starts_with("crash at position")));
    assert_eq!(visited, 3);
    Ok(())
}

/// A toy store with a bug must be caught: two copies of a value, written without a sync between.
#[test]
fn a_missing_barrier_is_found() -> Result<()> {
    let find = |with_barrier: bool| -> Result<u64> {
        let (device, file) = with_synced_file(2)?;
        let trace = traced(
            |_| {
                write(&file, 0, &[2; SECTOR])?;
                if with_barrier {
                    file.sync(Purpose::User)?;
                }
                write(&file, SECTOR, &[2; SECTOR])
            },
            &device,
        )?;
        let mut broken = 0;
        let counts = trace.for_each_crash(&CrashOptions::default(), |_, device| {
            let bytes = &device.files()["a"];
            broken += u64::from(bytes[0] < bytes[SECTOR]);
            Ok::<(), Infallible>(())
        });
        assert!(counts.is_ok_and(|counts| counts.visited >= 3));
        Ok(broken)
    };
    assert!(find(false)? > 0);
    assert_eq!(find(true)?, 0);
    Ok(())
}

/// The device's part of a recovery must leave room for the store's.
#[test]
fn recoveries_are_fast() -> Result<()> {
    let (device, file) = with_synced_file(1024)?;
    let work = |device: &SimDevice| {
        for round in 0..50_usize {
            write(&file, round * 37 % 100 * 4096, &[round as u8; 8192])?;
            if round % 5 == 4 {
                file.sync(Purpose::User)?;
                device.mark(round as u64);
            }
        }
        Ok(())
    };
    let trace = traced(work, &device)?;
    let start = std::time::Instant::now();
    let counts = trace.for_each_crash(&CrashOptions::default(), |_, device| -> Result<()> {
        let file = open(device, "a")?;
        let mut block = [0; 4096];
        for at in 0..128 {
            file.read_at(at * 4096, &mut block, Purpose::Recovery)?;
        }
        file.write_at(0, &block, Purpose::Recovery)?;
        file.sync(Purpose::Recovery)
    })?;
    let each = start.elapsed() / u32::try_from(counts.visited).unwrap_or(u32::MAX);
    assert!(counts.visited > 1000);
    assert!(each.as_micros() < 400, "{each:?} to read 512 KiB and write 4 KiB");
    Ok(())
}
