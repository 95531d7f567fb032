//! A write, and the condition under which it is applied.

use std::sync::Arc;

use esker_format::action::WriteOp;
use esker_format::ids::Seq;

use crate::error::Result;
use crate::slot::Slot;

/// One write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub slot: &'a Arc<Slot>,
    pub action: WriteOp<'a>,
}

/// A condition under which writes are applied.
pub(crate) trait Condition {
    /// Whether the writes are those of a live transaction.
    const IS_TRANSACTION: bool;

    /// Whether the writes change the result of any read: otherwise transactions are not checked
    /// against them.
    const AFFECTS_READS: bool = true;

    /// Fails if the condition no longer holds. Returns the number of the last write that was
    /// checked.
    fn check_ahead(&self) -> Result<Seq>;

    /// Fails if the condition does not hold for the writes after `checked`. Called under the write
    /// mutex: nothing comes between this and the writes.
    fn check(&self, checked: Seq) -> Result<()>;
}

/// The condition that always holds.
pub(crate) struct Always;

impl Condition for Always {
    const IS_TRANSACTION: bool = false;

    fn check_ahead(&self) -> Result<Seq> {
        Ok(Seq::MAX)
    }

    fn check(&self, _checked: Seq) -> Result<()> {
        Ok(())
    }
}
