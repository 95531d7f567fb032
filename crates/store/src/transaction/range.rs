//! Scans of a transaction: its snapshot under its own writes.
//!
//! Invariant: `base` and `own` are each read from both ends, and what was taken from one and not
//! handed out waits in it. The smaller of their first keys is the next from the front, the larger
//! of their last keys the next from the back; an own write hides the snapshot's entry.
//! Invariant: the keys read are those handed out, and those that precede them from the same end.

use std::collections::btree_map;
use std::fmt;

use esker_device::process::Process;
use esker_format::ids::KeyspaceId;
use esker_substrate::sync::Mutex;

use super::merge;
use super::reads::{Own, Reads, WritesOf};
use crate::error::Result;
use crate::range::{Interval, Range};
use crate::read::Entry;

/// The entries of a keyspace, or of a part of it, as a transaction sees them: an iterator from both
/// ends over `Result<(key, value)>`. The entries that it returns count as read, and so do the
/// absent keys that it passes; keys that it does not reach do not. After an error it is finished.
pub struct TransactionRange<'tx> {
    base: Ends<Range>,
    own: Option<Ends<btree_map::Range<'tx, Vec<u8>, Own>>>,
    /// The transaction's writes to the keyspace: the snapshot's entries within ranges that it has
    /// removed are skipped.
    writes: Option<&'tx WritesOf>,
    /// There was an error.
    is_over: bool,
    scanned: Scanned<'tx>,
}

/// The part of a range that has been read. It replaces the span of the whole range when it is
/// dropped.
pub(super) struct Scanned<'tx> {
    process: Process,
    reads: &'tx Mutex<Reads>,
    /// The span's keyspace and place; `None` when there are no keys in it.
    place: Option<(KeyspaceId, usize)>,
    front: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
    whole: bool,
}

/// An iterator whose next items can be peeked at both ends.
struct Ends<I: Iterator> {
    rest: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

impl<I: DoubleEndedIterator> Ends<I> {
    const fn new(rest: I) -> Self {
        Self { rest, front: None, back: None }
    }

    fn peek(&mut self, back: bool) -> Option<&I::Item> {
        let (end, other) = if back {
            (&mut self.back, &mut self.front)
        } else {
            (&mut self.front, &mut self.back)
        };
        if end.is_none() {
            let next = if back { self.rest.next_back() } else { self.rest.next() };
            *end = next.or_else(|| other.take());
        }
        end.as_ref()
    }

    fn take(&mut self, back: bool) -> Option<I::Item> {
        if back { self.back.take() } else { self.front.take() }
    }
}

impl<'tx> Scanned<'tx> {
    pub fn new(reads: &'tx Mutex<Reads>, place: Option<(KeyspaceId, usize)>) -> Self {
        Self { process: Process::current(), reads, place, front: None, back: None, whole: false }
    }

    fn note(&mut self, key: &[u8], back: bool) {
        let end = if back { &mut self.back } else { &mut self.front };
        let end = end.get_or_insert_default();
        end.clear();
        end.extend_from_slice(key);
    }
}

impl Drop for Scanned<'_> {
    fn drop(&mut self) {
        let place = self.place.filter(|_| !self.whole && self.process.is_current());
        if let Some((id, place)) = place {
            let mut reads = self.reads.lock();
            reads.narrow(id, place, self.front.as_deref(), self.back.as_deref());
        }
    }
}

impl<'tx> TransactionRange<'tx> {
    pub(super) fn new(
        base: Range,
        own: Option<(&'tx WritesOf, &Interval)>,
        scanned: Scanned<'tx>,
    ) -> Self {
        let writes = own.map(|(of, _)| of);
        let own = own.map(|(of, interval)| Ends::new(of.within(interval)));
        Self { base: Ends::new(base), own, writes, is_over: false, scanned }
    }

    /// Skips the snapshot's entries in removed ranges; these are own writes, so skipping is no
    /// read.
    fn pass_removed(&mut self, back: bool) {
        let Some(removed) = self.writes.filter(|of| of.has_ranges()) else { return };
        while let Some(Ok((key, _))) = self.base.peek(back) {
            if !removed.has_removed(key) {
                return;
            }
            self.base.take(back);
        }
    }

    fn step(&mut self, back: bool) -> Option<Result<Entry>> {
        // Also for what is in memory: a child by `fork` is answered nothing.
        if let Err(error) = self.base.rest.check_process() {
            self.end();
            return Some(Err(error));
        }
        while !self.is_over {
            self.pass_removed(back);
            let own = self.own.as_mut().and_then(|own| own.peek(back)).copied();
            let (from_base, from_own) = match (self.base.peek(back), own) {
                (None, None) => {
                    self.scanned.whole = true;
                    return None;
                }
                (Some(Err(_)), _) => {
                    let error = self.base.take(back);
                    self.end();
                    return error;
                }
                (Some(_), None) => (true, false),
                (None, Some(_)) => (false, true),
                (Some(Ok((base, _))), Some((own, _))) => {
                    let order = base.cmp(own);
                    let order = if back { order.reverse() } else { order };
                    (order.is_le(), order.is_ge())
                }
            };
            let base = if from_base { self.base.take(back) } else { None };
            if !from_own {
                if let Some(Ok((key, _))) = &base {
                    self.scanned.note(key, back);
                }
                return base;
            }
            if let Some(own) = &mut self.own {
                own.take(back);
            }
            let Some((key, own)) = own else { continue };
            let Some(value) = self.value(key, own, base) else { continue };
            self.scanned.note(key, back);
            if value.is_err() {
                self.end();
            }
            return Some(value.map(|value| (key.clone(), value)));
        }
        None
    }

    /// The value of a key that the transaction has written, over what the snapshot has of it.
    fn value(&self, key: &[u8], own: &Own, base: Option<Result<Entry>>) -> Option<Result<Vec<u8>>> {
        let of = self.writes?;
        let older = || base.transpose().map(|base| base.map(|(_, value)| value));
        merge::value(&of.slot, key, Some(own.effect()), older).transpose()
    }

    /// Ends the iterator. The rest of the range is unknown: all of it counts as read.
    fn end(&mut self) {
        (self.scanned.whole, self.is_over) = (true, true);
        self.own = None;
        (self.base.front, self.base.back) = (None, None);
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl std::iter::FusedIterator for TransactionRange<'_> {}

impl fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Entries are left out: values do not belong in logs.
        f.debug_struct("TransactionRange").field("base", &self.base.rest).finish_non_exhaustive()
    }
}
