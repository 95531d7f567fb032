//! The versions of one key on their way through a merge.

use std::cmp;
use std::collections::VecDeque;
use std::sync::Arc;

use esker_format::KEY_BYTES_MAX;
use esker_format::data::Data;
use esker_format::entry::Payload;
use esker_format::ids::{Moment, Seq};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};

use super::held::{Base, Held, Ready, Under};
use crate::build::insert::Sink;
use crate::kind::context::KindContext;
use crate::read::operands::Operator;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::versions::{Fate, Keep};

/// The group being moved.
pub(crate) struct Group {
    pub keep: Keep,
    /// Everybody reads as of this moment or later.
    pub horizon: Moment,
    /// Where history is kept, what has expired by then counts as superseded: a split leaves it.
    pub expired: Moment,
    /// The keyspace's merge operator.
    pub operator: Arc<Operator>,
    pub key: Option<Vec<u8>>,
    /// Number of the group's last item, and whether that was a fence.
    pub last: (Seq, bool),
    /// The fate of the current item, once decided.
    fate: Option<Fate>,
    /// Removals of the key by the range, newest first, and how many of them are newer than the
    /// current item.
    removals: Vec<Seq>,
    removals_passed: usize,
    /// Tombstones that go unless an older version stays.
    pending: VecDeque<(Seq, Fate)>,
    /// Operands that were passed and not written, joined to one: the next older version decides
    /// their fate.
    held: Option<Held>,
    /// The result of the operands, until it is written.
    ready: Option<Ready>,
}

impl Group {
    /// Before the first one.
    pub fn none() -> Self {
        Self {
            keep: Keep::new(Vec::new(), None),
            horizon: Moment(0),
            expired: Moment(0),
            operator: Arc::default(),
            key: None,
            last: (Seq::MAX, true),
            fate: None,
            removals: Vec::new(),
            removals_passed: 0,
            pending: VecDeque::new(),
            held: None,
            ready: None,
        }
    }

    /// Determines what readers need, for the groups to come: those of now, or of a split the one of
    /// its number.
    pub fn serve(&mut self, context: KindContext<'_>, splits_at: Option<Seq>) {
        let mut points = context.snapshots().live();
        if planted::is(Bug::SnapshotBlocksReused) {
            points.numbers.truncate(1);
        }
        let floor = context.history_from().filter(|_| !planted::is(Bug::HistoryDropped));
        self.keep = match splits_at {
            Some(at) => Keep::as_of(at),
            None => Keep::new(points.numbers, floor),
        };
        let expires = context.history().is_some_and(|history| history.expires);
        (self.horizon, self.expired) = match splits_at {
            _ if !context.keeps_history() => (points.horizon, Moment(0)),
            Some(_) if expires && planted::is(Bug::SplitExpiresNow) => (points.horizon, Moment(0)),
            Some(at) if expires => (context.time_of(at), Moment(0)),
            // As of an earlier version it has not.
            None if expires => (Moment(0), points.horizon),
            _ => (Moment(0), Moment(0)),
        };
        self.operator = context.operator();
    }

    /// Whether the item belongs to another group. Returns an error for items out of order: merged
    /// entries are written under new checksums.
    pub fn ends_before(&self, key: &[u8], seq: Seq) -> Result<bool> {
        let order = self.key.as_deref().map_or(cmp::Ordering::Less, |group| group.cmp(key));
        // A fence may be followed by its own duplicate (I2) or by data, at the same key.
        let older = seq < self.last.0 || (seq == self.last.0 && self.last.1);
        if order.is_gt() || (order.is_eq() && !older) || key.len() > KEY_BYTES_MAX {
            return Err(out_of_order());
        }
        Ok(order.is_lt())
    }

    pub fn begin(&mut self, key: &[u8], removed: &RangeTombstones) {
        debug_assert!(self.held.is_none() && self.ready.is_none(), "the last group is closed");
        let group = self.key.get_or_insert_default();
        group.clear();
        group.extend_from_slice(key);
        self.last = (Seq::MAX, true);
        self.keep.next_key();
        self.pending.clear();
        self.removals.clear();
        self.removals_passed = 0;
        if let Some(range) = removed.at(key) {
            self.removals.extend_from_slice(&range.seqs);
        }
    }

    /// Writes the item, if it is kept, and returns whether it is. After an error the call may be
    /// repeated.
    pub fn place(
        &mut self,
        insert: &mut impl Sink,
        key: &[u8],
        seq: Seq,
        payload: &Payload<'_>,
        full: bool,
    ) -> Result<bool> {
        self.write_ready(insert, key)?;
        if let Payload::Fence(fence) = payload {
            // Data behind a fence with a number is older than all operands before it.
            self.release(insert, key)?;
            insert.add_fence(key, seq, fence)?;
            self.last = (seq, true);
            return Ok(true);
        }
        // A value that has expired for all readers is a tombstone: it still hides older versions.
        let data = payload.data().unwrap_or(Data::Delete).as_of(self.horizon);
        let has_expired = data.is_delete() && *payload != Payload::Delete;
        if self.held.is_some() && self.put_under(insert, key, seq, data, full)? {
            self.last = (seq, false);
            return Ok(true);
        }
        let fate = match self.fate_of(seq, data, full) {
            Fate::Newest if data.until().is_some_and(|until| until <= self.expired) => {
                Fate::Superseded
            }
            fate => fate,
        };
        match (fate, data) {
            (Fate::Drop, _) => {}
            _ if has_expired && planted::is(Bug::ExpiredHideNothing) => {}
            (fate, Data::Delete) if full => self.pend(seq, fate),
            (fate, Data::Operand(operand)) => self.held = Some(Held::new(seq, operand, fate)),
            (fate, data) => {
                self.write_pending(insert, key)?;
                let number = self.number(seq, data, fate, full);
                insert.add_data(key, number, &Payload::of(data), fate)?;
            }
        }
        self.fate = None;
        self.last = (seq, false);
        Ok(fate != Fate::Drop && !has_expired)
    }

