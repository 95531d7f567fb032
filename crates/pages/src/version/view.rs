//! Page lookup for readers: the places of the pages of a reader's version.
//!
//! With single slots a page never moves, and a reader keeps the root that it began with. Garbage
//! collection moves pages and replaces the root by one with the new places: readers then ask for
//! the root at each read, and hold it for the duration of the read. The old places are not reused
//! before the last holder of the old root has dropped it, so neither readers nor the collection
//! wait.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::version::map::Root;

/// The root that a version has now, shared by its readers.
pub(crate) type Current = Arc<RwLock<Arc<Root>>>;

/// A reader's way to its root.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// Its pages stay where they are.
    Fixed(Arc<Root>),
    /// Its pages may move.
    Moving(Current),
}

impl View {
    /// The root as it is now. Its places are not used again while the answer lives.
    pub(crate) fn root(&self) -> Held<'_> {
        match self {
            Self::Fixed(root) => Held::Fixed(root),
            Self::Moving(current) => Held::Moving(Arc::clone(&current.read())),
        }
    }
}

/// A root whose places do not change.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    Fixed(&'a Root),
    Moving(Arc<Root>),
}

impl Deref for Held<'_> {
    type Target = Root;

    fn deref(&self) -> &Root {
        match self {
            Self::Fixed(root) => root,
            Self::Moving(root) => root,
        }
    }
}
