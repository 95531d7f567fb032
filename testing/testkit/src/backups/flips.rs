//! Every byte of a backup is damaged, one at a time: checking names it, restoring refuses it, and
//! what is restored all the same is what was backed up.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, Error};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_harness::flips::{self, Damage, Sampling};

use super::{Held, Source, judge_restored, with_one_backup};
use crate::counts::{Counts, budget};
use crate::image::{Image, ImageDevice};
use crate::recovery::Depth;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// One byte in this number at budget 1.
const STRIDE: usize = 4;
/// Heads of a file at budget 1, about.
const HEADS: usize = 70;

/// A backup, and what it holds.
struct Specimen {
    image: Image,
    source: Source,
    held: Held,
}

/// Flips the bytes of a backup.
///
/// # Errors
/// The first broken promise.
pub fn bytes(counts: &mut Counts) -> Verdict {
    let specimen = Specimen::make()?;
    let device = ImageDevice::tracking(&specimen.image);
    specimen.judge(&device, counts)?;
    let stride = STRIDE / budget_within(STRIDE);
    // All zeros: a backup has little padding.
    let sampling = Sampling { run_stride: 1, ..Sampling::one_in(stride) };
    let taken = flips::bytes(&specimen.image, &device.touched(), sampling, &mut |damage| {
        specimen.judge_damaged(damage, counts)
    })?;
    counts.add("flips", taken.judged);
    taken.add_to(counts);
    Ok(())
}

/// Replaces the start of each file of a backup by zeros, up to many lengths.
///
/// # Errors
/// The first broken promise.
pub fn heads(counts: &mut Counts) -> Verdict {
    let specimen = Specimen::make()?;
    let most = HEADS * budget_within(usize::MAX / HEADS);
    let judge = &mut |damage: &Damage<'_>| specimen.judge_damaged(damage, counts);
    let heads = flips::heads(&specimen.image, most, judge)?;
    counts.add("heads", heads);
    Ok(())
}

/// The budget, up to some number.
fn budget_within(most: usize) -> usize {
    usize::try_from(budget()).unwrap_or(most).clamp(1, most)
}

impl Specimen {
    fn make() -> Verdict<Self> {
        let device = MemoryDevice::new();
        let shared: Arc<dyn Device> = Arc::new(device.clone());
        let (source, held) = with_one_backup(&shared)?;
        let image = Image::of(&device);
        let image = image.map_err(|error| Violation::new(Oracle::Harness, error.to_string()))?;
        Ok(Self { image, source, held })
    }

    fn judge_damaged(&self, damage: &Damage<'_>, counts: &mut Counts) -> Verdict {
        self.judge(&ImageDevice::new(damage.image), counts)
    }

    fn judge(&self, device: &ImageDevice, counts: &mut Counts) -> Verdict {
        let named = |error: &Error| {
            ensure(matches!(error, Error::Damaged { .. }), Oracle::DamageIsNamed, || {
                error.to_string()
            })
        };
        let device: Arc<dyn Device> = Arc::new(device.clone());
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
            Ok(()) => judge_restored(&self.source.config, &restored, &self.held, Depth::Once),
        }
    }
}
