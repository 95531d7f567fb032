//! How long operations take, and how often a block can be erased.

/// The kind of a flash cell, by the bits that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
}

/// Times of operations in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the array into the register of the die.
    pub read_ns: u64,
    /// From the register of the die into the array.
    pub program_ns: u64,
    /// Erasing a block.
    pub erase_ns: u64,
    /// A page over the channel, either way.
    pub transfer_ns_per_page: u64,
    /// Whether a page can be copied inside of a die, without the channel (copy-back). If not, the
    /// two transfers of a copy keep its die busy, and the channel stays free for others.
    pub copy_back: bool,
    /// Erases that a block is made for. Blocks work beyond it; reports compare with it.
    pub endurance: u32,
}

impl Timing {
    /// The middle of what is published for a kind of cell, and `page_size` bytes over a channel of
    /// 333 MB/s: reads of 25, 50 and 75 µs, programs of 250, 750 and 1100 µs, erases of 2, 3 and
    /// 4.5 ms; 100,000, 3,000 and 1,000 erases.
    #[must_use]
    pub const fn of_cell(cell: Cell, page_size: u32) -> Self {
        let (read, program, erase, endurance) = match cell {
            Cell::Slc => (25, 250, 2_000, 100_000),
            Cell::Mlc => (50, 750, 3_000, 3_000),
            Cell::Tlc => (75, 1_100, 4_500, 1_000),
        };
        Self {
            read_ns: read * 1_000,
            program_ns: program * 1_000,
            erase_ns: erase * 1_000,
            transfer_ns_per_page: transfer_ns(page_size),
            copy_back: false,
            endurance,
        }
    }
}

/// The time of `bytes` over a channel of 333 MB/s: 3 ns a byte.
#[must_use]
pub(super) const fn transfer_ns(bytes: u32) -> u64 {
    bytes as u64 * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_8_kib_takes_25_microseconds() {
        assert_eq!(Timing::of_cell(Cell::Mlc, 8192).transfer_ns_per_page, 24_576);
    }
}
