//! What a lookup reads of buffers, and whether they are emptied after it.

use alloc::vec::Vec;

use crate::adapt::touched;
use crate::buffer::{Buffer, Fragment, SubtreeId, candidates};
use crate::chip::Chip;
use crate::error::{Error, Result};
use crate::options::{Buffering, Scan};
use crate::page::{self, Kind};
use crate::tree::{LaTree, PAGE, Scanned, bottom};

impl<C: Chip> LaTree<C> {
    /// What scanning the fragments of a buffer costs a lookup, in 64ths of a page. A filter says
    /// "maybe" of one in a hundred other keys; a page that has the key spares reading the leaf.
    fn scan_cost(&self, buffer: &Buffer) -> u64 {
        let cost = |fragment: &Fragment| match (self.options.scan, &fragment.filter) {
            (Scan::Whole, _) => PAGE * fragment.pages.len() as u64,
            (Scan::Sorted, None) => PAGE,
            (Scan::Sorted, Some(_)) => 1,
        };
        buffer.fragments.iter().map(cost).sum()
    }

    /// Searches a buffer, the newest operation first. Answers what it says of the key, and what
    /// scanning its fragments costs, if that was necessary.
    #[expect(clippy::option_option, reason = "nothing, a removal, a value")]
    pub(crate) fn scan_buffer(
        &mut self,
        id: SubtreeId,
        key: &[u8],
    ) -> Result<(Option<Option<Vec<u8>>>, u64)> {
        let Some(buffer) = self.table.buffer(id)? else { return Ok((None, 0)) };
        if let Some(value) = buffer.part.find(key) {
            return Ok((Some(value.map(<[u8]>::to_vec)), 0));
        }
        let cost = self.scan_cost(buffer);
        let mut found = None;
        for fragment in buffer.fragments.iter().rev().filter(|fragment| fragment.may_have(key)) {
            let pages = match self.options.scan {
                Scan::Whole => 0..fragment.pages.len(),
                Scan::Sorted => candidates(&fragment.pages, key),
            };
            for page in fragment.pages.get(pages).unwrap_or(&[]).iter().rev() {
                let bytes = self.flash.read(page.at, Kind::Fragment)?;
                self.stats.scanned_pages += 1;
                let entry = page::entries(page::payload(&bytes)).find(|entry| entry.0 == key);
                if let Some((_, value)) = entry {
                    found = Some(value.map(<[u8]>::to_vec));
                    if self.options.scan == Scan::Sorted {
                        break;
                    }
                }
            }
            if found.is_some() {
                return Ok((found, cost));
            }
        }
        Ok((None, cost))
    }

    /// Tells ADAPT of a lookup, and empties what it asks for.
    pub(crate) fn after_lookup(&mut self, key: &[u8], scanned: &Scanned) -> Result<()> {
        if self.options.buffering != Buffering::Adaptive {
            return Ok(());
        }
        let read_ns = self.flash.chip.costs().read_ns;
        let mut paid = Vec::new();
        for (id, cost) in scanned {
            let empty_ns = self.empty_cost_ns(*id)?;
            let mut buffer = self.table.take(*id)?;
            let is_paid = buffer.adapt.looked_up(cost.saturating_mul(read_ns) / PAGE, empty_ns);
            self.table.put_back(*id, buffer)?;
            if is_paid {
                paid.push(*id);
            }
        }
        for id in paid {
            match self.empty(id, key) {
                Ok(done) => self.stats.adaptive_empties += u64::from(done),
                Err(Error::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What emptying a buffer now would cost.
    fn empty_cost_ns(&self, id: SubtreeId) -> Result<u64> {
        let subtree = self.table.get(id)?;
        let Some(buffer) = &subtree.buffer else { return Ok(0) };
        let costs = self.flash.chip.costs();
        let (read, program) = (costs.read_ns, costs.program_ns);
        let pages = buffer.pages() as u64;
        let scan = pages.saturating_mul(read);
        if bottom(subtree.level, self.k()) > 1 {
            return Ok(scan.saturating_add(program.saturating_mul(pages + 1)));
        }
        let leaves = (self.stats.leaves / self.table.len().max(1) as u64).max(1);
        let in_page = (self.flash.capacity() / self.entry_bytes_guess()) as u64;
        let leaves_touched = touched(pages.saturating_mul(in_page), leaves);
        let nodes = read.saturating_mul(leaves_touched + 1);
        let splits = program.saturating_mul(leaves_touched + 1);
        Ok(scan.saturating_add(nodes).saturating_add(splits))
    }

    /// The size of an entry, about: that of 64-bit keys and values.
    fn entry_bytes_guess(&self) -> usize {
        20.min(self.entry_bytes_max())
    }
}
