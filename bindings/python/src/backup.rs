//! Backups: made of an open store, checked, and made into a store again.

use std::ops::ControlFlow;
use std::path::PathBuf;

use esker::{Backup, BackupProgress, BackupReport, CheckReport, Result};
use pyo3::prelude::*;

use crate::raised;
use crate::store::{Store, detached};

/// Blocks, their bytes, entries; file, offset and text of each problem.
pub(crate) type Checked = (u64, u64, u64, Vec<(String, u64, String)>);

pub(crate) fn checked(report: CheckReport) -> Checked {
    let problems = report.problems.into_iter();
    let problems = problems.map(|of| (of.file, of.offset, of.what)).collect();
    (report.blocks, report.bytes, report.entries, problems)
}

/// Number, run, bytes read, written, reused and held.
type Report = (u64, u64, u64, u64, u64, u64);

/// Runs an operation that copies, and ends it when a signal has a handler that raises.
fn copying<T: Send>(
    py: Python<'_>,
    copy: impl FnOnce(&mut dyn FnMut(&BackupProgress) -> ControlFlow<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut interrupted = None;
    let copied = py.detach(|| {
        copy(&mut |_| match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                interrupted = Some(error);
                ControlFlow::Break(())
            }
        })
    });
    match interrupted {
        Some(error) => Err(error),
        None => copied.map_err(|error| raised::of_store(py, &error)),
    }
}

/// Copy a store, as it is now, into a folder.
#[pyfunction]
pub(crate) fn back_up(py: Python<'_>, store: &Store, path: PathBuf) -> PyResult<Report> {
    let db = store.open().db(py)?;
    let of: BackupReport = copying(py, |progress| db.backup_with(&path, progress))?;
    let bytes = (of.bytes_read, of.bytes_written, of.bytes_reused, of.bytes_total);
    Ok((of.seq, of.run, bytes.0, bytes.1, bytes.2, bytes.3))
}

/// Make a store of a backup.
#[pyfunction]
pub(crate) fn restore(py: Python<'_>, backup: PathBuf, path: PathBuf) -> PyResult<()> {
    copying(py, |progress| Backup::open(&backup)?.restore_with(&path, progress))
}

/// Read all of a backup and verify it.
#[pyfunction]
pub(crate) fn check_backup(py: Python<'_>, path: PathBuf) -> PyResult<Checked> {
    detached(py, || Backup::open(&path)?.check()).map(checked)
}
