//! Ordered maps on flash in a small memory: the LA-tree and what it is compared with.
//!
//! `checked` compares each answer with a map; `chips` has the chips and devices; `measure` runs
//! systems on them, whose clocks say what an operation takes; `table` has what both tables of the
//! slides share; [`nand`], [`ssd`], [`adapt`], [`btree`], [`memory`], [`devices`] and [`peers`] are
//! experiments. Time and randomness are simulated: what is counted is the same on every machine.

pub mod adapt;
pub mod btree;
mod checked;
mod chips;
pub mod devices;
mod measure;
pub mod memory;
pub mod nand;
pub mod peers;
pub mod ssd;
mod table;
