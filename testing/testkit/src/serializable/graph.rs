//! A graph of which things come before which, and a search for a circle in it.
//!
//! Invariant: nodes up to `things` are the things; the others are moments, in their order, each
//! after those that had ended by then. So that "ended before it began" takes two edges a thing
//! and not one a pair.

use super::Because;
use crate::linear::Span;

/// An edge to another node.
#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    because: Because,
}

/// A graph of things that have a beginning and an end.
#[derive(Debug)]
pub struct Graph {
    things: usize,
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Things with these spans, of which no two stamps are the same.
    pub fn new(spans: impl Iterator<Item = Span>) -> Self {
        let spans: Vec<Span> = spans.collect();
        let mut ends: Vec<(u64, usize)> =
            spans.iter().enumerate().map(|(thing, span)| (span.returned, thing)).collect();
        ends.sort_unstable();
        let things = spans.len();
        let mut graph = Self { things, edges: vec![Vec::new(); 2 * things] };
        for (moment, (_, thing)) in ends.iter().enumerate() {
            graph.add(*thing, things + moment, Because::Returned);
            if moment > 0 {
                graph.add(things + moment - 1, things + moment, Because::Returned);
            }
        }
        for (thing, span) in spans.iter().enumerate() {
            let before = ends.partition_point(|(returned, _)| *returned < span.invoked);
            if let Some(moment) = before.checked_sub(1) {
                graph.add(things + moment, thing, Because::Returned);
            }
        }
        graph
    }

    /// `from` comes before `to`; nothing comes before itself.
    pub fn add(&mut self, from: usize, to: usize, because: Because) {
        if let Some(edges) = self.edges.get_mut(from).filter(|_| from != to) {
            edges.push(Edge { to, because });
        }
    }

    /// The number of edges between things and moments.
    #[must_use]
    pub fn constraints(&self) -> u64 {
        self.edges.iter().map(|edges| edges.len() as u64).sum()
    }

    /// A circle, if there is one: each thing in it, and why it comes before the next one.
    #[must_use]
    pub fn circle(&self) -> Option<Vec<(usize, Because)>> {
        let left = self.without_ends();
        let start = left.iter().position(|is_left| *is_left)?;
        // Each node that is left has an edge to a node that is left: go on until one comes again.
        let mut path: Vec<(usize, Because)> = Vec::new();
        let mut visited = vec![None; self.edges.len()];
        let mut node = start;
        while visited.get(node) == Some(&None) {
            if let Some(place) = visited.get_mut(node) {
                *place = Some(path.len());
            }
            let mut edges = self.edges.get(node)?.iter();
            let next = edges.find(|edge| left.get(edge.to) == Some(&true))?;
            path.push((node, next.because));
            node = next.to;
        }
        let begin = visited.get(node).copied().flatten()?;
        let mut circle = path.split_off(begin);
        circle.retain(|(node, _)| *node < self.things);
        Some(circle)
    }

    /// Takes away what nothing comes after, again and again. Says what is left.
    fn without_ends(&self) -> Vec<bool> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.edges.len()];
        let mut after: Vec<usize> = self.edges.iter().map(Vec::len).collect();
        for (from, edges) in self.edges.iter().enumerate() {
            for edge in edges {
                if let Some(before) = before.get_mut(edge.to) {
                    before.push(from);
                }
            }
        }
        let mut ends: Vec<usize> =
            (0..after.len()).filter(|node| after.get(*node) == Some(&0)).collect();
        let mut left = vec![true; after.len()];
        while let Some(node) = ends.pop() {
            if let Some(is_left) = left.get_mut(node) {
                *is_left = false;
            }
            for from in before.get(node).into_iter().flatten() {
                let Some(count) = after.get_mut(*from) else { continue };
                *count -= 1;
                if *count == 0 {
                    ends.push(*from);
                }
            }
        }
        left
    }
}
