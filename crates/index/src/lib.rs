//! Esker's index kinds.
//!
//! [`fdtree`]: the FD+tree (Thonangi, Babu and Yang, CIKM 2012), and what every kind stands on: the
//! memtable and its runs, views, lookups and scans, which versions stay. [`fdtree::lsm`]: the
//! log-structured merge tree that chooses what it merges (Thonangi's thesis, chapter 5), in the
//! place of the main tree.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod fdtree;
