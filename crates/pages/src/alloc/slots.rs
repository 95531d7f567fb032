//! Allocation by single slots.

use crate::alloc::growth::{aside_for_pages, slack};
use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::log::record::ITEM_BYTES;
use crate::place::{Class, Sector};

impl Engine {
    /// Allocates slots for pages. When the device is full, a checkpoint, whose room is reserved,
    /// may free some.
    pub(crate) fn take_page_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: usize,
        grows: bool,
    ) -> Result<Vec<Sector>> {
        self.reserve_pages(core, class, count as u64, grows)?;
        self.take_slots(core, class, count, 0)
    }

    /// Makes sure that [`Engine::take_page_slots`] finds this many. What makes a database grow
    /// leaves some room to what does not: a full device takes updates and deletions.
    pub(crate) fn reserve_pages(
        &self,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
    ) -> Result<()> {
        if core.space.is_in_order() {
            return self.reserve_in_order(core, class, count, grows, 0);
        }
        let record = core.log.segments_for(count * ITEM_BYTES);
        let keep = aside_for_pages(core, &self.options, self.segment_bytes) + record;
        // What grows must not fill the last slots of segments while there are no others.
        let spare = if grows { keep + slack(core) } else { 0 };
        let ensure = |core: &mut Core| {
            self.ensure_segments(core, spare)?;
            self.ensure_slots(core, class, count, keep.max(spare))
        };
        match ensure(core) {
            Err(Error::Full { .. }) => {
                self.checkpoint_core(core)?;
                ensure(core)
            }
            outcome => outcome,
        }
    }
}
