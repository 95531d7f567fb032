//! Tables, keys and lengths of rows.

use crate::random::{Random, mixed};
use crate::row::{Row, narrow_key};

/// A table or an index: its number in keys, the bytes of a row, and its columns in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    number: u32,
    row_bytes: usize,
    key_columns: usize,
}

const fn table(number: u32, row_bytes: usize, key_columns: usize) -> Table {
    Table { number, row_bytes, key_columns }
}

/// By warehouse.
pub const WAREHOUSE: Table = table(1, 89, 1);
/// By warehouse, district.
pub const DISTRICT: Table = table(2, 95, 2);
/// By warehouse, district, customer.
pub const CUSTOMER: Table = table(3, 655, 3);
/// By item.
pub const ITEM: Table = table(4, 82, 1);
/// By warehouse, item.
pub const STOCK: Table = table(5, 306, 2);
/// By warehouse, district, order.
pub const ORDER: Table = table(6, 24, 3);
/// By warehouse, district, order.
pub const NEW_ORDER: Table = table(7, 8, 3);
/// By warehouse, district, order, line.
pub const ORDER_LINE: Table = table(8, 54, 4);
/// By warehouse and a number that ascends: the table has no key of its own.
pub const HISTORY: Table = table(9, 46, 0);
/// By warehouse, district, last name, customer.
pub const CUSTOMER_BY_NAME: Table = table(10, 0, 4);
/// By warehouse, district, customer, order.
pub const ORDER_BY_CUSTOMER: Table = table(11, 0, 4);

impl Table {
    /// The key of columns.
    #[must_use]
    pub fn key(&self, columns: &[i64]) -> Vec<u8> {
        let narrow: Vec<u32> = columns.iter().map(|column| *column as u32).collect();
        narrow_key(self.number, &narrow)
    }

    /// A read of a row.
    #[must_use]
    pub fn get(&self, columns: &[i64]) -> Row {
        Row::Get { key: self.key(columns) }
    }

    /// A write of a row, whose contents follow from the key and a version.
    #[must_use]
    pub fn put(&self, columns: &[i64], version: u64) -> Row {
        let key = self.key(columns);
        let bytes = self.row_bytes.saturating_sub(4 * self.key_columns);
        let start = key.iter().fold(mixed(version), |sum, byte| mixed(sum ^ u64::from(*byte)));
        let mut value = vec![0; bytes];
        Random::new(start).fill(&mut value);
        Row::Put { key, value }
    }

    /// A removal of a row.
    #[must_use]
    pub fn delete(&self, columns: &[i64]) -> Row {
        Row::Delete { key: self.key(columns) }
    }

    /// A read of the rows whose first columns are these, from the last of them on to one below
    /// `to`.
    #[must_use]
    pub fn scan(&self, columns: &[i64], to: i64, most: u32) -> Row {
        let mut end = columns.to_vec();
        if let Some(last) = end.last_mut() {
            *last = to;
        }
        Row::Scan { from: self.key(columns), to: self.key(&end), most }
    }
}
