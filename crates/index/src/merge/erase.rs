//! Erasing keys: no version of them stays, in the past either.
//!
//! The index of now is left to a split, which does not copy deleted keys. The past indexes that
//! have the keys are rewritten without them, one after the other and the oldest first; everything
//! else in them stays as it is, with its numbers. A blob is freed with the newest past index that
//! refers to it.
//!
//! Invariant: only one past index is rewritten at a time, and none while the index is paused: the
//! space that is taken for it has no owner until it is recorded. No past index is given up
//! meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use esker_device::Purpose;
use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, PastIndex};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_format::value_ref::ValueRef;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};
use esker_substrate::runs::RunSet;

use crate::build::insert::{Insert, Plan, Sink, top_bytes_max};
use crate::kind::context::KindContext;
use crate::merge::group::out_of_order;
use crate::merge::stage::{Next, Stage};
use crate::read::past::OpenPast;
use crate::read::versions::Fate;
use crate::record::Change;
use crate::run::lookup::Probe;
use crate::run::tree::Tree;
use crate::upkeep::values::Moved;
use crate::{Commit, Index};

/// Keys that are erased.
pub type Keys = BTreeSet<Vec<u8>>;

/// Levels of fences that a rewritten index has at most; those that fit among the top fences are
/// left out.
const FENCE_LEVELS: u8 = 3;

/// A past index without the erased keys, in the place of `old`.
struct Erased {
    old: Arc<PastIndex>,
    new: Arc<PastIndex>,
    /// Space of blobs that nothing refers to any more.
    freed: Vec<Extent>,
    leftover: Vec<Extent>,
    insert: Insert,
    values: Moved,
}

impl Change for Erased {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        (durable.clone(), self.old.extents().copied().collect())
    }

    fn replaced_past(&self) -> Option<(Arc<PastIndex>, Vec<Extent>)> {
        Some((Arc::clone(&self.new), self.freed.clone()))
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.values
    }

    fn keep_space(&mut self) {
        self.insert.forget();
    }

    fn publish(&mut self, context: KindContext<'_>, _meta: &IndexMeta) {
        context.publish(|view| view.with_replaced_past(&self.new));
    }

    fn finish(&mut self, _context: KindContext<'_>, _meta: &IndexMeta) -> Vec<Extent> {
        std::mem::take(&mut self.leftover)
    }
}

/// A rewriting under way.
struct Rewrite<'a> {
    keys: &'a Keys,
    stage: Stage,
    insert: Insert,
    plan: Plan,
    /// The key of the last entry, and whether it was erased.
    last: Option<(Vec<u8>, bool)>,
    /// Space of blobs that erased entries refer to.
    erased: Vec<Extent>,
}

impl Index {
    /// The number of the newest entry of `key` up to `up_to` in the index of now, and whether it is
    /// a deletion; `None` where it has none. What a split under way copies from counts: it is not a
    /// past index yet. A lookup.
    ///
    /// # Errors
    /// Those of [`Index::get`].
    pub fn newest_entry(&self, key: &[u8], up_to: Seq) -> Result<Option<(Seq, bool)>> {
        let _shared = self.share();
        let (view, probe) = (self.views.load(), Probe::new(key, up_to));
        let mut found = view.get_any(&self.reader, &probe)?;
        if found.is_none() {
            found =
                view.split().map_or(Ok(None), |split| split.get_in_whole(&self.reader, &probe))?;
        }
        Ok(found.map(|found| (found.seq, found.data.as_data().is_delete())))
    }

    /// Rewrites the past indexes that have one of `keys`, without them. `values` returns the space
    /// of blobs that the past index which ends at a version has for itself. How many that were.
    ///
    /// Cost: reads and writes these past indexes whole, and a record for each. While one is
    /// rewritten, the index cannot be paused.
    ///
    /// # Errors
    /// `Full` without space for a copy of such an index, and those of a record. Then those that
    /// were rewritten stay so.
    pub fn erase_past(
        &self,
        keys: &Keys,
        values: impl Fn(Seq) -> Vec<Extent>,
        commit: &mut Commit<'_>,
    ) -> Result<u64> {
        let mut rewritten = 0;
        for listed in self.past_indexes() {
            // While this is held, it is not given up: nothing else keeps its blocks.
            let _alone = self.history.rewriting.lock();
            let there = self.past_indexes().into_iter().find(|past| past.until == listed.until);
            let Some(past) = there else { continue };
            if self.has_any(&past, keys)? {
                self.rewrite(&past, keys, &values, commit)?;
                rewritten += 1;
            }
        }
        Ok(rewritten)
    }

