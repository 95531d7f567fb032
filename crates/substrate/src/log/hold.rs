//! Keeping the files of segments while the log is copied.
//!
//! While the log is held, a segment that is no longer needed still leaves the manifest, but its
//! file is neither reused nor removed. If the process dies meanwhile, the file is one of those that
//! the next opening removes.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{DeviceFile, Purpose};
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_format::manifest_edit::SegmentRef;

use super::segment::{Segment, seal};
use super::{Apply, Log, replay};
use crate::error::Result;

/// Segments whose files are kept after the segments have been freed.
#[derive(Debug, Default)]
pub(super) struct Held {
    count: usize,
    segments: Vec<Segment>,
}

/// A live segment as it was at one moment.
#[derive(Clone, Debug)]
pub struct SegmentPart {
    /// The segment's entry in the manifest.
    pub reference: SegmentRef,
    /// Its file.
    pub file: Arc<dyn DeviceFile>,
    /// The end of its records, in bytes. The last ones may not be written yet.
    pub end: u64,
}

impl SegmentPart {
    /// Passes on the operations up to `last_seq`, which are written.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a damaged record, and what `visit` fails with.
    pub fn scan(&self, store: StoreId, last_seq: Seq, visit: &mut Apply<'_>) -> Result<()> {
        let segment = Segment {
            reference: self.reference,
            file: Arc::clone(&self.file),
            seal: seal(store, self.reference.id),
            end: self.end,
            highest: BTreeMap::new(),
            replayed: false,
            last_record: None,
            last_pin: KeyspaceId(0),
        };
        let last_seq = self.reference.end_seq.unwrap_or(last_seq);
        let name = self.file.name();
        replay::read_all(&segment, self.end, last_seq, Purpose::Backup, &mut |record| {
            record.for_each(name, &mut |place, op| visit(place, op.keyspace, op.action))
        })?;
        Ok(())
    }
}

impl Log {
    /// Keeps the files of all segments that are live now, until [`Log::unhold`] is called.
    pub fn hold(&self) {
        self.held.lock().count += 1;
    }

    /// Undoes one [`Log::hold`].
    ///
    /// # Errors
    /// When a kept file cannot be removed. The log is not affected.
    pub fn unhold(&self) -> Result<()> {
        let mut held = self.held.lock();
        held.count = held.count.saturating_sub(1);
        if held.count > 0 {
            return Ok(());
        }
        let segments = std::mem::take(&mut held.segments);
        drop(held);
        segments.iter().try_for_each(|segment| self.retire_file(segment))
    }

    /// The live segments, oldest first, and the last number that was handed out. To be called when
    /// nothing is appended.
    #[must_use]
    pub fn parts(&self) -> (Seq, Vec<SegmentPart>) {
        let queue = self.queue.lock();
        let closed = self.closed.lock();
        let part = |segment: &Segment| SegmentPart {
            reference: segment.reference,
            file: Arc::clone(&segment.file),
            end: segment.end,
        };
        (queue.last, closed.values().chain(queue.current.as_ref()).map(part).collect())
    }

    /// The segment, unless its file is to be kept.
    pub(super) fn unless_held(&self, segment: Segment) -> Option<Segment> {
        let mut held = self.held.lock();
        if held.count == 0 {
            return Some(segment);
        }
        held.segments.push(segment);
        None
    }
}
