//! The crate `ekv`: an LSM of files of pages, branching factor 2, for NOR flash.
//!
//! Every transaction of `ekv` writes a file of one erase page of 4 KiB or more. With a transaction
//! for each change that would be all it does, so changes wait in a sorted buffer, which is counted,
//! and are written together. The buffer is lost with the power, as changed pages in the caches of
//! the other trees are. It has no way to read a range backwards: what is in the range is collected
//! in memory first, which is not counted.
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

/// Memory of a change in the buffer: key, value, and whether it is a removal.
const CHANGE_BYTES: usize = 17;
const NAME: &str = "ekv";

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
    buffer_max: usize,
    budget: usize,
}

fn refused(what: impl std::fmt::Debug) -> Error {
    Error::Refused(format!("ekv answers {what:?}"))
}

impl<F: Ftl> Ekv<F> {
    /// An empty store in `budget` bytes of memory, an eighth of which buffers changes, over at most
    /// 4 MiB of flash.
    ///
    /// # Errors
    /// A budget that is too small; those of the flash.
    pub fn new(ftl: F, table: TableIn, budget: usize) -> Result<Self> {
        let buffer_max = (budget / 8 / CHANGE_BYTES).max(1);
        let own = size_of::<Database<Shared<F>, NoopRawMutex>>() + buffer_max * CHANGE_BYTES;
        let nor = Nor::new(ftl, table, ekv::config::MAX_PAGE_COUNT * ERASE_BYTES)?;
        let taken = own + nor.table_bytes();
        let nor = nor.with_cache(budget.saturating_sub(taken));
        let least = taken + nor.cache_least();
        if budget < least {
            let (needed_bytes, budget_bytes) = (least, budget);
            return Err(Error::Memory { tree: NAME, needed_bytes, budget_bytes });
        }
        let nor = Rc::new(RefCell::new(nor));
        let mut config = Config::default();
        config.random_seed = 1;
        let database = Database::new(Shared(Rc::clone(&nor)), config);
        block_on(database.format())?.map_err(refused)?;
        Ok(Self { database, nor, buffer: BTreeMap::new(), buffer_max, budget })
    }

    fn change(&mut self, key: u64, value: Option<u64>) -> Result<()> {
        if self.buffer.len() >= self.buffer_max && !self.buffer.contains_key(&key) {
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
                    Some(value) => transaction.write(&key, &value.to_le_bytes()).await,
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
            let (mut key, mut value) = ([0; 8], [0; 8]);
            while cursor.next(&mut key, &mut value).await.map_err(refused)?.is_some() {
                if !visit(u64::from_be_bytes(key), u64::from_le_bytes(value)) {
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
        let mut value = [0; 8];
        let read = block_on(async {
            let transaction = self.database.read_transaction().await;
            transaction.read(&key.to_be_bytes(), &mut value).await
        })?;
        match read {
            Ok(_) => Ok(Some(u64::from_le_bytes(value))),
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
        let own = size_of::<Database<Shared<F>, NoopRawMutex>>() + self.buffer_max * CHANGE_BYTES;
        Memory { budget: self.budget, tables: own + nor.table_bytes(), cache: nor.cache_bytes() }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.nor.borrow().nand())
    }
}
