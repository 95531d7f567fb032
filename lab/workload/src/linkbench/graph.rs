//! The graph as it is loaded: a function of the seed, row by row in the order of keys.

use crate::row::Row;

use super::draw::Degrees;
use super::rows::{LINK_TYPES, Link, Visibility, count_row, node_row};

/// A graph of ids from 1 on.
#[derive(Clone, Copy, Debug)]
pub struct Graph {
    /// Of its contents.
    pub seed: u64,
    /// Ids: nodes, and where links begin.
    pub ids: u64,
    degrees: Degrees,
}

impl Graph {
    /// The graph of a seed. No memory.
    #[must_use]
    pub fn new(seed: u64, ids: u64) -> Self {
        let ids = ids.max(2);
        Self { seed, ids, degrees: Degrees::new(ids, seed) }
    }

    /// The degrees.
    #[must_use]
    pub const fn degrees(&self) -> &Degrees {
        &self.degrees
    }

    /// The number of links that an id is loaded with.
    #[must_use]
    pub fn degree(&self, id1: u64) -> u64 {
        if (1..=self.ids).contains(&id1) { self.degrees.of(id1 - 1) } else { 0 }
    }

    /// The links that an id is loaded with: to the ids that follow it, as LinkBench has it.
    pub fn links(&self, id1: u64) -> impl Iterator<Item = Link> + use<> {
        let of = move |id2| Link { id1, id2, visibility: Visibility::Shown, time: 0 };
        (id1 + 1..=id1 + self.degree(id1)).map(of)
    }

    /// The number of links of an id and type that are loaded.
    #[must_use]
    pub fn count(&self, id1: u64, kind: u64) -> u64 {
        // id2 - id1 is 1, 2, … up to the degree.
        let degree = self.degree(id1);
        let even = degree / LINK_TYPES;
        if kind == 0 { even } else { degree - even }
    }

    /// All rows, in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = Row> + use<> {
        let graph = *self;
        let ids = move || 1..=graph.ids;
        let links = (0..LINK_TYPES).flat_map(move |kind| {
            let of_id = move |id1| graph.links(id1).filter(move |link| link.kind() == kind);
            ids().flat_map(of_id).map(move |link| link.row(graph.seed))
        });
        let secondary = ids().flat_map(move |id1| {
            let of_kind = move |kind| graph.links(id1).filter(move |link| link.kind() == kind);
            (0..LINK_TYPES).flat_map(of_kind).map(move |link| link.secondary_row(graph.seed))
        });
        let counts = ids().flat_map(move |id1| {
            let counts = (0..LINK_TYPES).map(move |kind| (kind, graph.count(id1, kind)));
            let counts = counts.filter(|(_, count)| *count > 0);
            counts.map(move |(kind, count)| count_row(id1, kind, count, 0))
        });
        let nodes = ids().map(move |id| node_row(graph.seed, id, 0));
        links.chain(secondary).chain(counts).chain(nodes)
    }
}
