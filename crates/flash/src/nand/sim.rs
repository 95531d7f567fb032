//! The simulator: holds every device to the rules of flash.

use std::collections::BTreeSet;

use super::clock::Clock;
use super::counters::{Cause, Counters};
use super::geometry::Geometry;
use super::payload::Payload;
use super::power::{Cut, Power};
use super::timing::Timing;
use super::{BlockId, Nand, Ppn, Spare};
use crate::error::{Error, Result};

/// Flash in memory. `P` is `()`, which keeps no data and takes 12 bytes for each block, or
/// [`Bytes`](super::Bytes).
#[derive(Clone, Debug)]
pub struct NandSim<P> {
    geometry: Geometry,
    blocks: Vec<Block>,
    payload: P,
    /// Pages below `next` of their blocks that cannot be read.
    torn: BTreeSet<u32>,
    counters: Counters,
    clock: Option<Clock>,
    power: Power,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The index of the page that is programmed next.
    next: u32,
    erases: u32,
    /// An erase was interrupted.
    needs_erase: bool,
}

impl<P: Payload> NandSim<P> {
    /// Erased flash, without a clock.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            blocks: vec![Block::default(); geometry.blocks() as usize],
            payload: P::of_size(geometry.pages(), geometry.page_size()),
            torn: BTreeSet::new(),
            counters: Counters::default(),
            clock: None,
            power: Power::default(),
        }
    }

    /// Erased flash with a clock at time 0.
    #[must_use]
    pub fn with_clock(geometry: Geometry, timing: Timing) -> Self {
        Self { clock: Some(Clock::new(&geometry, timing)), ..Self::new(geometry) }
    }

    /// Cuts the power in the program or erase that follows `operations` of them. The interrupted
    /// operation and all later ones answer [`Error::PowerCut`], until [`NandSim::power_on`].
    pub const fn cut_after(&mut self, operations: u64, cut: Cut) {
        self.power.cut_after(operations, cut);
    }

    /// Whether a cut is planned that has not happened.
    #[must_use]
    pub const fn is_cut_planned(&self) -> bool {
        self.power.is_planned()
    }

    /// Blocks of which an erase was interrupted.
    #[must_use]
    pub fn blocks_to_erase(&self) -> usize {
        self.blocks.iter().filter(|block| block.needs_erase).count()
    }

    /// Switches the power on, and forgets a planned cut.
    pub const fn power_on(&mut self) {
        self.power.on();
    }

    fn require_readable(&self, page: Ppn) -> Result<()> {
        self.geometry.require_page(page)?;
        let block = self.geometry.block_of(page);
        let state = self.state(block);
        if self.geometry.index_of(page) >= state.next && !state.needs_erase {
            return Err(Error::Erased(page));
        }
        if !self.torn.is_empty() && self.torn.contains(&page.0) {
            return Err(Error::Torn(page));
        }
        Ok(())
    }

    fn require_programmable(&self, page: Ppn) -> Result<BlockId> {
        self.geometry.require_page(page)?;
        let block = self.geometry.block_of(page);
        let state = self.state(block);
        if state.needs_erase {
            return Err(Error::NeedsErase(block));
        }
        if self.geometry.index_of(page) != state.next {
            return Err(Error::OutOfOrder { page, block, next: state.next });
        }
        Ok(block)
    }

    fn require_length(&self, length: usize, may_be_empty: bool) -> Result<()> {
        let expected = self.geometry.page_size() as usize;
        if !P::KEEPS || length == expected || (may_be_empty && length == 0) {
            return Ok(());
        }
        Err(Error::Length { expected, found: length })
    }

    /// Counts a program that begins, and interrupts it if its time has come.
    #[inline]
    fn begin_program(&mut self, page: Ppn, block: BlockId) -> Result<Option<Cut>> {
        let cut = self.power.begin();
        self.state_mut(block, |state| state.next += 1);
        if matches!(cut, Some(Cut::Torn | Cut::Partial)) {
            self.torn.insert(page.0);
            return Err(Error::PowerCut);
        }
        Ok(cut)
    }

    /// Interrupts an erase: every page of the block is torn, or every second one.
    fn interrupt_erase(&mut self, block: BlockId, cut: Cut) {
        let written = self.state(block).next;
        self.state_mut(block, |state| state.needs_erase = true);
        let first = self.geometry.first_page(block).0;
        for index in 0..self.geometry.pages_per_block() {
            let survives = cut == Cut::Partial && index % 2 == 1 && index < written;
            if !survives {
                self.torn.insert(first + index);
                self.payload.forget(Ppn(first + index));
            }
        }
    }

    #[inline]
    fn state(&self, block: BlockId) -> Block {
        self.blocks.get(block.0 as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn state_mut(&mut self, block: BlockId, change: impl FnOnce(&mut Block)) {
        if let Some(state) = self.blocks.get_mut(block.0 as usize) {
            change(state);
        }
    }
}

impl<P: Payload> Nand for NandSim<P> {
    #[inline]
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn keeps_data(&self) -> bool {
        P::KEEPS
    }

    fn read(&mut self, page: Ppn, data: &mut [u8], cause: Cause) -> Result<Spare> {
        self.power.require()?;
        self.geometry.require_page(page)?;
        self.require_length(data.len(), true)?;
        self.counters.of_mut(cause).reads += 1;
        if let Some(clock) = &mut self.clock {
            let die = self.geometry.die_of(self.geometry.block_of(page));
            clock.read(die, self.geometry.channel_of(die));
        }
        self.require_readable(page)?;
        Ok(self.payload.load(page, data).unwrap_or(Spare::UNKNOWN))
    }

    #[inline]
    fn program(&mut self, page: Ppn, data: &[u8], spare: Spare, cause: Cause) -> Result<()> {
        self.power.require()?;
        self.require_length(data.len(), false)?;
        let block = self.require_programmable(page)?;
        let cut = self.begin_program(page, block)?;
        self.payload.store(page, data, spare);
        self.counters.of_mut(cause).programs += 1;
        if let Some(clock) = &mut self.clock {
            let die = self.geometry.die_of(block);
            clock.program(die, self.geometry.channel_of(die));
        }
        if cut.is_some() { Err(Error::PowerCut) } else { Ok(()) }
    }

    #[inline]
    fn copy(&mut self, from: Ppn, to: Ppn, cause: Cause) -> Result<Spare> {
        self.power.require()?;
        self.require_readable(from)?;
        let block = self.require_programmable(to)?;
        let die = self.geometry.die_of(block);
        if die != self.geometry.die_of(self.geometry.block_of(from)) {
            let what = format!("{from} and {to} are on two dies: read and program instead");
            return Err(Error::InvalidArgument(what));
        }
        let cut = self.begin_program(to, block)?;
        let spare = self.payload.copy(from, to).unwrap_or(Spare::UNKNOWN);
        let counters = self.counters.of_mut(cause);
        counters.reads += 1;
        counters.programs += 1;
        if let Some(clock) = &mut self.clock {
            clock.copy(die);
        }
        if cut.is_some() { Err(Error::PowerCut) } else { Ok(spare) }
    }

    fn erase(&mut self, block: BlockId, cause: Cause) -> Result<()> {
        self.power.require()?;
        self.geometry.require_block(block)?;
        let cut = self.power.begin();
        if let Some(cut @ (Cut::Torn | Cut::Partial)) = cut {
            self.interrupt_erase(block, cut);
            return Err(Error::PowerCut);
        }
        let first = self.geometry.first_page(block).0;
        let pages = first..first + self.geometry.pages_per_block();
        if P::KEEPS {
            pages.clone().for_each(|page| self.payload.forget(Ppn(page)));
        }
        if !self.torn.is_empty() {
            self.torn.retain(|page| !pages.contains(page));
        }
        self.state_mut(block, |state| {
            *state = Block { next: 0, erases: state.erases.saturating_add(1), needs_erase: false };
        });
        self.counters.of_mut(cause).erases += 1;
        if let Some(clock) = &mut self.clock {
            clock.erase(self.geometry.die_of(block));
        }
        if cut.is_some() { Err(Error::PowerCut) } else { Ok(()) }
    }

    fn next_page(&self, block: BlockId) -> u32 {
        self.state(block).next
    }

    fn erase_count(&self, block: BlockId) -> u32 {
        self.state(block).erases
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    #[inline]
    fn clock_mut(&mut self) -> Option<&mut Clock> {
        self.clock.as_mut()
    }

    fn ram_bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Block>();
        let pages = if P::KEEPS { 8 * u64::from(self.geometry.pages()) } else { 0 };
        blocks as u64 + pages + self.clock.as_ref().map_or(0, Clock::ram_bytes)
    }
}

#[cfg(test)]
mod tests;
