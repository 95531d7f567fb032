//! Requests to the graph, without end.

use std::collections::{HashMap, HashSet};

use crate::random::Random;
use crate::row::Row;

use super::draw::{Zipf, chance, geometric};
use super::graph::Graph;
use super::rows::{
    LINK_TYPES, Link, Visibility, count_key, count_row, link_key, list, node_key, node_row,
};

/// Operations, as LinkBench names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The newest links of an id and type.
    GetLinkList,
    /// A node.
    GetNode,
    /// A link is added, or written again.
    AddLink,
    /// A link is written again.
    UpdateLink,
    /// A node is written again.
    UpdateNode,
    /// The number of links of an id and type.
    CountLink,
    /// A link is hidden.
    DeleteLink,
    /// A node is added.
    AddNode,
    /// A node is removed.
    DeleteNode,
    /// Links of an id by their id2s.
    GetLink,
}

/// The operations and how many of a million requests are of each.
pub const MIX: [(Kind, u64); 10] = [
    (Kind::GetLinkList, 507_119),
    (Kind::GetNode, 129_327),
    (Kind::AddLink, 89_887),
    (Kind::UpdateLink, 80_122),
    (Kind::UpdateNode, 73_664),
    (Kind::CountLink, 48_864),
    (Kind::DeleteLink, 29_908),
    (Kind::AddNode, 25_733),
    (Kind::DeleteNode, 10_116),
    (Kind::GetLink, 5_261),
];

/// Most rows of a list.
pub const LIST_MOST: u32 = 10_000;
/// Zipf's s of reads and writes of links, and of reads and updates of nodes.
const LINK_READS: f64 = 0.8;
const LINK_WRITES: f64 = 0.741;
const NODE_READS: f64 = 0.625;
const NODE_UPDATES: f64 = 0.606;
/// Of reads and writes of links, those whose id1 is drawn by its number of links.
const READS_BY_DEGREE: f64 = 0.005;
const WRITES_BY_DEGREE: f64 = 0.05;
/// Of lists, those that begin at an older link.
const OLDER_LISTS: f64 = 0.3;
/// The chance that a link that is asked for, updated, deleted or added is there.
const GET_EXISTS: f64 = 0.5;
const UPDATE_EXISTS: f64 = 0.9;
const DELETE_EXISTS: f64 = 0.9;
const ADD_EXISTS: f64 = 0.05;
/// The chance that each link of a multiget is the last, and the most of them.
const MULTIGET_ENDS: f64 = 0.382;
const MULTIGET_MOST: u32 = 128;

/// A request: an operation and its accesses, those of writes in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub kind: Kind,
    /// The accesses, in order.
    pub rows: Vec<Row>,
}

/// The stream of requests to a graph that was loaded.
#[derive(Clone, Debug)]
pub struct Requests {
    random: Random,
    graph: Graph,
    link_reads: Zipf,
    link_writes: Zipf,
    node_reads: Zipf,
    node_updates: Zipf,
    /// Requests so far: the time of what is written.
    time: u64,
    /// Links that were written since the load, by their ids.
    written: HashMap<(u64, u64), (Visibility, u64)>,
    /// Links that an id has been given since the load.
    added: HashMap<u64, u64>,
    /// What counts differ by from those that were loaded.
    counts: HashMap<(u64, u64), i64>,
    removed_nodes: HashSet<u64>,
    nodes: u64,
}

impl Requests {
    /// Requests to a graph, of a seed.
    #[must_use]
    pub fn new(seed: u64, graph: Graph) -> Self {
        let zipf = |skew, salt| Zipf::new(graph.ids, skew, graph.seed ^ salt);
        Self {
            random: Random::new(seed),
            graph,
            link_reads: zipf(LINK_READS, 11),
            link_writes: zipf(LINK_WRITES, 22),
            node_reads: zipf(NODE_READS, 33),
            node_updates: zipf(NODE_UPDATES, 44),
            time: 0,
            written: HashMap::new(),
            added: HashMap::new(),
            counts: HashMap::new(),
            removed_nodes: HashSet::new(),
            nodes: graph.ids,
        }
    }

    /// The id that a link is read from, or written to.
    fn id1(&mut self, writes: bool) -> u64 {
        let share = if writes { WRITES_BY_DEGREE } else { READS_BY_DEGREE };
        if chance(&mut self.random, share) {
            return self.graph.degrees().draw_by_links(&mut self.random) + 1;
        }
        let zipf = if writes { self.link_writes } else { self.link_reads };
        zipf.draw(&mut self.random) + 1
    }

    /// The number of links that an id was ever given.
    fn given(&self, id1: u64) -> u64 {
        self.graph.degree(id1) + self.added.get(&id1).copied().unwrap_or(0)
    }

