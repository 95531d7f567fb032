//! The simulated disk itself: it repeats, it keeps what was synced, and it loses what it may.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use super::*;
use crate::{Caching, Device, DeviceFile, Open, Purpose, Result, conformance};

mod crashes;
mod faults;

const SECTOR: usize = 512;

fn create(device: &SimDevice, name: &str) -> Result<Arc<dyn DeviceFile>> {
    device.open(name, Open::CreateNew, Caching::Buffered)
}

fn open(device: &SimDevice, name: &str) -> Result<Arc<dyn DeviceFile>> {
    device.open(name, Open::Existing, Caching::Buffered)
}

fn write(file: &Arc<dyn DeviceFile>, offset: usize, bytes: &[u8]) -> Result<()> {
    file.write_at(offset as u64, bytes, Purpose::User)
}

/// The trace that is being recorded.
fn taken(device: &SimDevice) -> Trace {
    let Some(trace) = device.take_trace() else { unreachable!("nothing is being recorded") };
    trace
}

/// A disk with the synced file `a` of `sectors` sectors of ones.
fn with_synced_file(sectors: usize) -> Result<(SimDevice, Arc<dyn DeviceFile>)> {
    let device = SimDevice::new();
    let file = create(&device, "a")?;
    write(&file, 0, &vec![1; sectors * SECTOR])?;
    file.sync(Purpose::User)?;
    device.sync_dir()?;
    Ok((device, file))
}

#[test]
fn conforms() -> Result<()> {
    conformance::all(&SimDevice::new())?;
    conformance::all(&SimDevice::with_options(SimOptions {
        sector_bytes: 4096,
        ..SimOptions::default()
    }))?;
    let recording = SimDevice::new();
    recording.record();
    conformance::all(&recording)
}

#[test]
fn images_round_trip() -> Result<()> {
    let files = BTreeMap::from([
        ("empty".to_owned(), vec![]),
        ("odd".to_owned(), (0..1300_u32).map(|n| (n % 251) as u8).collect()),
        ("one".to_owned(), vec![9; SECTOR]),
    ]);
    for sector_bytes in [512, 4096] {
        let image = SimImage::from_files_with(&files, sector_bytes);
        assert_eq!(image.files(), files);
        let device = SimDevice::from_image(&image);
        assert_eq!(device.files(), files);
        assert_eq!(device.image().digest(), image.digest());
        // Growing shows zeros, not what lay past the end.
        open(&device, "odd")?.preallocate(2000, Purpose::User)?;
        let mut expected = files["odd"].clone();
        expected.resize(2000, 0);
        assert_eq!(device.files()["odd"], expected);
        assert_ne!(device.image().digest(), image.digest());
        assert_eq!(image.files(), files, "an image does not follow its device");
    }
    Ok(())
}

#[test]
fn digests_distinguish_contents() -> Result<()> {
    let (device, file) = with_synced_file(4)?;
    let mut seen = BTreeSet::from([device.image().digest()]);
    let mut is_new = |device: &SimDevice| seen.insert(device.image().digest());
    write(&file, SECTOR, &[2; SECTOR])?;
    assert!(is_new(&device));
    write(&file, 2 * SECTOR, &[2; SECTOR])?;
    assert!(is_new(&device));
    file.truncate(4 * SECTOR as u64 - 1)?;
    assert!(is_new(&device));
    device.rename("a", "b")?;
    assert!(is_new(&device));
    device.rename("b", "a")?;
    assert!(!is_new(&device), "the same again");
    let rebuilt = SimDevice::from_files(&device.files());
    assert_eq!(rebuilt.image().digest(), device.image().digest());
    create(&device, "c")?;
    assert!(is_new(&device));
    Ok(())
}

/// A history with every kind of change, different for each seed.
fn churn(device: &SimDevice, seed: u64, steps: u64) -> Result<()> {
    let mut state = seed;
    let mut next = |bound: u64| {
        state = survivors::mix(state);
        state % bound
    };
    for step in 0..steps {
        let name = format!("f{}", next(3));
        let Ok(file) = open(device, &name) else {
            create(device, &name)?;
            continue;
        };
        match next(10) {
            0..=3 => {
                let bytes = vec![step as u8 | 1; next(1500) as usize + 1];
                write(&file, next(3000) as usize, &bytes)?;
            }
            4 => file.truncate(next(3000))?,
            5 => file.preallocate(next(4000), Purpose::User)?,
            6 => file.discard(next(2000), next(3000))?,
            7 => file.sync(Purpose::User)?,
            8 => device.sync_dir()?,
            _ => match next(2) {
                0 => device.remove(&name)?,
                _ => device.rename(&name, &format!("f{}", next(3)))?,
            },
        }
        device.mark(step);
    }
    Ok(())
}

fn recorded(seed: u64, steps: u64) -> Result<Trace> {
    let device = SimDevice::new();
    device.record();
    churn(&device, seed, steps)?;
    Ok(taken(&device))
}

#[test]
fn the_same_run_gives_the_same_trace() -> Result<()> {
    for seed in 0..5 {
        assert_eq!(recorded(seed, 200)?, recorded(seed, 200)?);
        assert_ne!(recorded(seed, 200)?, recorded(seed + 1, 200)?);
        assert_ne!(recorded(seed, 200)?, recorded(seed, 199)?);
    }
    Ok(())
}

