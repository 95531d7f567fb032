//! `permute --probe`: a device is measured once, and plans are made for it.
//!
//! The profile is kept in the user's folder of settings (`$XDG_CONFIG_HOME/esker`, or
//! `~/.config/esker`). One that cannot be read is as good as none: a plan is never wrong, only
//! slower.

use std::fs;
use std::path::{Path, PathBuf};

use esker_permute::plan::price::Profile;
use esker_permute::probe::probe;
use serde_json::{Value, json};

use super::permute::failure;
use crate::exit::Failure;
use crate::output::Output;

const NAME: &str = "permute-profile.json";

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
    let Some(path) = path() else {
        let what = "neither XDG_CONFIG_HOME nor HOME says where settings are kept";
        return Err(Failure::Input(what.to_owned()));
    };
    let kept = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let text = json!({
            "read_request": profile.read_request,
            "read_byte": profile.read_byte,
            "write_request": profile.write_request,
            "write_byte": profile.write_byte,
        });
        fs::write(&path, format!("{text}\n"))
    });
    kept.map_err(|source| Failure::System { what: "keep the profile", source })?;
    output.line(&format!("kept in {}", path.display()))?;
    output.flush()
}

/// The profile that was kept, if there is one that can be used.
pub(super) fn kept() -> Option<Profile> {
    let text = fs::read_to_string(path()?).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let cost = |key: &str| {
        let cost = value.get(key)?.as_f64()?;
        (cost.is_finite() && cost >= 0.0).then_some(cost)
    };
    Some(Profile {
        read_request: cost("read_request")?,
        read_byte: cost("read_byte")?,
        write_request: cost("write_request")?,
        write_byte: cost("write_byte")?,
    })
}

fn path() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = named("XDG_CONFIG_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(named("HOME")?).join(".config")))?;
    Some(folder.join("esker").join(NAME))
}
