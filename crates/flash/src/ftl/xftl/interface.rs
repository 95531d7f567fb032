//! The layer behind the traits of all layers.

use crate::error::{Error, Result};
use crate::ftl::transactional::{self, NONE, account};
use crate::ftl::xftl::layer::XFtl;
use crate::ftl::{Ftl, HostCounters, Transactional, TxId, Wear, wear};
use crate::nand::{Lpn, Nand};

impl<N: Nand> Ftl for XFtl<N> {
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
        self.read_at(self.mapped(lpn), lpn, data)
    }

    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.write_plain(lpn, data)
    }

    fn trim(&mut self, lpn: Lpn) -> Result<()> {
        self.trim_plain(lpn)
    }

    fn flush(&mut self) -> Result<()> {
        self.host.flushes += 1;
        self.save()?;
        self.level()
    }

    fn host(&self) -> HostCounters {
        self.host
    }

    fn wear(&self) -> Wear {
        wear::summary(&self.store.nand, 1)
    }

    fn ram_bytes(&self) -> u64 {
        let map = u64::from(self.options.logical_pages) * 4;
        let table = u64::from(self.options.table_entries) * 16;
        self.store.nand.ram_bytes() + self.store.space.ram_bytes() + map + table
    }

    fn check(&self) -> Result<()> {
        self.table.check(&self.main).map_err(Error::Invariant)?;
        let main = (0u32..).map(Lpn).zip(self.main.iter().copied());
        let main = main.filter(|(_, ppn)| *ppn != NONE);
        account::check_pages(&self.store.space, main.chain(self.table.open_pages()))?;
        let meta = self.ring.blocks().chain(self.map.blocks());
        account::check_meta(&self.store.space, meta)
    }
}

impl<N: Nand> Transactional for XFtl<N> {
    fn begin(&mut self) -> Result<TxId> {
        Ok(TxId(self.table.begin()))
    }

    /// Reads the transaction's own write, or what is committed now: there is no snapshot.
    fn read_in(&mut self, tx: TxId, lpn: Lpn, data: &mut [u8]) -> Result<bool> {
        self.require_open(tx.0)?;
        self.require(lpn)?;
        let ppn = self.table.own(tx.0, lpn).unwrap_or(self.mapped(lpn));
        self.read_at(ppn, lpn, data)
    }

    /// Refused with [`Error::Refused`] when the table is full; the transaction stays open.
    fn write_in(&mut self, tx: TxId, lpn: Lpn, data: &[u8]) -> Result<()> {
        self.require_open(tx.0)?;
        self.write_open(tx.0, lpn, data)
    }

    fn commit(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        self.commit_writer(tx.0)
    }

    fn abort(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        self.abort_writer(tx.0);
        Ok(())
    }

    fn end(&mut self, tx: TxId) -> Result<()> {
        self.require_open(tx.0)?;
        if self.table.written(tx.0) > 0 {
            return Err(transactional::wrote(tx.0));
        }
        self.abort_writer(tx.0);
        Ok(())
    }
}
