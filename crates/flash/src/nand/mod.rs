//! Raw NAND flash: blocks of pages, which are programmed once and in order, and erased together.
//!
//! Reading order: this file (the trait [`Nand`] and its numbers), `geometry`, `timing`, `presets`,
//! `counters`, `payload` (pages of bytes, or nothing), `clock` (when dies and channels are free),
//! `power` (cuts), `sim` (the simulator of all of it), `latency` (a histogram for callers).
//!
//! **Numbers.** Dies are numbered channel first: die d is on channel d mod channels. The blocks of
//! a die have successive numbers ([`BlockId`]), those of its planes one after the other; the pages
//! of a block have successive numbers ([`Ppn`]).
//!
//! **Rules of flash.** N1: a page is programmed at most once between two erases of its block.
//! N2: the pages of a block are programmed in ascending order. N3: a page that a power cut
//! interrupted, and every page of a block whose erase was interrupted, is torn: reading it is an
//! error (an interrupted erase may leave old contents readable instead). N4: such a block must be
//! erased again before it is programmed; after a torn program the next page may be programmed.

mod clock;
mod counters;
mod geometry;
mod latency;
mod payload;
mod power;
mod presets;
mod sim;
mod timing;

use std::fmt;

pub use clock::{Clock, Scope, Urgency};
pub use counters::{Cause, Counters, Operations};
pub use geometry::{Geometry, Sizes};
pub use latency::Latencies;
pub use payload::{Bytes, Payload};
pub use power::Cut;
pub use presets::{PRESETS, Preset, preset};
pub use sim::NandSim;
pub use timing::{Cell, Timing};

use crate::Result;

/// A physical page, by its number in the device. The greatest is 2^31 - 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppn(pub u32);

/// A block, by its number in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// A logical page, as the host numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lpn(pub u32);

impl Lpn {
    /// No logical page: for pages of maps, commits and meta data, and where it is not known.
    pub const NONE: Self = Self(u32::MAX);
}

impl fmt::Display for Ppn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flash page {}", self.0)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for Lpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "logical page {}", self.0)
    }
}

/// What a page holds, as its spare area says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageKind {
    /// A logical page of the host.
    Data = 0,
    /// A part of a layer's map; `Spare::lpn` is its index among those.
    Map = 1,
    /// A commit record.
    Commit = 2,
    /// Other data of a layer.
    Meta = 3,
}

/// The out-of-band bytes of a page, programmed and read together with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spare {
    /// The logical page, or the index of a map page; [`Lpn::NONE`] for other kinds.
    pub lpn: Lpn,
    /// What the page holds.
    pub kind: PageKind,
    /// The layer's sequence number. A page that is moved keeps it: of two pages with the same kind
    /// and `lpn` the greater is newer, and two with the same number are copies.
    pub seq: u64,
}

impl Spare {
    /// The answer of a simulator that keeps no data.
    pub const UNKNOWN: Self = Self { lpn: Lpn::NONE, kind: PageKind::Meta, seq: 0 };
}

/// Raw flash. All operations are synchronous; where there is a clock, it says how long they took.
///
/// Every operation has a [`Cause`], under which it is counted.
pub trait Nand {
    /// The sizes of the device.
    fn geometry(&self) -> &Geometry;

    /// Whether pages and spare areas are kept. If not, [`Nand::read`] leaves `data` as it is and
    /// answers [`Spare::UNKNOWN`], and buffers may have any length.
    fn keeps_data(&self) -> bool;

    /// Reads a page and its spare area. `data` is one page long, or empty for the spare area alone.
    ///
    /// # Errors
    /// [`Error::Torn`](crate::Error::Torn) and [`Error::Erased`](crate::Error::Erased), a page out
    /// of range, a wrong length, the power off.
    fn read(&mut self, page: Ppn, data: &mut [u8], cause: Cause) -> Result<Spare>;

    /// Programs the next page of a block. `data` is one page long.
    ///
    /// # Errors
    /// A page that is not the next one of its block, a block that needs an erase, a page out of
    /// range, a wrong length, the power off.
    fn program(&mut self, page: Ppn, data: &[u8], spare: Spare, cause: Cause) -> Result<()>;

