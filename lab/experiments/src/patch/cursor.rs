//! Reading in the order of keys: of a sorted list of tables, and of several such lists at once.

use std::cmp::Ordering;
use std::sync::Arc;

use super::block::Record;
use super::table::{Reader, Table};
use crate::Result;

/// A place in tables that follow each other.
#[derive(Debug)]
pub struct Cursor<'a> {
    tables: &'a [Arc<Table>],
    table: usize,
    fence: usize,
    records: Arc<Vec<Record>>,
    at: usize,
    to: usize,
}

impl<'a> Cursor<'a> {
    /// The first record from a key on.
    ///
    /// # Errors
    /// Those of reading.
    pub fn seek(tables: &'a [Arc<Table>], key: &[u8], reader: &mut Reader) -> Result<Self> {
        let table = tables.partition_point(|table| table.last.as_slice() < key);
        let fence = tables.get(table).and_then(|table| table.fences.find(key)).unwrap_or(0);
        let mut cursor = Self { tables, table, fence, records: Arc::default(), at: 0, to: 0 };
        cursor.load(reader)?;
        let within = cursor.records.get(cursor.at..cursor.to).unwrap_or_default();
        cursor.at += within.partition_point(|record| record.0.as_slice() < key);
        cursor.skip_ends(reader)?;
        Ok(cursor)
    }

    /// The record here; `None` at the end.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.records.get(self.at..self.to).and_then(<[Record]>::first)
    }

    /// Goes to the next record.
    ///
    /// # Errors
    /// Those of reading.
    pub fn advance(&mut self, reader: &mut Reader) -> Result<()> {
        self.at += 1;
        self.skip_ends(reader)
    }

    /// Reads what is behind the present fence.
    fn load(&mut self, reader: &mut Reader) -> Result<()> {
        (self.at, self.to) = (0, 0);
        let Some(table) = self.tables.get(self.table) else { return Ok(()) };
        let Some(block) = table.block(self.fence) else { return Ok(()) };
        self.records = reader.block(block)?;
        let (start, end) = (table.fences.key(self.fence), table.fences.end(self.fence));
        let before = |key: &[u8]| self.records.partition_point(|record| record.0.as_slice() < key);
        (self.at, self.to) = (before(start), end.map_or(self.records.len(), before));
        Ok(())
    }

    /// Goes on until there is a record here, or no table any more.
    fn skip_ends(&mut self, reader: &mut Reader) -> Result<()> {
        while self.at >= self.to {
            let Some(table) = self.tables.get(self.table) else { return Ok(()) };
            self.fence += 1;
            if self.fence >= table.fences.len() {
                (self.table, self.fence) = (self.table + 1, 0);
            }
            self.load(reader)?;
        }
        Ok(())
    }
}

/// Several cursors, the newest data first: of equal keys the first one counts.
#[derive(Debug)]
pub struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
}

impl<'a> Merge<'a> {
    /// A merge of these.
    #[must_use]
    pub const fn new(cursors: Vec<Cursor<'a>>) -> Self {
        Self { cursors }
    }

    /// The next record, tombstones included.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next(&mut self, reader: &mut Reader) -> Result<Option<Record>> {
        let mut least: Option<&Record> = None;
        for record in self.cursors.iter().filter_map(Cursor::record) {
            if least.is_none_or(|least| record.0 < least.0) {
                least = Some(record);
            }
        }
        let Some(least) = least.cloned() else { return Ok(None) };
        for cursor in &mut self.cursors {
            if cursor.record().is_some_and(|record| record.0 == least.0) {
                cursor.advance(reader)?;
            }
        }
        Ok(Some(least))
    }
}

/// Hands the records of a list and of a cursor, up to the end of its tables, to `see`, in the order
/// of keys; of equal keys that of the list.
///
/// # Errors
/// Those of reading, and of `see`.
pub fn merge_with(
    newer: &[Record],
    older: &mut Cursor<'_>,
    reader: &mut Reader,
    see: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    let mut newer = newer.iter().peekable();
    loop {
        let order = match (newer.peek(), older.record()) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(newer), Some(older)) => newer.0.cmp(&older.0),
        };
        match (order, older.record()) {
            (Ordering::Greater, Some(record)) => see(record)?,
            _ => {
                if let Some(record) = newer.next() {
                    see(record)?;
                }
            }
        }
        if order != Ordering::Less {
            older.advance(reader)?;
        }
    }
}
