//! Esker's index kinds. Each is a folder; none knows another.
//!
//! [`fdtree`]: the FD+tree (Thonangi, Babu and Yang, CIKM 2012).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod fdtree;
