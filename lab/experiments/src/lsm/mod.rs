//! The merge policies of the LSM index against each other: the experiments of Thonangi's thesis
//! (chapter 5), on a model of its tree that counts blocks.
//!
//! Reading order: [`block`] and [`join`] (blocks, and merges that keep them), [`model`] (the tree)
//! with [`meter`] (what Mixed learns from); [`policy`] (the policies), [`phases`] (one run) and
//! [`judge`] (what predictions have in common); then the experiments: [`sizes`], [`keys`],
//! [`levels`], [`load`], [`payload`], [`spread`], [`loosened`]; and, on the index itself, [`index`]
//! and [`adaptive`], which is about scans.

pub mod adaptive;
pub mod block;
pub mod index;
pub mod join;
pub mod judge;
pub mod keys;
pub mod levels;
pub mod load;
pub mod loosened;
pub mod meter;
pub mod model;
pub mod payload;
pub mod phases;
pub mod policy;
pub mod sizes;
pub mod spread;
