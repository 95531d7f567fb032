//! The indexes of a store that is being opened or followed, and what is checked then.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::Device;
use esker_format::ids::KeyspaceId;
use esker_index::read::operands::Operator;
use esker_index::{Env, Index, Options};
use esker_substrate::manifest::{KeyspaceState, ManifestState};

use crate::error::Result;
use crate::history::kept;
use crate::limits::Limits;
use crate::operators::Merge;
use crate::options::require_codec;
use crate::shared::{Core, IndexOptions};
use crate::slot::Slot;
use crate::times::{self, Times};

/// Refuses a store with a keyspace whose blocks this build cannot read.
pub(crate) fn require_codecs(state: &ManifestState) -> Result<()> {
    state.keyspaces.values().try_for_each(|keyspace| {
        require_codec(keyspace.codec, format_args!("keyspace {}", keyspace.name))
    })
}

/// The keyspaces of the manifest, without what the log has.
pub(crate) fn open_trees(
    env: &Arc<Env>,
    state: &ManifestState,
    limits: &Limits,
    options: IndexOptions,
) -> BTreeMap<String, Arc<Slot>> {
    let slot = |(&id, keyspace): (&KeyspaceId, &KeyspaceState)| {
        let tree = open_tree((env, None), (id, keyspace), limits, options);
        let name = keyspace.name.clone();
        (name.clone(), Arc::new(Slot::new(id, name, tree, keyspace.history)))
    };
    state.keyspaces.iter().map(slot).collect()
}

/// The index of a keyspace of the manifest, without what the log has; another opening of it may be
/// there.
pub(crate) fn open_tree(
    (env, older): (&Arc<Env>, Option<&Index>),
    (id, keyspace): (KeyspaceId, &KeyspaceState),
    limits: &Limits,
    options: IndexOptions,
) -> Index {
    let options = Options {
        memtable_bytes_max: keyspace.memtable_bytes.unwrap_or(limits.memtables_bytes),
        scheme: options.scheme,
        sizes: options.sizes,
        codec: keyspace.codec,
        compaction: options.compaction,
        history: keyspace.history.as_ref().map(kept),
    };
    let meta = keyspace.index.as_ref().clone();
    let tree = match older {
        Some(older) => older.open_again(meta, options),
        None => Index::open(Arc::clone(env), id, meta, options),
    };
    let tree =
        tree.with_past(keyspace.past_indexes()).with_values(keyspace.values.as_ref().clone());
    if let Some(operator) = &keyspace.operator {
        tree.set_operator(Operator {
            name: Some(operator.as_str().into()),
            keyspace: keyspace.name.as_str().into(),
            function: Merge::stored(operator),
        });
    }
    tree
}

/// Finds the times of versions, where a keyspace keeps history.
pub(crate) fn open_times(shared: &Core) {
    if shared.times.get().is_some() {
        return;
    }
    let slot = shared.keyspaces.read().get(times::NAME).cloned();
    if let Some(slot) = slot {
        let times = Times::open(slot, shared.snapshots().visible());
        // The keyspace of times itself has no use for them, and would hold itself.
        let slots = shared.slots();
        times::users(&slots)
            .filter_map(|slot| slot.tree().ok())
            .for_each(|tree| times.connect(&tree));
        let _set = shared.times.set(times);
    }
}

/// Fails if the replay cannot continue: a flush that was due did not happen; or, where nothing may
/// be written, there is no memory left.
pub(crate) fn must_be_sound(shared: &Core) -> esker_substrate::Result<()> {
    if !shared.poison.is_read_only() {
        return shared.poison.check();
    }
    must_fit(shared, 0)
}

/// Fails if memtables take more memory than there is, apart from `older_bytes`, which are given
/// back soon.
pub(crate) fn must_fit(shared: &Core, older_bytes: u64) -> esker_substrate::Result<()> {
    let used = shared.memtables_bytes().saturating_sub(older_bytes);
    let budget = shared.env.budget.total_bytes();
    if used <= budget {
        return Ok(());
    }
    Err(esker_substrate::Error::Invalid {
        what: format!(
            "the log of {} does not fit in the memory budget of {budget} bytes, and nothing may be \
             written: open it with a larger memory budget, or for writing",
            shared.device.location()
        ),
    })
}
