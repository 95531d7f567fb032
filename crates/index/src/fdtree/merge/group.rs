//! The versions of one key on their way through a merge.

use std::cmp;
use std::collections::VecDeque;

use esker_format::KEY_BYTES_MAX;
use esker_format::data::Data;
use esker_format::entry::Payload;
use esker_format::ids::{Moment, Seq};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};

use crate::fdtree::insert::Insert;
use crate::fdtree::removed::Removed;
use crate::fdtree::versions::{Fate, Keep};

/// The group being moved.
pub(super) struct Group {
    pub keep: Keep,
    /// Everybody reads as of this moment or later.
    pub horizon: Moment,
    pub key: Option<Vec<u8>>,
    /// Number of the group's last item, and whether that was a fence.
    pub last: (Seq, bool),
    /// What becomes of the current item, once decided.
    fate: Option<Fate>,
    /// Removals of the key by the range, newest first, and how many of them are newer than the
    /// current item.
    removals: Vec<Seq>,
    removals_passed: usize,
    /// Tombstones that go unless an older version stays.
    pending: VecDeque<(Seq, Fate)>,
}

impl Group {
    /// Before the first one.
    pub const fn none() -> Self {
        Self {
            keep: Keep::new(Vec::new()),
            horizon: Moment(0),
            key: None,
            last: (Seq::MAX, true),
            fate: None,
            removals: Vec::new(),
            removals_passed: 0,
            pending: VecDeque::new(),
        }
    }

    /// Whether the item belongs to another group. Refuses disorder: what is merged is written
    /// under new checksums.
    pub fn ends_before(&self, key: &[u8], seq: Seq) -> Result<bool> {
        let order = self.key.as_deref().map_or(cmp::Ordering::Less, |group| group.cmp(key));
        // A fence may be followed by its own duplicate (I2) or by data, at the same key.
        let older = seq < self.last.0 || (seq == self.last.0 && self.last.1);
        if order.is_gt() || (order.is_eq() && !older) || key.len() > KEY_BYTES_MAX {
            return Err(out_of_order());
        }
        Ok(order.is_lt())
    }

    pub fn begin(&mut self, key: &[u8], removed: &Removed) {
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

    /// Writes the item, if it stays, and says whether it does. After an error the call may be
    /// repeated.
    pub fn place(
        &mut self,
        insert: &mut Insert,
        key: &[u8],
        seq: Seq,
        payload: &Payload<'_>,
        full: bool,
    ) -> Result<bool> {
        if let Payload::Fence(fence) = payload {
            insert.add_fence(key, seq, fence)?;
            self.last = (seq, true);
            return Ok(true);
        }
        // What has expired for everybody is a tombstone: it hides older versions still.
        let data = payload.data().unwrap_or(Data::Delete).as_of(self.horizon);
        let has_expired = data.is_delete() && *payload != Payload::Delete;
        let fate = self.fate_of(seq);
        match fate {
            Fate::Drop => {}
            _ if has_expired && planted::is(Bug::ExpiredHideNothing) => {}
            fate if full && data.is_delete() => self.pending.push_back((seq, fate)),
            fate => {
                while let Some((seq, fate)) = self.pending.front().copied() {
                    insert.add_data(key, seq, &Payload::Delete, fate)?;
                    self.pending.pop_front();
                }
                // Blocks whose numbers are settled may stay as they are for ever: what expires must
                // not be in one, and what was removed before it was written has to show that.
                let lasts = data.until().is_none() && !self.was_removed();
                let settled = full && lasts && fate == Fate::Newest && self.keep.all_see_the_same();
                let number = if settled { Seq::SETTLED } else { seq };
                insert.add_data(key, number, &Payload::of(data), fate)?;
            }
        }
        self.fate = None;
        self.last = (seq, false);
        Ok(fate != Fate::Drop && !has_expired)
    }

    /// The fate of the version with number `seq`: a removal that is newer stands in front of it
    /// like a tombstone of its key.
    fn fate_of(&mut self, seq: Seq) -> Fate {
        if let Some(fate) = self.fate {
            return fate;
        }
        while let Some(removal) = self.removals.get(self.removals_passed).filter(|r| **r > seq) {
            self.keep.fate(*removal);
            self.removals_passed += 1;
        }
        let fate = self.keep.fate(seq);
        self.fate = Some(fate);
        fate
    }

    /// Whether the key is in a range that was removed.
    fn was_removed(&self) -> bool {
        !self.removals.is_empty() && !planted::is(Bug::SettledUnderRemoval)
    }
}

/// What is merged is written under new checksums: disorder must not be carried over.
pub(super) fn out_of_order() -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: 0,
        what: "entries to merge are out of order: run check to find the block".into(),
    }
}
