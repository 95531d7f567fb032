//! The creation of keyspaces: what is recorded, and what is opened then.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::block::Codec;
use esker_format::history::HistoryMeta;
use esker_format::ids::KeyspaceId;
use esker_format::manifest_edit::Edit;
use esker_format::meta::IndexMeta;
use esker_format::superblock::{
    FEATURE_COMPRESSION, FEATURE_HISTORY, FEATURE_LSM, FEATURE_OPERANDS,
};
use esker_index::{Index, Options};

use crate::error::Result;
use crate::history::{History, kept};
use crate::options::{Chosen, KeyspaceOptions};
use crate::shared::{Core, IndexOptions};
use crate::slot::Slot;
use crate::times::{self, Times};

/// A keyspace that is about to be created.
pub(crate) struct NewKeyspace<'a> {
    id: KeyspaceId,
    name: &'a str,
    memtable_bytes: Option<u64>,
    codec: Codec,
    index: IndexMeta,
    operator: Option<&'a Chosen>,
    history: Option<HistoryMeta>,
}

impl<'a> NewKeyspace<'a> {
    /// Decides what is created, and has older versions refuse it.
    pub fn plan(shared: &Core, name: &'a str, options: &'a KeyspaceOptions) -> Result<Self> {
        let id = shared.manifest.state().next_keyspace;
        let new = Self {
            id,
            name,
            memtable_bytes: options.memtable_bytes,
            codec: options.compression.unwrap_or_default().codec(),
            index: esker_index::empty(options.index.unwrap_or_default()),
            operator: options.merge.as_ref(),
            history: options.history.map(|history| {
                let share = options.history_share.unwrap_or_default();
                history.meta(share, shared.snapshots().visible())
            }),
        };
        for (feature, is_needed) in [
            (FEATURE_COMPRESSION, new.codec != Codec::None),
            (FEATURE_LSM, new.index.lsm().is_some()),
            (FEATURE_OPERANDS, new.operator.is_some()),
            (FEATURE_HISTORY, new.history.is_some()),
        ] {
            if is_needed {
                require(shared, feature)?;
            }
        }
        Ok(new)
    }

    pub fn edits(&self) -> Vec<Edit> {
        let (id, name, memtable_bytes) = (self.id, self.name.to_owned(), self.memtable_bytes);
        let mut edits = vec![Edit::KeyspaceCreate { id, name, memtable_bytes }];
        if self.codec != Codec::None {
            edits.push(Edit::KeyspaceCodec { id, codec: self.codec });
        }
        if self.index.lsm().is_some() {
            edits.push(Edit::Index { id, index: Arc::new(self.index.clone()) });
        }
        if let Some(operator) = self.operator {
            edits.push(Edit::KeyspaceOperator { id, name: operator.name.to_string() });
        }
        edits.extend(self.history.map(|history| Edit::KeyspaceHistory { id, history }));
        edits
    }

    pub fn open(self, shared: &Core) -> Arc<Slot> {
        let IndexOptions { scheme, sizes, compaction } = shared.options;
        let options = Options {
            memtable_bytes_max: self.memtable_bytes.unwrap_or(shared.limits.memtables_bytes),
            scheme,
            sizes,
            codec: self.codec,
            compaction,
            history: self.history.as_ref().map(kept),
        };
        let tree = Index::open(Arc::clone(&shared.env), self.id, self.index, options);
        if let Some(operator) = self.operator {
            tree.set_operator(operator.of(self.name));
        }
        shared.times.get().into_iter().for_each(|times| times.connect(&tree));
        Arc::new(Slot::new(self.id, self.name.to_owned(), tree, self.history))
    }
}

/// Creates the keyspace of times, if there is none.
pub(crate) fn ensure_times(
    shared: &Core,
    registry: &mut BTreeMap<String, Arc<Slot>>,
) -> Result<()> {
    if shared.times.get().is_some() {
        return Ok(());
    }
    let options = KeyspaceOptions::default().history(History::All);
    let new = NewKeyspace::plan(shared, times::NAME, &options)?;
    shared.log.sync_to(shared.log.last_seq())?;
    shared.commit_edits(&new.edits())?;
    let slot = new.open(shared);
    registry.insert(slot.name.clone(), Arc::clone(&slot));
    // Only here it is set, under the lock of the registry.
    let _set = shared.times.set(Times::open(slot, shared.snapshots().visible()));
    Ok(())
}

/// Older versions are refused before there is anything to refuse them for.
pub(crate) fn require(shared: &Core, features: u32) -> Result<()> {
    if shared.manifest.requires(features) { Ok(()) } else { shared.require(features) }
}
