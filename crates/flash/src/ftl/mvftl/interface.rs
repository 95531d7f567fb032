//! The layer behind the traits of all layers.

use crate::error::{Error, Result};
use crate::ftl::mvftl::layer::MvFtl;
use crate::ftl::transactional::{self, account};
use crate::ftl::{Ftl, HostCounters, Transactional, TxId, Wear, wear};
use crate::nand::{Lpn, Nand};

impl<N: Nand> Ftl for MvFtl<N> {
    fn logical_pages(&self) -> u32 {
        self.options.logical_pages
    }

    fn dyn_nand(&self) -> &dyn Nand {
        &self.store.nand
    }

    fn dyn_nand_mut(&mut self) -> &mut dyn Nand {
        &mut self.store.nand
    }

    fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.require(lpn)?;
        self.read_as(self.plain, lpn, data)
    }

    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.write_as(None, lpn, data)
    }

    fn trim(&mut self, lpn: Lpn) -> Result<()> {
        self.trim_plain(lpn)
    }

    fn flush(&mut self) -> Result<()> {
        self.host.flushes += 1;
        self.commit_plain()
    }

    fn host(&self) -> HostCounters {
        self.host
    }

    fn wear(&self) -> Wear {
        wear::summary(&self.store.nand, 1)
    }

    fn ram_bytes(&self) -> u64 {
        let map = u64::from(self.options.logical_pages) * 4;
        let dirty = u64::from(self.options.logical_pages) / 8;
        let diffs = u64::from(self.options.diff_bytes);
        self.store.nand.ram_bytes() + self.store.space.ram_bytes() + map + dirty + diffs
    }

    fn check(&self) -> Result<()> {
        self.versions.check().map_err(Error::Invariant)?;
        account::check_pages(&self.store.space, self.versions.valid())?;
        let meta = self.ring.blocks().chain(self.map.blocks());
        account::check_meta(&self.store.space, meta)
    }
}

impl<N: Nand> Transactional for MvFtl<N> {
    /// The transaction reads the newest committed version, with plain writes, for as long as it
    /// lasts, whatever is committed in the meantime.
    fn begin(&mut self) -> Result<TxId> {
        self.commit_plain()?;
        Ok(TxId(self.versions.begin(true)))
    }

    fn read_in(&mut self, tx: TxId, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.require_open(tx.0)?;
        self.require(lpn)?;
        self.read_as(tx.0, lpn, data)
    }

    /// Refused with [`Error::Refused`] when there is no memory for the mapping; the transaction
    /// stays open.
    fn write_in(&mut self, tx: TxId, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require_open(tx.0)?;
        self.write_as(Some(tx.0), lpn, data)
    }

    fn commit(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        if self.versions.written(tx.0) > 0 {
            self.commit_plain()?;
        }
        self.commit_writer(tx.0)
    }

    fn abort(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        self.versions.abort(tx.0);
        self.bury();
        Ok(())
    }

    fn end(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        if self.versions.written(tx.0) > 0 {
            return Err(transactional::wrote(tx.0));
        }
        self.versions.abort(tx.0);
        self.bury();
        Ok(())
    }
}
