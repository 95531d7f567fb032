//! The key-value store for C: what `include/esker.h` declares.
//!
//! Reading order: [`handle`] (the table of handles, and how a foreign one is detected), [`error`]
//! (codes, messages, panics), [`bytes`] (arguments and results), then the handles: [`db`],
//! [`follow`], [`keyspace`], [`batch`], [`snapshot`], [`range`], [`history`], [`diff`], [`named`],
//! [`transaction`], [`value`].
//!
//! Every function returns a code, and on failure an error object if the caller asks for one. A
//! panic never crosses the boundary. Handles are numbers in a table, not addresses: null ones,
//! those of another kind, those that were freed and pointers to anything else are refused.
//!
//! Assumptions in every call: a pointer to something other than a handle is null, or points to a
//! value of its type that stays valid for the call; a handle is not freed while another thread uses
//! it; batches, ranges, changes, diffs, transactions, readers and writers are used by one thread at
//! a time.

#![expect(unsafe_code, reason = "the interface is one of C")]
#![expect(non_camel_case_types, reason = "these are the names that C programs see")]

pub mod backup;
pub mod batch;
pub mod bytes;
pub mod db;
pub mod diff;
pub mod error;
pub mod follow;
pub mod handle;
pub mod history;
pub mod keyspace;
pub mod named;
pub mod range;
pub mod snapshot;
pub mod transaction;
pub mod value;
