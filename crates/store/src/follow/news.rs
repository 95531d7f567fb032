//! What is new on the device, as a follower takes it in.
//!
//! New records of the log go into the memtables that are there, where no reader sees them before
//! their number is visible. A keyspace whose record in the manifest has changed gets a new index,
//! which takes over from the older one what the record does not have. Everything is made anew if
//! that is not possible: at first, where segments of the log are gone that were not read, where a
//! keyspace begins a history (its batches have one number from then on), and after a batch was
//! taken in part.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::Device;
use esker_format::action::WriteOp;
use esker_format::history::HistoryMeta;
use esker_format::ids::{KeyspaceId, Seq};
use esker_index::Index;
use esker_substrate::log::{Followed, Place};
use esker_substrate::manifest::{KeyspaceState, ManifestState};

use crate::error::{Error, Result};
use crate::follower::{Follower, Progress};
use crate::replay::{HistoryBatch, With, unknown_keyspace};
use crate::shared::Core;
use crate::slot::{Opening, Slot};
use crate::trees::{must_fit, open_tree, require_codecs};

/// The state of a follower after the next step, as far as it differs from the present one.
pub(super) struct News {
    pub state: Arc<ManifestState>,
    /// The number that becomes visible.
    pub seq: Seq,
    /// The manifest has another state.
    pub is_changed: bool,
    /// Indexes that are read in the place of others.
    replaced: Vec<Replaced>,
    created: Vec<Arc<Slot>>,
    dropped: Vec<Arc<Slot>>,
}

/// Indexes that were replaced. Their memory is given back when this is dropped.
pub(super) struct Retired(Vec<Arc<Opening>>);

impl Retired {
    /// Memory of their memtables.
    pub fn memtables_bytes(&self) -> u64 {
        self.0.iter().map(|opening| opening.index.memtable_memory_bytes()).sum()
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub take: Take,
    /// The number that is certain to be kept.
    pub kept: Option<Seq>,
    /// Memory of memtables that are given back soon.
    pub older_bytes: u64,
}

/// What is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// The log alone, where the same keyspaces are there: the indexes that are read have all else,
    /// until their space is used again.
    Log,
    /// Everything.
    All,
}

/// The states of the manifest that the indexes have, that the log goes with, and that is taken in:
/// one of the two.
struct States<'a> {
    known: &'a Arc<ManifestState>,
    log: &'a Arc<ManifestState>,
    taken: &'a Arc<ManifestState>,
}

/// The next index of a keyspace.
struct Replaced {
    slot: Arc<Slot>,
    opening: Opening,
    history: Option<HistoryMeta>,
}

impl News {
    /// Reads the log behind the state of the manifest. The number is `kept`, or where the log ends
    /// if that is before.
    pub fn find(
        shared: &Core,
        follower: &Follower,
        progress: &mut Progress,
        wanted: Wanted,
    ) -> Result<Self> {
        let state = shared.manifest.state();
        require_codecs(&state)?;
        let is_known =
            |known: &Arc<ManifestState>| !progress.is_broken && !begins_history(known, &state);
        if let Some(known) = progress.state.clone().filter(is_known) {
            let is_log =
                wanted.take == Take::Log && known.keyspaces.keys().eq(state.keyspaces.keys());
            let taken = if is_log { &known } else { &state };
            let states = States { known: &known, log: &state, taken };
            let broken = &mut progress.is_broken;
            let found = Self::find_more(shared, follower, states, (wanted, broken));
            match found {
                Ok(Some(news)) => return Ok(news),
                Ok(None) => {}
                Err(error) if error.may_be_reuse() || !progress.is_broken => return Err(error),
                // What is flushed since may not fit the memory beside the older indexes.
                Err(_) => {}
            }
        }
        progress.is_broken = true;
        let news = Self::find_all(shared, follower, (state, wanted.kept))?;
        progress.is_broken = false;
        Ok(news)
    }

