//! Folders of the real file system: what every device does, and what only they can get wrong.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, thread};

use super::*;
use crate::{AlignedBuf, conformance};

type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// A folder on the disk, and one in memory, where direct I/O may be refused.
fn folders() -> io::Result<Vec<tempfile::TempDir>> {
    let mut folders = vec![tempfile::tempdir()?];
    folders.extend(tempfile::tempdir_in("/dev/shm").ok());
    Ok(folders)
}

#[test]
fn conforms() -> TestResult {
    for folder in folders()? {
        conformance::all(&FileDevice::open(folder.path())?)?;
        conformance::all(&FileDevice::create(folder.path().join("new"))?)?;
    }
    Ok(())
}

#[test]
fn creates_private_folders_and_files() -> TestResult {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("store");
    assert!(FileDevice::open(&path).is_err());
    let device = FileDevice::create(&path)?;
    device.open("a", Open::CreateNew, Caching::Direct)?;
    let _lock = device.try_lock()?;
    let mode = |path: &Path| fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
    assert_eq!(mode(&path)?, 0o700);
    assert_eq!(mode(&path.join("a"))?, 0o600);
    assert_eq!(mode(&path.join("lock"))?, 0o600);
    // What is there already is used as it is.
    fs::set_permissions(&path, Permissions::from_mode(0o750))?;
    assert_eq!(FileDevice::create(&path)?.list()?, ["a"]);
    assert_eq!(mode(&path)?, 0o750);
    Ok(())
}

#[test]
fn refuses_paths_that_are_no_folder() -> TestResult {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    File::create(&file)?;
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR)?;
    let dangling = folder.path().join("dangling");
    symlink("nowhere", &dangling)?;
    let bad = [
        file,
        pipe,
        dangling,
        folder.path().join("missing/inner"),
        PathBuf::from("/dev/null"),
        PathBuf::from("a\0b"),
        PathBuf::new(),
        folder.path().join("x".repeat(300)),
    ];
    for path in bad {
        for outcome in [FileDevice::open(&path), FileDevice::create(&path)] {
            let Err(error) = outcome else { return Err(format!("{path:?} was opened").into()) };
            assert_eq!(error.file, path.to_string_lossy(), "{error}");
        }
    }
    Ok(())
}

#[test]
fn takes_names_that_are_not_text() -> TestResult {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = tempfile::tempdir()?;
    let path = folder.path().join(OsStr::from_bytes(b"bad-\xff"));
    let device = FileDevice::create(&path)?;
    device.open("a", Open::CreateNew, Caching::Buffered)?;
    File::create(path.join(OsStr::from_bytes(b"foreign-\xff")))?;
    assert_eq!(device.list()?, ["a"]);
    let error = device.open("b", Open::Existing, Caching::Buffered).err();
    assert!(error.is_some_and(|error| error.file.ends_with("bad-\u{fffd}/b")));
    Ok(())
}

#[test]
fn follows_no_links_and_opens_no_specials() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::create(folder.path().join("store"))?;
    fs::write(folder.path().join("outside"), "secret")?;
    symlink("../outside", device.path().join("link"))?;
    fs::create_dir(device.path().join("folder"))?;
    let pipe = device.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR)?;
    for name in ["link", "folder", "pipe"] {
        for caching in [Caching::Buffered, Caching::Direct] {
            assert!(device.open(name, Open::Existing, caching).is_err(), "{name}");
            assert!(device.open(name, Open::CreateNew, caching).is_err(), "{name}");
        }
    }
    assert!(device.list()?.is_empty());
    assert!(device.remove("folder").is_err());
    device.remove("link")?;
    assert_eq!(fs::read_to_string(folder.path().join("outside"))?, "secret");
    symlink("../outside", device.path().join("lock"))?;
    assert!(device.try_lock().is_err());
    Ok(())
}

