//! A leveled LSM tree whose tables are in a versioned page store.
//!
//! A write goes to the log and to the memtable; a full memtable becomes a table of level 0. When
//! level 0 has as many tables as it may, all of them are compacted into level 1; when a deeper
//! level is too large, one of its tables, round robin, is compacted into the next, which may be ten
//! times as large (Dong et al., *Optimizing Space Amplification in RocksDB*, CIDR 2017). A table
//! that nothing in the next level overlaps moves there by a change of the catalogue.
//!
//! A flush and each compaction are one transaction of the page store. Readers hold the version that
//! they began with; a crash leaves the version before or the one after. After an error the tree
//! accepts no more writes, and is to be opened again.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::DeviceFile;
use esker_pages::{Options as PageOptions, PageStore};

use super::block::{KEY_BYTES_MAX, Record, VALUE_BYTES_MAX, weight, weight_of};
use super::build::{Builder, Pages};
use super::catalogue::Catalogue;
use super::compact::{Compaction, Counts, Outcome, Replaced, Settings};
use super::cursor::{Cursor, Merge};
use super::error::pages;
use super::log::Log;
use super::pager::{Edit, Pager, Span};
use super::table::{Reader, Table};
use crate::{Error, Result};

/// Levels there are at most.
pub const LEVELS: usize = 7;

/// The sizes of a tree, and how it compacts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The weight of a full memtable.
    pub memtable_bytes: u64,
    /// Tables of level 0 from which on they are compacted.
    pub runs: usize,
    /// The weight that level 1 may have.
    pub level_1_bytes: u64,
    /// The weight of each level over that of the one before.
    pub ratio: u64,
    /// The weight of tables, and whether they are patched.
    pub settings: Settings,
}

/// The tables of each level: of level 0 the newest first, of others in the order of keys.
pub type Levels = Vec<Vec<Arc<Table>>>;

/// What a tree has written to pages and to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// By flushes.
    pub flushed: Pages,
    /// By compactions.
    pub compacted: Counts,
    /// Keys and values that were put, and keys that were removed.
    pub user_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Tables that moved a level down as they were.
    pub moves: u64,
}

impl Written {
    /// Bytes of indexes of tables.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        let Counts { rewritten, patched, .. } = self.compacted;
        self.flushed.index + rewritten.index + patched.index
    }
}

/// An open tree.
#[derive(Debug)]
pub struct Tree {
    options: Options,
    pager: Pager,
    catalogue: Catalogue,
    log: Log,
    memtable: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    memtable_bytes: u64,
    levels: Arc<Levels>,
    next_number: u32,
    /// Where the next compaction of each level begins.
    next_keys: Vec<Vec<u8>>,
    written: Written,
    has_failed: bool,
}

/// A version of the tree's tables, for as long as it is held. What is in the memtable is not seen.
#[derive(Debug)]
pub struct View {
    reader: Reader,
    levels: Arc<Levels>,
}

/// The options of the page store below a tree.
fn page_options(options: &Options) -> PageOptions {
    let mut of_pages = PageOptions::new().page_size(options.page_bytes);
    // Without a thread: what is written follows from the requests alone.
    of_pages.relaxed_interval = None;
    of_pages.spill_bytes = 1 << 30;
    of_pages
}

impl Tree {
    /// Opens the tree in two files, or makes one where the first is empty. What the log has becomes
    /// a table of level 0.
    ///
    /// # Errors
    /// Those of the device and the page store; files that are no tree.
    pub fn open(
        file: Arc<dyn DeviceFile>,
        log: Arc<dyn DeviceFile>,
        options: Options,
    ) -> Result<Self> {
        let store = PageStore::open(file, page_options(&options)).map_err(pages)?;
        let version = store.pin();
        if version.pages() == 0 {
            return Self::create(store, log, options);
        }
        let (catalogue, entries) = Catalogue::read(&version)?;
        let mut reader = Reader::new(version);
        let mut levels = vec![Vec::new(); LEVELS];
        let (mut used, mut next_number) = (vec![Catalogue::SPAN], 0);
        for entry in entries {
            let bytes = reader.bytes(entry.index)?;
            let table = Table::decode(bytes, entry.number, entry.slot, entry.index)?;
            used.extend(table.spans());
            next_number = next_number.max(entry.number + 1);
            let level = levels.get_mut(usize::from(entry.level));
            let level = level.ok_or_else(|| Error::Invalid("there is no such level".to_owned()))?;
            level.push(Arc::new(table));
        }
        for (at, level) in levels.iter_mut().enumerate() {
            if at == 0 {
                level.sort_by_key(|table| std::cmp::Reverse(table.number));
            } else {
                level.sort_by(|a, b| a.first().cmp(b.first()));
            }
        }
        let (log, records) = Log::open(log, catalogue.epoch)?;
        let pager = Pager::new(store, used)?;
        let mut tree = Self::over(options, pager, catalogue, log, levels);
        tree.next_number = next_number;
        for (key, value) in records {
            tree.enter(key, value);
        }
        // Behind a frame that was lost there may be others of the epoch: it ends here.
        tree.flush()?;
        Ok(tree)
    }

