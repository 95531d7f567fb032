//! The LA-tree of `esker-latree` as one of the trees here.
//!
//! Keys are stored in the order of their bytes, so that they are big-endian. On a chip all
//! operations count as the host's: the chip of the LA-tree knows no causes, and
//! [`FlashTree::moved_pages`] says what its collections moved. On a device it sees the erase units
//! of [`LayerUnits`] as blocks. It divides all of its memory, so that it always holds what it was
//! given; `esker-latree` tests with a counting allocator what that is in Rust's collections.

use esker_flash::nand::Cause;
use esker_flash::{Ftl, Nand};
use esker_latree::{
    BlockNo, Chip as RawChip, Costs, Direction, Fault, LaTree, Options, PageNo, Read, Simulated,
    Stats,
};

use crate::erase_units::{EraseUnits, LayerUnits, timing_of};
use crate::error::{Error, Result};
use crate::tree::{Chip, FlashTree, KeyRange, Memory, Order, Visit};
use crate::values::Values;

/// A chip of the LA-tree, and the simulated flash below it.
pub trait OverNand: RawChip {
    /// The flash.
    fn nand(&self) -> &dyn Nand;
}

impl<N: Nand> OverNand for Simulated<N> {
    fn nand(&self) -> &dyn Nand {
        &self.0
    }
}

/// A device with a translation layer inside, as a chip: its blocks are erase units.
#[derive(Debug)]
pub struct DeviceChip<F>(LayerUnits<F>);

impl<F: Ftl> DeviceChip<F> {
    /// The unit of a page, and its index there.
    fn split(&self, page: PageNo) -> (u32, u32) {
        (page.0 / self.0.pages(), page.0 % self.0.pages())
    }
}

impl<F: Ftl> OverNand for DeviceChip<F> {
    fn nand(&self) -> &dyn Nand {
        self.0.nand()
    }
}

impl<F: Ftl> RawChip for DeviceChip<F> {
    fn page_bytes(&self) -> usize {
        self.0.page_bytes()
    }

    fn pages_per_block(&self) -> u32 {
        self.0.pages()
    }

    fn blocks(&self) -> u32 {
        self.0.units()
    }

    /// Those of the flash inside, garbage collection not included.
    fn costs(&self) -> Costs {
        let timing = timing_of(self.nand());
        let transfer = timing.transfer_ns_per_page;
        Costs { read_ns: timing.read_ns + transfer, program_ns: timing.program_ns + transfer }
    }

    fn read(&mut self, page: PageNo, data: &mut [u8]) -> std::result::Result<Read, Fault> {
        let (unit, index) = self.split(page);
        if index >= self.0.next_page(unit) {
            return Ok(Read::Erased);
        }
        self.0.read(unit, index, data, Cause::Host).map_err(fault)?;
        Ok(Read::Data)
    }

    fn program(&mut self, page: PageNo, data: &[u8]) -> std::result::Result<(), Fault> {
        let (unit, index) = self.split(page);
        self.0.program(unit, index, data, Cause::Host).map_err(fault)
    }

    fn erase(&mut self, block: BlockNo) -> std::result::Result<(), Fault> {
        self.0.erase(block.0, Cause::Host).map_err(fault)
    }
}

/// An LA-tree with keys of 8 bytes.
#[derive(Debug)]
pub struct LaTreeMap<C> {
    tree: LaTree<C>,
    name: &'static str,
    budget: usize,
    values: Values,
}

impl<N: Nand> LaTreeMap<Simulated<N>> {
    /// An empty tree on an erased chip, under a name for reports.
    ///
    /// # Errors
    /// Too little memory, a chip that does not fit, those of the flash.
    pub fn on_chip(nand: N, options: Options, name: &'static str) -> Result<Self> {
        Self::new(Simulated(nand), options, name)
    }
}

impl<F: Ftl> LaTreeMap<DeviceChip<F>> {
    /// An empty tree on a device with a translation layer of its own, whose erase units have
    /// `unit_pages` pages.
    ///
    /// # Errors
    /// Those of [`LaTreeMap::on_chip`].
    pub fn on_device(
        ftl: F,
        unit_pages: u32,
        options: Options,
        name: &'static str,
    ) -> Result<Self> {
        Self::new(DeviceChip(LayerUnits::new(ftl, unit_pages)), options, name)
    }
}

impl<C: OverNand> LaTreeMap<C> {
    fn new(chip: C, options: Options, name: &'static str) -> Result<Self> {
        let budget = options.memory_bytes;
        let tree = LaTree::create(chip, options).map_err(of_latree)?;
        Ok(Self { tree, name, budget, values: Values::default() })
    }

    /// The same for values of another length. The tree must be empty.
    #[must_use]
    pub fn with_values(self, values: Values) -> Self {
        Self { values, ..self }
    }

    /// What the tree did.
    pub fn stats(&self) -> Stats {
        self.tree.stats()
    }
}

impl<C: OverNand> FlashTree for LaTreeMap<C> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.tree.put(&key.to_be_bytes(), self.values.encode(value).bytes()).map_err(of_latree)
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.tree.remove(&key.to_be_bytes()).map_err(of_latree)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.tree.get(&key.to_be_bytes()).map_err(of_latree)?;
        found.map(|value| self.values.decode(&value)).transpose()
    }

    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        let direction = match range.order {
            Order::Ascending => Direction::Forward,
            Order::Descending => Direction::Backward,
        };
        let end = range.to.checked_add(1).map(u64::to_be_bytes);
        let end = end.as_ref().map(<[u8; 8]>::as_slice);
        for entry in self.tree.range(&range.from.to_be_bytes(), end, direction) {
            let (key, value) = entry.map_err(of_latree)?;
            if !visit(number(&key)?, self.values.decode(&value)?) {
                break;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.tree.sync().map_err(of_latree)
    }

    fn check(&mut self) -> Result<u64> {
        self.tree.check().map_err(of_latree)?;
        let mut entries = 0;
        self.range(KeyRange::ALL, &mut |_, _| {
            entries += 1;
            true
        })?;
        Ok(entries)
    }

    fn memory(&self) -> Memory {
        Memory { budget: self.budget, tables: self.budget, cache: 0 }
    }

    fn chip(&self) -> Chip {
        Chip::of(self.tree.chip().nand())
    }

    fn moved_pages(&self) -> u64 {
        let stats = self.tree.stats();
        stats.moved_nodes + stats.moved_fragments
    }
}

fn fault(error: Error) -> Fault {
    Fault::Other(error.to_string())
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = bytes
        .try_into()
        .map_err(|_| Error::Invariant(format!("a key has {} bytes, not 8", bytes.len())))?;
    Ok(u64::from_be_bytes(bytes))
}

fn of_latree(error: esker_latree::Error) -> Error {
    match error {
        esker_latree::Error::Full => {
            Error::Full("the room of the LA-tree for puts is in use".to_owned())
        }
        esker_latree::Error::Memory { needed_bytes, given_bytes } => {
            Error::Memory { tree: "latree", needed_bytes, budget_bytes: given_bytes }
        }
        error @ esker_latree::Error::Invariant(_) => Error::Invariant(error.to_string()),
        error => Error::Refused(error.to_string()),
    }
}
