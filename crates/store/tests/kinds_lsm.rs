//! The tests of `kinds` for keyspaces with LSM indexes.

mod common;
mod kinds;
