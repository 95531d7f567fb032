//! The contract of [`Device`], as plain test functions: every device and every wrapper passes all.
//!
//! Each function takes an empty device, leaves it empty, and panics where the device is wrong; an
//! error that the contract does not allow is returned.

use std::thread;

use crate::{AlignedBuf, Caching, Device, DeviceFile, Open, Purpose, ReadRequest, Result};

const BLOCK: usize = 4096;

/// Runs all checks on an empty device.
pub fn all(device: &dyn Device) -> Result<()> {
    let checks = [
        reads_what_was_written,
        unaligned_edges,
        writes_extend,
        reads_past_the_end,
        many_reads,
        preallocates,
        allocates,
        truncates,
        discards,
        creates_and_opens,
        removes,
        renames,
        refuses_names,
        locks_once,
        open_files_outlive_names,
        handles_agree,
        serves_threads,
    ];
    for check in checks {
        check(device)?;
        assert_eq!(device.list()?, Vec::<String>::new(), "a check must clean up");
    }
    device.sync_dir()
}

/// Bytes that differ from block to block and within each.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mixed = |at: usize| (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..len).map(|at| u8::try_from(mixed(at)).unwrap_or(0)).collect()
}

fn read(file: &dyn DeviceFile, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0xa5; len];
    file.read_at(offset, &mut buf, Purpose::User)?;
    Ok(buf)
}

/// Aligned and unaligned reads see the last write, in both ways of caching, across a reopen.
pub fn reads_what_was_written(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        assert_eq!((file.name(), file.len()?, file.is_empty()?), ("a", 0, true));
        let data = AlignedBuf::copy_of(&pattern(8 * BLOCK, 1));
        file.write_at(0, &data, Purpose::Log)?;
        let newer = AlignedBuf::copy_of(&pattern(2 * BLOCK, 2));
        file.write_at(3 * BLOCK as u64, &newer, Purpose::Merge)?;
        let mut model = data.to_vec();
        model[3 * BLOCK..5 * BLOCK].copy_from_slice(&newer);
        let mut whole = AlignedBuf::zeroed(8 * BLOCK);
        file.read_at(0, &mut whole, Purpose::User)?;
        assert_eq!(&whole[..], model);
        file.sync(Purpose::Log)?;
        device.sync_dir()?;
        drop(file);
        let file = device.open("a", Open::Existing, caching)?;
        for (offset, len) in [(0, 8 * BLOCK), (1, 10), (4095, 2), (12_287, 4098), (512, 512)] {
            let got = read(&*file, offset as u64, len)?;
            assert_eq!(got, &model[offset..offset + len], "{offset} {len} {caching:?}");
        }
        assert_eq!(read(&*file, 8 * BLOCK as u64, 0)?, Vec::<u8>::new());
        device.remove("a")?;
    }
    Ok(())
}

/// Writes that start and end inside a block leave their neighbours alone.
pub fn unaligned_edges(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let mut model = pattern(5 * BLOCK + 77, 3);
        file.write_at(0, &model, Purpose::User)?;
        for (round, (offset, len)) in
            [(1, 1), (511, 2), (4000, 200), (4096, 100), (8191, 8194), (20_550, 7)]
                .into_iter()
                .enumerate()
        {
            let piece = pattern(len, 10 + round as u64);
            file.write_at(offset as u64, &piece, Purpose::User)?;
            model[offset..offset + len].copy_from_slice(&piece);
            assert_eq!(read(&*file, 0, model.len())?, model, "{offset} {len} {caching:?}");
            assert_eq!(file.len()?, model.len() as u64);
        }
        file.write_at(u64::MAX, &[], Purpose::User)?;
        assert_eq!(file.len()?, model.len() as u64, "an empty write changes nothing");
        device.remove("a")?;
    }
    Ok(())
}

/// A write past the end fills the gap with zeros.
pub fn writes_extend(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        file.write_at(10, b"abc", Purpose::User)?;
        file.write_at(3 * BLOCK as u64 + 5, b"xyz", Purpose::User)?;
        assert_eq!(file.len()?, 3 * BLOCK as u64 + 8);
        let mut model = vec![0; 3 * BLOCK + 8];
        model[10..13].copy_from_slice(b"abc");
        model[3 * BLOCK + 5..].copy_from_slice(b"xyz");
        assert_eq!(read(&*file, 0, model.len())?, model);
        device.remove("a")?;
    }
    Ok(())
}

