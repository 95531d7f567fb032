//! What the commands that measure have in common: names that can be typed, the file of findings,
//! and errors.

use std::fs;
use std::io;
use std::path::Path;

use esker_experiments::Error;
use esker_lab_result::Findings;
use esker_terminal::exit::Failure;

/// What was found under a name; where there is nothing, the names that there are.
pub(crate) fn known<'a, T>(
    found: Option<T>,
    what: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<T, String> {
    let list = || names.into_iter().collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("{what} are {}", list()))
}

/// Writes findings to a file.
pub(crate) fn write(path: &Path, found: &Findings) -> Result<(), Failure> {
    let text = found.to_json().map_err(io::Error::from);
    text.and_then(|text| fs::write(path, text))
        .map_err(|source| Failure::System { what: "write the measurements", source })
}

/// The failure of the command whose measurement failed.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::Interrupted => Failure::Interrupted,
        Error::Input(text) => Failure::Input(text),
        error => Failure::System { what: "measure", source: io::Error::other(error.to_string()) },
    }
}
