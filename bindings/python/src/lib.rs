//! The native half of the Python package `esker`: a job, looked at and run.
//!
//! What Python users touch (types of arguments, defaults, results as arrays) is written in Python,
//! in `python/esker`; here are only the calls into `esker-permute`, with the interpreter let go
//! while they work, and signals looked at every 50 ms.

mod job;
mod raised;

use pyo3::prelude::*;

/// The module `esker._esker`.
#[pymodule]
fn _esker(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<job::Job>()?;
    module.add_function(wrap_pyfunction!(job::parse_bytes, module)?)?;
    Ok(())
}
