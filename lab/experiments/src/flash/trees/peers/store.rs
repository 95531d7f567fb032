//! The three stores on the same chip and in the same memory, each as suits it best.
//!
//! The LA-tree divides its memory itself. `ekv` buffers the changes between two commits, and
//! `sequential-storage` points to all keys for which there is room: what is left caches pages of
//! the flash, and so does what they do not need of the translation table. A log has twice the
//! bytes of its entries: a longer one is collected less, and takes longer to be searched.

use esker_flash::ftl::{self, Ftl as _, PageMapped};
use esker_flash::nand::{Bytes, preset};
use esker_flash::{Nand as _, NandSim};
use esker_flashtrees::ekv::{self, Ekv};
use esker_flashtrees::latree::LaTreeMap;
use esker_flashtrees::nor::ERASE_BYTES;
use esker_flashtrees::sequential::{self, Sequential, item_bytes};
use esker_flashtrees::space::TableIn;
use esker_flashtrees::{FlashTree, Result, Values};
use esker_latree::{Buffering, Options, Scan};

use super::super::chips::{CHIP, Device};
use super::super::measure::MEMORY_BYTES;

/// Updates between two commits, where they are made in batches.
pub(super) const BATCH: u64 = 64;
/// Bytes of the chip for each byte of entries.
pub(super) const ROOM: u64 = 4;
/// Bytes of a log for each byte of its items.
const LOG_ROOM: usize = 2;
/// Keys of a log that is filled: there are pointers for all of them.
const FILLED_KEYS: usize = 8_000;
const KEY_BYTES: u64 = 8;

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries {
    pub keys: u64,
    pub values: Values,
    /// Bytes of the chip for each byte of them.
    pub room: u64,
}

impl Entries {
    /// Bytes of an entry.
    pub(super) const fn bytes(self) -> u64 {
        KEY_BYTES + self.values.bytes() as u64
    }

    /// Blocks of the chip.
    pub(super) fn blocks(self) -> u32 {
        Device::SmallBlocks.blocks_for(self.room * self.keys * self.bytes())
    }

    /// The log in which these keys are stored.
    const fn log(self) -> Log {
        let keys = self.keys as usize;
        Log { keys, bytes: LOG_ROOM * keys * item_bytes(self.values) }
    }

    /// The log that is filled with entries of this length.
    const fn filled_log(self) -> Log {
        Log { keys: FILLED_KEYS, bytes: FILLED_KEYS * item_bytes(self.values) }
    }
}

/// The log of `sequential-storage`.
#[derive(Clone, Copy, Debug)]
struct Log {
    /// Those that are pointed to, if the memory has room for them.
    keys: usize,
    bytes: usize,
}

/// A store that firmware can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    LaTree,
    Ekv,
    Sequential,
}

/// A store that was made.
pub(super) struct Made {
    pub tree: Box<dyn FlashTree>,
    /// Bytes of the chip that it may use, with the share of its translation layer.
    pub flash_bytes: f64,
    /// The most keys that it points to.
    pub pointers: Option<usize>,
}

impl Store {
    /// Its name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LaTree => "LA-tree",
            Self::Ekv => "ekv",
            Self::Sequential => "sequential-storage",
        }
    }

    /// An empty store for these entries on an erased chip.
    ///
    /// # Errors
    /// Too little memory, a chip that is too small, those of the flash.
    pub(super) fn make(self, entries: Entries) -> Result<Made> {
        self.with_log(entries, entries.log())
    }

    /// The same, to be filled.
    ///
    /// # Errors
    /// Those of [`Store::make`].
    pub(super) fn to_be_filled(self, entries: Entries) -> Result<Made> {
        self.with_log(entries, entries.filled_log())
    }

    fn with_log(self, entries: Entries, log: Log) -> Result<Made> {
        let preset = preset(CHIP)?;
        let geometry = preset.geometry(Some(entries.blocks()))?;
        let nand = NandSim::<Bytes>::with_clock(geometry, preset.timing);
        match self {
            Self::LaTree => la_tree(nand, entries),
            Self::Ekv => ekv(nand, entries),
            Self::Sequential => sequential(nand, entries.values, log),
        }
    }
}

/// Bytes of a chip.
fn chip_bytes(nand: &NandSim<Bytes>) -> f64 {
    let geometry = nand.geometry();
    f64::from(geometry.pages()) * f64::from(geometry.page_size())
}

/// The share of a layer's pages that `bytes` of it take.
fn share(ftl: &PageMapped<NandSim<Bytes>>, bytes: usize) -> f64 {
    let all = f64::from(ftl.logical_pages()) * f64::from(ftl.geometry().page_size());
    (bytes as f64 / all).min(1.0)
}

fn la_tree(nand: NandSim<Bytes>, entries: Entries) -> Result<Made> {
    let flash_bytes = chip_bytes(&nand);
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        scan: Scan::Sorted,
        buffering: Buffering::Adaptive,
        ..Options::default()
    };
    let tree = LaTreeMap::on_chip(nand, options, "latree")?.with_values(entries.values);
    Ok(Made { tree: Box::new(tree), flash_bytes, pointers: None })
}

fn ekv(nand: NandSim<Bytes>, entries: Entries) -> Result<Made> {
    let chip_bytes = chip_bytes(&nand);
    let ftl = PageMapped::format(nand, &ftl::Options::default())?;
    let flash_bytes = chip_bytes * share(&ftl, ekv::FLASH_BYTES_MAX);
    let (budget, changes_max) = (MEMORY_BYTES, BATCH as usize);
    let settings = ekv::Settings { budget, changes_max, values: entries.values };
    let tree = Ekv::new(ftl, TableIn::Host, settings)?;
    Ok(Made { tree: Box::new(tree), flash_bytes, pointers: None })
}

fn sequential(nand: NandSim<Bytes>, values: Values, log: Log) -> Result<Made> {
    let chip_bytes = chip_bytes(&nand);
    let ftl = PageMapped::format(nand, &ftl::Options::default())?;
    let log_bytes_max = log.bytes.next_multiple_of(ERASE_BYTES);
    let flash_bytes = chip_bytes * share(&ftl, log_bytes_max);
    let (budget, pointers_max) = (MEMORY_BYTES, log.keys);
    let settings = sequential::Settings { budget, pointers_max, log_bytes_max, values };
    let map = Sequential::new(ftl, TableIn::Host, settings)?;
    let pointers = Some(map.pointers());
    Ok(Made { tree: Box::new(map), flash_bytes, pointers })
}