    fn create(store: PageStore, log: Arc<dyn DeviceFile>, options: Options) -> Result<Self> {
        let mut pager = Pager::new(store, vec![Catalogue::SPAN])?;
        let mut catalogue = Catalogue::new(pager.page_bytes());
        let mut edit = pager.begin()?;
        catalogue.create(&mut edit)?;
        catalogue.set_epoch(&mut edit, 1)?;
        edit.commit()?;
        let (log, _) = Log::open(log, catalogue.epoch)?;
        Ok(Self::over(options, pager, catalogue, log, vec![Vec::new(); LEVELS]))
    }

    fn over(
        options: Options,
        pager: Pager,
        catalogue: Catalogue,
        log: Log,
        levels: Levels,
    ) -> Self {
        Self {
            options,
            pager,
            catalogue,
            log,
            memtable: BTreeMap::new(),
            memtable_bytes: 0,
            levels: Arc::new(levels),
            next_number: 0,
            next_keys: vec![Vec::new(); LEVELS],
            written: Written::default(),
            has_failed: false,
        }
    }

    /// Writes a record; `None` removes it. It is durable after [`sync`](Self::sync), or a flush.
    ///
    /// # Errors
    /// A key or a value that is too long; those of the store.
    pub fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if key.len() > KEY_BYTES_MAX || value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            let text = "a key has at most 250 bytes, and a value 16 MiB";
            return Err(Error::Input(text.to_owned()));
        }
        if self.has_failed {
            return Err(Error::Run("the tree failed: open it again".to_owned()));
        }
        let done = self.log_and_enter(key, value);
        self.has_failed |= done.is_err();
        done
    }

    fn log_and_enter(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.log.append(key, value)?;
        self.written.user_bytes += key.len() as u64 + value.map_or(0, <[u8]>::len) as u64;
        self.enter(key.to_vec(), value.map(<[u8]>::to_vec));
        if self.memtable_bytes < self.options.memtable_bytes {
            return Ok(());
        }
        self.flush()?;
        while self.compact_one()? {}
        Ok(())
    }

    fn enter(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.memtable_bytes += weight(&key, value.as_deref());
        let key_bytes = key.len();
        if let Some(old) = self.memtable.insert(key, value) {
            let value_bytes = old.map_or(0, |old| old.len()) as u64;
            self.memtable_bytes -= weight(&[], None) + key_bytes as u64 + value_bytes;
        }
    }

    /// Makes everything durable that was written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&mut self) -> Result<()> {
        let done = self.log.sync();
        self.has_failed |= done.is_err();
        done
    }

    /// Writes the memtable, if it has anything, as a table of level 0, and begins an epoch.
    fn flush(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.memtable);
        self.memtable_bytes = 0;
        let mut edit = self.pager.begin()?;
        let mut builder = Builder::new(edit.page_bytes(), u64::MAX);
        for record in records {
            builder.push(&mut edit, &record)?;
        }
        let (tables, written) = builder.finish(&mut edit)?;
        let mut levels = Levels::clone(&self.levels);
        for mut table in tables {
            table.number = self.next_number;
            self.next_number += 1;
            self.catalogue.add(&mut edit, &mut table, 0)?;
            if let Some(level) = levels.first_mut() {
                level.insert(0, Arc::new(table));
            }
        }
        let epoch = self.catalogue.epoch + 1;
        self.catalogue.set_epoch(&mut edit, epoch)?;
        edit.commit()?;
        self.log.restart(epoch);
        self.levels = Arc::new(levels);
        self.written.flushed.data += written.data;
        self.written.flushed.index += written.index;
        self.written.flushes += 1;
        Ok(())
    }

    /// The level that is most over its size, if any is.
    fn due(&self) -> Option<usize> {
        let mut most = self.options.level_1_bytes;
        let mut worst = None;
        for (at, level) in self.levels.iter().enumerate().take(LEVELS - 1) {
            let score = if at == 0 {
                level.len() as f64 / self.options.runs as f64
            } else {
                let live: u64 = level.iter().map(|table| table.live()).sum();
                let allowed = most;
                most = most.saturating_mul(self.options.ratio);
                live as f64 / allowed as f64
            };
            let is_due = if at == 0 { score >= 1.0 } else { score > 1.0 };
            if is_due && worst.is_none_or(|(_, than)| score > than) {
                worst = Some((at, score));
            }
        }
        worst.map(|(at, _)| at)
    }

    /// Compacts once if a level is over its size, and says whether one was.
    fn compact_one(&mut self) -> Result<bool> {
        let Some(from) = self.due() else { return Ok(false) };
        let levels = Arc::clone(&self.levels);
        let tables = levels.get(from).map(Vec::as_slice).unwrap_or_default();
        let below = levels.get(from + 1).map(Vec::as_slice).unwrap_or_default();
        let picked = if from == 0 { 0..tables.len() } else { self.pick(from, tables) };
        let picked = tables.get(picked).unwrap_or_default();
        if from > 0
            && let [table] = picked
            && !below.iter().any(|other| overlaps(table, other))
        {
            self.move_down(from, table)?;
            return Ok(true);
        }
        let mut reader = Reader::new(self.pager.store().pin());
        let records = records(from, picked, &mut reader)?;
        let is_last = levels.iter().skip(from + 2).all(Vec::is_empty);
        let mut edit = self.pager.begin()?;
        let settings = self.options.settings;
        let counts = Counts::default();
        let mut compaction = Compaction { edit: &mut edit, reader, settings, is_last, counts };
        let replaced = compaction.run(&records, below)?;
        let counts = compaction.counts;
        for table in picked {
            table.spans().for_each(|span: Span| edit.release(span));
            self.catalogue.remove(&mut edit, table)?;
        }
        let mut new = Levels::clone(&levels);
        if let Some(level) = new.get_mut(from) {
            level.retain(|table| !picked.iter().any(|other| other.number == table.number));
        }
        if let Some(level) = new.get_mut(from + 1) {
            let mut install = Install {
                edit: &mut edit,
                catalogue: &mut self.catalogue,
                next_number: &mut self.next_number,
                level: from as u8 + 1,
            };
            install.run(level, replaced)?;
        }
        edit.commit()?;
        self.levels = Arc::new(new);
        self.written.compacted.add(&counts);
        Ok(true)
    }

    /// The table with which a level continues.
    fn pick(&mut self, level: usize, tables: &[Arc<Table>]) -> std::ops::Range<usize> {
        let Some(next) = self.next_keys.get_mut(level) else { return 0..0 };
        let at = tables.partition_point(|table| table.first() <= next.as_slice());
        let at = if at < tables.len() { at } else { 0 };
        if let Some(table) = tables.get(at) {
            *next = table.last.clone();
        }
        at..(at + 1).min(tables.len())
    }

    fn move_down(&mut self, from: usize, table: &Arc<Table>) -> Result<()> {
        let mut edit = self.pager.begin()?;
        self.catalogue.put(&mut edit, table, from as u8 + 1)?;
        edit.commit()?;
        let mut levels = Levels::clone(&self.levels);
        if let Some(level) = levels.get_mut(from) {
            level.retain(|other| other.number != table.number);
        }
        if let Some(level) = levels.get_mut(from + 1) {
            let at = level.partition_point(|other| other.first() < table.first());
            level.insert(at, Arc::clone(table));
        }
        self.levels = Arc::new(levels);
        self.written.moves += 1;
        Ok(())
    }

    /// Writes records, in the order of keys, as the last level of an empty tree: the first one
    /// that may hold them.
    ///
    /// # Errors
    /// The tree is not empty; those of `records` and of the store.
    pub fn load(&mut self, records: &mut dyn Iterator<Item = Result<Record>>) -> Result<()> {
        if self.levels.iter().any(|level| !level.is_empty()) || !self.memtable.is_empty() {
            return Err(Error::Input("only an empty tree can be loaded".to_owned()));
        }
        let done = self.load_tables(records);
        self.has_failed |= done.is_err();
        done
    }

    fn load_tables(&mut self, records: &mut dyn Iterator<Item = Result<Record>>) -> Result<()> {
        let mut tables = Vec::new();
        let mut records = records.peekable();
        while records.peek().is_some() {
            // A transaction each, so that the load needs no memory of its own.
            let mut edit = self.pager.begin()?;
            let mut builder = Builder::new(edit.page_bytes(), self.options.settings.table_bytes);
            let mut left = 16 * self.options.settings.table_bytes;
            while left > 0
                && let Some(record) = records.next()
            {
                let record = record?;
                left = left.saturating_sub(weight_of(&record));
                builder.push(&mut edit, &record)?;
            }
            let (written, _) = builder.finish(&mut edit)?;
            edit.commit()?;
            tables.extend(written);
        }
        let live: u64 = tables.iter().map(Table::live).sum();
        let (mut level, mut most) = (1, self.options.level_1_bytes);
        while level < LEVELS - 1 && most < live {
            (level, most) = (level + 1, most * self.options.ratio);
        }
        let mut edit = self.pager.begin()?;
        let mut levels = vec![Vec::new(); LEVELS];
        for mut table in tables {
            table.number = self.next_number;
            self.next_number += 1;
            self.catalogue.add(&mut edit, &mut table, level as u8)?;
            if let Some(level) = levels.get_mut(level) {
                level.push(Arc::new(table));
            }
        }
        edit.commit()?;
        self.levels = Arc::new(levels);
        Ok(())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of reading.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.memtable.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.view().get(key),
        }
    }

    /// Holds the tables as they are now.
    #[must_use]
    pub fn view(&self) -> View {
        let reader = Reader::new(self.pager.store().pin());
        View { reader, levels: Arc::clone(&self.levels) }
    }

    /// What was written since the tree was opened.
    #[must_use]
    pub const fn written(&self) -> &Written {
        &self.written
    }

    /// Bytes of the log that were written since the tree was opened. What is flushed before the log
    /// writes it is not among them.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.log.written()
    }

    /// The tables of each level.
    #[must_use]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The pages below it.
    #[must_use]
    pub const fn pager(&self) -> &Pager {
        &self.pager
    }
}

