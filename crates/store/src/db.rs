//! The handle of an open store.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use esker_device::Device;
use esker_format::KEYSPACE_NAME_BYTES_MAX;
use esker_format::block::Codec;
use esker_format::ids::Seq;
use esker_format::manifest_edit::{Edit, keyspace_name_is_valid};
use esker_format::superblock::{FEATURE_COMPRESSION, FEATURE_OPERANDS};
use esker_index::IndexKind;
use esker_substrate::sync::atomic::Ordering;

use crate::backup::{self, BackupProgress, BackupReport};
use crate::batch::Batch;
use crate::builder::DbBuilder;
use crate::check::{self, CheckReport};
use crate::dropping;
use crate::error::{Error, Result};
use crate::follow;
use crate::history::{History, Share};
use crate::keyspace::Keyspace;
use crate::maintenance;
use crate::new_keyspace::{NewKeyspace, ensure_times, require};
use crate::options::{Chosen, Compression, KeyspaceOptions};
use crate::reclaim;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::snapshot::Snapshot;
use crate::stats::{self, Stats};
use crate::times;
use crate::transaction::Transaction;
use crate::transaction::turn::Turn;
use crate::writer_lock::Asked;

/// The number of conflicts after which [`Db::transact`] takes the writer lock, and the number after
/// which it returns the error.
const CONFLICTS_BEFORE_TURN: u32 = 3;
const CONFLICTS_MAX: u32 = 100;

/// An open store. A cheap handle: clones share the store, and it closes when the last handle of
/// any kind (clone, keyspace, batch, snapshot or range) is dropped, or at [`close`](Self::close).
///
/// Writes are ordered: each operation takes the next *sequence number*, a batch takes one for
/// each of its operations. After a crash, the store has a prefix of that order that ends between
/// batches.
#[derive(Clone)]
pub struct Db {
    pub(crate) shared: Arc<Shared>,
}

impl Db {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Opens the store in the folder `path`; creates the folder and the store if they do not exist.
    ///
    /// # Errors
    /// Those of [`DbBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// A builder that opens the store in the folder `path`.
    pub fn builder(path: impl AsRef<Path>) -> DbBuilder {
        DbBuilder::in_folder(path.as_ref())
    }

    /// A builder that opens the store on `device`, for instance in memory.
    pub fn builder_on(device: Arc<dyn Device>) -> DbBuilder {
        DbBuilder::on_device(device)
    }

