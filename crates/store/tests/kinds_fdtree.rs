//! The tests of `kinds` for keyspaces with FD+trees.

mod common;
mod kinds;
