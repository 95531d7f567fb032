//! A job of `esker-permute`.

use std::collections::BTreeMap;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use esker_permute::device_profile;
use esker_permute::error::Result;
use esker_permute::job::{self, Request};
use esker_permute::plan::price::Mode;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::raised;

/// The interval at which Python is asked whether a signal came.
const TICK: Duration = Duration::from_millis(50);

/// Return the bytes of a size such as `"256MiB"`.
#[pyfunction]
pub(crate) fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    esker_permute::units::parse_bytes(text).map_err(|error| raised::of_job(py, &error))
}

/// The options of a job in addition to files and pattern: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Options {
    /// Bytes of memory for buffers.
    memory: u64,
    /// Sizes of axes by name.
    sizes: BTreeMap<String, u64>,
    /// Of a file of items alone: shape, type, where they begin in bytes (if not at the beginning,
    /// with nothing behind them), and whether the first dimension varies fastest.
    bare: Option<(Vec<u64>, String, Option<u64>, bool)>,
    /// Of a Zarr array that is made: sizes of chunks, compressor, version.
    chunks: Option<Vec<u64>>,
    compressor: Option<String>,
    zarr_format: Option<u8>,
    /// Whether an existing result is replaced.
    force: bool,
}

/// A request that was found good, and its plan.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct Job(job::Job);

#[pymethods]
impl Job {
    /// Look at the files and plan.
    #[new]
    fn new(
        py: Python<'_>,
        source: PathBuf,
        pattern: String,
        target: PathBuf,
        options: Options,
    ) -> PyResult<Self> {
        let mut request = Request::new(source, pattern, target);
        request.memory = options.memory;
        if let Some(profile) = device_profile::load() {
            request.mode = Mode::Seconds(profile);
        }
        request.sizes = options.sizes;
        request.chunks = options.chunks;
        request.compressor = options.compressor;
        request.zarr_format = options.zarr_format;
        request.force = options.force;
        if let Some((shape, dtype, offset, is_fortran)) = options.bare {
            request.shape = Some(shape);
            request.dtype = Some(dtype);
            request.offset = offset;
            request.is_fortran = is_fortran;
        }
        let made = py.detach(|| job::Job::new(request));
        made.map(Self).map_err(|error| raised::of_job(py, &error))
    }

    /// Sizes of the dimensions of the result; `None` where it has short tiles.
    #[getter]
    fn shape(&self) -> Option<Vec<u64>> {
        self.0.shape().map(<[u64]>::to_vec)
    }

    /// A message that says which sizes do not divide their dimension, where the result has short
    /// tiles.
    #[getter]
    fn short_tiles(&self) -> Option<&str> {
        self.0.short_tiles()
    }

    /// The type of the items, as numpy writes it.
    #[getter]
    fn descr(&self) -> &str {
        self.0.descr()
    }

    /// Whether the result is a folder of chunks.
    #[getter]
    fn is_zarr(&self) -> bool {
        self.0.is_zarr()
    }

    /// Bytes of all items.
    #[getter]
    fn payload_bytes(&self) -> u64 {
        self.0.payload_bytes()
    }

    /// The seconds that the planner expects.
    #[getter]
    fn seconds(&self) -> f64 {
        self.0.price()
    }

    /// Return the plan as lines of text.
    fn describe(&self) -> Vec<String> {
        self.0.describe()
    }

    /// Return the figures of each pass.
    fn passes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let (figures, record) = self.0.figures();
        let passes = figures.iter().map(|f| {
            let pass = PyDict::new(py);
            pass.set_item("load_bytes", f.load * record)?;
            pass.set_item("segment_bytes", f.segment * record)?;
            pass.set_item("segments", f.segments)?;
            pass.set_item("waste", f.waste)?;
            pass.set_item("flush_bytes", f.flush * record)?;
            pass.set_item("flushes", f.flushes)?;
            pass.set_item("partitions", f.partitions)?;
            Ok(pass)
        });
        passes.collect()
    }

    /// Write the result, complete or not at all, and return the largest number of bytes of buffers
    /// that were held at the same time. Other threads of Python run meanwhile.
    fn run(&self, py: Python<'_>) -> PyResult<u64> {
        let report = interruptible(py, |go_on| self.0.run(go_on))?;
        for warning in &report.warnings {
            raised::warn(py, &warning.in_python())?;
        }
        Ok(report.peak_buffer_bytes)
    }

    /// Write the result to a file without a name and return a descriptor of it.
    fn run_unnamed(&self, py: Python<'_>) -> PyResult<RawFd> {
        let (_, file) = interruptible(py, |go_on| self.0.run_unnamed(go_on))?;
        Ok(file.into_raw_fd())
    }
}

/// Runs an operation that asks whether to continue, and ends it when a signal has a handler that
/// raises.
fn interruptible<T: Send>(
    py: Python<'_>,
    run: impl FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<T> + Send,
) -> PyResult<T> {
    let signal = Mutex::new(None);
    let done = py.detach(|| {
        let mut asked = Instant::now();
        run(&mut |_| {
            if asked.elapsed() < TICK {
                return true;
            }
            asked = Instant::now();
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => true,
                Err(error) => signal.lock().map(|mut kept| kept.replace(error)).is_err(),
            }
        })
    });
    match (done, signal.into_inner()) {
        (_, Ok(Some(error))) => Err(error),
        (Ok(done), _) => Ok(done),
        (Err(error), _) => Err(raised::of_job(py, &error)),
    }
}
