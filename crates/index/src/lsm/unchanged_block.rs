//! Blocks that a merge would write again as they are.
//!
//! A block may have a newer version of every key that older blocks have: overwriting keys in their
//! order produces such blocks. Other sources have entries within its keys, so that it would be
//! merged, and the merge would write exactly what the block holds. So the entries of a block that
//! are to be written are held back as long as they are all that is written. If that was the whole
//! block, it stays as it is; otherwise they are written after all. Nothing is copied: the entries
//! are in the block.
//!
//! Invariant: what is held back are the first entries of one block, in order and as the block has
//! them; nothing was written behind them.
//! Invariant: the source is within the block, or behind its end and opens no other: what is held
//! back can be read.

use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::ids::Seq;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};

use super::input::{Input, Opened, Read};
use super::output::Output;
use crate::build::insert::Sink;
use crate::read::versions::Fate;

/// The block that the written entries repeat, if there is one.
#[derive(Default)]
pub(super) struct Repeat {
    pub of: Option<Repeated>,
    /// The numbers that its entries are to be written with: one for each that is held back.
    numbers: Vec<Seq>,
}

/// A block that is repeated so far.
#[derive(Clone, Copy)]
pub(super) struct Repeated {
    pub source: usize,
    pub block: Opened,
    /// The entries that its source had read before the block.
    pub read_before: Read,
}

/// The written entries: held back, or passed to the output.
pub(super) struct Repeating<'s, 'a> {
    pub inputs: &'s [Input<'a>],
    pub output: &'s mut Output,
    pub repeat: &'s mut Repeat,
    /// The source whose entry is placed, while one is, and its payload.
    pub placed: Option<(usize, Payload<'s>)>,
}

impl Repeat {
    /// The entries written next may be this block. Anything held back must have been written
    /// before.
    pub fn begin(&mut self, source: usize, block: Opened, read_before: Read) {
        self.numbers.clear();
        self.of = Some(Repeated { source, block, read_before });
    }

    /// Whether a source's block is repeated so far.
    fn is_of(&self, source: usize) -> bool {
        self.of.is_some_and(|of| of.source == source)
    }

    /// The block, if all of it is repeated.
    pub fn whole(&self, inputs: &[Input<'_>]) -> Option<Repeated> {
        self.of.filter(|of| inputs.get(of.source).is_some_and(|input| input.is_behind(of.block)))
    }
}

impl Repeating<'_, '_> {
    /// The entry of a source has been placed. It must have been held back, if it is one of the
    /// block.
    pub fn check(&mut self, source: usize) -> Result<()> {
        self.placed = None;
        let input = self.inputs.get(source).filter(|_| self.repeat.is_of(source));
        match input {
            Some(input) if self.repeat.numbers.len() != input.taken() + 1 => self.write_held_back(),
            _ => Ok(()),
        }
    }

    /// Writes the entries that are held back.
    pub fn write_held_back(&mut self) -> Result<()> {
        let Some(of) = self.repeat.of.take() else { return Ok(()) };
        let Some(input) = self.inputs.get(of.source) else { return Ok(()) };
        let mut key = Vec::new();
        for (index, seq) in self.repeat.numbers.drain(..).enumerate() {
            let payload = input.entry(of.block, index, &mut key)?;
            self.output.add_data(&key, seq, &payload, Fate::Newest)?;
        }
        Ok(())
    }

    /// Whether this is the next entry of the block, as the block has it. Sequence numbers that are
    /// [`Seq::RESET`] are not compared.
    fn is_next(&self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> bool {
        let placed = self.placed.filter(|(source, _)| self.repeat.is_of(*source));
        placed.is_some_and(|(source, its)| {
            let Some(input) = self.inputs.get(source) else { return false };
            let is_its = input.head.key == key && (input.head.seq == seq || seq == Seq::RESET);
            is_its && self.repeat.numbers.len() == input.taken() && its == *payload
        })
    }
}

impl Sink for Repeating<'_, '_> {
    fn add_data(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>, fate: Fate) -> Result<()> {
        if self.is_next(key, seq, payload) {
            self.repeat.numbers.push(seq);
            return Ok(());
        }
        if planted::is(Bug::RepeatsAmongOthers) && self.repeat.of.is_some() {
            return Ok(());
        }
        self.write_held_back()?;
        self.output.add_data(key, seq, payload, fate)
    }

    fn add_fence(&mut self, key: &[u8], seq: Seq, fence: &Fence<'_>) -> Result<()> {
        self.write_held_back()?;
        self.output.add_fence(key, seq, fence)
    }
}
