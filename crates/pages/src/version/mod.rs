//! Versions: which page is where in each, and what is freed when one is released.
//!
//! Reading order: [`versions`] (the list of readable versions), [`mapping`] (where a
//! page is), [`tree`] and [`map`] (where all pages of a version are), [`delta`] (pages with few
//! changed bytes), [`node`] (the bytes of a map's nodes), [`view`] (how a reader finds its pages),
//! [`relocate`] (the maps after pages were moved).

pub(crate) mod delta;
pub(crate) mod map;
pub(crate) mod mapping;
pub(crate) mod node;
pub(crate) mod relocate;
pub(crate) mod tree;
pub(crate) mod versions;
pub(crate) mod view;
