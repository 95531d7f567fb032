//! The crate `sequential-storage`: a map in a log of items, for NOR flash.
//!
//! Its log has no index but pointers that it caches: a lookup of a key without one reads items,
//! newest page first, until it finds the key, and one of a key that is not there reads all. A
//! removal finds all items of its key. It is made for some hundred settings, and is measured at
//! such a size. It has no order: a range reads the whole log and collects what it finds in memory,
//! which is not counted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use embedded_storage_async::nor_flash::{
    ErrorType, MultiwriteNorFlash, NorFlash, NorFlashError, NorFlashErrorKind, ReadNorFlash,
};
use esker_flash::Ftl;
use sequential_storage::cache::Cache;
use sequential_storage::cache::key_pointers::HeapKeyPointers;
use sequential_storage::cache::page_pointers::HeapPagePointers;
use sequential_storage::cache::page_states::HeapPageStates;
use sequential_storage::map::{MapConfig, MapStorage};

use crate::block_on::block_on;
use crate::error::{Error, Result};
use crate::nor::{ERASE_BYTES, Nor, WORD_BYTES};
use crate::space::TableIn;
use crate::tree::{Chip, FlashTree, KeyRange, Memory, Order, Visit};
use crate::values::{VALUE_BYTES_MAX, Values};

/// Memory of a pointer to a key's item: the key and an address.
const POINTER_BYTES: usize = 12;
/// Memory for a page of the log: its state and two addresses.
const PAGE_BYTES: usize = 9;
/// Bytes of an item beyond its value: checksum, lengths, key. The rest is filled to whole words.
const ITEM_BYTES: usize = 16;
/// A buffer for an item's key and value.
const BUFFER: [u8; 8 + VALUE_BYTES_MAX] = [0; 8 + VALUE_BYTES_MAX];
const NAME: &str = "sequential";

/// How the memory and the flash of a map are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// All memory in bytes.
    pub budget: usize,
    /// The most keys that are pointed to: fewer where the memory has no room for them.
    pub pointers_max: usize,
    /// The most bytes of the log.
    pub log_bytes_max: usize,
    /// The length of values.
    pub values: Values,
}

impl Settings {
    /// A quarter of `budget` bytes points to keys; the log has all of the chip, and values have 8
    /// bytes.
    #[must_use]
    pub fn of_budget(budget: usize) -> Self {
        let pointers_max = budget / 4 / POINTER_BYTES;
        Self { budget, pointers_max, log_bytes_max: usize::MAX, values: Values::default() }
    }
}

/// Bytes of an item in the log.
#[must_use]
pub const fn item_bytes(values: Values) -> usize {
    (ITEM_BYTES + values.bytes()).next_multiple_of(WORD_BYTES)
}

/// An error of the flash below.
#[derive(Debug)]
struct NorError(esker_flash::Error);

impl NorFlashError for NorError {
    fn kind(&self) -> NorFlashErrorKind {
        NorFlashErrorKind::Other
    }
}

/// The adapter to the traits of `embedded-storage`.
struct Adapter<F>(Rc<RefCell<Nor<F>>>);

impl<F> ErrorType for Adapter<F> {
    type Error = NorError;
}

impl<F: Ftl> ReadNorFlash for Adapter<F> {
    const READ_SIZE: usize = 1;

    async fn read(&mut self, offset: u32, bytes: &mut [u8]) -> std::result::Result<(), NorError> {
        self.0.borrow_mut().read(offset as usize, bytes).map_err(NorError)
    }

    fn capacity(&self) -> usize {
        self.0.borrow().bytes()
    }
}

impl<F: Ftl> NorFlash for Adapter<F> {
    const WRITE_SIZE: usize = WORD_BYTES;
    const ERASE_SIZE: usize = ERASE_BYTES;

    async fn erase(&mut self, from: u32, to: u32) -> std::result::Result<(), NorError> {
        self.0.borrow_mut().erase(from as usize, to as usize).map_err(NorError)
    }

    async fn write(&mut self, offset: u32, bytes: &[u8]) -> std::result::Result<(), NorError> {
        self.0.borrow_mut().write(offset as usize, bytes).map_err(NorError)
    }
}

impl<F: Ftl> MultiwriteNorFlash for Adapter<F> {}

