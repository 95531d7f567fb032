//! The LA-tree of `esker-latree` as one of the trees here.
//!
//! Keys are stored in the order of their bytes, so that they are big-endian. All operations count
//! as the host's: the chip of the LA-tree knows no causes, and [`LaTreeMap::stats`] says what its
//! collections did. It divides all of its memory, so that it always holds what it was given;
//! `esker-latree` tests with a counting allocator what that is in Rust's collections.

use esker_flash::Nand;
use esker_latree::{Direction, LaTree, Options, Simulated, Stats};

use crate::error::{Error, Result};
use crate::tree::{Chip, FlashTree, Memory, Order};

/// An LA-tree with keys and values of 8 bytes.
#[derive(Debug)]
pub struct LaTreeMap<N> {
    tree: LaTree<Simulated<N>>,
    name: &'static str,
    budget: usize,
}

impl<N: Nand> LaTreeMap<N> {
    /// An empty tree on an erased chip, under a name for reports.
    ///
    /// # Errors
    /// Too little memory, a chip that does not fit, those of the flash.
    pub fn new(nand: N, options: Options, name: &'static str) -> Result<Self> {
        let budget = options.memory_bytes;
        let tree = LaTree::create(Simulated(nand), options).map_err(of_latree)?;
        Ok(Self { tree, name, budget })
    }

    /// What the tree did.
    pub fn stats(&self) -> Stats {
        self.tree.stats()
    }
}

impl<N: Nand> FlashTree for LaTreeMap<N> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.tree.put(&key.to_be_bytes(), &value.to_be_bytes()).map_err(of_latree)
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.tree.remove(&key.to_be_bytes()).map_err(of_latree)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.tree.get(&key.to_be_bytes()).map_err(of_latree)?;
        found.map(|value| number(&value)).transpose()
    }

    fn range(
        &mut self,
        from: u64,
        to: u64,
        order: Order,
        visit: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        let direction = match order {
            Order::Ascending => Direction::Forward,
            Order::Descending => Direction::Backward,
        };
        let end = to.checked_add(1).map(u64::to_be_bytes);
        let end = end.as_ref().map(<[u8; 8]>::as_slice);
        for entry in self.tree.range(&from.to_be_bytes(), end, direction) {
            let (key, value) = entry.map_err(of_latree)?;
            if !visit(number(&key)?, number(&value)?) {
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
        self.range(0, u64::MAX, Order::Ascending, &mut |_, _| {
            entries += 1;
            true
        })?;
        Ok(entries)
    }

    fn memory(&self) -> Memory {
        Memory { budget: self.budget, tables: self.budget, cache: 0 }
    }

    fn chip(&self) -> Chip {
        Chip::of(&self.tree.chip().0)
    }
}

fn number(bytes: &[u8]) -> Result<u64> {
    let bytes: [u8; 8] = bytes
        .try_into()
        .map_err(|_| Error::Invariant(format!("an entry has {} bytes, not 8", bytes.len())))?;
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