impl View {
    /// The value of a key.
    ///
    /// # Errors
    /// Those of reading.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        for (at, level) in self.levels.iter().enumerate() {
            let from = level.partition_point(|table| at > 0 && table.last.as_slice() < key);
            let most = if at == 0 { level.len() } else { 1 };
            for table in level.iter().skip(from).take(most) {
                if let Some(found) = self.reader.get(table, key)? {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Hands the rows from a key on to `see`, until it says no.
    ///
    /// # Errors
    /// Those of reading.
    pub fn scan(&mut self, from: &[u8], see: &mut dyn FnMut(Record) -> bool) -> Result<()> {
        let levels = Arc::clone(&self.levels);
        let (runs, sorted) = levels.split_at(1.min(levels.len()));
        let mut cursors = Vec::new();
        for table in runs.iter().flatten() {
            cursors.push(Cursor::seek(std::slice::from_ref(table), from, &mut self.reader)?);
        }
        for level in sorted.iter().filter(|level| !level.is_empty()) {
            cursors.push(Cursor::seek(level, from, &mut self.reader)?);
        }
        let mut merge = Merge::new(cursors);
        while let Some(record) = merge.next(&mut self.reader)? {
            if record.1.is_some() && !see(record) {
                break;
            }
        }
        Ok(())
    }

    /// Pages read so far.
    #[must_use]
    pub const fn pages_read(&self) -> u64 {
        self.reader.pages_read
    }
}

fn overlaps(a: &Table, b: &Table) -> bool {
    a.first() <= b.last.as_slice() && b.first() <= a.last.as_slice()
}

/// The records of tables of a level, in the order of keys: of level 0 the newest of each key.
fn records(level: usize, tables: &[Arc<Table>], reader: &mut Reader) -> Result<Vec<Record>> {
    let mut cursors = Vec::new();
    let per_cursor = if level == 0 { 1 } else { tables.len().max(1) };
    for tables in tables.chunks(per_cursor) {
        cursors.push(Cursor::seek(tables, &[], reader)?);
    }
    let (mut merge, mut records) = (Merge::new(cursors), Vec::new());
    while let Some(record) = merge.next(reader)? {
        records.push(record);
    }
    Ok(records)
}

/// Puts the tables of a compaction into their level and into the catalogue.
struct Install<'a, 'b> {
    edit: &'a mut Edit<'b>,
    catalogue: &'a mut Catalogue,
    next_number: &'a mut u32,
    level: u8,
}

impl Install<'_, '_> {
    fn run(&mut self, level: &mut Vec<Arc<Table>>, replaced: Replaced) -> Result<()> {
        // From behind, so that places stay what they are.
        for (places, outcome) in replaced.into_iter().rev() {
            let new = match outcome {
                Outcome::Patched(table) => {
                    self.catalogue.put(self.edit, &table, self.level)?;
                    vec![Arc::new(table)]
                }
                Outcome::Rewritten(tables) => {
                    for old in level.get(places.clone()).unwrap_or_default() {
                        self.catalogue.remove(self.edit, old)?;
                    }
                    tables.into_iter().map(|table| self.add(table)).collect::<Result<_>>()?
                }
            };
            level.splice(places, new);
        }
        Ok(())
    }

    fn add(&mut self, mut table: Table) -> Result<Arc<Table>> {
        table.number = *self.next_number;
        *self.next_number += 1;
        self.catalogue.add(self.edit, &mut table, self.level)?;
        Ok(Arc::new(table))
    }
}

#[cfg(test)]
mod tests;