type Pointers = Cache<HeapPageStates, HeapPagePointers, HeapKeyPointers<u64>, u64>;

/// A map of `sequential-storage`.
pub struct Sequential<F: Ftl> {
    map: MapStorage<u64, Adapter<F>, Pointers>,
    nor: Rc<RefCell<Nor<F>>>,
    budget: usize,
    /// Memory of pointers and of the translation table.
    tables: usize,
    pointers: usize,
    values: Values,
}

fn failed(error: sequential_storage::Error<NorError>) -> Error {
    match error {
        sequential_storage::Error::FullStorage => Error::Full("its log has no page left".into()),
        sequential_storage::Error::Storage { value, .. } => Error::Flash(value.0),
        other => Error::Refused(format!("sequential-storage answers {other:?}")),
    }
}

impl<F: Ftl> Sequential<F> {
    /// An empty map.
    ///
    /// # Errors
    /// A budget that is too small; a chip that is.
    pub fn new(ftl: F, table: TableIn, settings: Settings) -> Result<Self> {
        let Settings { budget, pointers_max, log_bytes_max, values } = settings;
        let nor = Nor::new(ftl, table, log_bytes_max)?;
        let pages = nor.bytes() / ERASE_BYTES;
        let fixed = pages * PAGE_BYTES + nor.table_bytes();
        let room = budget.saturating_sub(fixed + nor.cache_least()) / POINTER_BYTES;
        let keys = pointers_max.min(room).max(1);
        let tables = keys * POINTER_BYTES + fixed;
        let nor = nor.with_cache(budget.saturating_sub(tables));
        let least = tables + nor.cache_least();
        if budget < least {
            let (needed_bytes, budget_bytes) = (least, budget);
            return Err(Error::Memory { tree: NAME, needed_bytes, budget_bytes });
        }
        let end = u32::try_from(nor.bytes()).unwrap_or(u32::MAX);
        let config = MapConfig::try_new(0..end)
            .map_err(|error| Error::Refused(format!("sequential-storage answers {error:?}")))?;
        let pointers = Cache::new(
            HeapPageStates::new(pages),
            HeapPagePointers::new(pages),
            HeapKeyPointers::new(keys),
        );
        let nor = Rc::new(RefCell::new(nor));
        let map = MapStorage::new(Adapter(Rc::clone(&nor)), config, pointers);
        Ok(Self { map, nor, budget, tables, pointers: keys, values })
    }

    /// The most keys that are pointed to.
    pub const fn pointers(&self) -> usize {
        self.pointers
    }

    /// All entries, in order.
    fn collect(&mut self) -> Result<BTreeMap<u64, u64>> {
        let mut all = BTreeMap::new();
        let mut buffer = BUFFER;
        let values = self.values;
        block_on(async {
            let mut items = self.map.fetch_all_items(&mut buffer).await.map_err(failed)?;
            let mut buffer = BUFFER;
            while let Some((key, value)) = items.next::<&[u8]>(&mut buffer).await.map_err(failed)? {
                all.insert(key, values.decode(value)?);
            }
            Ok(all)
        })?
    }
}

impl<F: Ftl> FlashTree for Sequential<F> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let value = self.values.encode(value);
        block_on(self.map.store_item(&mut { BUFFER }, &key, &value.bytes()))?.map_err(failed)
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        block_on(self.map.remove_item(&mut { BUFFER }, &key))?.map_err(failed)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let (mut buffer, values) = (BUFFER, self.values);
        let found = block_on(self.map.fetch_item::<&[u8]>(&mut buffer, &key))?.map_err(failed)?;
        found.map(|value| values.decode(value)).transpose()
    }

    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let all = self.collect()?;
        let mut entries = all.range(range.from..=range.to);
        _ = match range.order {
            Order::Ascending => entries.all(|(key, value)| visit(*key, *value)),
            Order::Descending => entries.rev().all(|(key, value)| visit(*key, *value)),
        };
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.nor.borrow_mut().flush()?)
    }

    fn check(&mut self) -> Result<u64> {
        let entries = self.collect()?.len() as u64;
        self.nor.borrow().check()?;
        Ok(entries)
    }

    fn memory(&self) -> Memory {
        let cache = self.nor.borrow().cache_bytes();
        Memory { budget: self.budget, tables: self.tables, cache }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.nor.borrow().nand())
    }
}
