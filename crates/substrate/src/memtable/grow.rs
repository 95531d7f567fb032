//! The replacement of a leaf that has no space for one more version.
//!
//! A version behind all others of the leaf begins a new leaf, and the old one stays: ascending keys
//! leave full leaves, and nothing is copied. Any other version splits the leaf into several small
//! ones: they can grow for a long time before they are copied again.
//!
//! The positions between two neighbouring leaves go to the lighter one. So a version that fills a
//! leaf alone gets no neighbours, each of which would split it again; and the number of leaves
//! stays in proportion to memory and versions, for any order of inserts.

use std::iter::once;
use std::sync::Arc;

use super::cut::{Limits, cut};
use super::leaf::Leaf;
use super::position::{Boundary, Position};
use super::version::Version;

/// The leaves that together hold what `leaf` held, and `version`, as far as `upper`. `leaf` may be
/// one of them.
pub(super) fn grow(
    leaf: &Arc<Leaf>,
    upper: Option<Position<'_>>,
    version: Version,
    limits: &Limits,
) -> Vec<Arc<Leaf>> {
    match leaf.last() {
        Some(last) if last.version.position() < version.position() => {
            let (left, right) = (leaf.memory_bytes(), version.memory_bytes());
            let lower = between((last.version, left), (&version, right));
            vec![Arc::clone(leaf), Arc::new(Leaf::new(lower, upper, vec![version]))]
        }
        _ => part(leaf, upper, version, limits),
    }
}

/// The leaf in parts.
fn part(
    leaf: &Leaf,
    upper: Option<Position<'_>>,
    version: Version,
    limits: &Limits,
) -> Vec<Arc<Leaf>> {
    let mut versions = Vec::with_capacity(leaf.len() + 1);
    leaf.collect(&mut versions);
    let rank = versions.partition_point(|other| other.position() < version.position());
    versions.insert(rank, version);
    let weights: Vec<_> = versions.iter().map(Version::memory_bytes).collect();
    let lengths = cut(&weights, &limits.of_a_part());

    let mut rest = versions.into_iter();
    let parts: Vec<Vec<Version>> =
        lengths.into_iter().map(|length| rest.by_ref().take(length).collect()).collect();
    let inner = parts.windows(2).filter_map(|pair| match pair {
        [left, right] => Some(between((left.last()?, sum(left)), (right.first()?, sum(right)))),
        _ => None,
    });
    let lowers: Vec<_> = once(leaf.boundary().clone()).chain(inner).collect();
    let uppers = lowers.iter().skip(1).map(|lower| Some(lower.position())).chain([upper]);
    let leaves = lowers.iter().zip(uppers).zip(parts);
    leaves.map(|((lower, upper), part)| Arc::new(Leaf::new(lower.clone(), upper, part))).collect()
}

fn sum(versions: &[Version]) -> u64 {
    versions.iter().map(Version::memory_bytes).sum()
}

/// The boundary between two neighbours, given the bytes in their leaves: behind the left one or at
/// the right one.
fn between((left, left_bytes): (&Version, u64), (right, right_bytes): (&Version, u64)) -> Boundary {
    if left_bytes <= right_bytes {
        Boundary::at(right.position())
    } else {
        Boundary::behind(left.position())
    }
}
