//! The read operations. None of them waits: each loads a view.

pub(crate) mod changed;
pub(crate) mod gaps;
pub(crate) mod heat;
pub(crate) mod moving;
pub mod operands;
pub(crate) mod past;
pub mod range_tombstones;
pub mod scan;
pub(crate) mod source;
pub mod versions;
pub mod view;

use esker_device::Purpose;
use esker_format::data::Value;
use esker_format::ids::{Moment, Seq};
use esker_substrate::budget::Part as MemoryPart;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};
use esker_substrate::snapshots::At;

use crate::Index;
use crate::read::scan::{ScanBatch, ScanRequest};
use crate::run::held_blocks::HeldBlocks;
use crate::run::lookup::Probe;

/// A version of a key.
#[derive(Clone, Debug)]
pub struct Version {
    /// Its number.
    pub seq: Seq,
    /// Its value, or `None` where it removed the key.
    pub value: Option<Value>,
    /// When the value expires, if it does.
    pub until: Option<Moment>,
}

impl Index {
    /// The value of `key` as of the number that `visible` returns. `visible` is called after the
    /// view has been loaded: a number that is older than the view may need a version that a merge
    /// has dropped. The clock is read last, and only where the value has an expiry. With express
    /// fences in memory, one read for a hit and none for a miss, fewer where blocks are cached;
    /// else at most one read per level.
    ///
    /// # Errors
    /// When a block that could hold the key cannot be read.
    pub fn get(&self, key: &[u8], visible: impl FnOnce() -> Seq) -> Result<Option<Value>> {
        let shared = self.share();
        let early = planted::is(Bug::NumberBeforeView);
        let (view, seq);
        if early {
            seq = visible();
            view = self.views.load();
        } else {
            view = self.views.load();
            seq = visible();
        }
        let found = view.get(&self.reader, &Probe::new(key, seq))?;
        if found.data.is_operand() {
            // The number is newer than the view: its memtable has operands that were written since,
            // but the view does not contain the range tombstones written before them.
            drop((view, shared));
            let registered = self.env.snapshots.register();
            return self.get_at(key, registered.at());
        }
        Ok(found.data.into_value(|| self.env.snapshots.now()))
    }

    /// The value of `key` at a registered number and moment.
    ///
    /// # Errors
    /// Those of [`Index::get`].
    pub fn get_at(&self, key: &[u8], at: At) -> Result<Option<Value>> {
        let _shared = self.share();
        let view = self.views.load();
        view.value(&self.reader, &Probe::new(key, at.seq), &self.operator, || at.now)
    }

    /// Whether `key` has a value, as of what `visible` answers; as [`Index::get`], but operands
    /// are not merged: a key that has any has a value.
    ///
    /// # Errors
    /// Those of [`Index::get`].
    pub fn contains(&self, key: &[u8], visible: impl FnOnce() -> Seq) -> Result<bool> {
        let _shared = self.share();
        let view = self.views.load();
        let found = view.get(&self.reader, &Probe::new(key, visible()))?;
        Ok(found.data.into_value(|| self.env.snapshots.now()).is_some())
    }

    /// The same at a registered number and moment.
    ///
    /// # Errors
    /// Those of [`Index::get`].
    pub fn contains_at(&self, key: &[u8], at: At) -> Result<bool> {
        let _shared = self.share();
        let found = self.views.load().get(&self.reader, &Probe::new(key, at.seq))?;
        Ok(found.data.into_value(|| at.now).is_some())
    }

    /// The values of `keys` at a registered number and moment, in order, with several reads in
    /// flight.
    pub fn multi_get(&self, keys: &[&[u8]], at: At) -> Vec<Result<Option<Value>>> {
        let _shared = self.share();
        let view = self.views.load();
        let probes: Vec<_> = keys.iter().map(|key| Probe::new(key, at.seq)).collect();
        let mut wanted = Vec::new();
        for probe in probes.iter().filter(|probe| view.memtable.get(probe.key, at.seq).is_none()) {
            view.candidates(&self.reader, probe, &mut wanted);
        }
        wanted.sort_unstable_by_key(|ptr| ptr.sector);
        wanted.dedup();
        if wanted.len() > 1 {
            // More than the cache can hold would evict the blocks that were just read.
            let room = self.env.budget.room_bytes(MemoryPart::Cache) / 2;
            let mut bytes = 0;
            wanted.retain(|ptr| {
                bytes += ptr.bytes() as u64;
                bytes <= room
            });
            self.reader.blocks.prefetch(self.reader.keyspace, &wanted, Purpose::User);
        }
        let value = |probe| view.value(&self.reader, probe, &self.operator, || at.now);
        probes.iter().map(value).collect()
    }

    /// The newest version of `key` up to a number, in an index that keeps history; `None` where
    /// there is none. A lookup, and one more for each past index in which the key is looked for in
    /// vain.
    ///
    /// # Errors
    /// Those of [`Index::get`].
    pub fn version(&self, key: &[u8], up_to: Seq) -> Result<Option<Version>> {
        let _shared = self.share();
        let view = self.views.load();
        let (found, removal) = view.version(&self.reader, key, up_to)?;
        Ok(found.map(|found| match found.seq < removal {
            true => Version { seq: removal, value: None, until: None },
            false => Version {
                seq: found.seq,
                until: found.data.as_data().until(),
                value: found.data.into_value(|| Moment(0)),
            },
        }))
    }

    /// One batch of a scan, whose number is registered.
    ///
    /// # Errors
    /// When a block within the bounds cannot be read, unless the request skips damage.
    pub fn scan(&self, request: &ScanRequest<'_>) -> Result<ScanBatch> {
        self.scan_on(request, &mut HeldBlocks::default())
    }

    /// The same, where `held` has the blocks that the batch before this one has left, and gets
    /// those of this one, at most 256 KiB.
    ///
    /// # Errors
    /// Those of [`Index::scan`].
    pub fn scan_on(&self, request: &ScanRequest<'_>, held: &mut HeldBlocks) -> Result<ScanBatch> {
        let _shared = self.share();
        let operator = self.operator.load();
        let gap_end = self.gaps.skip(request);
        let Some(rest) = gaps::rest(request, gap_end.as_ref()) else {
            return Ok(ScanBatch::default());
        };
        let view = self.views.load();
        let batch = view.scan(&self.reader, &rest, &operator, &self.heat, held);
        held.count(&self.env.budget);
        self.lend_to_cache();
        if let Ok(batch) = &batch {
            self.gaps.learn(request, batch, &self.newest_seq);
        }
        batch
    }
}
