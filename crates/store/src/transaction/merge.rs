//! Operands among a transaction's own writes.
//!
//! Operands of one key are joined as they come. They apply to an earlier write of the transaction,
//! or to the snapshot's value; reading the latter is a read of the snapshot.

use esker_format::data::{Data, DataBuf};

use super::reads::OwnEffect;
use crate::error::Result;
use crate::operands;
use crate::slot::Slot;

/// A transaction's write of a key after one more operand.
#[derive(Debug)]
pub(super) enum Merged {
    /// A value.
    Value(Vec<u8>),
    /// An operand on the value written before, which expires: that goes by itself.
    WithOperand(DataBuf, Vec<u8>),
    /// An operand on the snapshot's value.
    Operand(Vec<u8>),
}

impl Merged {
    /// The write of the key, and the operand that is merged onto it.
    pub fn parts(&self) -> (Data<'_>, Option<&[u8]>) {
        match self {
            Self::Value(value) => (Data::Put(value), None),
            Self::WithOperand(data, operand) => (data.as_data(), Some(operand)),
            Self::Operand(operand) => (Data::Operand(operand), None),
        }
    }
}

/// The transaction's write of `key` after `own` and one more operand.
///
/// # Errors
/// Those of the operator; an operand that gets too long.
pub(super) fn onto(
    slot: &Slot,
    key: &[u8],
    own: Option<OwnEffect<'_>>,
    operand: &[u8],
) -> Result<Merged> {
    let joined = |older: Option<&[u8]>| {
        let joined = operands::merged(slot, key, older, operand)?;
        operands::validate(slot, &joined).map(|()| joined)
    };
    let Some(OwnEffect { data, operand: older }) = own else {
        return joined(None).map(Merged::Operand);
    };
    match data {
        Data::Operand(older) => joined(Some(older)).map(Merged::Operand),
        Data::PutUntil(..) => Ok(Merged::WithOperand(data.into(), joined(older)?)),
        Data::Delete | Data::Put(_) | Data::Reference(_) => {
            operands::merged(slot, key, data.value(), operand).map(Merged::Value)
        }
    }
}

/// The value that `key` has for the transaction; `snapshot` returns the one in the snapshot.
///
/// # Errors
/// Those of `snapshot` and of the operator.
pub(super) fn value(
    slot: &Slot,
    key: &[u8],
    own: Option<OwnEffect<'_>>,
    snapshot: impl FnOnce() -> Result<Option<Vec<u8>>>,
) -> Result<Option<Vec<u8>>> {
    let Some(OwnEffect { data, operand }) = own else { return snapshot() };
    match (data, operand) {
        (Data::Operand(newer), _) => {
            let older = snapshot()?;
            operands::merged(slot, key, older.as_deref(), newer).map(Some)
        }
        (data, Some(newer)) => operands::merged(slot, key, data.value(), newer).map(Some),
        (data, None) => Ok(data.value().map(<[u8]>::to_vec)),
    }
}