    /// Reads on; `None` where that is not possible.
    fn find_more(
        shared: &Core,
        follower: &Follower,
        States { known, log, taken: state }: States<'_>,
        (wanted, is_broken): (Wanted, &mut bool),
    ) -> Result<Option<Self>> {
        let mut slots: BTreeMap<KeyspaceId, Arc<Slot>> =
            shared.slots().into_iter().map(|slot| (slot.id, slot)).collect();
        let is_new = |id: &KeyspaceId| !slots.contains_key(id);
        let created: Vec<Arc<Slot>> = state
            .keyspaces
            .iter()
            .filter(|(id, _)| is_new(id))
            .map(|(id, keyspace)| {
                let opening = open(shared, None, (*id, keyspace), Seq(0));
                slot(*id, keyspace, opening, follower)
            })
            .collect();
        slots.extend(created.iter().map(|slot| (slot.id, Arc::clone(slot))));
        let with = |id: KeyspaceId, visit: &mut dyn FnMut(&Index)| {
            let tree = slots.get(&id).and_then(|slot| slot.tree().ok());
            tree.into_iter().for_each(|tree| visit(&tree));
        };
        // What was read into keyspaces that are not taken in, or in part, is not read again.
        *is_broken = !created.is_empty();
        if read_log(shared, (log, wanted.older_bytes), &with, is_broken)? == Followed::Gap {
            return Ok(None);
        }
        let seq = number(shared, wanted.kept);
        let replaced = if Arc::ptr_eq(known, state) {
            Vec::new()
        } else {
            replaced(shared, (known, state), &slots, seq)?
        };
        *is_broken = false;
        let is_gone = |slot: &&Arc<Slot>| !state.keyspaces.contains_key(&slot.id);
        let dropped = slots.values().filter(is_gone).cloned().collect();
        let (is_changed, state) = (!Arc::ptr_eq(known, state), Arc::clone(state));
        Ok(Some(Self { state, seq, is_changed, replaced, created, dropped }))
    }

    /// Reads everything.
    fn find_all(
        shared: &Core,
        follower: &Follower,
        (state, kept): (Arc<ManifestState>, Option<Seq>),
    ) -> Result<Self> {
        let older_bytes = shared.memtables_bytes();
        let mut openings: BTreeMap<KeyspaceId, Opening> = BTreeMap::new();
        for (id, keyspace) in &state.keyspaces {
            openings.insert(*id, open(shared, None, (*id, keyspace), Seq(0)));
        }
        let with = |id: KeyspaceId, visit: &mut dyn FnMut(&Index)| {
            openings.get(&id).into_iter().for_each(|opening| visit(&opening.index));
        };
        shared.log.rewind();
        read_log(shared, (&state, older_bytes), &with, &mut false)?;
        let (seq, visible) = (number(shared, kept), shared.snapshots().visible());
        if seq < visible {
            return Err(went_back(shared, visible, seq));
        }
        let mut slots: BTreeMap<KeyspaceId, Arc<Slot>> =
            shared.slots().into_iter().map(|slot| (slot.id, slot)).collect();
        let (mut replaced, mut created) = (Vec::new(), Vec::new());
        for (id, mut opening) in openings {
            opening.reads_from = seq;
            opening.index.resume()?;
            let Some(keyspace) = state.keyspaces.get(&id) else { continue };
            match slots.remove(&id) {
                Some(slot) => {
                    keep_operator(&slot, &opening.index);
                    replaced.push(Replaced { slot, opening, history: keyspace.history });
                }
                None => created.push(slot(id, keyspace, opening, follower)),
            }
        }
        let dropped = slots.into_values().collect();
        Ok(Self { state, seq, is_changed: true, replaced, created, dropped })
    }

    /// Makes them visible, all at one moment. Returns what was there before; to give it back takes
    /// as long as making it.
    pub fn take_in(self, shared: &Core, follower: &Follower) -> Retired {
        let mut before = Vec::new();
        {
            let _steady = follower.steady.write();
            let mut registry = shared.keyspaces.write();
            for slot in &self.dropped {
                slot.set_gone(true);
                registry.retain(|_, known| known.id != slot.id);
            }
            for Replaced { slot, opening, history } in self.replaced {
                before.extend(slot.replace(opening, history));
            }
            registry.extend(self.created.into_iter().map(|slot| (slot.name.clone(), slot)));
            shared.snapshots().publish(self.seq);
        }
        self.dropped.iter().for_each(|slot| slot.close());
        Retired(before)
    }
}

