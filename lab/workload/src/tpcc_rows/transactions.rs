//! The accesses of each transaction [2.4 to 2.8].

use std::collections::HashMap;

use crate::random::Random;
use crate::row::Row;
use crate::tpcc::draw::last_name;
use crate::tpcc::input::{Delivery, Input, NewOrder, OrderStatus, Payment, StockLevel, Who};
use crate::tpcc::{DISTRICTS, Kind, Sizes, Terminal};

use super::layout::{
    CUSTOMER, CUSTOMER_BY_NAME, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER, ORDER_BY_CUSTOMER,
    ORDER_LINE, STOCK, WAREHOUSE,
};
use super::load::{customer_of, lines_of};

/// Orders whose items a stock level looks at [2.8.2.2], and the reads of stock that follow, about.
const LEVEL_ORDERS: i64 = 20;
const LEVEL_ITEMS: usize = 200;
/// Most rows of a scan.
const MOST: u32 = 1_000;

/// A transaction: its accesses in order, which are one commit. One that rolls back has only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Which of the five.
    pub kind: Kind,
    /// The accesses, in order.
    pub rows: Vec<Row>,
    /// Whether it commits.
    pub commits: bool,
}

/// An order: whose it is, and its lines.
#[derive(Clone, Copy, Debug)]
struct Order {
    customer: u32,
    lines: u32,
}

/// The orders of a district.
#[derive(Clone, Debug, Default)]
struct District {
    orders: Vec<Order>,
    /// The last order that was delivered.
    delivered: i64,
    /// The last order of each customer.
    last_orders: Vec<u32>,
}

/// The transactions of one terminal for each warehouse, interleaved, without end.
#[derive(Clone, Debug)]
pub struct Transactions {
    sizes: Sizes,
    terminals: Vec<Terminal>,
    next: usize,
    random: Random,
    districts: Vec<District>,
    /// Rows of history of each warehouse.
    histories: Vec<i64>,
    names: HashMap<String, i64>,
    version: u64,
}

impl Transactions {
    /// Transactions of a seed over the first rows of these sizes.
    #[must_use]
    pub fn new(seed: u64, sizes: Sizes) -> Self {
        let district = |at: i64| {
            let (warehouse, district) = (at / DISTRICTS + 1, at % DISTRICTS + 1);
            District::loaded(sizes, warehouse, district)
        };
        let terminals = (0..sizes.warehouses).map(|at| Terminal::new(seed, at as u32, sizes));
        Self {
            sizes,
            terminals: terminals.collect(),
            next: 0,
            random: Random::new(seed),
            districts: (0..sizes.warehouses * DISTRICTS).map(district).collect(),
            histories: vec![DISTRICTS * sizes.customers; sizes.warehouses as usize],
            names: (0..=sizes.last_names()).map(|name| (last_name(name), name)).collect(),
            version: 0,
        }
    }

    fn district(&mut self, warehouse: i64, district: i64) -> &mut District {
        let at = (warehouse - 1) * DISTRICTS + district - 1;
        let last = self.districts.len().saturating_sub(1);
        &mut self.districts[(at.max(0) as usize).min(last)]
    }

    /// The number of a customer, and the read that finds it.
    fn customer(&self, warehouse: i64, district: i64, who: &Who, rows: &mut Vec<Row>) -> i64 {
        match who {
            Who::Number(number) => *number,
            Who::LastName(name) => {
                let name = self.names.get(name).copied().unwrap_or(0);
                rows.push(CUSTOMER_BY_NAME.scan(&[warehouse, district, name], name + 1, MOST));
                // The customer that has this name in every district.
                name + 1
            }
        }
    }

    fn new_order(&mut self, input: &NewOrder) -> (Vec<Row>, bool) {
        let (w, d, c, version) = (input.warehouse, input.district, input.customer, self.version);
        let mut rows = vec![WAREHOUSE.get(&[w]), DISTRICT.get(&[w, d]), CUSTOMER.get(&[w, d, c])];
        rows.extend(input.lines.iter().map(|line| ITEM.get(&[line.item])));
        if input.lines.iter().any(|line| line.item > self.sizes.items) {
            return (rows, false);
        }
        let lines = input.lines.len() as u32;
        let district = self.district(w, d);
        district.orders.push(Order { customer: c as u32, lines });
        let order = district.orders.len() as i64;
        if let Some(last) = district.last_orders.get_mut(c as usize - 1) {
            *last = order as u32;
        }
        rows.push(DISTRICT.put(&[w, d], version));
        rows.push(ORDER.put(&[w, d, order], version));
        rows.push(ORDER_BY_CUSTOMER.put(&[w, d, c, order], version));
        rows.push(NEW_ORDER.put(&[w, d, order], version));
        for (at, line) in (1..).zip(&input.lines) {
            rows.push(STOCK.get(&[line.supplier, line.item]));
            rows.push(STOCK.put(&[line.supplier, line.item], version));
            rows.push(ORDER_LINE.put(&[w, d, order, at], version));
        }
        (rows, true)
    }

