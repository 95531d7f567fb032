//! The key-value store for C: what `include/esker.h` declares.
//!
//! Reading order: [`handle`] (what a handle leads to, and how a foreign one is found out),
//! [`error`] (codes, messages, panics), [`bytes`] (what goes in and comes out), then the handles:
//! [`db`], [`keyspace`], [`batch`], [`snapshot`], [`range`], [`transaction`],
//! [`value`].
//!
//! Every function returns a code, and where it fails an error object if the caller asks for one.
//! A panic never crosses the border. Handles are numbers in a table, and no addresses: null ones,
//! those of another kind, those that were given up and pointers to anything else are refused.
//!
//! What is relied on, in every call: a pointer to something else than a handle is null, or leads to
//! what its type says and stays valid for the call; a handle is not given up while another thread
//! uses it; batches, ranges, transactions, readers and writers are used by one thread at a time.

#![expect(unsafe_code, reason = "the interface is one of C")]
#![expect(non_camel_case_types, reason = "these are the names that C programs see")]

pub mod backup;
pub mod batch;
pub mod bytes;
pub mod db;
pub mod error;
pub mod handle;
pub mod keyspace;
pub mod range;
pub mod snapshot;
pub mod transaction;
pub mod value;
