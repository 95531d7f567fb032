//! The order of sorted sources: which one is first.
//!
//! A merge, or a scan, has up to two dozen sources, and a step moves one of them. The comparisons
//! are kept in a tournament tree: after a step only the matches of the source that has moved are
//! repeated, one for each doubling of the number of sources.
//!
//! Invariant: node `n` has the winner of its children `2n` and `2n + 1`; the leaf of source `s` is
//! node `leaves + s`.
//! Invariant: of equals the earlier source wins. Sources are the newest first.

/// No source: beaten by every other.
const NO_SOURCE: usize = usize::MAX;

/// The order of sources by their positions.
#[derive(Debug)]
pub(crate) struct Tournament {
    nodes: Vec<usize>,
    leaves: usize,
}

impl Tournament {
    /// For this many sources; `beats` tells whether one is before another.
    pub fn new(sources: usize, beats: impl Fn(usize, usize) -> bool) -> Self {
        let leaves = sources.next_power_of_two();
        let mut nodes = vec![NO_SOURCE; 2 * leaves];
        for (source, leaf) in nodes.iter_mut().skip(leaves).take(sources).enumerate() {
            *leaf = source;
        }
        let mut order = Self { nodes, leaves };
        for node in (1..leaves).rev() {
            order.play(node, &beats);
        }
        order
    }

    /// The source that is first.
    pub fn first(&self) -> Option<usize> {
        self.nodes.get(1).copied().filter(|first| *first != NO_SOURCE)
    }

    /// A source has moved.
    #[inline]
    pub fn moved(&mut self, source: usize, beats: impl Fn(usize, usize) -> bool) {
        let (mut node, mut winner) = (self.leaves + source, source);
        while node > 1 {
            let other = self.nodes.get(node ^ 1).copied().unwrap_or(NO_SOURCE);
            let is_later = node & 1 == 1;
            let stays = other == NO_SOURCE
                || if is_later { beats(winner, other) } else { !beats(other, winner) };
            if !stays {
                winner = other;
            }
            node /= 2;
            if let Some(place) = self.nodes.get_mut(node) {
                *place = winner;
            }
        }
    }

    fn play(&mut self, node: usize, beats: &impl Fn(usize, usize) -> bool) {
        let child = |at: usize| self.nodes.get(at).copied().unwrap_or(NO_SOURCE);
        let (earlier, later) = (child(2 * node), child(2 * node + 1));
        let is_later = later != NO_SOURCE && (earlier == NO_SOURCE || beats(later, earlier));
        if let Some(winner) = self.nodes.get_mut(node) {
            *winner = if is_later { later } else { earlier };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_sources_none_is_first() {
        assert_eq!(Tournament::new(0, |_, _| unreachable!()).first(), None);
    }

    proptest! {
        /// After every move, the first is the earliest of the least.
        #[test]
        fn the_first_is_the_earliest_of_the_least(
            mut at in proptest::collection::vec(0u8..8, 1..40),
            moves in proptest::collection::vec((any::<proptest::sample::Index>(), 0u8..8), 0..60),
        ) {
            let mut order = Tournament::new(at.len(), |a, b| at[a] < at[b]);
            let least = |at: &[u8]| at.iter().enumerate().min_by_key(|(_, v)| **v).map(|(s, _)| s);
            prop_assert_eq!(order.first(), least(&at));
            for (source, to) in moves {
                let source = source.index(at.len());
                at[source] = to;
                order.moved(source, |a, b| at[a] < at[b]);
                prop_assert_eq!(order.first(), least(&at));
            }
        }
    }
}
