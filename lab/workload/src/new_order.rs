//! G_T: requests to the primary index of TPC-C's NewOrder table (Thonangi's thesis, Remark 9).
//!
//! A key has 32 bits: the warehouse in the top 8, the district in the next 8, the order number
//! in the last 16. Entering an order inserts its key; of all requests [`INSERTS_PER_1000`] in
//! 1000 are insertions and the rest lookups, those of a delivery for the oldest order that its
//! district has not delivered. A district's order numbers ascend from 0 and, being of 16 bits,
//! begin anew after 65,536: the put is then an overwrite.

use crate::random::Random;
use crate::request::Request;

/// Insertions in a thousand requests.
pub const INSERTS_PER_1000: u64 = 913;
/// Districts of a warehouse, in TPC-C.
pub const DISTRICTS: u64 = 10;
/// Orders of a district before the stream begins: with ten districts and entries of 8 bytes the
/// initial index has 1.05 MB a warehouse, as in the thesis (21 MB with 20, 105 MB with 100).
pub const ORDERS_PRELOADED: u64 = 13_107;

/// The orders of one district: the next to enter and the oldest that was not delivered.
#[derive(Clone, Copy, Debug)]
struct District {
    entered: u64,
    delivered: u64,
}

/// The stream, without end. Memory: 16 bytes a district.
#[derive(Clone, Debug)]
pub struct NewOrder {
    random: Random,
    districts: Vec<District>,
    orders_preloaded: u64,
}

/// The number of an order: the 32 bits of its key.
#[must_use]
pub const fn number(warehouse: u8, district: u8, order: u64) -> u64 {
    (warehouse as u64) << 24 | (district as u64) << 16 | (order & 0xffff)
}

impl NewOrder {
    /// Requests to the index of `warehouses` warehouses, each district of which begins with
    /// `orders_preloaded` orders.
    #[must_use]
    pub fn new(seed: u64, warehouses: u8, orders_preloaded: u64) -> Self {
        let district = District { entered: orders_preloaded, delivered: 0 };
        let count = usize::from(warehouses) * DISTRICTS as usize;
        Self { random: Random::new(seed), districts: vec![district; count], orders_preloaded }
    }

    /// The puts that make the index that the stream expects, order by order over all districts,
    /// as they would have been entered.
    pub fn preload(&self) -> impl Iterator<Item = Request> + use<> {
        let districts = self.districts.len();
        (0..self.orders_preloaded).flat_map(move |order| {
            (0..districts).map(move |district| Request::put(number_in(district, order), 0))
        })
    }
}

/// The number of an order in the district at an index of the list, warehouses counted from 0.
fn number_in(index: usize, order: u64) -> u64 {
    let (warehouse, district) = (index as u64 / DISTRICTS, index as u64 % DISTRICTS);
    number(warehouse as u8, district as u8, order)
}

impl Iterator for NewOrder {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let index = self.random.below(self.districts.len() as u64) as usize;
        let version = self.random.bits();
        let district = self.districts.get_mut(index)?;
        let inserts = self.random.below(1000) < INSERTS_PER_1000;
        if !inserts && district.delivered < district.entered {
            district.delivered += 1;
            return Some(Request::lookup(number_in(index, district.delivered - 1)));
        }
        district.entered += 1;
        Some(Request::put(number_in(index, district.entered - 1), version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;
    use std::collections::BTreeSet;

    #[test]
    fn a_key_is_warehouse_district_order() {
        assert_eq!(number(1, 2, 3), 0x0102_0003);
        assert_eq!(number(255, 9, 65_536), 0xff09_0000);
    }

    #[test]
    fn lookups_find_orders_and_insertions_are_91_percent() {
        let stream = NewOrder::new(4, 3, 20);
        let mut there: BTreeSet<u64> = stream.preload().map(|put| put.number).collect();
        assert_eq!(there.len(), 3 * 10 * 20);
        let mut inserts = 0;
        for request in stream.take(20_000) {
            match request.kind {
                Kind::Lookup => assert!(there.contains(&request.number)),
                _ => {
                    inserts += 1;
                    assert!(there.insert(request.number), "{:#x}", request.number);
                }
            }
        }
        assert!((18_160..=18_360).contains(&inserts), "{inserts}");
    }

    #[test]
    fn no_warehouses_ask_for_nothing() {
        assert_eq!(NewOrder::new(1, 0, 5).next(), None);
        assert_eq!(NewOrder::new(1, 0, 5).preload().count(), 0);
    }
}
