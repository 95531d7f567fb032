//! TPC-C over SQLite: nine tables, five transactions, and the conditions that hold between them.
//!
//! Source: TPC Benchmark C, revision 5.11; numbers in brackets are its clauses. Terminals do not
//! think, and no screen is shown: what is measured is the database. Money is in cents and rates
//! are in ten-thousandths, so that sums are exact; dates are microseconds that count the requests
//! of a terminal, so that two runs from one seed ask for the same.
//!
//! [`schema`] has the tables, [`draw`] the random parts, [`load`] the first rows, [`input`] what
//! terminals ask for, [`perform`] the SQL of a transaction, [`consistency`] the conditions.
//! Clocks, threads and connections are the caller's.

pub mod consistency;
pub mod draw;
pub mod input;
pub mod load;
pub mod perform;
pub mod schema;

pub use input::{Input, Kind, Terminal};

/// Districts of a warehouse [1.2.1].
pub const DISTRICTS: i64 = 10;

/// The numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Warehouses, from 1 on.
    pub warehouses: i64,
    /// Items, and stock of each warehouse.
    pub items: i64,
    /// Customers of a district, and its first orders.
    pub customers: i64,
}

impl Sizes {
    /// Those of the specification [1.2.1]: about 100 MB a warehouse in SQLite.
    #[must_use]
    pub const fn full(warehouses: i64) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000 }
    }

    /// A hundredth of the stock and a fiftieth of the customers, to show that everything runs.
    #[must_use]
    pub const fn small(warehouses: i64) -> Self {
        Self { warehouses, items: 1_000, customers: 60 }
    }

    /// Of a district's first orders, the first that is not delivered: seven tenths are.
    #[must_use]
    pub const fn first_undelivered(&self) -> i64 {
        self.customers - self.customers * 3 / 10 + 1
    }

    /// The highest number that is made into a last name; each of them belongs to a customer.
    #[must_use]
    pub fn last_names(&self) -> i64 {
        (self.customers - 1).clamp(0, 999)
    }
}

#[cfg(test)]
mod tests;
