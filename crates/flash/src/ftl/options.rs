//! What a layer can be told.

use super::policy::Policy;
use crate::error::{Result, invalid};
use crate::nand::Geometry;

/// The settings that all layers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Spare pages for each 1,000 logical pages: 70 is 7 %. Pages of open blocks, of one that is
    /// being emptied and of the reserve are not spare, and neither are those of the layer's own
    /// map: they come on top.
    pub spare_permille: u32,
    /// How garbage collection chooses its victims.
    pub policy: Policy,
    /// Free blocks of each die that only garbage collection may use, 1 or more. One is enough
    /// while the power stays on; others absorb the pages that power cuts tear, one a cut, until a
    /// collection ends.
    pub reserve_blocks: u32,
    /// Static wear levelling moves the content of the least erased block of a die when another
    /// was erased this much more often.
    pub wear_spread: u32,
    /// Streams of host writes, 1 or more. Each has an open block in each die, which is not spare:
    /// a layer with n streams has n - 1 data blocks fewer in each die. Only the page-mapped layer
    /// has more than one; the others ignore this.
    pub streams: u32,
    /// The seed of policies that choose at random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spare_permille: 70,
            policy: Policy::Greedy,
            reserve_blocks: 2,
            wear_spread: 100,
            streams: 1,
            seed: 0,
        }
    }
}

impl Options {
    /// How many pages of each die may hold data at once, for a layer that keeps `set_aside` blocks
    /// of each die open, being emptied or for itself, besides the reserve.
    ///
    /// # Errors
    /// No reserve, or fewer blocks than are set aside and in reserve: says how many are needed.
    pub fn data_pages_per_die(&self, geometry: &Geometry, set_aside: u32) -> Result<u32> {
        if self.reserve_blocks == 0 {
            return invalid("no reserve blocks: garbage collection needs 1 or more");
        }
        let needed = u64::from(self.reserve_blocks) + u64::from(set_aside) + 1;
        let blocks = geometry.blocks_per_die();
        if u64::from(blocks) < needed {
            let what = format!("{blocks} blocks in a die: this layer needs {needed} or more");
            return invalid(what);
        }
        let usable = (blocks - self.reserve_blocks - set_aside) * geometry.pages_per_block();
        let data = u64::from(usable) * 1_000 / (1_000 + u64::from(self.spare_permille));
        if data == 0 {
            let spare = self.spare_permille;
            return invalid(format!("{spare} permille spare leave no page for data: use less"));
        }
        Ok(u32::try_from(data).unwrap_or(usable))
    }
}