/// A read that passes the end is an error that names the file, never a short answer.
pub fn reads_past_the_end(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        file.write_at(0, &pattern(BLOCK + 10, 4), Purpose::User)?;
        for (offset, len) in
            [(BLOCK as u64 + 9, 2), (0, 2 * BLOCK), (2 * BLOCK as u64, 1), (u64::MAX, 8)]
        {
            let mut buf = AlignedBuf::zeroed(len);
            let outcome = file.read_at(offset, &mut buf, Purpose::User);
            let error = outcome.err().map(|error| (error.offset, error.file.ends_with('a')));
            assert_eq!(error, Some((offset, true)), "{offset} {len} {caching:?}");
        }
        device.remove("a")?;
    }
    Ok(())
}

/// A parallel read answers each request, also when one of them fails.
pub fn many_reads(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let data = AlignedBuf::copy_of(&pattern(64 * BLOCK, 5));
        file.write_at(0, &data, Purpose::User)?;
        assert!(file.read_many(&mut [], Purpose::User).is_empty());
        for count in [1, 2, 16, 40] {
            let mut bufs: Vec<_> = (0..count).map(|_| AlignedBuf::zeroed(BLOCK)).collect();
            let block_of = |at: usize| (at * 37 + 5) % 66;
            let mut requests: Vec<_> = bufs
                .iter_mut()
                .enumerate()
                .map(|(at, buf)| ReadRequest { offset: (block_of(at) * BLOCK) as u64, buf })
                .collect();
            let outcomes = file.read_many(&mut requests, Purpose::User);
            assert_eq!(outcomes.len(), count);
            for (at, (outcome, buf)) in outcomes.into_iter().zip(&bufs).enumerate() {
                let start = block_of(at) * BLOCK;
                match data.get(start..start + BLOCK) {
                    Some(expected) => {
                        outcome?;
                        assert_eq!(&buf[..], expected, "request {at} of {count}");
                    }
                    None => assert!(outcome.is_err(), "request {at} passes the end"),
                }
            }
        }
        device.remove("a")?;
    }
    Ok(())
}

/// Preallocated space reads as zeros, keeps what was there, and never shrinks a file.
pub fn preallocates(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        file.write_at(0, b"start", Purpose::User)?;
        file.preallocate(4 * BLOCK as u64 + 3, Purpose::User)?;
        let mut model = vec![0; 4 * BLOCK + 3];
        model[..5].copy_from_slice(b"start");
        assert_eq!(file.len()?, model.len() as u64);
        assert_eq!(read(&*file, 0, model.len())?, model);
        for smaller in [0, 5, 4 * BLOCK as u64 + 3] {
            file.preallocate(smaller, Purpose::User)?;
            assert_eq!(file.len()?, model.len() as u64);
        }
        file.sync(Purpose::User)?;
        assert_eq!(read(&*file, 0, model.len())?, model);
        device.remove("a")?;
    }
    Ok(())
}

/// A range that is allocated is there: with what it had, and with zeros behind the end. What was
/// discarded may be written again.
pub fn allocates(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let mut model = pattern(4 * BLOCK, 9);
        file.write_at(0, &AlignedBuf::copy_of(&model), Purpose::User)?;
        file.allocate(BLOCK as u64, 2 * BLOCK as u64, Purpose::User)?;
        assert_eq!(read(&*file, 0, model.len())?, model, "what is there stays");
        file.allocate(4 * BLOCK as u64, BLOCK as u64, Purpose::User)?;
        model.resize(5 * BLOCK, 0);
        assert_eq!(file.len()?, model.len() as u64);
        assert_eq!(read(&*file, 0, model.len())?, model);
        file.discard(BLOCK as u64, BLOCK as u64)?;
        file.allocate(BLOCK as u64, BLOCK as u64, Purpose::User)?;
        file.write_at(BLOCK as u64, &model[BLOCK..2 * BLOCK], Purpose::User)?;
        assert_eq!(read(&*file, 0, model.len())?, model);
        file.allocate(u64::MAX, 0, Purpose::User)?;
        assert!(file.allocate(u64::MAX, 2, Purpose::User).is_err());
        assert_eq!(file.len()?, model.len() as u64, "what fails changes nothing");
        device.remove("a")?;
    }
    Ok(())
}

