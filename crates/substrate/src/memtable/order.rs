//! The order of up to fifteen versions in one word.
//!
//! After the permutation of a border node in Mao, Kohler, Morris, *Cache Craftiness for Fast
//! Multicore Key-Value Storage*, EuroSys 2012, section 4.6.2: versions stay where they were put and
//! never move; one store of this word inserts a new one among the others. A reader that loaded the
//! word sees one state of the page, regardless of later inserts.

/// Versions that one word can order: four bits for the count, four for each.
pub(super) const ORDERED: usize = 15;

const BITS: u32 = 4;
const DIGIT: u64 = (1 << BITS) - 1;

/// The count in the lowest digit; above it, by rank, the slots.
///
/// Slots are taken in turn: the slots of an order of n versions are 0 to n - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order(pub(super) u64);

impl Order {
    /// Versions in it.
    pub(super) const fn len(self) -> usize {
        (self.0 & DIGIT) as usize
    }

    pub(super) const fn is_full(self) -> bool {
        self.len() == ORDERED
    }

    /// The slot of the version with this rank, counted from 0. `rank` is below the count.
    pub(super) const fn slot(self, rank: usize) -> usize {
        (self.0.wrapping_shr(shift(rank)) & DIGIT) as usize
    }

    /// With the next slot at this rank: the versions from there on move up. Not for a full one;
    /// `rank` is at most the count.
    pub(super) const fn with(self, rank: usize) -> Self {
        let below = 1u64.wrapping_shl(shift(rank)) - 1;
        let slot = (self.len() as u64).wrapping_shl(shift(rank));
        Self(((self.0 & below) | slot | ((self.0 & !below) << BITS)) + 1)
    }
}

const fn shift(rank: usize) -> u32 {
    BITS * (rank as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_versions_by_hand() {
        let order = Order::default().with(0).with(0).with(1);
        // Slot 1 first, then slot 2, then slot 0.
        assert_eq!(order, Order(0x0213));
        assert_eq!((order.slot(0), order.slot(1), order.slot(2)), (1, 2, 0));
    }

    proptest! {
        #[test]
        fn orders_like_inserting_into_a_vector(
            ranks in proptest::collection::vec(any::<proptest::sample::Index>(), 0..=ORDERED),
        ) {
            let (mut order, mut model) = (Order::default(), Vec::new());
            for (slot, rank) in ranks.iter().enumerate() {
                let rank = rank.index(slot + 1);
                order = order.with(rank);
                model.insert(rank, slot);
            }
            prop_assert_eq!(order.len(), model.len());
            prop_assert_eq!(order.is_full(), model.len() == ORDERED);
            let slots: Vec<_> = (0..order.len()).map(|rank| order.slot(rank)).collect();
            prop_assert_eq!(slots, model);
        }
    }
}