#[test]
fn two_handles_exclude_each_other() -> TestResult {
    let folder = tempfile::tempdir()?;
    let first = FileDevice::open(folder.path())?;
    let link = folder.path().join("..").join(folder.path().file_name().unwrap_or_default());
    let second = FileDevice::open(link)?;
    let lock = first.try_lock()?;
    assert!(lock.is_some());
    assert!(second.try_lock()?.is_none());
    // Opening and closing the file of a lock must not end it, as it would with POSIX locks.
    drop(File::open(folder.path().join("lock"))?);
    assert!(second.try_lock()?.is_none());
    drop(lock);
    assert!(second.try_lock()?.is_some());
    Ok(())
}

const LOCK_FOLDER: &str = "ESKER_DEVICE_TEST_LOCK_FOLDER";

/// Run by the next test in a process of its own.
#[test]
#[ignore = "holds a lock until it is killed"]
fn hold_the_lock() -> TestResult {
    let Some(folder) = env::var_os(LOCK_FOLDER) else { return Ok(()) };
    let _lock = FileDevice::open(folder)?.try_lock()?.ok_or("locked")?;
    println!("held");
    thread::sleep(std::time::Duration::from_secs(60));
    Ok(())
}

#[test]
fn locks_end_with_a_killed_process() -> TestResult {
    let folder = tempfile::tempdir()?;
    let mut child = Command::new(env::current_exe()?)
        .args(["--exact", "file::tests::hold_the_lock", "--ignored", "--nocapture"])
        .env(LOCK_FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let held = lines.map_while(io::Result::ok).any(|line| line.contains("held"));
    let device = FileDevice::open(folder.path())?;
    let while_held = device.try_lock().map(|lock| lock.is_some());
    child.kill()?;
    child.wait()?;
    assert!(held);
    assert!(!while_held?);
    assert!(device.try_lock()?.is_some());
    Ok(())
}

#[test]
fn direct_files_have_two_descriptors_that_agree() -> TestResult {
    for (folder, caching) in folders()?
        .iter()
        .flat_map(|folder| [(folder, Caching::Direct), (folder, Caching::Selective)])
    {
        let device = FileDevice::open(folder.path())?;
        let name = format!("{caching:?}");
        let file = device.open(&name, Open::CreateNew, caching)?;
        // Leaves dirty pages, which aligned reads and writes must respect.
        let mut model = vec![0; 64 << 10];
        for round in 0..200_usize {
            let len = [1, 100, 4096, 8192, 5000][round % 5];
            let offset = (round * 7919) % (model.len() - len)
                / [1, 4096][usize::from(len % 4096 == 0)]
                * [1, 4096][usize::from(len % 4096 == 0)];
            let piece = AlignedBuf::copy_of(&vec![round as u8 + 1; len]);
            if file.len()? < model.len() as u64 {
                file.preallocate(model.len() as u64, Purpose::User)?;
            }
            file.write_at(offset as u64, &piece, Purpose::User)?;
            model[offset..offset + len].copy_from_slice(&piece);
            for purpose in [Purpose::User, Purpose::Merge] {
                let mut whole = AlignedBuf::zeroed(model.len());
                file.read_at(0, &mut whole, purpose)?;
                assert!(whole[..] == model[..], "round {round}");
            }
        }
        assert_eq!(fs::read(folder.path().join(&name))?, model);
    }
    Ok(())
}

/// Users read through the page cache the bytes that were written past it before they began, though
/// they read the same block before and its neighbours meanwhile.
#[test]
fn users_see_what_was_written_past_the_page_cache() -> TestResult {
    const BLOCKS: u64 = 64;
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let file = device.open("a", Open::CreateNew, Caching::Selective)?;
    file.preallocate(BLOCKS * 4096, Purpose::Merge)?;
    let written: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let write_all = || -> Result<()> {
        for round in 1..=20_u64 {
            for block in (0..BLOCKS).map(|at| at * 37 % BLOCKS) {
                let bytes = AlignedBuf::copy_of(&[round as u8; 4096]);
                file.write_at(block * 4096, &bytes, Purpose::Merge)?;
                written[block as usize].store(round, Ordering::SeqCst);
            }
        }
        Ok(())
    };
    let read_all = |start: u64| -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(4096);
        for at in 0..4000 {
            let block = (start + at * 13) % BLOCKS;
            let least = written[block as usize].load(Ordering::SeqCst);
            file.read_at(block * 4096, &mut bytes, Purpose::User)?;
            assert!(bytes.iter().all(|byte| u64::from(*byte) >= least), "block {block}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let read_all = &read_all;
        let readers: Vec<_> = (0..3).map(|at| scope.spawn(move || read_all(at))).collect();
        let wrote = write_all();
        let read = readers.into_iter().all(|reader| matches!(reader.join(), Ok(Ok(()))));
        wrote.is_ok() && read
    })
    .then_some(())
    .ok_or("a thread failed")?;
    Ok(())
}

/// Writes for values, through the page cache, and for merges, past it, alternate in the same
/// places. Both kinds of reads see them, and they are on the device after a sync.
#[test]
fn values_and_blocks_take_each_others_places() -> TestResult {
    const PLACES: u64 = 8;
    const BYTES: usize = 64 << 10;
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let file = device.open("a", Open::CreateNew, Caching::Selective)?;
    file.preallocate(PLACES * BYTES as u64, Purpose::Merge)?;
    for round in 1..=40_u8 {
        for place in 0..PLACES {
            let is_value = (place + u64::from(round)).is_multiple_of(2);
            let purpose = if is_value { Purpose::Value } else { Purpose::Merge };
            let bytes = AlignedBuf::copy_of(&[round; BYTES]);
            file.write_at(place * BYTES as u64, &bytes, purpose)?;
        }
        if round.is_multiple_of(10) {
            file.sync(Purpose::Value)?;
        }
        let mut bytes = AlignedBuf::zeroed(BYTES);
        for (place, purpose) in (0..PLACES).zip([Purpose::User, Purpose::Recovery].iter().cycle()) {
            file.read_at(place * BYTES as u64, &mut bytes, *purpose)?;
            assert!(bytes.iter().all(|byte| *byte == round), "round {round}, place {place}");
        }
    }
    Ok(())
}

#[test]
fn large_unaligned_requests_cross_bounce_buffers() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let file = device.open("a", Open::CreateNew, Caching::Direct)?;
    let data: Vec<u8> =
        (0..(1 << 20) + 4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // One byte off, so that the memory is not aligned though offset and length are.
    let mut shifted = AlignedBuf::zeroed(data.len() + 1);
    shifted[1..].copy_from_slice(&data);
    file.write_at(0, &shifted[1..], Purpose::User)?;
    for (offset, len) in [(0, data.len()), (1, data.len() - 1), (4095, 600_000), (512, 262_144)] {
        let mut got = vec![0; len + 1];
        file.read_at(offset as u64, &mut got[1..], Purpose::User)?;
        assert!(got[1..] == data[offset..offset + len], "{offset} {len}");
    }
    Ok(())
}

#[test]
fn preallocation_takes_space() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let file = device.open("a", Open::CreateNew, Caching::Direct)?;
    file.preallocate(1 << 20, Purpose::User)?;
    let allocated = || fs::metadata(folder.path().join("a")).map(|meta| meta.blocks() * 512);
    assert!(allocated()? >= 1 << 20);
    file.discard(0, 1 << 19)?;
    assert!(allocated()? < 1 << 20);
    assert_eq!(file.len()?, 1 << 20);
    let error = file.preallocate(u64::MAX, Purpose::User).err();
    assert!(error.is_some_and(|error| error.is_full()));
    let error = file.write_at(u64::MAX - 10, b"far", Purpose::User).err();
    assert!(error.is_some_and(|error| error.is_full()));
    Ok(())
}

