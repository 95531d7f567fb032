//! Each fault does what it says, once or always, and nothing else.

use super::*;

fn plan(fault: Fault) -> FaultPlan {
    FaultPlan::new().with(fault)
}

fn read(file: &Arc<dyn DeviceFile>, offset: usize, len: usize) -> Result<Vec<u8>> {
    let mut buf = vec![0; len];
    file.read_at(offset as u64, &mut buf, Purpose::User)?;
    Ok(buf)
}

/// The contents of `a` after a crash that loses all that it may.
fn durable(device: &SimDevice) -> Vec<u8> {
    let left = device.crash(&Survivors::nothing(), &CrashModel::default());
    left.files().remove("a").unwrap_or_default()
}

#[test]
fn every_operation_can_fail_once_or_for_good() -> Result<()> {
    let work = |device: &SimDevice| -> Result<()> {
        let file = create(device, "b")?;
        file.preallocate(100, Purpose::User)?;
        write(&file, 0, b"abc")?;
        read(&file, 0, 3)?;
        file.discard(0, 1)?;
        file.truncate(2)?;
        file.sync(Purpose::User)?;
        device.rename("b", "c")?;
        open(device, "c")?;
        device.list()?;
        device.remove("c")?;
        device.sync_dir()
    };
    let device = SimDevice::new();
    work(&device)?;
    let total = device.op_count();
    assert_eq!(total, OpKind::ALL.len() as u64);
    assert!(OpKind::ALL.iter().all(|kind| device.op_count_of(*kind) == 1));
    for nth in 0..total {
        for failure in Failure::ALL {
            for sticky in [false, true] {
                let device = SimDevice::new();
                device.set_faults(FaultPlan::fail_nth(nth, failure, sticky));
                let error = work(&device).err().map(|error| error.source.raw_os_error());
                assert_eq!(error, Some(failure.error().raw_os_error()), "{nth} {failure:?}");
                assert_eq!(device.op_count(), nth + 1);
                assert_eq!(device.list().is_err(), sticky);
            }
        }
    }
    device.set_faults(FaultPlan::fail_nth(total, Failure::Io, true));
    work(&device)
}

#[test]
fn short_writes_land_in_part() -> Result<()> {
    for bytes in [0, 1, 700, 1024, 5000] {
        let (device, file) = with_synced_file(1)?;
        let effect = Effect::ShortWrite { bytes, failure: Failure::NoSpace };
        device.set_faults(plan(Fault::new(effect)));
        assert!(write(&file, 100, &[2; 1024]).is_err_and(|error| error.is_full()));
        let landed = bytes.min(1024) as usize;
        let mut expected = vec![1; SECTOR];
        if landed > 0 {
            expected.resize(SECTOR.max(100 + landed), 0);
            expected[100..100 + landed].fill(2);
        }
        assert_eq!(device.files()["a"], expected, "{bytes}");
        write(&file, 100, &[2; 1024])?;
    }
    Ok(())
}

#[test]
fn failed_syncs_are_not_made_good_by_later_ones() -> Result<()> {
    for (loss, live, after) in
        [(SyncLoss::Landed, 2, 2), (SyncLoss::Cached, 2, 1), (SyncLoss::Dropped, 1, 1)]
    {
        let (device, file) = with_synced_file(2)?;
        write(&file, 0, &[2; SECTOR])?;
        device.set_faults(plan(Fault::new(Effect::FailSync(loss))));
        assert!(file.sync(Purpose::User).is_err());
        assert_eq!(read(&file, 0, 1)?, [live], "{loss:?}");
        assert_eq!(device.pending_units(), 0, "{loss:?}");
        write(&file, SECTOR, &[3; SECTOR])?;
        file.sync(Purpose::User)?;
        let left = durable(&device);
        assert_eq!((left[0], left[SECTOR]), (after, 3), "{loss:?}");
    }
    Ok(())
}

#[test]
fn failed_folder_syncs_lose_names() -> Result<()> {
    for (loss, live, after) in
        [(SyncLoss::Landed, 1, 1), (SyncLoss::Cached, 1, 0), (SyncLoss::Dropped, 0, 0)]
    {
        let device = SimDevice::new();
        device.record();
        create(&device, "a")?;
        device.set_faults(plan(Fault::new(Effect::FailSync(loss))));
        assert!(device.sync_dir().is_err());
        assert_eq!(device.list()?.len(), live, "{loss:?}");
        device.sync_dir()?;
        let trace = taken(&device);
        let left = device.crash(&Survivors::everything(), &CrashModel::default());
        assert_eq!(left.files().len(), after, "{loss:?}");
        let again =
            trace.crash_image(trace.len(), &Survivors::everything(), &CrashModel::default());
        assert_eq!(again.files(), left.files(), "the trace knows");
    }
    Ok(())
}

