//! The profile of a device, kept in the user's folder of settings (`$XDG_CONFIG_HOME/esker`, or
//! `~/.config/esker`), for the command and for Python.
//!
//! One that cannot be read is as good as none: a plan is never wrong, only slower.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::{Error, Result, input};
use crate::plan::price::Profile;

const NAME: &str = "permute-profile.json";

/// Keeps a profile; answers where.
pub fn save(profile: &Profile) -> Result<PathBuf> {
    let Some(path) = path() else {
        return input("neither XDG_CONFIG_HOME nor HOME says where settings are kept");
    };
    let text = json!({
        "read_request": profile.read_request,
        "read_byte": profile.read_byte,
        "write_request": profile.write_request,
        "write_byte": profile.write_byte,
    });
    let kept = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, format!("{text}\n")));
    let refused = |source| Error::System {
        what: "keep the profile in",
        path: path.display().to_string(),
        source,
    };
    kept.map_err(refused)?;
    Ok(path)
}

/// The profile that was kept, if there is one that can be used.
#[must_use]
pub fn load() -> Option<Profile> {
    parse(&fs::read_to_string(path()?).ok()?)
}

fn parse(text: &str) -> Option<Profile> {
    let value: Value = serde_json::from_str(text).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_profile_is_none() {
        let good =
            "{\"read_request\":1e-5,\"read_byte\":1e-9,\"write_request\":0,\"write_byte\":1}";
        assert_eq!(parse(good).map(|profile| profile.read_request), Some(1e-5));
        for (from, to) in [("1e-5", "-1"), ("1e-5", "\"x\""), ("read_byte", "x"), ("{", "[")] {
            assert_eq!(parse(&good.replace(from, to)), None, "{to}");
        }
    }
}
