//! Folding many operands of one key into a value on the writer's side.
//!
//! Operands of one key collect in the memtable until a flush joins them. A key that is merged onto
//! again and again is therefore folded at intervals: its value is read, and written as a put. That
//! is a write like any other, on the condition that the key has not been written since; operands
//! written in between are joined, and the condition is checked again.

use esker_format::data::{Data, Value};
use esker_format::ids::Seq;
use esker_substrate::error::Result;
use esker_substrate::snapshots::At;

use super::Stack;
use crate::Index;
use crate::run::lookup::Probe;

/// The value to which a key's operands fold.
#[derive(Debug)]
pub struct Folded {
    /// Number of the newest version that was read.
    pub newest: Seq,
    /// The value.
    pub value: Value,
}

impl Index {
    /// The number of the newest version of `key` in the memtable that takes writes, unless a newer
    /// range tombstone covers it. The caller must hold back all writes.
    pub fn newest_in_memtable(&self, key: &[u8]) -> Option<Seq> {
        let view = self.views.load();
        let newest = view.memtable.get(key, Seq::MAX)?.seq();
        (view.removal(key, Seq::MAX) < newest).then_some(newest)
    }

    /// The value that may be written in the place of the newest operands of `key`, as of a
    /// registered number; `None` when its newest version is not an operand, or their base is a
    /// value that will expire: the operands outlast it.
    ///
    /// # Errors
    /// Those of [`Index::get_at`].
    pub fn fold_operands(&self, key: &[u8], at: At) -> Result<Option<Folded>> {
        let view = self.views.load();
        let newest = view.memtable.get(key, at.seq);
        let Some(newest) = newest.filter(|newest| newest.data().is_operand()) else {
            return Ok(None);
        };
        let operator = self.operator();
        let folded = view.fold(&self.reader, &Probe::new(key, at.seq), &operator, || at.now)?;
        let value = folded.value.filter(|_| folded.lasts);
        Ok(value.map(|value| Folded { newest: newest.seq(), value }))
    }

    /// Operands of `key` above the number `above`, up to `at`, joined to one, and the number of the
    /// newest; `None` when a version of another type is among them, or they are not in the
    /// memtable.
    ///
    /// # Errors
    /// Those of the operator.
    pub fn operands_above(
        &self,
        key: &[u8],
        above: Seq,
        at: Seq,
    ) -> Result<Option<(Seq, Vec<u8>)>> {
        let view = self.views.load();
        let operator = self.operator();
        let mut stack = Stack::new(key, &operator);
        let leaves = view.memtable.leaves();
        let mut place = leaves.lower_bound(key, at);
        let newest = place.as_ref().map(|place| place.seq());
        while let Some(here) = place.take().filter(|here| here.key() == key) {
            if here.seq() == above {
                let is_there = view.removal(key, at) < above;
                let joined = stack.into_operand().filter(|_| is_there);
                return Ok(newest.zip(joined));
            }
            let data = here.data();
            if !matches!(data, Data::Operand(_)) {
                return Ok(None);
            }
            if let Some(Err(error)) = stack.push(data) {
                return Err(error);
            }
            place = here.next();
        }
        Ok(None)
    }
}