    fn has_any(&self, past: &Arc<PastIndex>, keys: &Keys) -> Result<bool> {
        let _shared = self.share();
        let open = OpenPast::new(past);
        for key in keys {
            if open.get_any(&self.reader, &Probe::new(key, Seq::MAX))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn rewrite(
        &self,
        past: &Arc<PastIndex>,
        keys: &Keys,
        values: &impl Fn(Seq) -> Vec<Extent>,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        let mut rewrite = Rewrite::new(self, past, keys)?;
        let units = rewrite.plan.data_bytes.div_ceil(UNIT_BYTES);
        let _room = self.env.blocks.reserve(units + units / 64 + 64)?;
        let mut leftover = Vec::new();
        let done = rewrite.run().and_then(|()| {
            rewrite.insert.finish()?;
            rewrite.insert.conclude(&rewrite.plan, &mut leftover)
        });
        let Rewrite { mut insert, erased, .. } = rewrite;
        if let Err(error) = done {
            self.give_back(&mut insert, leftover);
            return Err(self.poison_if_write_failed(error));
        }
        let mut own = RunSet::default();
        values(past.until).into_iter().for_each(|run| own.include(run));
        let freed: Vec<Extent> = erased.into_iter().filter(|run| own.contains(run)).collect();
        let main = insert.meta();
        let new = PastIndex { main, sorted_runs: Vec::new(), ..PastIndex::clone(past) };
        let values = Moved::of_dropped(&freed);
        let (old, new) = (Arc::clone(past), Arc::new(new));
        let mut change = Erased { old, new, freed, leftover, insert, values };
        let made = self.record(&mut change, commit);
        if made.is_err() && self.env.poison.reason().is_none() {
            let leftover = std::mem::take(&mut change.leftover);
            self.give_back(&mut change.insert, leftover);
        }
        made
    }

    /// Frees what was taken in vain.
    fn give_back(&self, insert: &mut Insert, leftover: Vec<Extent>) {
        let taken: Vec<Extent> = insert.taken().chain(leftover).collect();
        insert.forget();
        if self.env.poison.reason().is_some() {
            return;
        }
        let given_back = self.views.quarantine(&self.env.blocks, taken);
        if let Err(error) = given_back.and_then(|()| self.collect()) {
            tracing::error!(%error, "space could not be given back");
        }
    }
}

impl<'a> Rewrite<'a> {
    fn new(index: &Index, past: &PastIndex, keys: &'a Keys) -> Result<Self> {
        let mut stage = Stage::new(index.reader.clone(), Purpose::Merge);
        let mut input = 0;
        for meta in past.trees() {
            let tree = Tree::past(meta.clone());
            tree.enter(&index.reader)?;
            stage.add_tree(&tree, tree.height(), input, None)?;
            input += tree.height();
        }
        let plan = Plan {
            fence_ranks: (1..=FENCE_LEVELS).collect(),
            data_rank: FENCE_LEVELS + 1,
            data_bytes: past.extents().map(|run| run.units * UNIT_BYTES).sum(),
            below: false,
            top_bytes_max: top_bytes_max(index.kappa0_bytes()),
            codec: index.codec(),
            ..Plan::default()
        };
        let insert = Insert::new(&plan, &index.reader, Purpose::Merge);
        Ok(Self { keys, stage, insert, plan, last: None, erased: Vec::new() })
    }

    /// Writes all entries but those of the erased keys.
    fn run(&mut self) -> Result<()> {
        while self.stage.choose()? != Next::Nothing {
            let Some(item) = self.stage.item()? else { break };
            let order = self.last.as_ref().map(|(last, _)| last.as_slice().cmp(item.key));
            if order.is_some_and(std::cmp::Ordering::is_gt) {
                return Err(out_of_order());
            }
            let is_newest = order.is_none_or(std::cmp::Ordering::is_lt);
            if is_newest {
                self.last = Some((item.key.to_vec(), self.keys.contains(item.key)));
            }
            let is_erased = self.last.as_ref().is_some_and(|(_, is_erased)| *is_erased);
            let fate = if is_newest { Fate::Newest } else { Fate::Superseded };
            match item.payload {
                Payload::Fence(_) => return Err(lost_fence()),
                Payload::Reference(content) if is_erased => {
                    let value = ValueRef::decode(content).map(|value| value.runs);
                    self.erased.extend(value.unwrap_or_default());
                }
                _ if is_erased && !planted::is(Bug::ErasedStays) => {}
                payload => self.insert.add_data(item.key, item.seq, &payload, fate)?,
            }
            self.stage.leave();
        }
        self.stage.verify_complete()
    }
}

fn lost_fence() -> Error {
    Error::Invalid { what: "a past index leads to levels that it does not have".into() }
}
