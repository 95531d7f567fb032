//! The crate `ekv`: an LSM of files of pages, branching factor 2, for NOR flash.
//!
//! Every transaction of `ekv` writes a file of one erase page of 4 KiB or more. With a transaction
//! for each change that would be all it does, so changes wait in a sorted buffer, which is counted,
//! and are written together: when the buffer is full, and by `flush`. The buffer is lost with the
//! power, as changed pages in the caches of the other trees are. It has no way to read a range
//! backwards: what is in the range is collected in memory first, which is not counted.
//!
//! A full store refuses removals too: those take space as other changes do.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ekv::flash::{Flash, PageID};
use ekv::{CommitError, Config, Database, ReadError, WriteError};
use embassy_sync::blocking_mutex::raw::NoopRawMutex;
use esker_flash::Ftl;

use crate::block_on::block_on;
use crate::error::{Error, Result};
use crate::nor::{ERASE_BYTES, Nor};
use crate::space::TableIn;
use crate::tree::{Chip, FlashTree, KeyRange, Memory, Order, Visit};
use crate::values::{VALUE_BYTES_MAX, Values};

/// Memory of a change in the buffer beyond its value: the key, and whether it is a removal.
const CHANGE_BYTES: usize = 9;
const NAME: &str = "ekv";

/// The most flash of a store, as `ekv` is compiled here.
pub const FLASH_BYTES_MAX: usize = ekv::config::MAX_PAGE_COUNT * ERASE_BYTES;

/// How the memory of a store is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// All of it in bytes.
    pub budget: usize,
    /// The most changes that wait, 1 or more.
    pub changes_max: usize,
    /// The length of values.
    pub values: Values,
}

impl Settings {
    /// An eighth of `budget` bytes buffers changes; values have 8 bytes.
    #[must_use]
    pub fn of_budget(budget: usize) -> Self {
        let values = Values::default();
        let changes_max = budget / 8 / (CHANGE_BYTES + values.bytes());
        Self { budget, changes_max, values }
    }

    /// Memory of the buffer, and of what `ekv` holds itself.
    fn own_bytes<F: Ftl>(&self) -> usize {
        let buffer = self.changes_max * (CHANGE_BYTES + self.values.bytes());
        size_of::<Database<Shared<F>, NoopRawMutex>>() + buffer
    }
}

/// The adapter to the crate's trait.
struct Shared<F>(Rc<RefCell<Nor<F>>>);

impl<F: Ftl> Flash for Shared<F> {
    type Error = esker_flash::Error;

    fn page_count(&self) -> usize {
        self.0.borrow().bytes() / ERASE_BYTES
    }

    async fn erase(&mut self, page: PageID) -> esker_flash::Result<()> {
        let from = page.index() * ERASE_BYTES;
        self.0.borrow_mut().erase(from, from + ERASE_BYTES)
    }

    async fn read(&mut self, page: PageID, at: usize, data: &mut [u8]) -> esker_flash::Result<()> {
        self.0.borrow_mut().read(page.index() * ERASE_BYTES + at, data)
    }

    async fn write(&mut self, page: PageID, at: usize, data: &[u8]) -> esker_flash::Result<()> {
        self.0.borrow_mut().write(page.index() * ERASE_BYTES + at, data)
    }
}

/// A store of `ekv`.
pub struct Ekv<F: Ftl> {
    database: Database<Shared<F>, NoopRawMutex>,
    nor: Rc<RefCell<Nor<F>>>,
    buffer: BTreeMap<u64, Option<u64>>,
    settings: Settings,
}

fn refused(what: impl std::fmt::Debug) -> Error {
    Error::Refused(format!("ekv answers {what:?}"))
}

impl<F: Ftl> Ekv<F> {
    /// An empty store over at most [`FLASH_BYTES_MAX`].
    ///
    /// # Errors
    /// A budget that is too small; those of the flash.
    pub fn new(ftl: F, table: TableIn, settings: Settings) -> Result<Self> {
        let settings = Settings { changes_max: settings.changes_max.max(1), ..settings };
        let nor = Nor::new(ftl, table, FLASH_BYTES_MAX)?;
        let taken = settings.own_bytes::<F>() + nor.table_bytes();
        let nor = nor.with_cache(settings.budget.saturating_sub(taken));
        let least = taken + nor.cache_least();
        if settings.budget < least {
            let (needed_bytes, budget_bytes) = (least, settings.budget);
            return Err(Error::Memory { tree: NAME, needed_bytes, budget_bytes });
        }
        let nor = Rc::new(RefCell::new(nor));
        let mut config = Config::default();
        config.random_seed = 1;
        let database = Database::new(Shared(Rc::clone(&nor)), config);
        block_on(database.format())?.map_err(refused)?;
        Ok(Self { database, nor, buffer: BTreeMap::new(), settings })
    }

