//! Ordered maps on a raw chip in 128 KiB of memory: the LA-tree and what it is compared with.
//!
//! `checked` compares each answer with a map; `measure` runs one system on a simulated chip,
//! whose clock says what an operation takes; [`nand`], [`adapt`] and [`btree`] are experiments.
//! Time and randomness are simulated: what is counted is the same on every machine.

pub mod adapt;
pub mod btree;
mod checked;
mod measure;
pub mod nand;
