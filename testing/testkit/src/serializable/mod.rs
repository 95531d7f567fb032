//! Serializability: some order of all transactions, one after the other, explains every answer.
//!
//! Reading order: this file (what a history is, and which transaction must come before which),
//! [`graph`] (whether that goes round in a circle), [`drive`] (threads that make a history on a
//! real store).
//!
//! The check knows nothing of snapshots and of how the store compares what was read. It builds the
//! *direct serialization graph* of A. Adya, *Weak Consistency*, 1999, and looks for a circle:
//! * `wrote`: a reader of a version comes after its writer;
//! * `overwrote`: a writer of a key comes after the writer of the version before;
//! * `missed`: a reader of a version comes before the writer of the next one, and a reader that
//!   finds nothing, in a range as well, before the transaction that writes the key first (or next,
//!   after a delete);
//! * `returned`: a transaction that begins after another has ended comes after it.
//!
//! Without a circle there is such an order, and it fits the clock as well. Two things are taken
//! from the store: the order of the versions of one key is that of the commits' numbers, and
//! where a key is found absent the transaction's number says between which two of its writes. A
//! store that lies in them is accused of a circle; it cannot hide one.
//!
//! Invariant: no version is written twice, so that a value names its writer. Deletes have versions
//! too, which no reader sees.

pub mod drive;
pub mod graph;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use crate::linear::stacks::{self, Stood};
use crate::linear::{ABSENT, Key, Span, Version};
use crate::violation::{Oracle, Verdict, Violation, ensure};
use graph::Graph;

/// A transaction, a batch, or reads of a snapshot. One that was refused, or rolled back, has
/// written nothing, and what it read must be explained all the same.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// From its beginning to its end.
    pub span: Span,
    /// The number that it says it reads at: places absent keys.
    pub reads_at: u64,
    /// The versions of others that it read: a key that was in a range and not found is [`ABSENT`].
    pub reads: Vec<(Key, Version)>,
    /// The number of its last write, when it has committed any.
    pub number: Option<u64>,
    /// Its writes.
    pub writes: Vec<Write>,
}

/// The last write of a transaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// A number of its own.
    pub version: Version,
    /// Whether nothing is found afterwards.
    pub is_delete: bool,
}

/// The reason for which one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It wrote what the other read.
    Wrote(Key),
    /// The other wrote over what it wrote.
    Overwrote(Key),
    /// It read what was there before the other wrote.
    Missed(Key),
    /// It had ended before the other began.
    Returned,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrote(key) => write!(f, "wrote key {key} that was read by"),
            Self::Overwrote(key) => write!(f, "wrote key {key} before"),
            Self::Missed(key) => write!(f, "read key {key} without the write of"),
            Self::Returned => write!(f, "had ended before"),
        }
    }
}

/// A committed version of a key.
#[derive(Clone, Copy, Debug)]
struct Link {
    number: u64,
    writer: usize,
    write: Write,
}

/// All versions of every key in their order, and where each version is.
#[derive(Debug, Default)]
struct Versions {
    chains: HashMap<Key, Vec<Link>>,
    places: HashMap<Version, usize>,
}

impl Versions {
    fn new(history: &[Transaction]) -> Self {
        let mut versions = Self::default();
        for (writer, transaction) in history.iter().enumerate() {
            let Some(number) = transaction.number else { continue };
            for write in &transaction.writes {
                let link = Link { number, writer, write: *write };
                versions.chains.entry(write.key).or_default().push(link);
            }
        }
        for chain in versions.chains.values_mut() {
            chain.sort_by_key(|link| link.number);
            for (place, link) in chain.iter().enumerate() {
                versions.places.insert(link.write.version, place);
            }
        }
        versions
    }

    fn chain(&self, key: Key) -> &[Link] {
        self.chains.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The number of versions of `key` that there were when `version` was read.
    fn seen(&self, key: Key, version: Version, reads_at: u64) -> Verdict<usize> {
        let chain = self.chain(key);
        if version == ABSENT {
            let seen = chain.partition_point(|link| link.number <= reads_at);
            let last = seen.checked_sub(1).and_then(|at| chain.get(at));
            ensure(last.is_none_or(|link| link.write.is_delete), Oracle::ContentMatches, || {
                format!("key {key} is absent at {reads_at}, and the last write there was no delete")
            })?;
            return Ok(seen);
        }
        let place = self
            .places
            .get(&version)
            .filter(|place| chain.get(**place).is_some_and(|link| link.write.version == version));
        let unknown = || format!("key {key} has version {version}, which nobody committed");
        let place = place.ok_or_else(|| Violation::new(Oracle::NothingFromNowhere, unknown()))?;
        Ok(place + 1)
    }
}

/// Looks for an order that explains `history`. Answers how many constraints it has to fit.
///
/// # Errors
/// [`Oracle::Serializable`] with a circle when there is none; [`Oracle::NothingFromNowhere`] for a
/// version that no transaction committed, [`Oracle::ContentMatches`] for a key that was not absent.
pub fn check(history: &[Transaction]) -> Verdict<u64> {
    let versions = Versions::new(history);
    let mut graph = Graph::new(history.iter().map(|transaction| transaction.span));
    for (reader, transaction) in history.iter().enumerate() {
        for (key, version) in &transaction.reads {
            let seen = versions
                .seen(*key, *version, transaction.reads_at)
                .map_err(|violation| violation.at(format!("transaction {reader}")))?;
            let chain = versions.chain(*key);
            if let Some(last) = seen.checked_sub(1).and_then(|at| chain.get(at)) {
                graph.add(last.writer, reader, Because::Wrote(*key));
            }
            if let Some(next) = chain.get(seen) {
                graph.add(reader, next.writer, Because::Missed(*key));
            }
        }
    }
    for (key, chain) in &versions.chains {
        for (link, next) in chain.iter().zip(chain.iter().skip(1)) {
            graph.add(link.writer, next.writer, Because::Overwrote(*key));
        }
    }
    let constraints = graph.constraints();
    match graph.circle() {
        None => Ok(constraints),
        Some(circle) => {
            let steps: Vec<_> = circle.iter().map(|(from, why)| format!("{from} {why}")).collect();
            let again = circle.first().map_or(0, |(from, _)| *from);
            let detail = format!("{} {again}", steps.join(" "));
            Err(Violation::new(Oracle::Serializable, detail))
        }
    }
}

/// Whether what was found under versions that were merged is what committed transactions wrote
/// before them.
///
/// # Errors
/// [`Oracle::ContentMatches`] for the first that has another base.
pub fn stacks_fit<'s>(
    history: &[Transaction],
    stood: impl IntoIterator<Item = &'s Stood>,
) -> Verdict {
    let versions = Versions::new(history);
    for stood in stood {
        let chain = versions.chain(stood.key);
        // One that was not committed has only been seen by its own transaction.
        let Some(place) = versions.places.get(&stood.version) else { continue };
        let before = place.checked_sub(1).and_then(|at| chain.get(at));
        let before = before.filter(|link| !link.write.is_delete);
        stacks::compare(stood, before.map_or(ABSENT, |link| link.write.version))?;
    }
    Ok(())
}
