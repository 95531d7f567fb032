//! Compaction of records into a sorted level: rewriting what they overlap, or patching it.
//!
//! To rewrite is what RocksDB does: all tables of the level that the records' range of keys
//! overlaps are merged with them into new ones. To patch, each table takes the records in its range
//! by itself: they go to fresh blocks, and the index of the table is written anew; a table whose
//! dead share would pass the bound is rewritten instead.

use std::ops::Range;
use std::sync::Arc;

use super::block::{Packed, Record, weight_of};
use super::build::{Builder, Pages, cut, packed};
use super::cursor::{Cursor, merge_with};
use super::fences::{Dirty, NOWHERE, Patched};
use super::pager::{Edit, Span};
use super::table::{Block, Reader, Table};
use crate::Result;

/// How a level is compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// d: the most weight of dead records in a table over that of its live ones; `None` rewrites.
    pub dead_share: Option<f64>,
    /// The weight of a table.
    pub table_bytes: u64,
}

/// What happened to tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Written by rewriting.
    pub rewritten: Pages,
    /// Written by patching.
    pub patched: Pages,
    /// Tables that were merged into new ones.
    pub rewrites: u64,
    /// Tables that were patched.
    pub patches: u64,
}

/// What takes the place of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The table, patched.
    Patched(Table),
    /// New tables, without numbers and slots.
    Rewritten(Vec<Table>),
}

/// Tables of a level, by their places, in order, and what takes their place.
pub type Replaced = Vec<(Range<usize>, Outcome)>;

impl Counts {
    /// Adds what happened to other tables.
    pub fn add(&mut self, more: &Self) {
        self.rewritten.data += more.rewritten.data;
        self.rewritten.index += more.rewritten.index;
        self.patched.data += more.patched.data;
        self.patched.index += more.patched.index;
        self.rewrites += more.rewrites;
        self.patches += more.patches;
    }
}

/// Whether a table is patched: its dead stay within the bound, it does not grow to twice its size,
/// and the patch writes less than the table anew would. All but the first are weights, or bytes.
#[must_use]
pub fn is_patched(settings: &Settings, dead: u64, live: u64, writes: u64) -> bool {
    let Some(share) = settings.dead_share else { return false };
    dead as f64 <= share * live as f64 && live <= 2 * settings.table_bytes && writes < live
}

/// A compaction under way.
#[derive(Debug)]
pub struct Compaction<'a, 'b> {
    /// Where it writes.
    pub edit: &'a mut Edit<'b>,
    /// What it reads: the version before.
    pub reader: Reader,
    /// How it is done.
    pub settings: Settings,
    /// Whether nothing older is below the level: tombstones then need not be kept.
    pub is_last: bool,
    /// What was done.
    pub counts: Counts,
}

