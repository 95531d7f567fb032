//! Merge operators: the built-in ones, by name, and functions of Python.

use esker::{BoxError, KeyspaceOptions, MergeOperator};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::raised;

/// A function of Python. The store's threads call it too.
struct Function(Py<PyAny>);

impl MergeOperator for Function {
    fn merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Result<Vec<u8>, BoxError> {
        let merged = Python::try_attach(|py| {
            // The message of an exception is Python too.
            self.call(py, key, older, newer).map_err(|error| error.to_string().into())
        });
        merged.unwrap_or_else(|| Err("the interpreter has come to its end".into()))
    }
}

impl Function {
    fn call(&self, py: Python<'_>, key: &[u8], older: &[u8], newer: &[u8]) -> PyResult<Vec<u8>> {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        let merged = self.0.bind(py).call1((bytes(key), bytes(older), bytes(newer)))?;
        let merged = merged.cast_into::<PyBytes>().map_err(|_| {
            raised::wrong_type(py, "a merge operator answers bytes, and nothing else")
        })?;
        Ok(merged.as_bytes().to_vec())
    }
}

/// The options with `merge`: the name of a built-in operator, or a pair of a name and a function.
pub(crate) fn chosen(
    options: KeyspaceOptions,
    merge: &Bound<'_, PyAny>,
) -> PyResult<KeyspaceOptions> {
    let py = merge.py();
    if let Ok(name) = merge.extract::<String>() {
        let known = name.parse().map_err(|error| raised::of_store(py, &error))?;
        return Ok(options.merge(known));
    }
    let pair = merge.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let pair = pair.and_then(|pair| pair.extract::<(String, Py<PyAny>)>().ok());
    match pair {
        Some((name, function)) if function.bind(py).is_callable() => {
            Ok(options.merge_operator(name, Function(function)))
        }
        _ => Err(raised::wrong_type(
            py,
            "merge is the name of an operator, or a pair of a name and a function",
        )),
    }
}