    /// Opens the keyspace `name`, and creates it if it does not exist. Changes the compression of
    /// an existing keyspace if `options` has another one, and gives it a merge operator if it has
    /// none. Each of these changes writes one durable manifest record. `name` is 1 to 255 bytes
    /// without control characters.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name or option out of bounds, for another merge operator or kind of
    /// index than that of the keyspace, and for history of a keyspace without; those of a write.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        validate_name(name)?;
        options.validate()?;
        let _open = self.shared.enter()?;
        let slot = self.open_or_create(name, &options)?;
        if let Some(bytes) = options.inline_bytes_max {
            slot.inline_bytes_max.store(bytes, Ordering::Relaxed);
        }
        Ok(self.handle(slot))
    }

    fn open_or_create(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Slot>> {
        if let Some(slot) = self.slot(name) {
            // First, because they may be refused: nothing has been changed then.
            check_index(&slot, options.index)?;
            check_history(&slot, options)?;
            self.choose_operator(&slot, options.merge.as_ref())?;
            if let Some(bytes) = options.memtable_bytes {
                slot.tree()?.set_memtable_bytes_max(bytes);
            }
            self.choose_compression(&slot, options.compression)?;
            return Ok(slot);
        }
        if options.history.is_none() && options.history_share.is_some() {
            return Err(Error::invalid("history_share is of a keyspace with history"));
        }
        let slot = self.create_keyspace(name, options)?;
        // Another thread may have created it with other options.
        check_index(&slot, options.index)?;
        check_history(&slot, options)?;
        self.choose_operator(&slot, options.merge.as_ref())?;
        Ok(slot)
    }

    /// Opens the keyspace `name` if it exists.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn open_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        let _open = self.shared.enter()?;
        Ok(self.slot(name).map(|slot| self.handle(slot)))
    }

    /// The names of all keyspaces, sorted.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        let _open = self.shared.enter()?;
        let registry = self.shared.keyspaces.read();
        Ok(registry.keys().filter(|name| !is_reserved(name)).cloned().collect())
    }

    /// Drops the keyspace `name` with everything in it: one durable manifest record. Its space can
    /// be reused immediately; remaining handles return [`Error::NoKeyspace`]. Returns whether the
    /// keyspace existed.
    ///
    /// # Errors
    /// Those of a write.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let _open = self.shared.enter()?;
        let mut registry = self.shared.keyspaces.write();
        let found = registry.get(name).filter(|_| !is_reserved(name));
        let Some(slot) = found.cloned() else { return Ok(false) };
        dropping::drop_tree(&self.shared, &slot)?;
        registry.remove(name);
        Ok(true)
    }

    /// An empty batch: writes to any keyspaces of this store that are applied all or not at all.
    pub fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.shared))
    }

    /// A view of all keyspaces as they are now. As long as the snapshot exists, the versions that
    /// it sees are kept; it blocks no other operation.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        let _open = self.shared.enter()?;
        Ok(Snapshot::new(Arc::clone(&self.shared)))
    }

    /// Begins a transaction on all keyspaces. It waits at most for the write that is under way, and
    /// no other operation waits for it: see [`Transaction`].
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn transaction(&self) -> Result<Transaction> {
        let _open = self.shared.enter()?;
        Ok(Transaction::begin(&self.shared, None))
    }

    /// Begins a transaction that holds the writer lock: it waits, first come first served, until no
    /// other transaction holds the lock, and reads what those have written. If all writes are made
    /// under the writer lock, no transaction ever conflicts.
    ///
    /// The lock excludes only other holders of the lock. Single writes, batches and transactions
    /// without the lock run concurrently; if one of them writes what this transaction has read, its
    /// commit returns [`Conflict`](Error::Conflict) as for any other transaction.
    ///
    /// # Errors
    /// [`Error::Closed`], also when the store is closed while it waits; [`Error::Poisoned`];
    /// [`Error::Invalid`] when the thread has begun such a transaction before and that has not
    /// ended: it would wait for itself.
    pub fn write_transaction(&self) -> Result<Transaction> {
        self.in_turn(true)?.ok_or(Error::Closed)
    }

    /// [`write_transaction`](Self::write_transaction), or `None` when another transaction holds the
    /// writer lock.
    ///
    /// # Errors
    /// Those of [`write_transaction`](Self::write_transaction).
    pub fn try_write_transaction(&self) -> Result<Option<Transaction>> {
        self.in_turn(false)
    }

    /// Runs `body` in a transaction and commits it with the store's default durability; repeats
    /// both while the commit returns [`Conflict`](Error::Conflict). After three conflicts it takes
    /// the writer lock, so that transactions that conflict repeatedly run one after the other;
    /// after a hundred it returns the conflict. If `body` returns an error, the transaction is
    /// rolled back and the error is returned.
    ///
    /// `body` may run several times: its other side effects must allow for that.
    ///
    /// # Errors
    /// Those of `body`, of [`transaction`](Self::transaction) and of [`Transaction::commit`].
    pub fn transact<T, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut conflicts = 0;
        loop {
            let mut transaction = self.attempt(conflicts)?;
            let answer = body(&mut transaction)?;
            match transaction.commit() {
                Ok(_) => return Ok(answer),
                Err(error) if error.is_conflict() && conflicts < CONFLICTS_MAX => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes all acknowledged writes durable: one sync of the log, or none if there is nothing to
    /// do.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`].
    pub fn persist(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        self.shared.poison.check()?;
        Ok(self.shared.log.sync_to(self.shared.log.last_seq())?)
    }

    /// Writes the memtables of all keyspaces to the data file.
    ///
    /// # Errors
    /// Those of a write, and [`Error::Damaged`] where a merge meets damage.
    pub fn flush(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        let flush = |slot| unless_dropped(maintenance::flush(&self.shared, slot));
        self.shared.slots().iter().try_for_each(flush)
    }

    /// Compacts the store: merges every keyspace into one level without garbage (except what live
    /// snapshots see) and returns the free space available to the file system. Reads and rewrites
    /// everything.
    ///
    /// # Errors
    /// Those of a write, and [`Error::Damaged`] where a merge meets damage.
    pub fn compact(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        for slot in self.shared.slots() {
            unless_dropped(maintenance::compact(&self.shared, &slot))?;
        }
        reclaim::return_free_space(&self.shared)
    }

    /// Verifies the whole store: reads the superblocks, the manifest, the log and every block, and
    /// checks them. Writes wait while it runs; reads do not.
    ///
    /// In a [follower](crate::DbBuilder::follow) it catches up first, and checks the store as of
    /// then, without the space that the writer has free. It begins again, ten times at most, where
    /// the writer uses space again that is not checked yet.
    ///
    /// # Errors
    /// [`Error::Closed`], and in a follower those of [`refresh`](Self::refresh) and
    /// [`Error::Overtaken`]. Damage is not an error here: it is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        let _open = self.shared.enter()?;
        check::check(&self.shared)
    }

    /// Copies the store as it is now to the folder `path`, which is new or empty or has an older
    /// backup of this store. In the last case only what has changed since is read and written, and
    /// the older backup is kept until the new one is complete and durable. Writes, reads and merges
    /// continue meanwhile; space that merges free is not reused before the backup ends.
    ///
    /// A [follower](crate::DbBuilder::follow) copies what it has caught up with then. The writer
    /// does not know of it: where it uses space again before that is copied, the follower goes on
    /// with the newest state, most of which it has copied already, in up to 64 passes.
    ///
    /// All copied data is verified against its checksums. Data that the older backup already has is
    /// not read again: [`Backup::check`](crate::Backup::check) does that.
    ///
    /// Cost: reads and writes each new block once; reads the log up to now and writes the new parts
    /// of it; reads one block of the older backup for each merge whose blocks are kept.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a folder within the store's, of another store, or of something else;
    /// [`Error::Damaged`] when a block of the store or the older backup's catalog is damaged;
    /// [`Error::Full`], [`Error::Io`], [`Error::Locked`], [`Error::Poisoned`], [`Error::Closed`];
    /// in a follower [`Error::Overtaken`], if the writer is too fast.
    /// After an error the store and the older backup are unchanged.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(path, &mut |_| ControlFlow::Continue(()))
    }

    /// [`backup`](Self::backup) with a callback that receives the progress repeatedly; `Break` ends
    /// the backup.
    ///
    /// # Errors
    /// Those of [`backup`](Self::backup), and [`Error::Invalid`] if the callback has ended it.
    pub fn backup_with(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        backup::backup(&self.shared, path.as_ref(), progress)
    }

    /// [`backup_with`](Self::backup_with) on a device.
    ///
    /// # Errors
    /// Those of [`backup_with`](Self::backup_with).
    pub fn backup_on(
        &self,
        device: Arc<dyn Device>,
        progress: &mut dyn FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        backup::backup_on(&self.shared, device, progress)
    }

    /// Statistics of the store.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Io`].
    pub fn stats(&self) -> Result<Stats> {
        let _open = self.shared.enter()?;
        stats::collect(&self.shared)
    }

    /// Whether the store was opened read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.poison.is_read_only()
    }

    /// The sequence number up to which all operations are on the device and would survive a power
    /// cut. 0 in a child process made by `fork`.
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        // A thread of its parent may have held the log's lock when this process was forked.
        if self.shared.check_process().is_err() {
            return 0;
        }
        self.shared.log.durable_seq().0
    }

    /// The newest version: the number of the last commit, as
    /// [`Keyspace::at`](crate::Keyspace::at) takes it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.visible_seq()
    }

    /// The time at which `version` was committed, to the millisecond: that of the last commit to a
    /// keyspace with history up to it. `None` before the first one. It does not fall with growing
    /// versions, even if the clock has been set back. Costs a lookup.
    ///
    /// # Errors
    /// Those of a read.
    pub fn time_of(&self, version: u64) -> Result<Option<SystemTime>> {
        let _open = self.shared.enter()?;
        let Some(times) = self.shared.times.get() else { return Ok(None) };
        let version = Seq(version).min(self.shared.snapshots().visible());
        let time = follow::reading(&self.shared, || times.of(version))?;
        Ok(time.and_then(times::system_time))
    }

    /// The newest sequence number that reads see.
    #[must_use]
    pub fn visible_seq(&self) -> u64 {
        self.shared.snapshots().visible().0
    }

    /// Waits for running operations, makes everything durable and closes the store cleanly.
    /// Remaining handles return [`Error::Closed`]; this process or another one can open the store
    /// again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`], [`Error::Closed`] when it was closed before. The store
    /// is closed in every case.
    pub fn close(self) -> Result<()> {
        self.shared.close()
    }

    fn in_turn(&self, wait: bool) -> Result<Option<Transaction>> {
        drop(self.shared.enter()?);
        self.shared.poison.check()?;
        // The store may be closed while one waits: waiting is no operation.
        match self.shared.turns.ask(&self.shared.waits, wait)? {
            Asked::Given => {
                let turn = Turn::given(&self.shared);
                let _open = self.shared.enter()?;
                Ok(Some(Transaction::begin(&self.shared, Some(turn))))
            }
            Asked::Taken => Ok(None),
            Asked::TakenHere => Err(Error::invalid(
                "this thread has begun a write transaction that has not ended: end it first",
            )),
        }
    }

    /// A transaction after this number of conflicts.
    fn attempt(&self, conflicts: u32) -> Result<Transaction> {
        if conflicts < CONFLICTS_BEFORE_TURN {
            return self.transaction();
        }
        self.shared.check_process()?;
        match self.shared.turns.ask(&self.shared.waits, true)? {
            Asked::Given => {
                let turn = Turn::given(&self.shared);
                let _open = self.shared.enter()?;
                Ok(Transaction::begin(&self.shared, Some(turn)))
            }
            // It is ours anyway.
            Asked::Taken | Asked::TakenHere => self.transaction(),
        }
    }

    fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        self.shared.keyspaces.read().get(name).filter(|_| !is_reserved(name)).cloned()
    }

    fn handle(&self, slot: Arc<Slot>) -> Keyspace {
        Keyspace::new(Arc::clone(&self.shared), slot)
    }

    fn choose_compression(&self, slot: &Slot, asked: Option<Compression>) -> Result<()> {
        let is_news = |codec: &Codec| slot.tree().map(|tree| tree.codec() != *codec);
        let Some(codec) = asked.map(Compression::codec) else { return Ok(()) };
        if !is_news(&codec)? {
            return Ok(());
        }
        // One after the other, so that what the tree has is what the manifest says.
        let _registry = self.shared.keyspaces.write();
        if is_news(&codec)? {
            self.shared.poison.check()?;
            if codec != Codec::None {
                require(&self.shared, FEATURE_COMPRESSION)?;
            }
            self.shared.commit_edits(&[Edit::KeyspaceCodec { id: slot.id, codec }])?;
            slot.tree()?.set_codec(codec);
        }
        Ok(())
    }

    /// Gives the keyspace its operator, and names it in the manifest where there was none.
    fn choose_operator(&self, slot: &Slot, asked: Option<&Chosen>) -> Result<()> {
        let Some(asked) = asked else { return Ok(()) };
        // One after the other, so that what the tree has is what the manifest says.
        let _registry = self.shared.keyspaces.write();
        let tree = slot.tree()?;
        if tree.keeps_history() {
            let name = &slot.name;
            let what = format!("keyspace {name} keeps history, and has no merge operator");
            return Err(Error::invalid(what));
        }
        match &tree.operator().name {
            Some(name) if *name == asked.name => {}
            Some(name) => {
                return Err(Error::invalid(format!(
                    "keyspace {} has the merge operator {name}, and not {}",
                    slot.name, asked.name
                )));
            }
            None => {
                self.shared.poison.check()?;
                require(&self.shared, FEATURE_OPERANDS)?;
                let name = asked.name.to_string();
                self.shared.commit_edits(&[Edit::KeyspaceOperator { id: slot.id, name }])?;
            }
        }
        tree.set_operator(asked.of(&slot.name));
        Ok(())
    }

    fn create_keyspace(&self, name: &str, options: &KeyspaceOptions) -> Result<Arc<Slot>> {
        let shared = &self.shared;
        let mut registry = shared.keyspaces.write();
        if let Some(slot) = registry.get(name) {
            return Ok(Arc::clone(slot));
        }
        shared.poison.check()?;
        if options.history.is_some() {
            ensure_times(shared, &mut registry)?;
            // Or a power cut could take numbers back that the record says are before the history.
            shared.log.sync_to(shared.log.last_seq())?;
        }
        let new = NewKeyspace::plan(shared, name, options)?;
        shared.commit_edits(&new.edits())?;
        let slot = new.open(shared);
        registry.insert(slot.name.clone(), Arc::clone(&slot));
        Ok(slot)
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_struct("Db");
        self.shared.print_planted(&mut printed);
        printed
            .field("location", &self.shared.device.location())
            .field("visible_seq", &self.visible_seq())
            .finish_non_exhaustive()
    }
}

