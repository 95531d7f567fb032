//! Rot: every byte of a store's manifest and superblocks.

use super::*;

const COMMITS: u64 = 12;

/// The files of a store that has changed its epoch at least once and was committed to since.
fn files() -> (BTreeMap<String, Vec<u8>>, ManifestState) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = create(&device).unwrap();
    for n in 0..COMMITS {
        commit_nth(&manifest, n).unwrap();
    }
    assert!(manifest.epoch() > Epoch(1));
    (sim.files(), ManifestState::clone(&manifest.state()))
}

fn device_of(files: &BTreeMap<String, Vec<u8>>) -> Arc<dyn Device> {
    Arc::new(SimDevice::from_files(files))
}

/// Flips each byte; returns for how many of them some damage was reported.
fn flip_everywhere(mask: impl Fn(usize) -> u8) -> usize {
    let (files, state) = files();
    let mut reported = 0;
    // Opening writes nothing, so one device serves all.
    let sim = Arc::new(SimDevice::from_files(&files));
    let device: Arc<dyn Device> = sim.clone();
    for (name, bytes) in &files {
        for (at, byte) in bytes.iter().enumerate() {
            // Bytes that no record and no slot covers are never read.
            if *byte == 0 && at % 64 != 0 {
                continue;
            }
            sim.flip(name, at as u64, mask(at));
            let told = format!("{name} byte {at}");
            match open(&device) {
                Ok((manifest, problems)) => {
                    assert_eq!(*manifest.state(), state, "{told}");
                    assert_eq!(manifest.verify(), problems, "{told}");
                    if let Some(problem) = problems.first() {
                        assert_eq!(&problem.file, name, "{told}");
                        reported += 1;
                    }
                }
                Err(error) => panic!("{told}: one bad byte has a twin, but: {error}"),
            }
            sim.flip(name, at as u64, mask(at));
        }
    }
    reported
}

#[test]
fn no_single_byte_changes_what_the_manifest_says() {
    let reported = flip_everywhere(|at| [0x01, 0x80, 0xff][at % 3]);
    assert!(reported > 500, "{reported}");
}

#[test]
fn damage_to_both_copies_never_goes_back_to_an_older_state() {
    let (files, state) = files();
    let (manifest, _) = open(&device_of(&files)).unwrap();
    let name = manifest_name(manifest.epoch());
    let region = files[&name].len() / 2;
    let tail = manifest.writer.lock().doubt.as_ref().map(|(at, _)| *at).unwrap() as usize;
    for at in (0..tail).step_by(37) {
        let mut damaged = files.clone();
        for base in [0, region] {
            damaged.get_mut(&name).unwrap()[base + at] ^= 0x40;
        }
        match open(&device_of(&damaged)) {
            Err(Error::Corrupt { file, offset, .. }) => {
                assert_eq!(file, name);
                assert!(offset <= at as u64 && at as u64 - offset < 4096);
            }
            Ok((manifest, _)) => assert_eq!(*manifest.state(), state, "byte {at} is padding"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn losing_both_superblocks_never_goes_back_to_an_older_epoch() {
    let (mut files, _) = files();
    let device = device_of(&files);
    let (manifest, _) = open(&device).unwrap();
    let epoch = manifest.epoch();
    for copy in 0..2 {
        let at = slot_offset(epoch, copy) as usize;
        files.get_mut(SUPERBLOCK).unwrap()[at + 30] ^= 1;
    }
    let old = manifest_name(Epoch(epoch.0 - 1));
    // The removal of the old epoch's file need not have become durable.
    let sim = Arc::new(SimDevice::new());
    let earlier: Arc<dyn Device> = sim.clone();
    let manifest = create(&earlier).unwrap();
    for n in 0.. {
        if sim.files().contains_key(&old) && manifest.writer.lock().tail + 512 > 4096 {
            break;
        }
        commit_nth(&manifest, n).unwrap();
    }
    files.insert(old.clone(), sim.files()[&old].clone());
    let error = open(&device_of(&files)).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { file, .. } if file == SUPERBLOCK), "{error}");
    files.remove(&old);
    assert!(matches!(open(&device_of(&files)), Err(Error::Corrupt { .. })));
}

#[test]
fn truncated_files_are_refused_or_harmless() {
    let (files, state) = files();
    for (name, bytes) in &files {
        for len in (0..bytes.len()).step_by(509) {
            let mut damaged = files.clone();
            damaged.get_mut(name).unwrap().truncate(len);
            match open(&device_of(&damaged)) {
                Ok((manifest, _)) => assert_eq!(*manifest.state(), state, "{name} cut at {len}"),
                Err(Error::Corrupt { .. } | Error::NotAStore { .. }) => {}
                Err(error) => panic!("{name} cut at {len}: {error}"),
            }
        }
    }
}

#[test]
fn a_missing_manifest_is_named() {
    let (mut files, _) = files();
    let (manifest, _) = open(&device_of(&files)).unwrap();
    let name = manifest_name(manifest.epoch());
    files.remove(&name);
    let error = open(&device_of(&files)).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { file, .. } if *file == name), "{error}");
}

#[test]
fn an_unreadable_copy_is_a_problem_and_two_are_an_error() {
    let (files, state) = files();
    let sim = Arc::new(SimDevice::from_files(&files));
    let device: Arc<dyn Device> = sim.clone();
    let fault = || Fault::new(Effect::Fail(Failure::Io)).file("manifest").on(OpKind::Read);
    for nth in 0..4 {
        sim.set_faults(FaultPlan::new().with(fault().nth(nth)));
        let (manifest, _) = open(&device).unwrap();
        assert_eq!(*manifest.state(), state);
    }
    sim.set_faults(FaultPlan::new().with(fault().sticky()));
    assert!(matches!(open(&device), Err(Error::Device(_))));
    sim.set_faults(FaultPlan::new());
    open(&device).unwrap();
}

/// Two runs write different records to the same place, and each is torn: the first sector of one
/// and the last of the other, which happens to be the same for both, were a whole record.
#[test]
fn halves_of_two_torn_records_make_none() {
    let index = |from: u64| {
        let extents = (0..200).map(|at| Extent { start: from.max(2 * at), units: 1 });
        let main = TreeMeta { top_extents: extents.collect(), ..TreeMeta::default() };
        let index = IndexMeta { main, ..IndexMeta::default() };
        vec![Edit::Index { id: KeyspaceId(1), index: Arc::new(index) }]
    };
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = create(&device).unwrap();
    commit_nth(&manifest, 0).unwrap();
    let (name, at) = (manifest_name(manifest.epoch()), manifest.writer.lock().tail as usize);
    let before = sim.files();
    let state = manifest.state();
    manifest.commit(&index(5), Seq(1), Generation(1)).unwrap();
    let first = sim.files()[&name].clone();

    // Of the first run's record its first sector is left, in one copy.
    let mut torn = before;
    torn.get_mut(&name).unwrap()[at..at + 512].copy_from_slice(&first[at..at + 512]);
    let sim = Arc::new(SimDevice::from_files(&torn));
    let device: Arc<dyn Device> = sim.clone();
    let (manifest, _) = open(&device).unwrap();
    assert_eq!(manifest.state(), state);
    manifest.retry_last_record().unwrap();
    // The next record leaves all of it except its first sector.
    let mut torn = sim.files();
    let end = first.len() / 2;
    torn.get_mut(&name).unwrap()[at + 512..end].copy_from_slice(&first[at + 512..end]);
    let (manifest, _) = open(&device_of(&torn)).unwrap();
    assert_eq!(manifest.state(), state, "a record that nobody wrote was read");
}
