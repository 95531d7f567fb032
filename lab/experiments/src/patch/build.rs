//! Writing tables: records in the order of keys into fresh blocks.

use super::block::{Packed, Packer, Record, weight_of};
use super::pager::Edit;
use super::table::{Block, Table};
use crate::Result;

/// Bytes of pages that were written for tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Of blocks.
    pub data: u64,
    /// Of indexes.
    pub index: u64,
}

impl Edit<'_> {
    /// Writes a block.
    ///
    /// # Errors
    /// Those of the store.
    pub fn add_block(&mut self, packed: &Packed, written: &mut Pages) -> Result<Block> {
        let span = self.add(&packed.bytes)?;
        written.data += u64::from(span.pages) * self.page_bytes() as u64;
        Ok(Block { span, weight: packed.weight, live: packed.weight })
    }

    /// Writes the index of a table.
    ///
    /// # Errors
    /// Those of the store.
    pub fn add_index(&mut self, table: &mut Table, written: &mut Pages) -> Result<()> {
        table.index = self.add(&table.encode())?;
        written.index += u64::from(table.index.pages) * self.page_bytes() as u64;
        Ok(())
    }
}

/// Tables as they are written; those that are finished have neither number nor slot yet.
#[derive(Debug)]
pub struct Builder {
    packer: Packer,
    /// The first key of the block that is being filled.
    first: Vec<u8>,
    table: Table,
    weight: u64,
    /// The weight from which on a table is finished.
    most: u64,
    done: Vec<Table>,
    /// What was written.
    pub written: Pages,
}

impl Builder {
    /// Writes tables of about this weight.
    #[must_use]
    pub fn new(page_bytes: usize, most: u64) -> Self {
        Self {
            packer: Packer::new(page_bytes),
            first: Vec::new(),
            table: Table::default(),
            weight: 0,
            most,
            done: Vec::new(),
            written: Pages::default(),
        }
    }

    /// Appends a record, whose key is greater than all before.
    ///
    /// # Errors
    /// Those of the store.
    pub fn push(&mut self, edit: &mut Edit<'_>, record: &Record) -> Result<()> {
        if self.weight >= self.most {
            self.end_table(edit)?;
        }
        let (key, value) = record;
        if let Some(full) = self.packer.push(key, value.as_deref()) {
            self.add(edit, &full)?;
            self.first.clone_from(key);
        }
        if self.weight == 0 {
            self.first.clone_from(key);
        }
        self.weight += weight_of(record);
        self.table.last.clone_from(key);
        Ok(())
    }

    fn add(&mut self, edit: &mut Edit<'_>, packed: &Packed) -> Result<()> {
        let block = edit.add_block(packed, &mut self.written)?;
        self.table.fences.push(&self.first, self.table.blocks.len() as u32);
        self.table.blocks.push(block);
        Ok(())
    }

    fn end_table(&mut self, edit: &mut Edit<'_>) -> Result<()> {
        if let Some(packed) = self.packer.finish() {
            self.add(edit, &packed)?;
        }
        if self.weight > 0 {
            let mut table = std::mem::take(&mut self.table);
            edit.add_index(&mut table, &mut self.written)?;
            self.done.push(table);
        }
        self.weight = 0;
        Ok(())
    }

    /// The tables, and what was written.
    ///
    /// # Errors
    /// Those of the store.
    pub fn finish(mut self, edit: &mut Edit<'_>) -> Result<(Vec<Table>, Pages)> {
        self.end_table(edit)?;
        Ok((self.done, self.written))
    }
}

/// The weight at which tables are cut, so that records of `all` make tables of equal weights near
/// `target`.
#[must_use]
pub fn cut(all: u64, target: u64) -> u64 {
    let tables = (all + target / 2) / target.max(1);
    all.div_ceil(tables.max(1)).max(1)
}

/// Records sorted into blocks, in memory, and the number of the block of each, counted from
/// `first`; tombstones are records too.
#[must_use]
pub fn packed(records: &[&Record], page_bytes: usize, first: u32) -> (Vec<Packed>, Vec<u32>) {
    let mut packer = Packer::new(page_bytes);
    let (mut blocks, mut numbers) = (Vec::new(), Vec::with_capacity(records.len()));
    for (key, value) in records {
        blocks.extend(packer.push(key, value.as_deref()));
        numbers.push(first + blocks.len() as u32);
    }
    blocks.extend(packer.finish());
    (blocks, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_cut_evenly() {
        assert_eq!(cut(0, 100), 1);
        assert_eq!(cut(90, 100), 90);
        assert_eq!(cut(149, 100), 149);
        assert_eq!(cut(151, 100), 76);
        assert_eq!(cut(1000, 100), 100);
    }
}
