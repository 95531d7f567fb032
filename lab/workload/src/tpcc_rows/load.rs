//! The first rows, in the order of their keys.

use crate::linkbench::draw::Scatter;
use crate::random::{Random, mixed};
use crate::row::Row;
use crate::tpcc::{DISTRICTS, Sizes};

use super::layout::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER,
    ORDER_LINE, STOCK, Table, WAREHOUSE,
};

/// The customer of each of a district's first orders is another one.
pub(super) fn customer_of(sizes: Sizes, warehouse: i64, district: i64, order: i64) -> i64 {
    let salt = (warehouse * DISTRICTS + district) as u64;
    Scatter::new(sizes.customers as u64, salt).of(order as u64 - 1) as i64 + 1
}

/// 5 to 15.
pub(super) fn lines_of(warehouse: i64, district: i64, order: i64) -> i64 {
    let salt = (warehouse * DISTRICTS + district) as u64;
    5 + (mixed(mixed(salt) ^ order as u64) % 11) as i64
}

/// The number of a customer's last name [4.3.3.1].
pub(super) fn name_of(sizes: Sizes, warehouse: i64, district: i64, customer: i64) -> i64 {
    if customer <= 1_000 {
        return customer - 1;
    }
    let salt = (warehouse * DISTRICTS + district) as u64;
    let mut random = Random::new(mixed(salt) ^ customer as u64);
    let names = sizes.last_names() as u64 + 1;
    ((random.below(256) | random.below(names)) % names) as i64
}

/// All first rows, in the order of their keys. Memory: a district's customers and orders at a time.
pub fn rows(sizes: Sizes) -> impl Iterator<Item = Row> {
    let items = move || 1..=sizes.items;
    let warehouses = (1..=sizes.warehouses).map(|warehouse| WAREHOUSE.put(&[warehouse], 0));
    let by_district = move |table: Table| {
        let of =
            move |[w, d]: [i64; 2]| (1..=sizes.customers).map(move |c| table.put(&[w, d, c], 0));
        districts(sizes).flat_map(of)
    };
    let stock = (1..=sizes.warehouses)
        .flat_map(move |warehouse| items().map(move |item| STOCK.put(&[warehouse, item], 0)));
    let waiting = districts(sizes).flat_map(move |[w, d]| {
        let orders = sizes.first_undelivered()..=sizes.customers;
        orders.map(move |order| NEW_ORDER.put(&[w, d, order], 0))
    });
    let lines = districts(sizes).flat_map(move |[w, d]| {
        let of = move |o| (1..=lines_of(w, d, o)).map(move |line| [w, d, o, line]);
        (1..=sizes.customers).flat_map(of).map(|columns| ORDER_LINE.put(&columns, 0))
    });
    let history = (1..=sizes.warehouses).flat_map(move |warehouse| {
        (1..=DISTRICTS * sizes.customers).map(move |at| HISTORY.put(&[warehouse, at], 0))
    });
    warehouses
        .chain(districts(sizes).map(|columns| DISTRICT.put(&columns, 0)))
        .chain(by_district(CUSTOMER))
        .chain(items().map(|item| ITEM.put(&[item], 0)))
        .chain(stock)
        .chain(by_district(ORDER))
        .chain(waiting)
        .chain(lines)
        .chain(history)
        .chain(districts(sizes).flat_map(move |at| names(sizes, at)))
        .chain(districts(sizes).flat_map(move |at| orders(sizes, at)))
}

fn districts(sizes: Sizes) -> impl Iterator<Item = [i64; 2]> {
    (1..=sizes.warehouses).flat_map(|w| (1..=DISTRICTS).map(move |d| [w, d]))
}

/// The entries of a district in the index of names.
fn names(sizes: Sizes, [w, d]: [i64; 2]) -> impl Iterator<Item = Row> {
    let of = |customer| (name_of(sizes, w, d, customer), customer);
    let mut all: Vec<_> = (1..=sizes.customers).map(of).collect();
    all.sort_unstable();
    all.into_iter().map(move |(name, customer)| CUSTOMER_BY_NAME.put(&[w, d, name, customer], 0))
}

/// The entries of a district in the index of orders.
fn orders(sizes: Sizes, [w, d]: [i64; 2]) -> impl Iterator<Item = Row> {
    let of = |order| (customer_of(sizes, w, d, order), order);
    let mut all: Vec<_> = (1..=sizes.customers).map(of).collect();
    all.sort_unstable();
    all.into_iter().map(move |(customer, order)| ORDER_BY_CUSTOMER.put(&[w, d, customer, order], 0))
}