/// Bytes that were cut off do not come back when the file grows again.
pub fn truncates(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let mut model = pattern(3 * BLOCK, 6);
        file.write_at(0, &AlignedBuf::copy_of(&model), Purpose::User)?;
        for len in [2 * BLOCK, BLOCK + 100, 7] {
            file.truncate(len as u64)?;
            assert_eq!(file.len()?, len as u64);
            file.truncate(u64::MAX)?;
            assert_eq!(file.len()?, len as u64, "cutting never extends");
            file.preallocate(3 * BLOCK as u64, Purpose::User)?;
            model[len..].fill(0);
            assert_eq!(read(&*file, 0, model.len())?, model, "{len} {caching:?}");
        }
        file.truncate(0)?;
        assert!(file.is_empty()?);
        device.remove("a")?;
    }
    Ok(())
}

/// A discarded range reads as zeros or as before; its neighbours and the length stay.
pub fn discards(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let model = pattern(8 * BLOCK, 7);
        file.write_at(0, &AlignedBuf::copy_of(&model), Purpose::User)?;
        file.discard(2 * BLOCK as u64, 3 * BLOCK as u64)?;
        file.discard(7 * BLOCK as u64, u64::MAX)?;
        file.discard(u64::MAX, 1)?;
        file.discard(0, 0)?;
        assert_eq!(file.len()?, model.len() as u64);
        let got = read(&*file, 0, model.len())?;
        for (at, (is, was)) in got.iter().zip(&model).enumerate() {
            let discarded = (2..5).contains(&(at / BLOCK)) || at / BLOCK == 7;
            assert!(is == was || (discarded && *is == 0), "byte {at}");
        }
        device.remove("a")?;
    }
    Ok(())
}

/// `Existing` needs the file, `CreateNew` needs its absence.
pub fn creates_and_opens(device: &dyn Device) -> Result<()> {
    assert!(device.open("a", Open::Existing, Caching::Buffered).is_err());
    assert!(device.list()?.is_empty(), "a failed open creates nothing");
    let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
    file.write_at(0, b"kept", Purpose::User)?;
    assert!(device.open("a", Open::CreateNew, Caching::Buffered).is_err());
    device.open("b", Open::CreateNew, Caching::Direct)?;
    let mut names = device.list()?;
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let file = device.open("a", Open::Existing, Caching::Direct)?;
    assert_eq!(read(&*file, 0, 4)?, b"kept");
    device.remove("a")?;
    device.remove("b")
}

/// A removed name is free; removing it twice is an error.
pub fn removes(device: &dyn Device) -> Result<()> {
    assert!(device.remove("a").is_err());
    device.open("a", Open::CreateNew, Caching::Buffered)?.write_at(0, b"x", Purpose::User)?;
    device.remove("a")?;
    assert!(device.remove("a").is_err());
    assert!(device.open("a", Open::Existing, Caching::Buffered).is_err());
    assert!(device.open("a", Open::CreateNew, Caching::Buffered)?.is_empty()?);
    device.remove("a")
}

/// A rename moves the contents and replaces the target.
pub fn renames(device: &dyn Device) -> Result<()> {
    assert!(device.rename("a", "b").is_err());
    device.open("a", Open::CreateNew, Caching::Buffered)?.write_at(0, b"from", Purpose::User)?;
    device.open("b", Open::CreateNew, Caching::Buffered)?.write_at(0, b"old!", Purpose::User)?;
    device.rename("a", "b")?;
    assert_eq!(device.list()?, ["b"]);
    let file = device.open("b", Open::Existing, Caching::Buffered)?;
    assert_eq!(read(&*file, 0, 4)?, b"from");
    device.rename("b", "b")?;
    assert_eq!(device.list()?, ["b"]);
    device.remove("b")
}

