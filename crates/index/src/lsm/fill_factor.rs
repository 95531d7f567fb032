//! The empty share of a level, and the empty share up to which a block may stay as it is.

use esker_format::block::Limit;
use esker_format::meta::LsmLevel;
use esker_format::ptr::{BlockPtr, SECTOR_BYTES};

use crate::build::level_writer::{UNIT_SECTORS, units_of};
use crate::run::cursor::OwnedFence;

const MILLION: u64 = 1_000_000;

/// Sectors of a block's units that it leaves empty.
pub(super) const fn waste_of(ptr: &BlockPtr) -> u64 {
    units_of(ptr) * UNIT_SECTORS - ptr.sectors as u64
}

/// The empty part of a level: sectors, and the number of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fill {
    pub wasted_sectors: u64,
    pub units: u64,
}

impl Fill {
    /// Of a level's blocks of data.
    pub fn of(level: &LsmLevel) -> Self {
        let sectors = level.tree.levels.last().map_or(0, |data| data.counts.sectors);
        Self {
            wasted_sectors: level.units.saturating_mul(UNIT_SECTORS).saturating_sub(sectors),
            units: level.units,
        }
    }

    pub fn add(&mut self, ptr: &BlockPtr) {
        self.wasted_sectors = self.wasted_sectors.saturating_add(waste_of(ptr));
        self.units = self.units.saturating_add(units_of(ptr));
    }

    pub fn sub(&mut self, ptr: &BlockPtr) {
        self.wasted_sectors = self.wasted_sectors.saturating_sub(waste_of(ptr));
        self.units = self.units.saturating_sub(units_of(ptr));
    }

    /// The share that is empty, in millionths, rounded up.
    pub fn millionths(&self) -> u64 {
        let sectors = u128::from(self.units.max(1)) * u128::from(UNIT_SECTORS);
        (u128::from(self.wasted_sectors) * 1_000_000).div_ceil(sectors) as u64
    }

    /// Whether more than this share of the level is empty, not counting one block: the last of a
    /// level may have any length.
    pub fn is_beyond(&self, millionths: u64) -> bool {
        let wasted = self.wasted_sectors.saturating_sub(UNIT_SECTORS);
        let sectors = u128::from(self.units) * u128::from(UNIT_SECTORS);
        u128::from(wasted) * 1_000_000 > u128::from(millionths) * sectors
    }

    /// The same, with nothing empty where all that is empty is less than a unit: packing frees
    /// whole units.
    pub const fn reclaimable(self) -> Self {
        if self.wasted_sectors < UNIT_SECTORS { Self { wasted_sectors: 0, ..self } } else { self }
    }

    /// Whether as large a share of it is empty as of `level`.
    pub fn is_as_empty_as(&self, level: &Self) -> bool {
        let product = |wasted: u64, units: u64| u128::from(wasted) * u128::from(units);
        product(self.wasted_sectors, level.units) >= product(level.wasted_sectors, self.units)
    }

    /// Whether a block may stay as it is, behind one of `open_sectors` that is closed for it: no
    /// larger share of the level is empty then (the thesis, section 5.3, with what the block itself
    /// leaves empty counted).
    pub fn takes(&self, ptr: &BlockPtr, open_sectors: u64, most_millionths: u64) -> bool {
        let open = open_sectors.next_multiple_of(UNIT_SECTORS) - open_sectors;
        // The numbers in a file may have any value.
        let wasted = self.wasted_sectors.saturating_add(open + waste_of(ptr));
        let more = units_of(ptr) + open_sectors.div_ceil(UNIT_SECTORS) + 1;
        let sectors = u128::from(self.units.saturating_add(more)) * u128::from(UNIT_SECTORS);
        u128::from(wasted) * 1_000_000 <= u128::from(most_millionths) * sectors
    }
}

/// The part of a level that may be empty for a block to stay in it, in millionths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// ω.
    pub omega_millionths: u64,
    /// A little more than what no packing helps.
    pub unpackable_millionths: u64,
}

impl Room {
    /// Sectors that packing will write for this many that are left empty: when ω of a level is
    /// empty, packing writes 1 - ω for each ω.
    pub fn cost(&self, left_empty: u64) -> u64 {
        let written = left_empty.saturating_mul(MILLION.saturating_sub(self.omega_millionths));
        match self.omega_millionths {
            0 => written,
            omega => written.div_ceil(omega),
        }
    }
}

/// Whether a block has no space for another entry like those that it has, according to its fence.
pub(super) fn is_full(fence: &OwnedFence, limit: &Limit) -> bool {
    // The block's last sector has one byte at least.
    let used = (u64::from(fence.ptr.sectors) * SECTOR_BYTES).saturating_sub(SECTOR_BYTES - 1);
    let entries = fence.puts.saturating_add(fence.tombstones);
    waste_of(&fence.ptr) == 0 || limit.is_reached(used as usize, entries as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::{Generation, Seq};

    fn block(sectors: u16) -> BlockPtr {
        BlockPtr { sector: 0, sectors, crc: 0, generation: Generation(1) }
    }

    /// By hand, with a fifth: ten full units and one of four sectors waste 4 of 88.
    #[test]
    fn a_block_stays_while_a_fifth_is_empty_at_most() {
        let mut fill = Fill::default();
        (0..10).for_each(|_| fill.add(&block(8)));
        fill.add(&block(4));
        assert_eq!(fill, Fill { wasted_sectors: 4, units: 11 });
        assert!(fill.takes(&block(1), 1, 200_000), "18 of 112");
        fill.wasted_sectors = 9;
        assert!(!fill.takes(&block(1), 1, 200_000), "23 of 112");
        assert!(fill.takes(&block(8), 0, 200_000), "9 of 104");
    }

    /// By hand: of entries of 9,000 bytes one takes 18 sectors of three units, in every case;
    /// of those of 4,096 bytes three take 25 of four, and one would go on to them; of 37 entries of
    /// 109 bytes none is wasted.
    #[test]
    fn blocks_are_full_of_what_they_have() {
        let limit = Limit { target_bytes: 4_096, grows_above: Some(7) };
        let full = |sectors, puts| {
            let (key, filter) = (Vec::new(), Vec::new());
            let ptr = block(sectors);
            let fence = OwnedFence { key, seq: Seq(1), ptr, puts, tombstones: 0, filter };
            is_full(&fence, &limit)
        };
        assert!(full(18, 1));
        assert!(full(25, 3) && !full(9, 1) && !full(17, 2));
        assert!(full(8, 37) && !full(4, 18));
        assert!(!full(7, 3) && full(16, 8), "of 1,000 bytes, eight fill two units");
        assert!(!full(1, 0), "whatever a file says");
    }

    /// By hand, with a fifth: four sectors saved pay for one.
    #[test]
    fn what_is_left_empty_is_paid_for() {
        let room = Room { omega_millionths: 200_000, unpackable_millionths: 0 };
        assert_eq!([room.cost(0), room.cost(1), room.cost(7)], [0, 4, 28]);
        let third = Room { omega_millionths: 300_000, ..room };
        assert_eq!(third.cost(1), 3, "seven thirds");
        let none = Room { omega_millionths: 0, ..room };
        assert_eq!([none.cost(0), none.cost(1)], [0, 1_000_000], "more than is ever saved");
    }

    #[test]
    fn blocks_take_whole_units() {
        let of = |sectors| (units_of(&block(sectors)), waste_of(&block(sectors)));
        assert_eq!([of(1), of(8), of(9)], [(1, 7), (1, 0), (2, 7)]);
    }
}