#[test]
fn many_threads_share_the_helpers() -> TestResult {
    for caching in [Caching::Direct, Caching::Buffered, Caching::Selective] {
        let folder = tempfile::tempdir()?;
        let device = FileDevice::open(folder.path())?;
        let file = device.open("a", Open::CreateNew, caching)?;
        let blocks: usize = 256;
        for block in 0..blocks {
            let bytes = AlignedBuf::copy_of(&[block as u8; 4096]);
            file.write_at(block as u64 * 4096, &bytes, Purpose::User)?;
        }
        let read_all = |start: usize| -> Result<()> {
            for round in 0..20 {
                let mut bufs: Vec<_> = (0..40).map(|_| AlignedBuf::zeroed(4096)).collect();
                let block_of = |at: usize| (start * 31 + round * 7 + at * 13) % blocks;
                let mut requests: Vec<_> = bufs
                    .iter_mut()
                    .enumerate()
                    .map(|(at, buf)| ReadRequest { offset: block_of(at) as u64 * 4096, buf })
                    .collect();
                file.read_many(&mut requests, Purpose::User).into_iter().collect::<Result<()>>()?;
                for (at, buf) in bufs.iter().enumerate() {
                    assert!(buf.iter().all(|byte| *byte == block_of(at) as u8));
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let read_all = &read_all;
            let workers: Vec<_> = (0..8).map(|at| scope.spawn(move || read_all(at))).collect();
            workers.into_iter().all(|worker| matches!(worker.join(), Ok(Ok(()))))
        })
        .then_some(())
        .ok_or("a reader failed")?;
    }
    Ok(())
}

#[test]
fn helpers_let_the_device_go() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let file = device.open("a", Open::CreateNew, Caching::Direct)?;
    file.write_at(0, &AlignedBuf::zeroed(64 << 10), Purpose::User)?;
    let mut bufs: Vec<_> = (0..16).map(|_| AlignedBuf::zeroed(4096)).collect();
    let mut requests: Vec<_> = bufs
        .iter_mut()
        .enumerate()
        .map(|(at, buf)| ReadRequest { offset: at as u64 * 4096, buf })
        .collect();
    file.read_many(&mut requests, Purpose::User).into_iter().collect::<Result<()>>()?;
    let helpers = format!("{:?}", device.shared.readers);
    assert_ne!(helpers, "Readers(0 threads)");
    assert_eq!(Arc::strong_count(&device.shared), 1, "helpers do not keep the folder open");
    Ok(())
}