/// Whether a keyspace that is known begins to keep a history.
fn begins_history(known: &ManifestState, state: &ManifestState) -> bool {
    state.keyspaces.iter().any(|(id, keyspace)| {
        let before = known.keyspaces.get(id);
        keyspace.history.is_some() && before.is_some_and(|before| before.history.is_none())
    })
}

fn open(
    shared: &Core,
    older: Option<&Index>,
    keyspace: (KeyspaceId, &KeyspaceState),
    reads_from: Seq,
) -> Opening {
    let index = open_tree((&shared.env, older), keyspace, &shared.limits, shared.options);
    Opening { index, reads_from }
}

fn slot(
    id: KeyspaceId,
    keyspace: &KeyspaceState,
    opening: Opening,
    follower: &Follower,
) -> Arc<Slot> {
    let (name, steady) = (keyspace.name.clone(), (keyspace.history, &follower.steady));
    Arc::new(Slot::followed(id, name, opening, steady))
}

/// The number that becomes visible when the log has been read.
fn number(shared: &Core, kept: Option<Seq>) -> Seq {
    let last = shared.log.last_seq();
    kept.map_or(last, |kept| kept.min(last))
}

/// New indexes for the keyspaces whose record has changed.
fn replaced(
    shared: &Core,
    (known, state): (&ManifestState, &ManifestState),
    slots: &BTreeMap<KeyspaceId, Arc<Slot>>,
    seq: Seq,
) -> Result<Vec<Replaced>> {
    let mut replaced = Vec::new();
    for (id, keyspace) in &state.keyspaces {
        let before = known.keyspaces.get(id);
        if before.is_none_or(|before| before == keyspace) {
            continue;
        }
        let Some((slot, older)) = slots.get(id).and_then(|slot| Some((slot, slot.tree().ok()?)))
        else {
            continue;
        };
        let opening = open(shared, Some(&older), (*id, keyspace), seq);
        opening.index.take_over(&older);
        opening.index.resume()?;
        let slot = Arc::clone(slot);
        replaced.push(Replaced { slot, opening, history: keyspace.history });
    }
    Ok(replaced)
}

/// An operator that was given when the keyspace was opened here stays.
fn keep_operator(slot: &Slot, index: &Index) {
    if let Ok(older) = slot.tree()
        && older.operator().function.is_some()
    {
        index.set_operator(older.operator().as_ref().clone());
    }
}

/// Reads the log on into the indexes. `is_broken` is set where one of them may have a batch in
/// part. Of the memory, `older_bytes` are those of indexes that will be replaced.
fn read_log(
    shared: &Core,
    (state, older_bytes): (&ManifestState, u64),
    with: &With<'_>,
    is_broken: &mut bool,
) -> Result<Followed> {
    let mut history = HistoryBatch::default();
    let was_broken = *is_broken;
    let mut apply = |place: Place, id: KeyspaceId, action: WriteOp<'_>| {
        *is_broken = true;
        let mut is_there = false;
        with(id, &mut |tree| {
            is_there = true;
            history.replay(tree, id, place, action);
        });
        if !is_there && id >= state.next_keyspace {
            return Err(unknown_keyspace(place.seq, id));
        }
        if place.is_last() {
            history.end(place.last, with);
            must_fit(shared, older_bytes)?;
            *is_broken = was_broken;
        }
        Ok(())
    };
    // Where the writer does not say how far it is, all that is there.
    let until = shared.snapshots().passed().unwrap_or(Seq(u64::MAX));
    Ok(shared.log.follow(state, until, &mut apply)?)
}

/// The log ends before what was visible here.
fn went_back(shared: &Core, visible: Seq, last: Seq) -> Error {
    Error::Damaged {
        file: shared.device.location(),
        offset: 0,
        what: format!(
            "the log ends at operation {last} and went up to {visible}: open the store again"
        ),
    }
}
