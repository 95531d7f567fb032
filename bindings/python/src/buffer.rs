//! Keys and values as Python passes them: `bytes`, or any other object with a buffer.
//!
//! `bytes` never change, and are read in place, also while other Python threads run. Other objects
//! may change in the meantime, and are copied once.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

use crate::raised;

/// Bytes that do not change.
pub(crate) enum Buffer<'a, 'py> {
    Lent(&'a [u8]),
    Copied(Bound<'py, PyBytes>),
}

impl<'a, 'py> Buffer<'a, 'py> {
    /// The bytes of a key (or a bound of keys).
    #[inline]
    pub(crate) fn key(given: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of("a key", given)
    }

    /// The bytes of a value.
    #[inline]
    pub(crate) fn value(given: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        Self::of("a value", given)
    }

    #[inline]
    fn of(what: &str, given: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        match given.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Lent(bytes.as_bytes())),
            Err(_) => copied(what, given).map(Self::Copied),
        }
    }
}

impl AsRef<[u8]> for Buffer<'_, '_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Copied(bytes) => bytes.as_bytes(),
        }
    }
}

fn copied<'py>(what: &str, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = given.py();
    if given.is_instance_of::<PyString>() {
        let text = format!("{what} is bytes, not str: encode it, as in 'text'.encode()");
        return Err(raised::wrong_type(py, &text));
    }
    let refused = || -> PyResult<PyErr> {
        let name = given.get_type().fully_qualified_name()?;
        let text = format!("{what} is bytes or another buffer, not {name}");
        Ok(raised::wrong_type(py, &text))
    };
    let view = match PyMemoryView::from(given) {
        Ok(view) => view,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Err(refused()?),
        Err(error) => return Err(error),
    };
    // The bytes of an array of objects are addresses.
    if view.getattr("format")?.extract::<String>()?.contains('O') {
        return Err(refused()?);
    }
    Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
}
