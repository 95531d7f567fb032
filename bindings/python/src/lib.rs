//! The native half of the Python package `esker`: the store, jobs that rearrange arrays, and
//! simulated SSDs.
//!
//! Code that does not run for every entry (defaults, sizes as text, figures as classes, results as
//! arrays) is written in Python, in `python/esker`; this crate has the calls into `esker`,
//! `esker-permute` and `esker-flash`, which release the interpreter while they work.
//!
//! | file | one idea |
//! |---|---|
//! | `buffer` | keys and values as Python gives them |
//! | `fork` | state that a child by `fork` must not use |
//! | `store` | an open store and its shared state, turns of keys, the end of the interpreter |
//! | `reads`, `keyspace` | mappings |
//! | `operator` | merge operators |
//! | `backup` | backups |
//! | `history` | keyspaces at earlier versions, and the changes of a key |
//! | `diff` | what happened between two versions |
//! | `batch`, `snapshot`, `transaction` | objects that are made from a store |
//! | `range` | iterators, in runs |
//! | `values` | values as streams |
//! | `ttl` | times to live |
//! | `stats` | figures |
//! | `job` | rearranging |
//! | `ssd` | simulated SSDs |
//! | `raised` | errors as exceptions |

mod backup;
mod batch;
mod buffer;
mod diff;
mod fork;
mod history;
mod job;
mod keyspace;
mod operator;
mod raised;
mod range;
mod reads;
mod snapshot;
mod ssd;
mod stats;
mod store;
mod transaction;
mod ttl;
mod values;

use pyo3::prelude::*;

/// The module `esker._esker`.
#[pymodule]
fn _esker(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<store::Store>()?;
    module.add_class::<reads::Reads>()?;
    module.add_class::<keyspace::Keyspace>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<snapshot::KeyspaceView>()?;
    module.add_class::<history::PastKeyspace>()?;
    module.add_class::<history::Changes>()?;
    module.add_class::<diff::KeyChanges>()?;
    module.add_class::<diff::Diff>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::TransactionKeyspace>()?;
    module.add_class::<range::Range>()?;
    module.add_class::<values::ValueReader>()?;
    module.add_class::<values::ValueWriter>()?;
    module.add_class::<job::Job>()?;
    module.add_function(wrap_pyfunction!(store::close_all, module)?)?;
    module.add_function(wrap_pyfunction!(backup::back_up, module)?)?;
    module.add_function(wrap_pyfunction!(backup::restore, module)?)?;
    module.add_function(wrap_pyfunction!(backup::check_backup, module)?)?;
    module.add_function(wrap_pyfunction!(job::parse_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(ssd::simulate_ssd, module)?)?;
    Ok(())
}