    /// Ends the group: writes what is held. The merge has nothing older of the key, and after a
    /// full merge there is nothing older anywhere. After an error the call may be repeated.
    pub fn close(&mut self, insert: &mut impl Sink, full: bool) -> Result<()> {
        let Some(key) = self.key.take() else { return Ok(()) };
        let closed = self.close_key(insert, &key, full);
        self.key = Some(key);
        closed
    }

    fn close_key(&mut self, insert: &mut impl Sink, key: &[u8], full: bool) -> Result<()> {
        self.write_ready(insert, key)?;
        match self.held.take() {
            Some(held) if full => self.answer(held.seq, held.operand, full),
            held => self.held = held,
        }
        self.write_ready(insert, key)?;
        self.release(insert, key)
    }

    /// Puts the next older version of the key under the operands that are held, if that can be.
    /// Whether there is nothing more to be done with it.
    fn put_under(
        &mut self,
        insert: &mut impl Sink,
        key: &[u8],
        seq: Seq,
        data: Data<'_>,
        full: bool,
    ) -> Result<bool> {
        let Some(held) = self.held.take() else { return Ok(false) };
        let removal = self.removals.get(self.removals_passed).filter(|removal| **removal > seq);
        let base = match removal {
            Some(removal) => Base { seq: *removal, data: Data::Delete },
            None => Base { seq, data },
        };
        match held.put_onto(&base, key, &self.keep, &self.operator) {
            Under::Operand(joined) => {
                self.held = Some(joined);
                return Ok(true);
            }
            Under::Value(number, value) => self.answer(number, value, full),
            Under::Nothing(held) => self.ready = Some(held.into_operand()),
        }
        // The version itself is next: a reader that has the answer does not need it.
        self.write_ready(insert, key)?;
        Ok(false)
    }

    /// The held operands have become a value.
    fn answer(&mut self, seq: Seq, value: Vec<u8>, full: bool) {
        let fate = self.keep.fate(seq);
        let number = self.number(seq, Data::Put(&value), fate, full);
        self.ready = Some(Ready { number, bytes: value, is_operand: false, fate });
    }

    /// Writes the held operands as they are.
    fn release(&mut self, insert: &mut impl Sink, key: &[u8]) -> Result<()> {
        if let Some(held) = self.held.take() {
            self.ready = Some(held.into_operand());
        }
        self.write_ready(insert, key)
    }

    fn write_ready(&mut self, insert: &mut impl Sink, key: &[u8]) -> Result<()> {
        if self.ready.is_none() {
            return Ok(());
        }
        self.write_pending(insert, key)?;
        if let Some(ready) = &self.ready {
            insert.add_data(key, ready.number, &Payload::of(ready.data()), ready.fate)?;
        }
        self.ready = None;
        Ok(())
    }

    fn write_pending(&mut self, insert: &mut impl Sink, key: &[u8]) -> Result<()> {
        while let Some((seq, fate)) = self.pending.front().copied() {
            insert.add_data(key, seq, &Payload::Delete, fate)?;
            self.pending.pop_front();
        }
        Ok(())
    }

    /// The sequence number under which the version is written. Blocks whose versions have the
    /// number [`Seq::RESET`] may stay as they are for ever: a value with an expiry must not be in
    /// one, and a version newer than a range tombstone of its key must keep a number that shows
    /// this.
    fn number(&self, seq: Seq, data: Data<'_>, fate: Fate, full: bool) -> Seq {
        let lasts = data.until().is_none() && !self.was_removed();
        let is_reset = full && lasts && fate == Fate::Newest && self.keep.all_see_the_same();
        if is_reset { Seq::RESET } else { seq }
    }

    /// A tombstone is written before the next older version. Where history is kept, the oldest of
    /// several in a row hides what all of them do.
    fn pend(&mut self, seq: Seq, fate: Fate) {
        match self.pending.back_mut() {
            Some(newer) if self.keep.is_retained(newer.0) => newer.0 = seq,
            _ => self.pending.push_back((seq, fate)),
        }
    }

    /// The fate of the version with number `seq`: a newer range tombstone acts like a tombstone of
    /// its key. Where history is kept, a full merge makes it one: then the range tombstone can be
    /// retired, and the older versions are hidden as before.
    fn fate_of(&mut self, seq: Seq, data: Data<'_>, full: bool) -> Fate {
        if let Some(fate) = self.fate {
            return fate;
        }
        while let Some(removal) =
            self.removals.get(self.removals_passed).copied().filter(|removal| *removal > seq)
        {
            let fate = self.keep.fate(removal);
            let stays = self.keep.is_retained(removal) && !planted::is(Bug::RetiredWithoutKeys);
            if full && stays && removal < self.last.0 {
                self.pend(removal, fate);
            }
            self.removals_passed += 1;
        }
        let fate =
            if data.is_operand() { self.keep.fate_of_operand(seq) } else { self.keep.fate(seq) };
        self.fate = Some(fate);
        fate
    }

    /// Whether the key is in a deleted range.
    fn was_removed(&self) -> bool {
        !self.removals.is_empty() && !planted::is(Bug::ResetUnderRangeTombstone)
    }
}

/// Merged entries are written under new checksums: disorder must not be carried over.
pub(crate) fn out_of_order() -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: 0,
        what: "entries to merge are out of order: run check to find the block".into(),
    }
}
