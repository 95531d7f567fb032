//! Every byte of a backup is damaged, one at a time: checking names it, restoring refuses it, and
//! what is restored all the same is what was backed up.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, Error};
use esker_device::Device;
use esker_device::memory::MemoryDevice;

use super::{Held, judge_restored, with_one_backup};
use crate::counts::{Counts, budget};
use crate::image::{Image, ImageDevice};
use crate::recovery::Depth;
use crate::session::Config;
use crate::violation::{Oracle, Verdict, Violation, ensure, without_panic};

const MASKS: [u8; 3] = [0x01, 0x80, 0xff];
const SECTOR_BYTES: usize = 512;
/// One byte in this number at budget 1.
const STRIDE: u64 = 5;

/// Flips the bytes of a backup.
///
/// # Errors
/// The first broken promise.
pub fn bytes(counts: &mut Counts) -> Verdict {
    let device = MemoryDevice::new();
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    let (source, held) = with_one_backup(&shared)?;
    let image = Image::of(&device);
    let image = image.map_err(|error| Violation::new(Oracle::Harness, error.to_string()))?;
    let stride = (STRIDE / budget().clamp(1, STRIDE)).max(1) as usize;
    let files: Vec<_> = image.files().map(|(name, len)| (name.to_owned(), len)).collect();
    for (file, len) in files {
        for offset in (0..len).step_by(stride) {
            let mask = MASKS.get(offset % MASKS.len()).copied().unwrap_or(1);
            let mut damaged = image.clone();
            damaged.flip(&file, offset, mask);
            counts.add("flips", 1);
            without_panic(|| judge(&source.config, &damaged, &held, counts))
                .map_err(|v| v.at(format!("{file}@{offset} ^ {mask:#04x}")))?;
        }
    }
    Ok(())
}

/// Replaces the start of each file of a backup by zeros, up to many lengths.
///
/// # Errors
/// The first broken promise.
pub fn heads(counts: &mut Counts) -> Verdict {
    let device = MemoryDevice::new();
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    let (source, held) = with_one_backup(&shared)?;
    let image = Image::of(&device);
    let image = image.map_err(|error| Violation::new(Oracle::Harness, error.to_string()))?;
    let files: Vec<_> = image.files().map(|(name, len)| (name.to_owned(), len)).collect();
    for (file, len) in files.iter().filter(|(_, len)| *len > 0) {
        let step = (len / (60 * budget() as usize)).max(1).next_multiple_of(SECTOR_BYTES);
        for zeros in (1..*len).step_by(step).chain((1..8).map(|n| n * SECTOR_BYTES)).chain([*len]) {
            let mut damaged = image.clone();
            damaged.overwrite(file, 0, &vec![0; zeros.min(*len)]);
            counts.add("heads", 1);
            without_panic(|| judge(&source.config, &damaged, &held, counts))
                .map_err(|v| v.at(format!("{file}, {zeros} zeros of {len}")))?;
        }
    }
    Ok(())
}

fn judge(config: &Config, damaged: &Image, held: &Held, counts: &mut Counts) -> Verdict {
    let named = |error: &Error| {
        ensure(matches!(error, Error::Damaged { .. }), Oracle::DamageIsNamed, || error.to_string())
    };
    let device: Arc<dyn Device> = Arc::new(ImageDevice::new(damaged));
    let backup = match Backup::open_on(device) {
        Ok(backup) => backup,
        Err(error) => {
            counts.add("refused", 1);
            return named(&error);
        }
    };
    let report = backup.check();
    let is_clean = report.as_ref().is_ok_and(esker::CheckReport::is_ok);
    if let Err(error) = &report {
        named(error)?;
    }
    counts.add("named by check", u64::from(!is_clean));
    let restored: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    match backup.restore_on(Arc::clone(&restored), &mut |_| ControlFlow::Continue(())) {
        Err(error) => {
            named(&error)?;
            ensure(!is_clean, Oracle::DamageIsNamed, || "check finds nothing".into())
        }
        // One of two copies, or a byte that nothing leads to.
        Ok(()) => judge_restored(config, &restored, held, Depth::Once),
    }
}