    /// A link of an id, one that it was given or the next one that it was not.
    fn link(&mut self, id1: u64, exists: bool) -> Link {
        let given = self.given(id1);
        let place = if exists && given > 0 { self.random.below(given) } else { given };
        let id2 = id1 + 1 + place;
        let loaded = place < self.graph.degree(id1);
        let absent = if loaded { (Visibility::Shown, 0) } else { (Visibility::Hidden, 0) };
        let (visibility, time) = self.written.get(&(id1, id2)).copied().unwrap_or(absent);
        Link { id1, id2, visibility, time }
    }

    /// Whether a link was ever written.
    fn is_there(&self, link: &Link) -> bool {
        link.id2 <= link.id1 + self.given(link.id1)
    }

    /// Writes a link, its entry in the index and the count.
    fn write(&mut self, old: Link, visibility: Visibility) -> Vec<Row> {
        let (id1, id2, time) = (old.id1, old.id2, self.time);
        let new = Link { id1, id2, visibility, time };
        let was_there = self.is_there(&old);
        if !was_there {
            *self.added.entry(id1).or_default() += 1;
        }
        self.written.insert((id1, id2), (visibility, time));
        let shown = |link: &Link| i64::from(link.visibility == Visibility::Shown);
        let more = shown(&new) - if was_there { shown(&old) } else { 0 };
        let kind = old.kind();
        let change = self.counts.entry((id1, kind)).or_default();
        *change += more;
        let count = self.graph.count(id1, kind).saturating_add_signed(*change);
        let mut rows = vec![Row::Get { key: old.key() }, new.row(self.graph.seed)];
        if was_there {
            rows.push(Row::Delete { key: old.secondary_key() });
        }
        rows.push(new.secondary_row(self.graph.seed));
        rows.push(count_row(id1, kind, count, time));
        rows
    }

    fn write_link(&mut self, exists: f64) -> Vec<Row> {
        let id1 = self.id1(true);
        let exists = chance(&mut self.random, exists);
        let link = self.link(id1, exists);
        self.write(link, Visibility::Shown)
    }

    fn delete_link(&mut self) -> Vec<Row> {
        let id1 = self.id1(true);
        let exists = chance(&mut self.random, DELETE_EXISTS);
        let link = self.link(id1, exists);
        if !self.is_there(&link) || link.visibility == Visibility::Hidden {
            return vec![Row::Get { key: link.key() }];
        }
        self.write(link, Visibility::Hidden)
    }

    fn get_links(&mut self) -> Vec<Row> {
        let id1 = self.id1(false);
        let kind = self.random.below(LINK_TYPES);
        let count = geometric(&mut self.random, MULTIGET_ENDS, MULTIGET_MOST);
        let get = |_| {
            let exists = chance(&mut self.random, GET_EXISTS);
            let id2 = self.link(id1, exists).id2;
            Row::Get { key: link_key(kind, id1, id2) }
        };
        (0..count).map(get).collect()
    }

    fn get_list(&mut self) -> Vec<Row> {
        let id1 = self.id1(false);
        let kind = self.random.below(LINK_TYPES);
        let is_older = chance(&mut self.random, OLDER_LISTS);
        let since = if is_older { self.random.below(self.time) } else { 0 };
        vec![list(id1, kind, since, LIST_MOST)]
    }

    /// A node by a law, another where that one was removed.
    fn node(&mut self, zipf: Option<Zipf>) -> u64 {
        for _ in 0..16 {
            let id = match zipf {
                Some(zipf) => zipf.draw(&mut self.random) + 1,
                None => self.random.below(self.nodes) + 1,
            };
            if !self.removed_nodes.contains(&id) {
                return id;
            }
        }
        self.nodes
    }

    fn rows(&mut self, kind: Kind) -> Vec<Row> {
        match kind {
            Kind::GetLinkList => self.get_list(),
            Kind::GetNode => vec![Row::Get { key: node_key(self.node(Some(self.node_reads))) }],
            Kind::AddLink => self.write_link(ADD_EXISTS),
            Kind::UpdateLink => self.write_link(UPDATE_EXISTS),
            Kind::UpdateNode => {
                let id = self.node(Some(self.node_updates));
                vec![Row::Get { key: node_key(id) }, node_row(self.graph.seed, id, self.time)]
            }
            Kind::CountLink => {
                let id1 = self.id1(false);
                vec![Row::Get { key: count_key(id1, self.random.below(LINK_TYPES)) }]
            }
            Kind::DeleteLink => self.delete_link(),
            Kind::AddNode => {
                self.nodes += 1;
                vec![node_row(self.graph.seed, self.nodes, self.time)]
            }
            Kind::DeleteNode => {
                let id = self.node(None);
                self.removed_nodes.insert(id);
                vec![Row::Delete { key: node_key(id) }]
            }
            Kind::GetLink => self.get_links(),
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.time += 1;
        let all = MIX.iter().map(|(_, share)| share).sum();
        let mut drawn = self.random.below(all);
        let mut kind = Kind::GetLinkList;
        for (of, share) in MIX {
            kind = of;
            if drawn < share {
                break;
            }
            drawn -= share;
        }
        Some(Request { kind, rows: self.rows(kind) })
    }
}
