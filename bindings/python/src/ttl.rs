//! Times to live as Python passes them: seconds, possibly fractions.

use std::time::Duration;

use pyo3::prelude::*;

use crate::raised;

/// The time to live that is given, if one is.
pub(crate) fn of(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(given) = given else { return Ok(None) };
    let py = given.py();
    let Ok(seconds) = given.extract::<f64>() else {
        let name = given.get_type().fully_qualified_name()?;
        let text = format!("a time to live is a number of seconds, not {name}");
        return Err(raised::wrong_type(py, &text));
    };
    let ttl = Duration::try_from_secs_f64(seconds);
    let refused = |error| raised::argument(py, &format!("{seconds} seconds to live: {error}"));
    ttl.map(Some).map_err(refused)
}
