//! Errors as exceptions, with the classes of `esker/_errors.py`.

use esker::DeviceError;
use esker_permute::error::Error as JobError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The exception of a job's error.
pub(crate) fn of_job(py: Python<'_>, error: &JobError) -> PyErr {
    match error {
        JobError::Interrupted => PyKeyboardInterrupt::new_err(()),
        JobError::Pattern(text) => made(py, "PatternError", (text.in_python(),)),
        JobError::File(text) => made(py, "FileError", (text.in_python(),)),
        JobError::Input(text) => made(py, "ArgumentError", (text.in_python(),)),
        JobError::System { what, path, source } => {
            let text = format!("cannot {what}: {source}");
            match source.raw_os_error() {
                Some(number) => made(py, "FileError", (number, text, path)),
                None => made(py, "FileError", (error.to_string(),)),
            }
        }
        JobError::Internal(_) => made(py, "Error", (error.to_string(),)),
    }
}

/// The exception of a store's error.
#[cold]
pub(crate) fn of_store(py: Python<'_>, error: &esker::Error) -> PyErr {
    use esker::Error;
    let text = error.to_string();
    match error {
        Error::Invalid { .. } => made(py, "ArgumentError", (text,)),
        Error::Conflict { .. } => made(py, "ConflictError", (text,)),
        Error::Operator { .. } => made(py, "OperatorError", (text,)),
        Error::Closed => made(py, "ClosedError", (text,)),
        Error::Forked { .. } => forked(py),
        Error::NoKeyspace { .. } => made(py, "NoKeyspaceError", (text,)),
        Error::Poisoned { .. } => made(py, "PoisonedError", (text,)),
        Error::ReadOnly => made(py, "ReadOnlyError", (text,)),
        Error::TooOld { .. } => made(py, "TooOldError", (text,)),
        Error::Overtaken { .. } => made(py, "OvertakenError", (text,)),
        Error::Full { .. } => system(py, "FullError", "ENOSPC", &text, None),
        Error::Locked { location } => {
            let text = "the store is open in another process or object";
            system(py, "LockedError", "EWOULDBLOCK", text, Some(location))
        }
        Error::NoStore { location } => {
            system(py, "NoStoreError", "ENOENT", "there is no store here", Some(location))
        }
        Error::NotAStore { .. } | Error::TooNew { .. } => made(py, "FormatError", (text,)),
        Error::Damaged { file, offset, .. } => damaged(py, text, file, *offset),
        Error::Io(failed) => device(py, failed),
        _ => made(py, "Error", (text,)),
    }
}

/// The exception of what a child by `fork` may not use.
#[cold]
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    made(py, "ForkError", ("the store was opened before a fork: open it in one process, after it",))
}

/// The exception of an object that was closed by itself.
#[cold]
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    made(py, "ClosedError", (what,))
}

/// The exception of an argument that cannot be used.
#[cold]
pub(crate) fn argument(py: Python<'_>, text: &str) -> PyErr {
    made(py, "ArgumentError", (text,))
}

/// The exception of an argument of a wrong type.
#[cold]
pub(crate) fn wrong_type(py: Python<'_>, text: &str) -> PyErr {
    made(py, "ArgumentTypeError", (text,))
}

/// The exception of a key that is not there.
#[cold]
pub(crate) fn no_key(key: &Bound<'_, PyAny>) -> PyErr {
    made(key.py(), "KeyNotFoundError", (key,))
}

/// The exception of a keyspace in which there is no key.
#[cold]
pub(crate) fn none_left(py: Python<'_>) -> PyErr {
    made(py, "KeyNotFoundError", ("the keyspace is empty",))
}

/// A warning about a job that is done.
pub(crate) fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let class = class(py, "MetadataWarning")?;
    py.import("warnings")?.call_method1("warn", (text, class, 2))?;
    Ok(())
}

fn device(py: Python<'_>, failed: &DeviceError) -> PyErr {
    let Some(number) = failed.source.raw_os_error() else {
        return made(py, "FileError", (failed.to_string(),));
    };
    let (verb, source) = (failed.operation.verb(), &failed.source);
    let text = match failed.offset {
        0 => format!("cannot {verb} it: {source}"),
        offset => format!("cannot {verb} it at byte {offset}: {source}"),
    };
    made(py, "FileError", (number, text, &failed.file))
}

/// An exception with a number of the system's, by its name, and a file if there is one.
fn system(py: Python<'_>, class: &str, name: &str, text: &str, file: Option<&str>) -> PyErr {
    let number = py.import("errno").and_then(|errno| errno.getattr(name));
    match (number, file) {
        (Ok(number), Some(file)) => made(py, class, (number, text, file)),
        (Ok(number), None) => made(py, class, (number, text)),
        (Err(error), _) => error,
    }
}

fn damaged(py: Python<'_>, text: String, file: &str, offset: u64) -> PyErr {
    let error = made(py, "DamagedError", (text,));
    let exception = error.value(py);
    let set = exception.setattr("file", file).and_then(|()| exception.setattr("offset", offset));
    set.err().unwrap_or(error)
}

/// A class of Python's half.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("esker._errors").map(Bound::unbind))?;
    module.bind(py).getattr(name)
}

fn made<'py>(py: Python<'py>, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    match self::class(py, class).and_then(|class| class.call1(arguments)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
