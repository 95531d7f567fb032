//! Files of a finished backup are lost, or cut: what is left of it is never removed. Opening it and
//! the next backup into its folder answer rightly, or fail and leave every file as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{Backup, Error};
use esker_device::sim::{SimDevice, SimImage};
use esker_device::{Caching, Device, Open, Purpose};

use super::{Held, Source, during_backup, harness, judge_backup, with_one_backup};
use crate::counts::Counts;
use crate::history::generate;
use crate::recovery::Depth;
use crate::scenario::mixed_profile;
use crate::violation::{Oracle, Verdict, ensure};

/// The loss that a file suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    None,
    Deleted,
    /// This number of four quarters is left.
    Cut(u64),
}

const LOSSES: [Loss; 5] = [Loss::None, Loss::Deleted, Loss::Cut(0), Loss::Cut(2), Loss::Cut(3)];

/// Of each moment between two backups every file is lost or cut, and every two of them.
///
/// # Errors
/// The first broken promise.
pub fn of_files(counts: &mut Counts) -> Verdict {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let (mut source, first) = with_one_backup(&device)?;
    each(&mut source, &sim.image(), &first, counts).map_err(|v| v.at("one backup"))?;
    source.apply(&during_backup(generate(&mixed_profile(60), 71)))?;
    // As a backup leaves it that is killed before the last step.
    let half_done = add_file(&sim.image(), "backup.new")?;
    each(&mut source, &half_done, &first, counts).map_err(|v| v.at("a second, unfinished"))?;
    let (second, _) = source.must_backup(&device, &[])?;
    each(&mut source, &sim.image(), &second, counts).map_err(|v| v.at("two backups"))
}

/// The image with a copy of the catalog of that name.
fn add_file(image: &SimImage, name: &str) -> Verdict<SimImage> {
    let device = SimDevice::from_image(image);
    let bytes = device.files().remove("backup").unwrap_or_default();
    let file = device.open(name, Open::CreateNew, Caching::Buffered);
    let file = file.map_err(|error| harness(&error.into()))?;
    file.write_at(0, &bytes, Purpose::Backup).map_err(|error| harness(&error.into()))?;
    Ok(device.image())
}

fn each(source: &mut Source, image: &SimImage, held: &Held, counts: &mut Counts) -> Verdict {
    let names: Vec<_> = SimDevice::from_image(image).files().into_keys().collect();
    for (at, one) in names.iter().enumerate() {
        for other in names.iter().skip(at + 1) {
            for losses in LOSSES.into_iter().flat_map(|a| LOSSES.map(|b| [a, b])) {
                let files = [(one.as_str(), losses[0]), (other.as_str(), losses[1])];
                counts.add("files lost or cut", 1);
                after(source, image, held, &files).map_err(|v| v.at(format!("{files:?}")))?;
            }
        }
    }
    Ok(())
}

fn lose(device: &SimDevice, (name, loss): (&str, Loss)) -> Result<(), Error> {
    match loss {
        Loss::None => {}
        Loss::Deleted => device.remove(name)?,
        Loss::Cut(quarters) => {
            let file = device.open(name, Open::Existing, Caching::Buffered)?;
            file.truncate(file.len()? / 4 * quarters)?;
        }
    }
    Ok(())
}

/// The files that hold a backup.
fn contents(device: &SimDevice) -> BTreeMap<String, Vec<u8>> {
    let mut files = device.files();
    files.retain(|name, bytes| matches!(name.as_str(), "backup" | "blocks") && !bytes.is_empty());
    files
}

fn after(source: &mut Source, image: &SimImage, held: &Held, lost: &[(&str, Loss)]) -> Verdict {
    let sim = Arc::new(SimDevice::from_image(image));
    for loss in lost {
        lose(&sim, *loss).map_err(|error| harness(&error))?;
    }
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let before = contents(&sim);
    // One that opens and whose blocks are cut is one that `check` reports.
    let is_whole = match Backup::open_on(Arc::clone(&device)) {
        Ok(backup) => backup.check().is_ok_and(|report| report.is_ok()),
        Err(error) => refusal(&error, &before).map(|()| false)?,
    };
    if is_whole {
        judge_backup(&source.config, &device, held, Depth::Once)?;
    }
    let (newer, made) = source.backup(&device, &[])?;
    match made {
        Ok(_) => {
            ensure(is_whole || before.is_empty(), Oracle::AcknowledgedIsThere, || {
                "the next backup removes what is left of a finished one".into()
            })?;
            judge_backup(&source.config, &device, &newer, Depth::Once).map_err(|v| v.at("next"))
        }
        Err(error) => {
            ensure(!is_whole, Oracle::WorksOn, || error.to_string())?;
            refusal(&error, &before)?;
            ensure(contents(&sim) == before, Oracle::AcknowledgedIsThere, || {
                format!("a backup that is refused changes files: {error}")
            })
        }
    }
}

/// Checks a refusal: the remains of a backup are damage, and not nothing.
fn refusal(error: &Error, left: &BTreeMap<String, Vec<u8>>) -> Verdict {
    let is_right = match error {
        Error::Damaged { .. } => true,
        Error::Invalid { .. } => left.is_empty(),
        _ => false,
    };
    ensure(is_right, Oracle::ErrorsSurface, || format!("the answer is: {error}"))
}
