//! SQLite without a journal on disk: a loadable extension over Esker's versioned page store.
//!
//! SQLite keeps its files through a VFS. This one keeps a database in a versioned page store
//! (`esker-pages`): every reader has a snapshot and never waits, a commit is one record and one
//! sync, and there is neither a log that grows while readers are active nor a checkpoint that
//! stalls. SQLite itself is unchanged: it works in rollback-journal mode, and its journal stays in
//! memory.
//!
//! Reading order: [`connection`] (how each call of the pager is handled), `pages`, [`header`],
//! [`journal`], [`kept`] (the journal of a connection), [`pragma`], [`open_stores`] (the
//! connections of a process share a store), [`queue`] (the order of writers), [`waiting`] (how a
//! connection waits for its turn), [`code`], `ffi` (the boundary to C); [`planted`] (bugs that the
//! tests must find), `test_mount` (stores that are not files, for tests). With the feature
//! `linked`, `hosted` is another VFS altogether: files that a program keeps itself.

pub mod code;
pub mod connection;
mod ffi;
pub mod header;
#[cfg(feature = "linked")]
pub mod hosted;
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
    hosted::{Registered, register},
    linked::link,
};
