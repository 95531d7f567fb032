//! SQLite without a journal: a loadable extension over Esker's versioned page store.
//!
//! SQLite keeps its files through a VFS. This one keeps a database in a store of versions
//! (`esker-flash`): every reader has a snapshot and waits for nobody, a commit is one record and
//! one sync, and there is neither a log that grows behind readers nor a checkpoint that stalls.
//! SQLite itself is as it is: it works in rollback-journal mode, and its journal stays in memory.
//!
//! Reading order: [`connection`] (what each call of the pager becomes), `pages`, [`header`],
//! [`journal`], [`kept`] (the journal of a connection), [`pragma`],
//! [`open_stores`] (connections of a process share a store), [`queue`] (whose turn it is to write),
//! [`waiting`] (who waits for it), [`code`], `ffi` (the border to C); [`planted`] (bugs that the
//! tests must find), `test_mount` (stores that are no files, for tests).

pub mod code;
pub mod connection;
mod ffi;
pub mod header;
pub mod journal;
pub mod kept;
pub mod open_stores;
mod pages;
pub mod planted;
pub mod pragma;
pub mod queue;
#[cfg(feature = "testing")]
pub mod test_mount;
pub mod waiting;

#[cfg(feature = "linked")]
pub use ffi::{
    counted::{count_syncs, syncs},
    linked::link,
};