    fn change(&mut self, key: u64, value: Option<u64>) -> Result<()> {
        let is_full = self.buffer.len() >= self.settings.changes_max;
        if is_full && !self.buffer.contains_key(&key) {
            self.commit()?;
        }
        self.buffer.insert(key, value);
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let full = || Error::Full("ekv has no page left".to_owned());
        block_on(async {
            let mut transaction = self.database.write_transaction().await;
            for (key, value) in &self.buffer {
                let key = key.to_be_bytes();
                let done = match value {
                    Some(value) => {
                        let value = self.settings.values.encode(*value);
                        transaction.write(&key, value.bytes()).await
                    }
                    None => transaction.delete(&key).await,
                };
                done.map_err(|error| match error {
                    WriteError::Full => full(),
                    WriteError::Flash(error) => Error::Flash(error),
                    other => refused(other),
                })?;
            }
            transaction.commit().await.map_err(|error| match error {
                CommitError::Flash(error) => Error::Flash(error),
                other => refused(other),
            })
        })??;
        self.buffer.clear();
        Ok(())
    }

    /// Hands the entries of the store in a range, without the buffer, to `visit`.
    fn stored(&self, from: u64, to: u64, visit: &mut Visit<'_>) -> Result<()> {
        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
        block_on(async {
            let transaction = self.database.read_transaction().await;
            let range = from.as_slice()..=to.as_slice();
            let mut cursor = transaction.read_range(range).await.map_err(refused)?;
            let (mut key, mut value) = ([0; 8], [0; VALUE_BYTES_MAX]);
            while let Some((_, len)) = cursor.next(&mut key, &mut value).await.map_err(refused)? {
                let number = self.settings.values.decode(value.get(..len).unwrap_or_default())?;
                if !visit(u64::from_be_bytes(key), number) {
                    break;
                }
            }
            Ok(())
        })?
    }

    /// Merges the store with the buffer, in ascending order.
    fn ascending(&self, from: u64, to: u64, visit: &mut Visit<'_>) -> Result<()> {
        let mut newer = self.buffer.range(from..=to).peekable();
        let mut go_on = true;
        self.stored(from, to, &mut |key, value| {
            while let Some((other, new)) = newer.next_if(|(other, _)| **other < key) {
                go_on = go_on && new.is_none_or(|new| visit(*other, new));
            }
            match newer.next_if(|(other, _)| **other == key) {
                Some((_, new)) => go_on = go_on && new.is_none_or(|new| visit(key, new)),
                None => go_on = go_on && visit(key, value),
            }
            go_on
        })?;
        for (key, new) in newer {
            go_on = go_on && new.is_none_or(|new| visit(*key, new));
        }
        Ok(())
    }
}

impl<F: Ftl> FlashTree for Ekv<F> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.change(key, Some(value))
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.change(key, None)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        if let Some(value) = self.buffer.get(&key) {
            return Ok(*value);
        }
        let mut value = [0; VALUE_BYTES_MAX];
        let read = block_on(async {
            let transaction = self.database.read_transaction().await;
            transaction.read(&key.to_be_bytes(), &mut value).await
        })?;
        match read {
            Ok(len) => self.settings.values.decode(value.get(..len).unwrap_or_default()).map(Some),
            Err(ReadError::KeyNotFound) => Ok(None),
            Err(ReadError::Flash(error)) => Err(error.into()),
            Err(other) => Err(refused(other)),
        }
    }

    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let KeyRange { from, to, order } = range;
        if order == Order::Ascending {
            return self.ascending(from, to, visit);
        }
        let mut all = Vec::new();
        self.ascending(from, to, &mut |key, value| {
            all.push((key, value));
            true
        })?;
        _ = all.into_iter().rev().all(|(key, value)| visit(key, value));
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.commit()?;
        Ok(self.nor.borrow_mut().flush()?)
    }

    fn check(&mut self) -> Result<u64> {
        let (mut count, mut last, mut ascends) = (0, None, true);
        self.ascending(0, u64::MAX, &mut |key, _| {
            ascends = ascends && last.is_none_or(|last| last < key);
            last = Some(key);
            count += 1;
            true
        })?;
        self.nor.borrow().check()?;
        if ascends { Ok(count) } else { crate::error::broken("keys of ekv do not ascend") }
    }

    fn memory(&self) -> Memory {
        let nor = self.nor.borrow();
        let tables = self.settings.own_bytes::<F>() + nor.table_bytes();
        Memory { budget: self.settings.budget, tables, cache: nor.cache_bytes() }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.nor.borrow().nand())
    }
}
