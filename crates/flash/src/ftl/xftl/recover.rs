//! A new device, and a restart.
//!
//! A restart reads the pages of the map, and puts the committed entries of the newest whole table
//! on top that are newer. Entries of open transactions are dropped.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::ftl::HostCounters;
use crate::ftl::scan::erase_all;
use crate::ftl::transactional::scan::{self, Found};
use crate::ftl::xftl::layer::{Activity, Options, XFtl};
use crate::ftl::xftl::table::{self, ENTRY_BYTES, Entry, Table};
use crate::nand::Nand;

impl<N: Nand> XFtl<N> {
    /// An empty device; erases what is not.
    ///
    /// # Errors
    /// Options that do not fit the device, and those of the flash.
    pub fn format(mut nand: N, options: Options) -> Result<Self> {
        options.require(nand.geometry())?;
        erase_all(&mut nand)?;
        Self::recover(nand, options)
    }

    /// Reopens a device, with the options of its format. What is on flash is not changed, except
    /// that blocks without anything that counts are erased.
    ///
    /// # Errors
    /// Options that do not fit the device, pages that this layer does not write, and those of the
    /// flash.
    pub fn recover(mut nand: N, options: Options) -> Result<Self> {
        options.require(nand.geometry())?;
        let mut found: Found<ENTRY_BYTES> =
            scan::scan(&mut nand, table::MAGIC, options.logical_pages)?;
        let mut table = Table::new(options.table_entries as usize);
        let mut changed = Vec::new();
        let newest = found.last_record;
        for bytes in found.records.pop().map(|record| record.entries).unwrap_or_default() {
            let entry = Entry::unpack(bytes);
            let Some(sequence) = entry.committed else { continue };
            if found.is_newer(entry.lpn, sequence) {
                found.apply(entry.lpn, entry.ppn)?;
                // Also beyond the limit: the next table on flash must have all of them.
                table.note_moved(entry.lpn, entry.ppn, sequence);
                changed.push(entry.lpn);
            }
        }
        let (store, ring, map, main) = found.build(nand, options.collection)?;
        let changed: BTreeSet<u32> = changed.into_iter().map(|lpn| map.index_of(lpn)).collect();
        let page = vec![0; store.page_size()];
        let (host, activity) = (HostCounters::default(), Activity::default());
        let (is_unsaved, is_overfull) = (false, table.entries() > table.limit());
        Ok(Self {
            store,
            table,
            main,
            ring,
            map,
            changed,
            is_unsaved,
            is_overfull,
            newest,
            host,
            options,
            activity,
            page,
        })
    }
}
