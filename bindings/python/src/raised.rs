//! Errors as exceptions, whose classes are Python's own (`esker/_errors.py`).

use esker_permute::error::Error;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Pattern(text) => made(py, "PatternError", (text,)),
        Error::File(text) => made(py, "FileError", (text,)),
        Error::Input(text) => made(py, "ArgumentError", (text,)),
        Error::System { what, path, source } => {
            let text = format!("cannot {what}: {source}");
            match source.raw_os_error() {
                Some(number) => made(py, "FileError", (number, text, path)),
                None => made(py, "FileError", (error.to_string(),)),
            }
        }
        Error::Internal(_) => made(py, "Error", (error.to_string(),)),
    }
}

fn made<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let exception = py
        .import("esker._errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1(arguments));
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