impl Compaction<'_, '_> {
    /// Brings records, in the order of keys, into the tables of a level. What it writes is not
    /// durable yet.
    ///
    /// # Errors
    /// Those of the store.
    pub fn run(&mut self, records: &[Record], level: &[Arc<Table>]) -> Result<Replaced> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(Vec::new());
        };
        let from = level.partition_point(|table| table.last.as_slice() < first.0.as_slice());
        let to = level.partition_point(|table| table.first() <= last.0.as_slice());
        if self.settings.dead_share.is_none() || level.is_empty() {
            let tables = from..to.max(from);
            let new = self.rewrite(level.get(tables.clone()).unwrap_or_default(), records)?;
            return Ok(vec![(tables, Outcome::Rewritten(new))]);
        }
        self.patch_each(records, level)
    }

    /// Patches each table that has some of the records in its range, or rewrites it, with its
    /// neighbours that are rewritten too.
    fn patch_each(&mut self, records: &[Record], level: &[Arc<Table>]) -> Result<Replaced> {
        let mut replaced = Replaced::new();
        // Tables to rewrite, and the records for them: both follow each other.
        let mut rewritten: Option<(Range<usize>, Range<usize>)> = None;
        let mut at = 0;
        while let Some(record) = records.get(at) {
            let owner = level.partition_point(|table| table.first() <= record.0.as_slice());
            let owner = owner.saturating_sub(1);
            let end = level.get(owner + 1).map_or(records.len(), |next| {
                records.partition_point(|record| record.0.as_slice() < next.first())
            });
            let end = end.max(at + 1);
            let Some(table) = level.get(owner) else { break };
            let own = records.get(at..end).unwrap_or_default();
            let patch = self.patch(table, own)?;
            if patch.is_some() || rewritten.as_ref().is_some_and(|(to, _)| to.end != owner) {
                self.rewrite_range(rewritten.take(), records, level, &mut replaced)?;
            }
            match patch {
                Some(new) => replaced.push((owner..owner + 1, Outcome::Patched(new))),
                None => match &mut rewritten {
                    Some((tables, of)) => (tables.end, of.end) = (owner + 1, end),
                    None => rewritten = Some((owner..owner + 1, at..end)),
                },
            }
            at = end;
        }
        self.rewrite_range(rewritten, records, level, &mut replaced)?;
        Ok(replaced)
    }

    fn rewrite_range(
        &mut self,
        range: Option<(Range<usize>, Range<usize>)>,
        records: &[Record],
        level: &[Arc<Table>],
        replaced: &mut Replaced,
    ) -> Result<()> {
        let Some((tables, of)) = range else { return Ok(()) };
        let (old, newer) = (level.get(tables.clone()), records.get(of));
        let new = self.rewrite(old.unwrap_or_default(), newer.unwrap_or_default())?;
        replaced.push((tables, Outcome::Rewritten(new)));
        Ok(())
    }

    /// Merges tables with newer records into new tables.
    fn rewrite(&mut self, old: &[Arc<Table>], newer: &[Record]) -> Result<Vec<Table>> {
        let live: u64 = old.iter().map(|table| table.live()).sum();
        let all = live + newer.iter().map(weight_of).sum::<u64>();
        let most = cut(all, self.settings.table_bytes);
        let mut builder = Builder::new(self.edit.page_bytes(), most);
        let mut cursor = Cursor::seek(old, &[], &mut self.reader)?;
        let (edit, is_last) = (&mut *self.edit, self.is_last);
        merge_with(newer, &mut cursor, &mut self.reader, &mut |record| {
            if is_last && record.1.is_none() { Ok(()) } else { builder.push(edit, record) }
        })?;
        for span in old.iter().flat_map(|table| table.spans()) {
            self.edit.release(span);
        }
        let (tables, written) = builder.finish(self.edit)?;
        self.counts.rewrites += old.len() as u64;
        self.counts.rewritten.data += written.data;
        self.counts.rewritten.index += written.index;
        Ok(tables)
    }

    /// The table with the records in it, if it is to be patched: nothing is written otherwise.
    fn patch(&mut self, table: &Table, records: &[Record]) -> Result<Option<Table>> {
        let (packed, patched) = self.fences_with(table, records)?;
        let Some(mut new) = self.patched_table(table, records, &patched) else { return Ok(None) };
        let place = |packed: &Packed| Block {
            span: Span::default(),
            weight: packed.weight,
            live: packed.weight,
        };
        new.blocks.extend(packed.iter().map(place));
        let dead = new.drop_dead();
        let fresh: u64 = packed.iter().map(|packed| packed.bytes.len() as u64).sum();
        let (live, writes) = (new.live(), fresh + new.encode().len() as u64);
        if !is_patched(&self.settings, new.weight() - live, live, writes) {
            return Ok(None);
        }
        // All fresh blocks have fences: they are the last ones.
        let old = new.blocks.len().saturating_sub(packed.len());
        for (block, packed) in new.blocks.iter_mut().skip(old).zip(&packed) {
            *block = self.edit.add_block(packed, &mut self.counts.patched)?;
        }
        for span in dead.into_iter().chain([table.index]) {
            self.edit.release(span);
        }
        self.edit.add_index(&mut new, &mut self.counts.patched)?;
        self.counts.patches += 1;
        Ok(Some(new))
    }

    /// The fresh blocks, in memory, and the fences with them.
    fn fences_with(&mut self, table: &Table, records: &[Record]) -> Result<(Vec<Packed>, Patched)> {
        let fresh = table.blocks.len() as u32;
        let is_kept = |record: &&Record| !self.is_last || record.1.is_some();
        let kept: Vec<&Record> = records.iter().filter(is_kept).collect();
        let (blocks, numbers) = packed(&kept, self.edit.page_bytes(), fresh);
        let mut numbers = numbers.into_iter();
        let dirty = records.iter().map(|record| {
            let number = if is_kept(&record) { numbers.next() } else { None };
            Dirty { key: &record.0, block: number.unwrap_or(NOWHERE) }
        });
        let dirty: Vec<_> = dirty.collect();
        let reader = &mut self.reader;
        let patched = table.fences.patched(&dirty, fresh, |number| {
            table
                .blocks
                .get(number as usize)
                .map_or_else(|| Ok(Arc::default()), |b| reader.block(b))
        })?;
        Ok((blocks, patched))
    }

    /// The table without its fresh blocks; `None` where nothing of it would be left.
    fn patched_table(&self, table: &Table, records: &[Record], patched: &Patched) -> Option<Table> {
        if patched.fences.is_empty() {
            return None;
        }
        let mut new = Table { fences: patched.fences.clone(), ..table.clone() };
        for (block, weight) in &patched.died {
            if let Some(block) = new.blocks.get_mut(*block as usize) {
                block.live = block.live.saturating_sub(*weight);
            }
        }
        if let Some((key, _)) = records.last().filter(|(key, _)| *key > new.last) {
            new.last.clone_from(key);
        }
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_patched_within_its_bounds() {
        let settings = Settings { dead_share: Some(0.5), table_bytes: 1000 };
        assert!(is_patched(&settings, 500, 1000, 200));
        assert!(!is_patched(&settings, 501, 1000, 200), "too many are dead");
        assert!(!is_patched(&settings, 0, 2001, 200), "too large");
        assert!(!is_patched(&settings, 0, 1000, 1000), "to rewrite it costs less");
        let rewriting = Settings { dead_share: None, ..settings };
        assert!(!is_patched(&rewriting, 0, 1000, 1));
    }
}
