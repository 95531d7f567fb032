//! Random histories: the same operations on a layer and on the model.

use esker_flash::Error;
use esker_flash::ftl::TxId;
use esker_flash::nand::Lpn;
use esker_harness::random::Random;

use crate::layer::{LOGICAL, Layer, OPEN, page, read};
use crate::model::Model;

/// An operation. Transactions are named by a place, of which there are [`OPEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Write(u32),
    Trim(u32),
    Flush,
    Begin(usize),
    WriteIn(usize, u32),
    Commit(usize),
    Abort(usize),
    /// Ends a transaction that wrote nothing.
    End(usize),
    /// Reads so many pages from this one, in a transaction and outside.
    Read(usize, u32),
}

/// A layer, the model, and the transactions that are open in both.
#[derive(Clone)]
pub struct Session<L> {
    pub layer: L,
    pub model: Model,
    pub open: [Option<TxId>; OPEN],
}

/// How an operation ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// A limit was met, and nothing was done.
    Refused,
    /// The power was cut; for a commit the model has what it would have written.
    Cut,
}

impl<L: Layer> Session<L> {
    pub fn new(layer: L) -> Self {
        Self { layer, model: Model::new(L::ISOLATION), open: [None; OPEN] }
    }

    /// The next operation: mostly on few pages, with old readers and large transactions.
    pub fn next_op(&self, random: &Random) -> Op {
        let hot = random.percent(88);
        let lpn = if hot { random.below(20) } else { random.below(LOGICAL.into()) } as u32;
        let slot = random.index(OPEN);
        let is_open = self.open[slot].is_some();
        match random.below(100) {
            0..26 => Op::Write(lpn),
            26..30 => Op::Trim(lpn),
            30..33 => Op::Flush,
            _ if !is_open => Op::Begin(slot),
            // The last place is for a reader that stays.
            33..90 if slot == OPEN - 1 => Op::Read(slot, lpn),
            // The one before is for a transaction whose pages become old before it commits.
            40..86 if slot == OPEN - 2 => Op::Read(slot, lpn),
            33..76 => Op::WriteIn(slot, lpn),
            76..88 => Op::Commit(slot),
            88..92 => Op::Abort(slot),
            92..95 if self.model.open[&slot].writes.is_empty() => Op::End(slot),
            _ => Op::Read(slot, lpn),
        }
    }

    /// Applies an operation to both. Errors other than refusals and cuts are violations.
    pub fn apply(&mut self, op: Op) -> Result<Ended, String> {
        let value = self.model.fresh();
        match self.on_layer(op, value) {
            Ok(()) => {}
            Err(Failed::Layer(Error::Refused(_))) => return Ok(Ended::Refused),
            Err(Failed::Layer(Error::PowerCut)) => return Ok(Ended::Cut),
            Err(Failed::Layer(error)) => return Err(format!("{op:?}: {error}")),
            Err(Failed::Read(wrong)) => return Err(format!("{op:?}: {wrong}")),
        }
        self.on_model(op, value);
        Ok(Ended::Done)
    }

    /// The value that the operation writes, if the model did not change since.
    fn on_layer(&mut self, op: Op, value: u64) -> Result<(), Failed> {
        let layer = &mut self.layer;
        match op {
            Op::Write(lpn) => layer.write(Lpn(lpn), &page(lpn, value))?,
            Op::Trim(lpn) => layer.trim(Lpn(lpn))?,
            Op::Flush => layer.flush()?,
            Op::Begin(slot) => self.open[slot] = Some(layer.begin()?),
            Op::WriteIn(slot, lpn) => {
                layer.write_in(self.open[slot].unwrap(), Lpn(lpn), &page(lpn, value))?;
            }
            Op::Commit(slot) => layer.commit(self.open[slot].unwrap())?,
            Op::Abort(slot) => layer.abort(self.open[slot].unwrap())?,
            Op::End(slot) => layer.end(self.open[slot].unwrap())?,
            Op::Read(slot, lpn) => self.compare(slot, lpn).map_err(Failed::Read)?,
        }
        Ok(())
    }

    /// What the operation does to the model.
    pub fn on_model(&mut self, op: Op, value: u64) {
        match op {
            Op::Write(lpn) => self.model.write(lpn, value),
            Op::Trim(lpn) => self.model.write(lpn, 0),
            Op::Flush => self.model.flush(),
            Op::Begin(slot) => self.model.begin(slot),
            Op::WriteIn(slot, lpn) => self.model.write_in(slot, lpn, value),
            Op::Commit(slot) => {
                self.model.commit(slot);
                self.open[slot] = None;
            }
            Op::Abort(slot) | Op::End(slot) => {
                self.model.open.remove(&slot);
                self.open[slot] = None;
            }
            Op::Read(..) => {}
        }
    }

    /// Compares some pages, in a transaction and outside.
    fn compare(&mut self, slot: usize, lpn: u32) -> Result<(), String> {
        for lpn in (lpn..lpn + 5).map(|lpn| lpn % LOGICAL) {
            let (found, expected) =
                (read(&mut self.layer, None, lpn)?, self.model.now[lpn as usize]);
            if found != expected {
                return Err(format!("page {lpn} reads {found}, written was {expected}"));
            }
            let found = read(&mut self.layer, self.open[slot], lpn)?;
            let expected = self.model.seen(slot, lpn);
            if found != expected {
                return Err(format!("a transaction reads {found} of page {lpn}, not {expected}"));
            }
        }
        Ok(())
    }

    /// Compares all pages, outside and in every transaction.
    pub fn compare_all(&mut self) -> Result<(), String> {
        for lpn in 0..LOGICAL {
            let found = read(&mut self.layer, None, lpn)?;
            if found != self.model.now[lpn as usize] {
                let expected = self.model.now[lpn as usize];
                return Err(format!("page {lpn} reads {found}, written was {expected}"));
            }
        }
        for slot in self.model.open.keys().copied().collect::<Vec<_>>() {
            (0..LOGICAL).step_by(5).try_for_each(|lpn| self.compare(slot, lpn))?;
        }
        self.layer.check().map_err(|error| error.to_string())
    }
}

enum Failed {
    Layer(Error),
    Read(String),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Layer(error)
    }
}
