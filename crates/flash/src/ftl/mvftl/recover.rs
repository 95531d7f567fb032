//! A new device, and a restart.
//!
//! A restart reads the pages of the map, and puts the records of the log on top that are newer
//! (section 3.3). Versions that were read before are gone: D0 is the list. The log is written on
//! where it ended.

use crate::error::Result;
use crate::ftl::HostCounters;
use crate::ftl::mvftl::commit_log;
use crate::ftl::mvftl::layer::{Activity, Dirty, MvFtl, Options};
use crate::ftl::mvftl::versions::Versions;
use crate::ftl::scan::erase_all;
use crate::ftl::transactional::scan::{self, Found};
use crate::nand::Nand;

impl<N: Nand> MvFtl<N> {
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
        let mut found: Found<{ commit_log::MAPPING_BYTES }> =
            scan::scan(&mut nand, commit_log::MAGIC, options.logical_pages)?;
        let mut dirty = Dirty::new(options.logical_pages);
        for record in std::mem::take(&mut found.records) {
            for (lpn, ppn) in commit_log::mappings(&record) {
                dirty.insert(lpn);
                if found.is_newer(lpn, record.sequence) {
                    found.apply(lpn, ppn)?;
                }
            }
        }
        let (store, ring, map, main) = found.build(nand, options.collection)?;
        let mut versions = Versions::new(main, options.diff_bytes as usize);
        let plain = versions.begin(false);
        let page = vec![0; store.page_size()];
        let (host, activity) = (HostCounters::default(), Activity::default());
        Ok(Self { store, versions, ring, map, dirty, plain, host, options, activity, page })
    }
}
