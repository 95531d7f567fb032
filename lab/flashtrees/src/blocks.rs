//! Free erase units, for trees that erase on their own: the one that was erased least is taken.
//! Units that are never emptied keep their few erases: there is no static wear levelling.
//!
//! Memory as it is counted: what [`EraseUnits`] says of each unit.

use std::collections::BTreeSet;

use esker_flash::Nand;
use esker_flash::nand::Cause;

use crate::erase_units::EraseUnits;
use crate::error::{Error, Result};

/// Erase units, some of them free.
#[derive(Debug)]
pub struct Blocks<U> {
    units: U,
    /// Free units, erased or to be erased when they are taken, by (erases, unit).
    free: BTreeSet<(u32, u32)>,
}

impl<U: EraseUnits> Blocks<U> {
    /// All units, free. What they hold is lost.
    pub fn new(units: U) -> Self {
        let free = (0..units.units()).map(|unit| (units.erase_count(unit), unit)).collect();
        Self { units, free }
    }

    /// The units.
    pub const fn units(&self) -> &U {
        &self.units
    }

    /// The units, to be read and programmed.
    pub const fn units_mut(&mut self) -> &mut U {
        &mut self.units
    }

    /// The number of free units.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes the free unit that was erased least, erased.
    ///
    /// # Errors
    /// [`Error::Full`]; those of the flash.
    pub fn take(&mut self, cause: Cause) -> Result<u32> {
        let Some((_, unit)) = self.free.pop_first() else { return Err(self.full()) };
        if self.units.next_page(unit) > 0 {
            self.units.erase(unit, cause)?;
        }
        Ok(unit)
    }

    /// Erases a unit and gives it back.
    ///
    /// # Errors
    /// Those of the flash.
    pub fn give_back(&mut self, unit: u32, cause: Cause) -> Result<()> {
        self.units.erase(unit, cause)?;
        self.free.insert((self.units.erase_count(unit), unit));
        Ok(())
    }

    /// The error of a chip without a free unit.
    pub fn full(&self) -> Error {
        Error::Full(format!("its {} erase units are in use", self.units.units()))
    }

    /// The flash below.
    pub fn nand(&self) -> &dyn Nand {
        self.units.nand()
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.units.bytes_of_unit() * self.units.units() as usize
    }
}
