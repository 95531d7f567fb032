//! The device without its layer: the pages that its firmware maps and those that a flush programs.

use esker_flash::Result;
use esker_flash::nand::{Geometry, Sizes, Timing, preset};

use super::disk::{LayerKind, PAGE_BYTES};

/// Pages of the board's flash that its firmware uses as one: two planes of two chips that work at
/// the same time.
const JOINED: u32 = 4;
/// Dies of the board: its "banks".
const DIES: u64 = 8;
/// Bytes of the board's map, 4 for each page of 32 KiB of 32 GiB.
const MAP_BYTES: u64 = 4 << 20;

/// A device.
///
/// **The board.** Its public firmware (Jasmine OpenSSD, `ftl_greedy`) maps pages of 32 KiB, so a
/// page of SQLite is a quarter of what is read and programmed. `ftl_flush` programs the whole map
/// (`logging_pmap_table`) and one more page on each die (`logging_misc_metadata`), however little
/// has changed. X-FTL and MV-FTL are that firmware changed. Their papers say what records a commit
/// writes, and not whether the map is written, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Board {
    /// The board; what makes a commit durable writes the map as a flush does.
    Jasmine,
    /// The board; a commit writes its records alone.
    JasmineByRecords,
    /// Pages of 8 KiB are mapped, and a flush and a commit write what they must, no more.
    Plain,
}

impl Board {
    /// Bytes of the pages that are mapped.
    #[must_use]
    pub const fn page_bytes(self) -> usize {
        match self {
            Self::Plain => PAGE_BYTES,
            Self::Jasmine | Self::JasmineByRecords => PAGE_BYTES * JOINED as usize,
        }
    }

    /// The sizes and times of one with so many MiB on each of its eight dies, in blocks of 1 MiB.
    ///
    /// # Errors
    /// No MiB, or too many.
    pub fn sized(self, mib_per_die: u32) -> Result<(Geometry, Timing)> {
        let of = preset("jasmine")?;
        if self == Self::Plain {
            return Ok((of.geometry(Some(mib_per_die))?, of.timing));
        }
        let geometry = Geometry::new(Sizes {
            blocks_per_plane: mib_per_die,
            pages_per_block: of.sizes.pages_per_block / JOINED,
            page_size: of.sizes.page_size * JOINED,
            ..of.sizes
        })?;
        // Two chips pass their halves at the same time.
        let transfer_ns_per_page = of.timing.transfer_ns_per_page * u64::from(JOINED) / 2;
        Ok((geometry, Timing { transfer_ns_per_page, ..of.timing }))
    }

    /// MV-FTL's memory for diffs. The paper's 16 KiB hold all workloads here where pages of 32 KiB
    /// are mapped. With pages of 8 KiB a transaction of the RL script has up to some 500, which
    /// readers keep: two in a row are refused from 14 reads a second on.
    #[must_use]
    pub const fn diff_bytes(self) -> u32 {
        match self {
            Self::Jasmine | Self::JasmineByRecords => 16 << 10,
            Self::Plain => 64 << 10,
        }
    }

    /// Pages that a flush or a commit programs on each die, one after the other, besides what the
    /// layer writes.
    #[must_use]
    pub const fn pages_of_a_barrier(self, layer: LayerKind) -> u64 {
        match (self, layer) {
            (Self::Jasmine, _) | (Self::JasmineByRecords, LayerKind::PageMapped) => {
                MAP_BYTES.div_ceil(self.page_bytes() as u64 * DIES) + 1
            }
            (Self::JasmineByRecords | Self::Plain, _) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_of_the_board_programs_its_map() {
        let pages = |board: Board| {
            [LayerKind::PageMapped, LayerKind::XFtl, LayerKind::MvFtl]
                .map(|layer| board.pages_of_a_barrier(layer))
        };
        assert_eq!(pages(Board::Jasmine), [17; 3]);
        assert_eq!(pages(Board::JasmineByRecords), [17, 0, 0]);
        assert_eq!(pages(Board::Plain), [0; 3]);
    }

    #[test]
    fn devices_of_one_size_have_as_many_bytes() {
        let [board, plain] = [Board::Jasmine, Board::Plain].map(|of| of.sized(64).unwrap());
        assert_eq!(board.0.bytes(), plain.0.bytes());
        assert_eq!(board.0.page_size() as usize, Board::Jasmine.page_bytes());
        assert_eq!(board.1.transfer_ns_per_page, 2 * plain.1.transfer_ns_per_page);
    }
}
