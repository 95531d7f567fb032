//! TPC-C as accesses to rows of a key-value store: what a database over such a store reads, writes
//! and removes for the transactions of [`tpcc`](crate::tpcc).
//!
//! The inputs of terminals are the same. A table or an index is a number in front of the key, the
//! columns of the primary key follow, and a value has the bytes of the other columns by the
//! specification (TPC Benchmark C, revision 5.11, 1.3). Values are random bytes: what is counted
//! here is accesses and bytes; TPC-C with its sums and conditions is the one over SQLite.
//!
//! The generator knows which orders there are and needs no answers: transactions follow from the
//! seed. Memory: eight bytes an order, four a customer.
//!
//! [`layout`] has the keys and lengths, [`load`] the first rows in the order of their keys,
//! [`transactions`] the accesses of a transaction.

pub mod layout;
pub mod load;
pub mod transactions;

pub use load::rows;
pub use transactions::{Transaction, Transactions};

#[cfg(test)]
mod tests;