/// Every method refuses names that could lead out of the folder, and the lock's own name.
pub fn refuses_names(device: &dyn Device) -> Result<()> {
    let long = "x".repeat(256);
    for bad in ["", ".", "..", "../a", "/tmp/a", "a/b", "a\0b", "lock", long.as_str()] {
        for open in [Open::Existing, Open::CreateNew] {
            assert!(device.open(bad, open, Caching::Buffered).is_err(), "{bad:?}");
        }
        assert!(device.remove(bad).is_err(), "{bad:?}");
        device.open("a", Open::CreateNew, Caching::Buffered)?;
        assert!(device.rename("a", bad).is_err(), "{bad:?}");
        assert!(device.rename(bad, "a").is_err(), "{bad:?}");
        device.remove("a")?;
    }
    let longest = "x".repeat(255);
    device.open(&longest, Open::CreateNew, Caching::Buffered)?;
    device.remove(&longest)
}

/// The lock is exclusive, ends with its guard, and hides its file.
pub fn locks_once(device: &dyn Device) -> Result<()> {
    for _ in 0..3 {
        let lock = device.try_lock()?;
        assert!(lock.is_some());
        assert!(device.try_lock()?.is_none());
        assert!(device.list()?.is_empty());
        drop(lock);
    }
    Ok(())
}

/// An open file works on after it was removed or its name was taken.
pub fn open_files_outlive_names(device: &dyn Device) -> Result<()> {
    let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
    file.write_at(0, b"old", Purpose::User)?;
    device.remove("a")?;
    let newer = device.open("a", Open::CreateNew, Caching::Buffered)?;
    file.write_at(3, b"er", Purpose::User)?;
    file.sync(Purpose::User)?;
    assert_eq!(read(&*file, 0, 5)?, b"older");
    assert!(newer.is_empty()?);
    device.remove("a")
}

/// Two handles of one file, cached differently, see each other's writes immediately.
pub fn handles_agree(device: &dyn Device) -> Result<()> {
    let buffered = device.open("a", Open::CreateNew, Caching::Buffered)?;
    let direct = device.open("a", Open::Existing, Caching::Direct)?;
    for round in 0..8 {
        let block = AlignedBuf::copy_of(&pattern(BLOCK, round));
        let (writer, reader) =
            if round % 2 == 0 { (&buffered, &direct) } else { (&direct, &buffered) };
        writer.write_at(round % 3 * BLOCK as u64, &block, Purpose::User)?;
        let mut got = AlignedBuf::zeroed(BLOCK);
        reader.read_at(round % 3 * BLOCK as u64, &mut got, Purpose::User)?;
        assert_eq!(got[..], block[..], "round {round}");
        assert_eq!(reader.len()?, writer.len()?);
        direct.write_at(round % 3 * BLOCK as u64 + 100, b"small", Purpose::User)?;
        assert_eq!(read(&*direct, round % 3 * BLOCK as u64 + 99, 7)?[1..6], *b"small");
    }
    device.remove("a")
}

/// Threads that write and read their own blocks of one file do not disturb each other.
pub fn serves_threads(device: &dyn Device) -> Result<()> {
    for caching in [Caching::Buffered, Caching::Direct, Caching::Selective] {
        let file = device.open("a", Open::CreateNew, caching)?;
        let file = &*file;
        let work = |worker: u64| -> Result<()> {
            for round in 0..20 {
                let at = (round * 4 + worker) * BLOCK as u64;
                let block = AlignedBuf::copy_of(&pattern(BLOCK, worker * 1000 + round));
                file.write_at(at, &block, Purpose::User)?;
                let mut got = AlignedBuf::zeroed(BLOCK);
                file.read_at(at, &mut got, Purpose::User)?;
                assert_eq!(got[..], block[..], "worker {worker}, round {round}");
            }
            file.sync(Purpose::User)
        };
        thread::scope(|scope| -> Result<()> {
            let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || work(worker))).collect();
            for worker in workers {
                match worker.join() {
                    Ok(outcome) => outcome?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(())
        })?;
        assert_eq!(file.len()?, 80 * BLOCK as u64);
        device.remove("a")?;
    }
    Ok(())
}
