//! The task that moves pages, and the places that pages were moved from.

use std::sync::Weak;

use crate::place::Sector;
use crate::version::map::Root;

/// The task that moves pages while commits continue; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    None,
    /// Garbage collection, which copies what lives in this row just now.
    Collector(Option<u32>),
    /// The file is being made shorter.
    Squeeze,
}

impl Mover {
    pub(crate) fn is_any(self) -> bool {
        self != Self::None
    }

    /// The row that is being emptied.
    pub(crate) fn row(self) -> Option<u32> {
        if let Self::Collector(row) = self { row } else { None }
    }
}

/// Places that pages were moved from.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) places: Vec<Sector>,
    /// The roots that led to them.
    pub(crate) roots: Vec<Weak<Root>>,
}

impl Retired {
    /// Whether a reader may still use the old places.
    pub(crate) fn is_held(&self) -> bool {
        self.roots.iter().any(|root| root.strong_count() > 0)
    }
}
