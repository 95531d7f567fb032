//! A block that is being emptied step by step, and how fast.
//!
//! **Pace.** A block with v valid of P pages frees P - v pages for v copies. While it is emptied,
//! the host may write as many pages as it frees: each page of the host is due v / (P - v) copies.
//! So the free pages of a domain stay as they are, and no write waits for more than a few copies.
//! [`COPIES_MAX`] bounds them, and [`WEAR_COPIES_MAX`] those of a cold block, which frees nothing.
//! A block that frees less than it should is finished when the host has no other page.

use crate::nand::{BlockId, Cause};

/// The most copies that a page of the host is due.
pub(super) const COPIES_MAX: u32 = 32;

/// The same for a block whose content is moved because of its wear.
pub(super) const WEAR_COPIES_MAX: u32 = 4;

/// A block between the choice of it and its erase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collecting {
    pub block: BlockId,
    pub cause: Cause,
    /// The index of the page that is looked at next.
    pub next: u32,
    /// The copies that it takes, and the pages of the host that are written meanwhile.
    copies: u32,
    frees: u32,
    /// Copies that are due, in parts of `frees`.
    owed: u32,
}

impl Collecting {
    /// A block with so many valid of all its pages.
    pub fn new(block: BlockId, cause: Cause, valid: u32, pages: u32) -> Self {
        let most = if cause == Cause::Wear { WEAR_COPIES_MAX } else { COPIES_MAX };
        let frees = pages.saturating_sub(valid).max(valid.div_ceil(most)).max(1);
        Self { block, cause, next: 0, copies: valid, frees, owed: 0 }
    }

    /// The host writes a page: the copies that are due before.
    pub fn due(&mut self) -> u32 {
        self.owed += self.copies;
        let due = self.owed / self.frees;
        self.owed %= self.frees;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dues(cause: Cause, valid: u32, writes: u32) -> Vec<u32> {
        let mut collecting = Collecting::new(BlockId(0), cause, valid, 256);
        (0..writes).map(|_| collecting.due()).collect()
    }

    #[test]
    fn a_block_is_empty_when_the_host_has_written_what_it_frees() {
        for valid in [0, 1, 40, 128, 200, 247] {
            let dues = dues(Cause::Gc, valid, 256 - valid);
            assert_eq!(dues.iter().sum::<u32>(), valid);
            let (least, most) = (dues.iter().min().unwrap(), dues.iter().max().unwrap());
            assert!(most - least <= 1, "{dues:?}");
        }
    }

    #[test]
    fn a_block_that_frees_nothing_is_emptied_as_well() {
        for valid in [250, 256] {
            let dues = dues(Cause::Gc, valid, 8);
            assert!(dues.iter().all(|due| (31..=COPIES_MAX).contains(due)), "{dues:?}");
        }
        assert_eq!(dues(Cause::Wear, 256, 64), [WEAR_COPIES_MAX; 64]);
    }
}
