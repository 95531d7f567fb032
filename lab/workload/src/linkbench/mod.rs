//! LinkBench (T. Armstrong, V. Ponnekanti, D. Borthakur, M. Callaghan, SIGMOD 2013): the requests
//! of a social graph, as accesses to rows of a key-value store.
//!
//! Operation mix, sizes, skews and quantiles are those of the configuration that LinkBench ships
//! (`FBWorkload.properties`, and its file of out-degrees, of which [`draw`] has a short table). The
//! graph has nodes, and links of two types between ids; a link has a row and an entry of a
//! secondary index, which lists are read from; each id and type has a count of its links.
//!
//! The generator knows what it has changed, and therefore needs no answers: a request is a list of
//! accesses that follows from the seed. Memory: about 100 bytes for each changed link, id or node.
//! What differs from LinkBench: an id2 follows from its place in the list of id1, the type of a
//! link from its ids, and contents are random bytes that no compressor makes shorter.
//!
//! [`draw`] has the distributions, [`rows`] keys and values, [`graph`] what is loaded,
//! [`requests`] what is asked for.

pub mod draw;
pub mod graph;
pub mod requests;
pub mod rows;

pub use graph::Graph;
pub use requests::{Kind, Request, Requests};

#[cfg(test)]
mod tests;
