//! The plan of a commit: for each changed page a delta in the record, or the whole page in a slot.

use std::collections::HashMap;

use esker_device::Purpose;

use crate::error::Result;
use crate::log::record::Change;
use crate::place::Sector;
use crate::version::delta;
use crate::version::mapping::Entry;
use crate::version::tree::LEAF;
use crate::writer::{Dirty, Writer};

/// Most bytes of deltas that one leaf of the map keeps: it is written whole by checkpoints.
const LEAF_DELTA_BYTES: i64 = 56 * 1024;
/// The way in which a commit stores a changed page.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// Written whole to a slot that is yet to be found.
    Whole(&'a [u8]),
    /// Known already.
    Done(Change),
}

/// The number of bytes that deltas may still grow by.
struct Room {
    leaf_bytes: i64,
    total: i64,
    leaves: HashMap<u32, i64>,
}

impl Room {
    fn new(writer: &Writer, delta_bytes: i64) -> Self {
        let options = &writer.engine.options;
        let limit = i64::try_from(options.delta_bytes).unwrap_or(i64::MAX);
        let leaf_bytes = LEAF_DELTA_BYTES.min(i64::from(writer.engine.segment_bytes) / 4);
        Self { leaf_bytes, total: limit.saturating_sub(delta_bytes), leaves: HashMap::new() }
    }

    /// The number of bytes that a new delta of a page may have, where its present one has `old`
    /// bytes.
    fn of(&mut self, writer: &Writer, page: u32, old: i64) -> usize {
        let leaf = self.leaves.entry(page / LEAF as u32).or_insert_with(|| {
            let root = writer.base.root();
            let leaf = root.map.leaf(page).filter(|_| !writer.is_new_map);
            leaf.map_or(0, |leaf| leaf.delta_bytes() as i64)
        });
        usize::try_from((self.leaf_bytes - *leaf).min(self.total) + old).unwrap_or(0)
    }

    fn take(&mut self, page: u32, more: i64) {
        *self.leaves.entry(page / LEAF as u32).or_default() += more;
        self.total -= more;
    }
}

/// Memory that planning uses again for each page.
struct Scratch {
    base: Vec<u8>,
    delta: Vec<u8>,
}

impl Writer {
    /// The plan for each changed page. Pages with unchanged contents are left out.
    pub(super) fn plan(&self) -> Result<Vec<(u32, Plan<'_>)>> {
        let mut room = Room::new(self, self.engine.core.lock().delta_bytes);
        let mut plan = Vec::with_capacity(self.dirty.len());
        let mut scratch = Scratch { base: vec![0; self.page_size as usize], delta: Vec::new() };
        for (page, dirty) in &self.dirty {
            match dirty {
                Dirty::Spilled(entry) => plan.push((*page, Plan::Done(Change::Whole(*entry)))),
                Dirty::InMemory(new) => {
                    let planned = self.plan_page(*page, new, &mut scratch, &mut room);
                    plan.extend(planned.map(|planned| (*page, planned)));
                }
            }
        }
        Ok(plan)
    }

    /// Decides between a delta, the whole page, and nothing at all.
    fn plan_page<'a>(
        &self,
        page: u32,
        new: &'a [u8],
        scratch: &mut Scratch,
        room: &mut Room,
    ) -> Option<Plan<'a>> {
        let Scratch { base, delta } = scratch;
        let root = self.base.root();
        let mapping = self.mapping_in(&root, page);
        let known = match mapping.entry {
            Entry { slot: Sector::NONE, .. } => {
                base.fill(0);
                true
            }
            // A page that cannot be read any more is written whole.
            Entry { slot, crc } => self.engine.read_slot(slot, crc, base, Purpose::User).is_ok(),
        };
        let old = mapping.delta.as_ref().map_or(0, |delta| delta.len() as i64);
        let spent = mapping.delta.as_ref().map_or(0, |delta| delta.spent());
        // Deltas that grow by *g* bytes each cost least, with the page that ends them, where they
        // stop after as many bytes as the page has: at a length of sqrt(2 g page).
        let worth = new.len().saturating_sub(spent);
        let limit = room.of(self, page, old).min(new.len() / 2).min(worth);
        delta.clear();
        if known && delta::encode(base, new, limit, delta) {
            if mapping.delta.as_deref().unwrap_or_default() == delta.as_slice() {
                return None;
            }
            room.take(page, delta.len() as i64 - old);
            return Some(Plan::Done(Change::Delta(delta.as_slice().into())));
        }
        room.take(page, -old);
        let is_zeros = new.iter().all(|byte| *byte == 0);
        let hole = Plan::Done(Change::Whole(Entry::default()));
        Some(if is_zeros { hole } else { Plan::Whole(new) })
    }
}