/// An operation on all keyspaces skips one that is dropped meanwhile.
fn unless_dropped(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::NoKeyspace { .. }) => Ok(()),
        done => done,
    }
}

/// Whether the keyspace has the kind of index that is asked for.
fn check_index(slot: &Slot, asked: Option<IndexKind>) -> Result<()> {
    let Some(asked) = asked else { return Ok(()) };
    let has = slot.tree()?.index_kind();
    if has == asked {
        return Ok(());
    }
    let name = &slot.name;
    Err(Error::invalid(format!("keyspace {name} has an index of kind {has}, and not {asked}")))
}

/// History begins with a keyspace, and its share of superseded entries stays what it is.
fn check_history(slot: &Slot, asked: &KeyspaceOptions) -> Result<()> {
    let name = &slot.name;
    if let Some(history) = slot.tree()?.history() {
        let has = Share::of(history.share);
        if asked.history_share.is_some_and(|share| share != has) {
            return Err(Error::invalid(format!(
                "keyspace {name} was created with a history_share of {}",
                history.share
            )));
        }
        let kept = slot.history().map(|history| History::of(history.retention));
        return match (asked.history, kept) {
            (Some(asked), Some(kept)) if asked.retention() != kept.retention() => {
                Err(Error::invalid(format!("keyspace {name} was created with history {kept:?}")))
            }
            _ => Ok(()),
        };
    }
    if asked.history.is_none() && asked.history_share.is_none() {
        return Ok(());
    }
    let what = format!("keyspace {name} keeps no history: Keyspace::set_history begins one");
    Err(Error::invalid(what))
}

/// Whether a keyspace is Esker's own.
fn is_reserved(name: &str) -> bool {
    name.starts_with(times::RESERVED)
}

fn validate_name(name: &str) -> Result<()> {
    if is_reserved(name) {
        let reserved = times::RESERVED;
        let what = format!("names of keyspaces that begin with {reserved} are Esker's own");
        return Err(Error::invalid(what));
    }
    if keyspace_name_is_valid(name) {
        return Ok(());
    }
    let most = KEYSPACE_NAME_BYTES_MAX;
    Err(Error::invalid(format!("a keyspace name is 1 to {most} bytes without control characters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_printable() {
        assert!(validate_name("a").is_ok());
        assert!(validate_name(&"é".repeat(127)).is_ok());
        assert!(validate_name("").is_err());
        assert!(validate_name(&"x".repeat(256)).is_err());
        assert!(validate_name("a\tb").is_err());
    }
}
