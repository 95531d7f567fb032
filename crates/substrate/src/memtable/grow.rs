//! What comes in the place of a leaf that has no room for one more version.
//!
//! A version behind all others of the leaf begins a new leaf, and the old one stays: ascending
//! keys leave full leaves behind them, and nothing is copied. Any other version parts the leaf.
//!
//! The positions between two neighbouring leaves go to the lighter one. So a version that fills a
//! leaf alone gets no neighbours, each of which would part it again; and the number of leaves
//! stays in proportion to memory and versions, whatever the order of inserts.

use std::iter::once;
use std::sync::Arc;

use super::cut::{Limits, cut};
use super::leaf::{Boundary, Leaf};
use super::version::Version;

/// The leaves that together hold what `leaf` held, and `version`. `leaf` may be one of them.
pub(super) fn grow(leaf: &Arc<Leaf>, version: Version, limits: &Limits) -> Vec<Arc<Leaf>> {
    match leaf.last() {
        Some(last) if *last.value() < version => {
            let (left, right) = (leaf.load_bytes(), version.memory_bytes());
            let lower = between((last.value(), left), (&version, right));
            vec![Arc::clone(leaf), Arc::new(Leaf::new(lower, vec![version]))]
        }
        _ => part(leaf, version, limits),
    }
}

/// The leaf in parts.
fn part(leaf: &Leaf, version: Version, limits: &Limits) -> Vec<Arc<Leaf>> {
    let mut versions = Vec::with_capacity(leaf.len() + 1);
    leaf.collect(&mut versions);
    versions.insert(versions.partition_point(|other| *other < version), version);
    let weights: Vec<_> = versions.iter().map(Version::memory_bytes).collect();

    let lengths = cut(&weights, limits);
    let mut rest = versions.into_iter();
    let parts: Vec<Vec<Version>> =
        lengths.into_iter().map(|length| rest.by_ref().take(length).collect()).collect();
    let inner = parts.windows(2).filter_map(|pair| match pair {
        [left, right] => Some(between((left.last()?, sum(left)), (right.first()?, sum(right)))),
        _ => None,
    });
    let boundaries: Vec<_> = once(leaf.lower().clone()).chain(inner).collect();
    boundaries
        .into_iter()
        .zip(parts)
        .map(|(lower, part)| Arc::new(Leaf::new(lower, part)))
        .collect()
}

fn sum(versions: &[Version]) -> u64 {
    versions.iter().map(Version::memory_bytes).sum()
}

/// The boundary between two neighbours and what stands in their leaves, in bytes: behind the left
/// one or at the right one.
fn between((left, left_bytes): (&Version, u64), (right, right_bytes): (&Version, u64)) -> Boundary {
    if left_bytes <= right_bytes { Boundary::at(right) } else { Boundary::behind(left) }
}