#[test]
fn zeros_stand_in_for_reserving() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    let path = device.full_path("a");
    let (how, caching) = ((Open::CreateNew, Access::Write), Caching::Direct);
    let handle = Handle::open(&device.shared.folder, "a", how, caching, path)?;
    handle.write_at(0, b"kept", Purpose::User)?;
    handle.write_zeros((1 << 20) + 5)?;
    handle.write_zeros(3)?;
    let bytes = fs::read(folder.path().join("a"))?;
    assert_eq!((bytes.len(), &bytes[..4]), ((1 << 20) + 5, &b"kept"[..]));
    assert!(bytes[4..].iter().all(|byte| *byte == 0));
    handle.sync()?;
    assert!(fs::metadata(folder.path().join("a"))?.blocks() * 512 >= 1 << 20);
    Ok(())
}

#[test]
fn what_is_opened_to_be_read_is_not_written() -> TestResult {
    let folder = tempfile::tempdir()?;
    let device = FileDevice::open(folder.path())?;
    device.open("a", Open::CreateNew, Caching::Buffered)?.write_at(0, b"kept", Purpose::User)?;
    let like = File::open(folder.path().join("a"))?;
    let file = device.open_same("a", &like, Access::Read)?;
    let mut bytes = [0; 4];
    file.read_at(0, &mut bytes, Purpose::User)?;
    assert_eq!(&bytes, b"kept");
    assert!(file.write_at(0, b"lost", Purpose::User).is_err());
    assert!(file.preallocate(100, Purpose::User).is_err() && file.truncate(0).is_err());
    assert_eq!(fs::read(folder.path().join("a"))?, b"kept");
    device.open_same("a", &like, Access::Write)?.write_at(0, b"new!", Purpose::User)?;
    // Another file of that name is not the one that was meant.
    fs::rename(folder.path().join("a"), folder.path().join("b"))?;
    fs::write(folder.path().join("a"), b"other")?;
    for access in [Access::Read, Access::Write] {
        let refused = device.open_same("a", &like, access).unwrap_err();
        assert!(refused.to_string().contains("replaced"), "{refused}");
        device.open_same("b", &like, access)?;
    }
    Ok(())
}