#[test]
fn reads_lie_once() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    device.set_faults(plan(Fault::new(Effect::FlipRead { byte: 5, mask: 0x81 }).nth(1)));
    assert_eq!(read(&file, 0, 8)?, [1; 8]);
    assert_eq!(read(&file, 0, 8)?, [1, 1, 1, 1, 1, 0x80, 1, 1]);
    assert_eq!(read(&file, 0, 8)?, [1; 8]);
    device.set_faults(plan(Fault::new(Effect::FlipRead { byte: 5, mask: 0x81 })));
    assert_eq!(read(&file, 0, 0)?, []);
    Ok(())
}

#[test]
fn stale_reads_show_the_sync_before() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    device.set_faults(plan(Fault::new(Effect::StaleRead).nth(1).sticky()));
    write(&file, 0, &[2; SECTOR])?;
    assert_eq!(read(&file, 0, 1)?, [2]);
    assert_eq!(read(&file, 0, 1)?, [1], "what is durable");
    file.sync(Purpose::User)?;
    assert_eq!(read(&file, 0, 1)?, [1], "what was durable before");
    write(&file, 0, &[3; SECTOR])?;
    file.sync(Purpose::User)?;
    assert_eq!(read(&file, 0, 1)?, [2]);
    Ok(())
}

#[test]
fn lost_and_misdirected_writes_succeed() -> Result<()> {
    let (device, file) = with_synced_file(2)?;
    device.set_faults(plan(Fault::new(Effect::LoseWrite)));
    write(&file, SECTOR, &[2; 2 * SECTOR])?;
    file.sync(Purpose::User)?;
    let mut expected = vec![1; 3 * SECTOR];
    expected[2 * SECTOR..].fill(0);
    assert_eq!(durable(&device), expected);

    for (by_bytes, landed) in [(-512, 0), (512, 2 * SECTOR), (9999, 2 * SECTOR), (-9999, 0)] {
        let (device, file) = with_synced_file(3)?;
        device.set_faults(plan(Fault::new(Effect::MisdirectWrite { by_bytes })));
        write(&file, SECTOR, &[2; SECTOR])?;
        file.sync(Purpose::User)?;
        let mut expected = vec![1; 3 * SECTOR];
        expected[landed..landed + SECTOR].fill(2);
        assert_eq!(durable(&device), expected, "{by_bytes}");
    }
    Ok(())
}

#[test]
fn flips_damage_the_medium() -> Result<()> {
    let (device, file) = with_synced_file(2)?;
    device.record();
    device.flip("a", 600, 0x03);
    device.flip("a", 9999, 0xff);
    device.flip("nothing", 0, 0xff);
    let mut expected = vec![1; 2 * SECTOR];
    expected[600] = 2;
    assert_eq!(read(&file, 0, 2 * SECTOR)?, expected);
    let trace = taken(&device);
    assert_eq!(durable(&device), expected);
    let again = trace.crash_image(2, &Survivors::nothing(), &CrashModel::default());
    assert_eq!(again.files()["a"], expected);

    let mut image = SimImage::from_files(&again.files());
    let before = image.digest();
    image.flip("a", 600, 0x03);
    image.flip("a", 1024, 0xff);
    assert_eq!(image.files()["a"], vec![1; 2 * SECTOR]);
    assert_ne!(image.digest(), before);
    Ok(())
}

#[test]
fn power_goes_for_good() -> Result<()> {
    let (device, file) = with_synced_file(1)?;
    device.set_faults(plan(Fault::new(Effect::PowerOff).on(OpKind::Write).nth(1)));
    write(&file, 0, &[2; 10])?;
    assert!(write(&file, 0, &[3; 10]).is_err());
    assert!(read(&file, 0, 1).is_err() && file.len().is_err() && device.list().is_err());
    device.set_faults(FaultPlan::new());
    assert_eq!(read(&file, 0, 1)?, [2], "and comes back when asked");
    let left = device.crash(&Survivors::everything(), &CrashModel::default());
    assert!(read(&file, 0, 1).is_err());
    assert_eq!(left.files()["a"][0], 2);
    Ok(())
}
