//! Merge operands of a key during a merge.
//!
//! A merge reads the versions of a key newest first. An operand is held until its base is known,
//! and the two become one where every reader sees both or neither. The result of an operand
//! and a value is a value, under the operand's number: no reader sees a state between the two.

use esker_format::data::Data;
use esker_format::ids::Seq;

use crate::read::operands::Operator;
use crate::read::versions::{Fate, Keep};

/// Operands, joined to one, that have not been written.
#[derive(Debug)]
pub(super) struct Held {
    /// That of the newest of them.
    pub seq: Seq,
    pub operand: Vec<u8>,
    fate: Fate,
}

/// An entry that is to be written.
#[derive(Debug)]
pub(super) struct Ready {
    pub number: Seq,
    pub bytes: Vec<u8>,
    pub is_operand: bool,
    pub fate: Fate,
}

/// The base of operands: a version, or a range tombstone.
#[derive(Debug)]
pub(super) struct Base<'a> {
    pub seq: Seq,
    /// The data for all readers.
    pub data: Data<'a>,
}

/// The result of operands and their base.
#[derive(Debug)]
pub(super) enum Under {
    /// One operand.
    Operand(Held),
    /// A value, with this number.
    Value(Seq, Vec<u8>),
    /// They are not joined.
    Nothing(Held),
}

impl Ready {
    pub fn data(&self) -> Data<'_> {
        if self.is_operand { Data::Operand(&self.bytes) } else { Data::Put(&self.bytes) }
    }
}

impl Held {
    pub fn new(seq: Seq, operand: &[u8], fate: Fate) -> Self {
        Self { seq, operand: operand.to_vec(), fate }
    }

    /// As an entry.
    pub fn into_operand(self) -> Ready {
        Ready { number: self.seq, bytes: self.operand, is_operand: true, fate: self.fate }
    }

    /// The result of applying them to `base`, the next older version.
    pub fn put_onto(self, base: &Base<'_>, key: &[u8], keep: &Keep, operator: &Operator) -> Under {
        if keep.separates(self.seq, base.seq) {
            return Under::Nothing(self);
        }
        match base.data {
            Data::Delete => Under::Value(self.seq, self.operand),
            Data::Put(older) => match operator.join_inline(key, older, &self.operand) {
                Some(value) => Under::Value(self.seq, value),
                None => Under::Nothing(self),
            },
            Data::Operand(older) => match operator.join_inline(key, older, &self.operand) {
                Some(operand) => Under::Operand(Self { operand, ..self }),
                None => Under::Nothing(self),
            },
            // A blob would have to be read, and a value with an expiry must stay a separate
            // version.
            Data::Reference(_) | Data::PutUntil(..) => Under::Nothing(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::read::operands::{BoxError, MergeOperator};

    fn keep(points: &[u64]) -> Keep {
        Keep::new(points.iter().map(|point| Seq(*point)).collect(), None)
    }

    fn append() -> Operator {
        let function = |_: &[u8], older: &[u8], newer: &[u8]| Ok([older, newer].concat());
        let function: Arc<dyn MergeOperator> =
            Arc::new(function as fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, BoxError>);
        Operator { function: Some(function), ..Operator::default() }
    }

    fn onto(points: &[u64], operator: &Operator, seq: u64, data: Data<'_>) -> String {
        let held = Held::new(Seq(9), b"new", Fate::Newest);
        let base = Base { seq: Seq(seq), data };
        match held.put_onto(&base, b"k", &keep(points), operator) {
            Under::Operand(held) => format!("operand {}", held.operand.escape_ascii()),
            Under::Value(seq, value) => format!("value {} at {seq}", value.escape_ascii()),
            Under::Nothing(held) => format!("operand {}", held.operand.escape_ascii()),
        }
    }

    #[test]
    fn operands_are_combined_with_values_that_no_snapshot_sees() {
        let append = append();
        let visible = [12];
        assert_eq!(onto(&visible, &append, 4, Data::Put(b"old")), "value oldnew at 9");
        assert_eq!(onto(&visible, &append, 4, Data::Operand(b"old")), "operand oldnew");
        assert_eq!(onto(&visible, &append, 4, Data::Delete), "value new at 9");
        let until = Data::PutUntil(esker_format::ids::Moment(7), b"old");
        assert_eq!(onto(&visible, &append, 4, until), "operand new");
        for point in [4, 8] {
            assert_eq!(onto(&[12, point], &append, 4, Data::Put(b"old")), "operand new");
        }
        for point in [3, 9] {
            assert_eq!(onto(&[12, point], &append, 4, Data::Put(b"old")), "value oldnew at 9");
        }
        assert_eq!(onto(&[8], &append, 4, Data::Put(b"old")), "operand new", "not visible yet");
    }

    #[test]
    fn without_an_operator_operands_stay_as_they_are() {
        let none = Operator::default();
        assert_eq!(onto(&[12], &none, 4, Data::Put(b"old")), "operand new");
        assert_eq!(onto(&[12], &none, 4, Data::Operand(b"old")), "operand new");
        assert_eq!(onto(&[12], &none, 4, Data::Delete), "value new at 9");
    }
}
