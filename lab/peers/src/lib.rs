//! Esker and other stores behind one trait, so that they are measured the same way.
//!
//! | module | one idea |
//! |---|---|
//! | [`system`] | what every store can be asked |
//! | [`esker`] | Esker itself |
//! | `rocksdb`, `fjall`, `redb` | peers, each behind the feature of its name |
//! | [`versions`] | stores that keep every version, behind a trait of their own |
//!
//! Each file states its store's settings: the memory budget shared out as its authors recommend,
//! no compression, no durability weaker than Esker's. Peers are off by default: RocksDB needs a
//! library that is fetched, others minutes to build, and what is tested every day is Esker.

pub mod esker;
#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod system;
pub mod versions;

pub use system::{
    Arrangement, Durability, Error, Figures, Held, Name, Result, System, rocksdb_version,
};