    /// Copies a page and its spare area to the next page of a block on the same die, and answers
    /// the spare area: a read and a program, without the channel where the chip has copy-back.
    ///
    /// # Errors
    /// Those of [`Nand::read`] and of [`Nand::program`]; two dies.
    fn copy(&mut self, from: Ppn, to: Ppn, cause: Cause) -> Result<Spare>;

    /// Erases a block.
    ///
    /// # Errors
    /// A block out of range, the power off.
    fn erase(&mut self, block: BlockId, cause: Cause) -> Result<()>;

    /// The index in `block` of the page that is programmed next; the number of pages in a block
    /// when it is full. 0 for a block out of range.
    fn next_page(&self, block: BlockId) -> u32;

    /// How often `block` was erased; 0 for a block out of range.
    fn erase_count(&self, block: BlockId) -> u32;

    /// The operations so far.
    fn counters(&self) -> &Counters;

    /// The clock, where there is one.
    fn clock(&self) -> Option<&Clock> {
        None
    }

    /// The clock, to say what waits for what.
    fn clock_mut(&mut self) -> Option<&mut Clock> {
        None
    }

    /// Begins a request of the host: the operations that follow are issued at `ns`, which does not
    /// go back from request to request. This and the methods below do nothing without a clock.
    #[inline]
    fn issue_at(&mut self, ns: u64) {
        if let Some(clock) = self.clock_mut() {
            clock.issue_at(ns);
        }
    }

    /// When the slowest operation of the request ends; 0 without a clock.
    #[inline]
    fn end_ns(&self) -> u64 {
        self.clock().map_or(0, Clock::end_ns)
    }

    /// Begins a part of a request whose steps wait for each other: see [`Clock::open_scope`]. An
    /// error may leave it open until the next request.
    #[inline]
    fn open_scope(&mut self, urgency: Urgency) -> Option<Scope> {
        self.clock_mut().map(|clock| clock.open_scope(urgency))
    }

    /// Ends the part that answered `outer`.
    #[inline]
    fn close_scope(&mut self, outer: Option<Scope>) {
        if let (Some(clock), Some(outer)) = (self.clock_mut(), outer) {
            clock.close_scope(outer);
        }
    }

    /// See [`Clock::wait`].
    #[inline]
    fn wait(&mut self) {
        if let Some(clock) = self.clock_mut() {
            clock.wait();
        }
    }

    /// See [`Clock::wait_until`].
    #[inline]
    fn wait_until(&mut self, ns: u64) {
        if let Some(clock) = self.clock_mut() {
            clock.wait_until(ns);
        }
    }

    /// When the slowest operation of the open scope ends; 0 without a clock.
    #[inline]
    fn until_ns(&self) -> u64 {
        self.clock().map_or(0, Clock::until_ns)
    }

    /// Memory that the simulator holds, in bytes, without the pages' contents.
    fn ram_bytes(&self) -> u64;
}

/// A layer on borrowed flash leaves it to its caller, whatever happens.
impl<N: Nand> Nand for &mut N {
    fn geometry(&self) -> &Geometry {
        (**self).geometry()
    }

    fn keeps_data(&self) -> bool {
        (**self).keeps_data()
    }

    fn read(&mut self, page: Ppn, data: &mut [u8], cause: Cause) -> Result<Spare> {
        (**self).read(page, data, cause)
    }

    fn program(&mut self, page: Ppn, data: &[u8], spare: Spare, cause: Cause) -> Result<()> {
        (**self).program(page, data, spare, cause)
    }

    fn copy(&mut self, from: Ppn, to: Ppn, cause: Cause) -> Result<Spare> {
        (**self).copy(from, to, cause)
    }

    fn erase(&mut self, block: BlockId, cause: Cause) -> Result<()> {
        (**self).erase(block, cause)
    }

    fn next_page(&self, block: BlockId) -> u32 {
        (**self).next_page(block)
    }

    fn erase_count(&self, block: BlockId) -> u32 {
        (**self).erase_count(block)
    }

    fn counters(&self) -> &Counters {
        (**self).counters()
    }

    fn clock(&self) -> Option<&Clock> {
        (**self).clock()
    }

    fn clock_mut(&mut self) -> Option<&mut Clock> {
        (**self).clock_mut()
    }

    fn ram_bytes(&self) -> u64 {
        (**self).ram_bytes()
    }
}