#[test]
fn everything_surviving_is_the_live_image() -> Result<()> {
    for seed in 0..50 {
        let device = SimDevice::new();
        churn(&device, seed, 100)?;
        let (files, digest) = (device.files(), device.image().digest());
        let left = device.crash(&Survivors::everything(), &CrashModel::default());
        assert_eq!(left.files(), files, "seed {seed}");
        assert_eq!(left.digest(), digest, "seed {seed}");
    }
    Ok(())
}

#[test]
fn synced_is_durable() -> Result<()> {
    for seed in 0..50 {
        let device = SimDevice::new();
        churn(&device, seed, 100)?;
        for name in device.list()? {
            open(&device, &name)?.sync(Purpose::User)?;
        }
        device.sync_dir()?;
        let files = device.files();
        let left = device.crash(&Survivors::nothing(), &CrashModel::default());
        assert_eq!(left.files(), files, "seed {seed}");
    }
    Ok(())
}

#[test]
fn recordings_start_where_they_were_asked_to() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    assert!(device.take_trace().is_none());
    write(&file, 0, &[2; SECTOR])?;
    device.record();
    device.mark(7);
    let trace = taken(&device);
    assert_eq!((trace.len(), trace.marks_before(1), trace.marks_before(0)), (1, vec![7], vec![]));
    let images = crashes::all_files(&trace, &CrashOptions::default())?;
    let first: BTreeSet<u8> = images.iter().map(|files| files["a"][0]).collect();
    assert_eq!(first, BTreeSet::from([1, 2]), "what was pending before may still be lost");
    Ok(())
}

#[test]
fn what_is_discarded_gives_its_room_back_until_it_is_taken_again() -> Result<()> {
    let device =
        SimDevice::with_options(SimOptions { capacity_bytes: 4096, ..SimOptions::default() });
    let file = create(&device, "a")?;
    write(&file, 0, &[1; 4096])?;
    file.discard(500, 1600)?;
    assert_eq!(device.used_bytes(), 4096 - 1536, "whole sectors");
    let other = create(&device, "b")?;
    other.allocate(0, 1536, Purpose::User)?;
    assert!(file.allocate(0, 4096, Purpose::User).is_err_and(|error| error.is_full()));
    assert!(write(&file, 1000, &[2; 100]).is_err_and(|error| error.is_full()));
    write(&file, 0, &[2; 512])?;
    other.truncate(1024)?;
    write(&file, 512, &[2; 512])?;
    assert!(write(&file, 1024, &[2; 1]).is_err_and(|error| error.is_full()));
    device.remove("b")?;
    file.allocate(0, 4096, Purpose::User)?;
    file.discard(0, u64::MAX)?;
    file.truncate(1024)?;
    assert_eq!(device.used_bytes(), 0);
    file.allocate(0, 4096, Purpose::User)?;
    assert_eq!(device.used_bytes(), 4096);
    Ok(())
}

#[test]
fn capacity_runs_out() -> Result<()> {
    let device =
        SimDevice::with_options(SimOptions { capacity_bytes: 4096, ..SimOptions::default() });
    let file = create(&device, "a")?;
    write(&file, 0, &[1; 2048])?;
    let other = create(&device, "b")?;
    other.preallocate(2048, Purpose::User)?;
    write(&other, 0, &[2; 2048])?;
    for error in [write(&file, 2047, &[1; 2]).err(), file.preallocate(2049, Purpose::User).err()] {
        assert!(error.is_some_and(|error| error.is_full()));
    }
    assert!(write(&file, usize::MAX, &[1; 2]).is_err_and(|error| error.is_full()));
    write(&file, 0, &[3; 2048])?;
    device.remove("b")?;
    write(&file, 2048, &[3; 2048])?;
    assert_eq!(device.files()["a"], vec![3; 4096]);
    Ok(())
}

#[test]
fn long_runs_do_not_grow() -> Result<()> {
    let (device, _) = with_synced_file(2)?;
    let unnamed = create(&device, "unnamed")?;
    write(&unnamed, 0, &[5; SECTOR])?;
    device.remove("unnamed")?;
    device.sync_dir()?;
    let file = open(&device, "a")?;
    write(&file, SECTOR, &[2; SECTOR])?;
    let image = device.image();
    for round in 0..400_u64 {
        let name = format!("log-{round}");
        let log = create(&device, &name)?;
        write(&log, 0, &vec![round as u8; 256 << 10])?;
        log.sync(Purpose::User)?;
        if round >= 2 {
            device.remove(&format!("log-{}", round - 2))?;
        }
        device.sync_dir()?;
    }
    let sectors = device.image().store.len();
    assert!(sectors < 2 * compact::LEAST_SECTORS, "{sectors} sectors after 100 MiB");
    let mut buf = [0; SECTOR];
    unnamed.read_at(0, &mut buf, Purpose::User)?;
    assert_eq!(buf, [5; SECTOR], "an open file needs no name");
    assert_eq!(device.files()["a"], [[1; SECTOR], [2; SECTOR]].concat());
    assert_eq!(device.files()["log-399"], vec![399_u64 as u8; 256 << 10]);
    assert_eq!(image.files()["a"], [[1; SECTOR], [2; SECTOR]].concat());
    let left = device.crash(&Survivors::nothing(), &CrashModel::default()).files();
    assert_eq!(left["a"], [1; 2 * SECTOR], "what was pending still is");
    assert_eq!(left["log-399"].len(), 256 << 10);
    Ok(())
}