    fn payment(&mut self, input: &Payment) -> Vec<Row> {
        let (w, d, version) = (input.warehouse, input.district, self.version);
        let (cw, cd) = (input.customer_warehouse, input.customer_district);
        let mut rows = vec![WAREHOUSE.get(&[w]), WAREHOUSE.put(&[w], version)];
        rows.extend([DISTRICT.get(&[w, d]), DISTRICT.put(&[w, d], version)]);
        let customer = self.customer(cw, cd, &input.customer, &mut rows);
        let key = [cw, cd, customer];
        rows.extend([CUSTOMER.get(&key), CUSTOMER.put(&key, version)]);
        let mut last = 0;
        if let Some(history) = self.histories.get_mut(w as usize - 1) {
            *history += 1;
            last = *history;
        }
        rows.push(HISTORY.put(&[w, last], version));
        rows
    }

    fn order_status(&mut self, input: &OrderStatus) -> Vec<Row> {
        let (w, d) = (input.warehouse, input.district);
        let mut rows = Vec::new();
        let customer = self.customer(w, d, &input.customer, &mut rows);
        rows.push(CUSTOMER.get(&[w, d, customer]));
        let last = self.district(w, d).last_orders.get(customer as usize - 1).copied();
        let order = i64::from(last.unwrap_or(0));
        rows.push(ORDER_BY_CUSTOMER.scan(&[w, d, customer, order], order + 1, 1));
        rows.push(ORDER.get(&[w, d, order]));
        rows.push(ORDER_LINE.scan(&[w, d, order], order + 1, MOST));
        rows
    }

    fn delivery(&mut self, input: &Delivery) -> Vec<Row> {
        let (w, version) = (input.warehouse, self.version);
        let mut rows = Vec::new();
        for d in 1..=DISTRICTS {
            let district = self.district(w, d);
            let order = district.delivered + 1;
            rows.push(NEW_ORDER.scan(&[w, d, 0], i64::from(u32::MAX), 1));
            let Some(Order { customer, lines }) = district.orders.get(order as usize - 1).copied()
            else {
                continue;
            };
            district.delivered = order;
            rows.push(NEW_ORDER.delete(&[w, d, order]));
            rows.extend([ORDER.get(&[w, d, order]), ORDER.put(&[w, d, order], version)]);
            rows.push(ORDER_LINE.scan(&[w, d, order], order + 1, MOST));
            let line = |at| ORDER_LINE.put(&[w, d, order, i64::from(at)], version);
            rows.extend((1..=lines).map(line));
            let key = [w, d, i64::from(customer)];
            rows.extend([CUSTOMER.get(&key), CUSTOMER.put(&key, version)]);
        }
        rows
    }

    fn stock_level(&mut self, input: &StockLevel) -> Vec<Row> {
        let (w, d) = (input.warehouse, input.district);
        let next = self.district(w, d).orders.len() as i64 + 1;
        let mut rows = vec![DISTRICT.get(&[w, d])];
        let first = (next - LEVEL_ORDERS).max(1);
        rows.push(ORDER_LINE.scan(&[w, d, first], next, MOST));
        let items = self.sizes.items as u64;
        let random = &mut self.random;
        let stock = |_| STOCK.get(&[w, random.below(items) as i64 + 1]);
        rows.extend((0..LEVEL_ITEMS).map(stock));
        rows
    }
}

impl District {
    fn loaded(sizes: Sizes, warehouse: i64, district: i64) -> Self {
        let mut loaded = Self {
            delivered: sizes.first_undelivered() - 1,
            last_orders: vec![0; sizes.customers as usize],
            ..Self::default()
        };
        for order in 1..=sizes.customers {
            let customer = customer_of(sizes, warehouse, district, order) as u32;
            let lines = lines_of(warehouse, district, order) as u32;
            loaded.orders.push(Order { customer, lines });
            if let Some(last) = loaded.last_orders.get_mut(customer as usize - 1) {
                *last = order as u32;
            }
        }
        loaded
    }
}

impl Iterator for Transactions {
    type Item = Transaction;

    fn next(&mut self) -> Option<Transaction> {
        self.version += 1;
        let count = self.terminals.len().max(1);
        let input = self.terminals.get_mut(self.next)?.next()?;
        self.next = (self.next + 1) % count;
        let (rows, commits) = match &input {
            Input::NewOrder(input) => self.new_order(input),
            Input::Payment(input) => (self.payment(input), true),
            Input::OrderStatus(input) => (self.order_status(input), true),
            Input::Delivery(input) => (self.delivery(input), true),
            Input::StockLevel(input) => (self.stock_level(input), true),
        };
        Some(Transaction { kind: input.kind(), rows, commits })
    }
}
