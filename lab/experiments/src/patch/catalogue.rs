//! The catalogue: which tables there are, at fixed places in the first pages of the store, so that
//! a transaction that changes tables writes a few bytes of it.
//!
//! Page 0 has a magic number and the epoch of the log. Behind it, each table has a slot of 16
//! bytes: whether it is used, its level, its number, and where its index is.

use esker_format::Result as Decoded;
use esker_format::bytes::Reader;

use super::error::{damaged, pages};
use super::pager::{Edit, Span};
use super::table::Table;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"tables01";
/// Pages of slots.
const SLOT_PAGES: u32 = 64;
const SLOT_BYTES: u32 = 16;

/// A used slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub slot: u32,
    /// The level of the table.
    pub level: u8,
    /// The number of the table.
    pub number: u32,
    /// Where its index is.
    pub index: Span,
}

/// Which slots are used, and how to write them.
#[derive(Debug)]
pub struct Catalogue {
    per_page: u32,
    used: Vec<bool>,
    /// The epoch of the log.
    pub epoch: u64,
}

impl Catalogue {
    /// The pages of the catalogue.
    pub const SPAN: Span = Span { page: 0, pages: 1 + SLOT_PAGES };

    /// An empty one.
    #[must_use]
    pub fn new(page_bytes: usize) -> Self {
        let per_page = page_bytes as u32 / SLOT_BYTES;
        Self { per_page, used: vec![false; (per_page * SLOT_PAGES) as usize], epoch: 0 }
    }

    /// Writes an empty one.
    ///
    /// # Errors
    /// Those of the store.
    pub fn create(&self, edit: &mut Edit<'_>) -> Result<()> {
        edit.write(0, 0, &MAGIC)?;
        // The store is as long as the catalogue from now on.
        edit.write(Self::SPAN.all().end - 1, 0, &[0])
    }

    /// Reads one from a version that has pages.
    ///
    /// # Errors
    /// Those of the store; the version has no tables.
    pub fn read(version: &esker_pages::Snapshot) -> Result<(Self, Vec<Entry>)> {
        let mut page = vec![0; version.page_size() as usize];
        let mut catalogue = Self::new(page.len());
        version.read(0, 0, &mut page).map_err(pages)?;
        let mut input = Reader::new(&page);
        if input.take(MAGIC.len()).map_err(damaged)? != MAGIC {
            return Err(Error::Invalid("the page store has no tables".to_owned()));
        }
        catalogue.epoch = input.u64().map_err(damaged)?;
        let mut entries = Vec::new();
        for at in 0..SLOT_PAGES {
            version.read(1 + at, 0, &mut page).map_err(pages)?;
            for (slot, bytes) in page.chunks_exact(SLOT_BYTES as usize).enumerate() {
                let slot = at * catalogue.per_page + slot as u32;
                if let Some(entry) = read_slot(slot, bytes).map_err(damaged)? {
                    entries.push(entry);
                    if let Some(used) = catalogue.used.get_mut(slot as usize) {
                        *used = true;
                    }
                }
            }
        }
        Ok((catalogue, entries))
    }

    /// Writes the epoch.
    ///
    /// # Errors
    /// Those of the store.
    pub fn set_epoch(&mut self, edit: &mut Edit<'_>, epoch: u64) -> Result<()> {
        self.epoch = epoch;
        edit.write(0, MAGIC.len() as u32, &epoch.to_le_bytes())
    }

    /// Gives a new table a slot.
    ///
    /// # Errors
    /// All are used; those of the store.
    pub fn add(&mut self, edit: &mut Edit<'_>, table: &mut Table, level: u8) -> Result<()> {
        let full = || Error::Run("there are as many tables as a catalogue holds".to_owned());
        let slot = self.used.iter().position(|used| !used).ok_or_else(full)?;
        if let Some(used) = self.used.get_mut(slot) {
            *used = true;
        }
        table.slot = slot as u32;
        self.put(edit, table, level)
    }

    /// Writes the slot of a table that has changed.
    ///
    /// # Errors
    /// Those of the store.
    pub fn put(&self, edit: &mut Edit<'_>, table: &Table, level: u8) -> Result<()> {
        let mut bytes = vec![1, level, 0, 0];
        for number in [table.number, table.index.page, table.index.pages] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.write(edit, table.slot, &bytes)
    }

    /// Frees the slot of a table that is gone.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove(&mut self, edit: &mut Edit<'_>, table: &Table) -> Result<()> {
        if let Some(used) = self.used.get_mut(table.slot as usize) {
            *used = false;
        }
        self.write(edit, table.slot, &[0; SLOT_BYTES as usize])
    }

    fn write(&self, edit: &mut Edit<'_>, slot: u32, bytes: &[u8]) -> Result<()> {
        let (page, at) = (1 + slot / self.per_page, slot % self.per_page);
        edit.write(page, at * SLOT_BYTES, bytes)
    }
}

fn read_slot(slot: u32, bytes: &[u8]) -> Decoded<Option<Entry>> {
    let mut input = Reader::new(bytes);
    let (is_used, level) = (input.u8()? == 1, input.u8()?);
    input.take(2)?;
    let (table, page, pages) = (input.u32()?, input.u32()?, input.u32()?);
    let index = Span { page, pages };
    Ok(is_used.then_some(Entry { slot, level, number: table, index }))
}
