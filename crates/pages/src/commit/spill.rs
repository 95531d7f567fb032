//! A transaction larger than its memory writes pages early, into free slots.
//!
//! No record names such a slot before the commit, so that a crash or an abort leaves only free
//! slots. The commit's record lists it like any other page.

use esker_device::Purpose;

use crate::error::Result;
use crate::place::{Class, Sector};
use crate::version::mapping::Entry;
use crate::writer::{Dirty, Writer};

impl Writer {
    /// Spills pages if another page would exceed the bound.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let bound = self.engine.options.spill_bytes.max(self.page_size.into());
        if self.memory_bytes + u64::from(self.page_size) <= bound {
            return Ok(());
        }
        self.spill()
    }

    /// Writes all pages that are in memory to free slots.
    fn spill(&mut self) -> Result<()> {
        let in_memory = self.dirty.iter().filter_map(|(page, dirty)| match dirty {
            Dirty::InMemory(bytes) => Some((*page, bytes.as_slice())),
            Dirty::Spilled(_) => None,
        });
        let pages: Vec<(u32, &[u8])> = in_memory.collect();
        let Some(class) = Class::holding(self.page_size as usize) else { return Ok(()) };
        let engine = &self.engine;
        engine.check_poison()?;
        let numbers: Vec<u32> = pages.iter().map(|(page, _)| *page).collect();
        let allocation = engine.allocation;
        let taken = {
            let mut core = engine.core.lock();
            allocation.take(engine, &mut core, class, &numbers, self.grows())?
        };
        let mut slots: Vec<(Sector, &[u8])> =
            taken.iter().zip(&pages).map(|(sector, (_, bytes))| (*sector, *bytes)).collect();
        if let Err(error) = allocation.write(engine, &mut slots, Purpose::Flush) {
            let mut core = engine.core.lock();
            core.space.close_rows();
            for sector in taken {
                core.space.free(sector);
            }
            return Err(error);
        }
        let count = pages.len() as u64;
        engine.counters.spilled.add(count * class.bytes());
        engine.counters.spilled_pages.add(count);
        engine.core.lock().unsynced_bytes += count * class.bytes();
        let spilled: Vec<(u32, Entry)> = pages
            .iter()
            .zip(taken)
            .map(|((page, bytes), slot)| (*page, Entry { slot, crc: crc32c::crc32c(bytes) }))
            .collect();
        for (page, entry) in spilled {
            self.replace(page, Dirty::Spilled(entry));
        }
        self.memory_bytes = 0;
        Ok(())
    }
}
