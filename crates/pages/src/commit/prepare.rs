//! Two-phase commit: a transaction is made durable, and decided later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::commit::RECORD_BYTES;
use crate::engine::{Core, Engine, Prepared};
use crate::error::{Result, invalid};
use crate::log::apply::drop_changes;
use crate::log::record::{Changes, PREPARE_BYTES_MAX, Record};
use crate::planted::{self, Bug};
use crate::writer::Writer;

impl Writer {
    /// Makes the transaction durable without deciding it. After a crash
    /// [`crate::PageStore::prepared`] gives `name` back, which says where the decision is found.
    /// Where processes share the store, none writes before the decision. One sync.
    ///
    /// # Errors
    /// As [`Writer::commit`].
    pub fn prepare(&mut self, name: &[u8]) -> Result<()> {
        self.check_open()?;
        if name.len() > PREPARE_BYTES_MAX {
            return invalid("the name of a prepared transaction is longer than 64 KiB");
        }
        let plan = self.plan()?;
        if self.is_empty(&plan) {
            return Ok(());
        }
        let name: Arc<[u8]> = name.into();
        let mut core = self.engine.core.lock();
        let changes = self.write_record(&mut core, plan, Some(Arc::clone(&name)))?;
        self.engine.sync_core(&mut core)?;
        core.prepared = Some(Prepared { name, changes });
        self.engine.announce(&core);
        drop(core);
        self.is_prepared = true;
        Ok(())
    }
}

/// The changes that cut the database to `pages` after `prepared`; `None` where it is no longer than
/// that.
fn cut_after(prepared: &Changes, pages: u32) -> Option<Changes> {
    (pages < prepared.pages).then(|| Changes {
        version: prepared.version + 1,
        page_size: prepared.page_size,
        pages,
        kept_pages: pages,
        is_new_map: false,
        are_pages_durable: false,
        items: Vec::new(),
    })
}

impl Engine {
    /// Commits the prepared transaction of the live writer, and cuts the database to `pages`.
    /// Others have committed their parts of it, so it has taken place even where that cannot be
    /// written.
    pub(super) fn commit_prepared(&self, pages: u32) {
        let mut core = self.core.lock();
        let Some(prepared) = core.prepared.clone() else { return };
        let mut cut = cut_after(&prepared.changes, pages);
        match self.note_decision(&mut core, cut.as_ref()) {
            Ok(is_cut) => cut = cut.filter(|_| is_cut),
            // Later records would build on a decision that is not there.
            Err(error) => drop(self.poisoned(error)),
        }
        core.prepared = None;
        for changes in [Some(prepared.changes), cut].into_iter().flatten() {
            let base = Arc::clone(self.versions.lock().newest().1);
            self.publish(&mut core, &changes, &base);
        }
        self.checkpoint_if_due(&mut core);
    }

    /// Writes that the prepared transaction took place, and the cut after it where there is room;
    /// whether there was. One sync.
    fn note_decision(&self, core: &mut Core, cut: Option<&Changes>) -> Result<bool> {
        self.check_poison()?;
        self.own_log(core)?;
        let decision = Record::Decide(true).encode();
        let cut = cut.map(|cut| cut.record(None));
        // Making room may take a checkpoint, which must not come between the records.
        let frames = 2 * (core.log.unit + RECORD_BYTES);
        let bytes = |cut: &Vec<u8>| frames + (decision.len() + cut.len()) as u64;
        let both = cut.filter(|cut| self.reserve_log(core, bytes(cut)).is_ok());
        if both.is_none() {
            self.check_poison()?;
            self.reserve_log(core, decision.len() as u64)?;
        }
        self.append(core, &decision)?;
        if let Some(cut) = both.as_ref().filter(|_| !planted::is(Bug::CutNotWritten)) {
            self.append(core, cut)?;
        }
        if !planted::is(Bug::DecisionNotSynced) {
            self.sync_core(core)?;
        }
        Ok(both.is_some())
    }

    /// Decides the prepared transaction, durably. A read-only store decides in memory alone: the
    /// next opening for writing consults the same file.
    pub(crate) fn decide(&self, commit: bool) -> Result<()> {
        if self.member.is_some() {
            // In a process that follows, what is in memory is what the log says.
            self.check_poison()?;
        }
        let mut core = self.core.lock();
        let Some(prepared) = core.prepared.clone() else {
            return invalid("no transaction is prepared");
        };
        // It stays where a checkpoint finds it until the decision is durable.
        if !self.is_read_only() {
            self.note(&mut core, &Record::Decide(commit))?;
        }
        core.prepared = None;
        if commit {
            let base = Arc::clone(self.versions.lock().newest().1);
            self.publish(&mut core, &prepared.changes, &base);
            self.checkpoint_if_due(&mut core);
        } else {
            drop_changes(&mut core, &prepared.changes);
        }
        Ok(())
    }

    /// Whether a prepared transaction was found that no live writer made.
    pub(crate) fn undecided(&self) -> Option<Vec<u8>> {
        if self.has_writer.load(Ordering::Acquire) {
            return None;
        }
        self.core.lock().prepared.as_ref().map(|prepared| prepared.name.to_vec())
    }
}
