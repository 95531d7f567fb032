//! Power cuts: which operation is interrupted, and what it leaves.

use crate::error::{Error, Result};

/// What the interrupted operation leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// A torn page; after an erase, all pages of the block are torn.
    Torn,
    /// A torn page; after an erase, every second page of the block still has its old contents.
    Partial,
    /// The operation ended, and its caller did not learn it.
    Whole,
}

impl Cut {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Torn, Self::Partial, Self::Whole];
}

/// Whether there is power, and when it will be cut.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Power {
    is_off: bool,
    /// Programs and erases that still succeed, and what happens then.
    planned: Option<(u64, Cut)>,
}

impl Power {
    pub(super) const fn cut_after(&mut self, operations: u64, cut: Cut) {
        self.planned = Some((operations, cut));
    }

    pub(super) const fn on(&mut self) {
        self.is_off = false;
        self.planned = None;
    }

    pub(super) const fn is_planned(&self) -> bool {
        self.planned.is_some()
    }

    #[inline]
    pub(super) const fn require(&self) -> Result<()> {
        if self.is_off { Err(Error::PowerCut) } else { Ok(()) }
    }

    /// Counts a program or an erase that begins; answers what is left of it if it is interrupted.
    #[inline]
    pub(super) const fn begin(&mut self) -> Option<Cut> {
        match self.planned {
            None => None,
            Some((0, cut)) => {
                self.is_off = true;
                self.planned = None;
                Some(cut)
            }
            Some((operations, cut)) => {
                self.planned = Some((operations - 1, cut));
                None
            }
        }
    }
}
