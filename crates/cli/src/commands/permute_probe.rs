//! `permute --probe`: a device is measured once, and plans are made for it.
//!
//! The profile is kept in the user's folder of settings.

use std::path::Path;

use esker_permute::device_profile;
use esker_permute::probe::probe;
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use super::permute::failure;

/// Measures the device of a folder and keeps what was found.
pub(super) fn run(folder: &Path) -> Result<(), Failure> {
    let (profile, samples) = probe(folder).map_err(failure)?;
    let mut output = Output::new();
    for sample in samples {
        let verb = if sample.is_write { "writes" } else { "reads" };
        output.line(&format!(
            "{verb} of {} KiB: {:.0} MB/s",
            sample.bytes >> 10,
            sample.bytes as f64 / sample.seconds / 1e6
        ))?;
    }
    let path = device_profile::save(&profile).map_err(failure)?;
    output.line(&format!("kept in {}", path.display()))?;
    output.flush()
}
