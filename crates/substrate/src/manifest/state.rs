//! The manifest's contents, as a pure function of its edits.
//!
//! Invariant: keyspace ids and segment ids only grow; none is used twice.
//! Invariant: `durable_seq`, `next_generation` and every `flushed_seq` never go back.
//! Invariant: all segments but the newest are closed.
//! Invariant: no blob's space is taken twice, or freed without being taken.
//! Invariant: a keyspace's merge operator is named once, and never another one.
//! Invariant: a keyspace that keeps history has no merge operator, and keeps it for ever.
//! Invariant: past indexes belong to a keyspace that keeps history; each begins where the one
//! before it ends, and the newest ends where the index begins, or earlier. The oldest are dropped
//! first.
//! Invariant: `to_edits` applied to an empty state, with this state's numbers, gives this state.
//! Invariant: `names` and `files` are those of the keyspaces and segments, so that an edit costs
//! the logarithm of their number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_format::block::Codec;
use esker_format::history::HistoryMeta;
use esker_format::ids::{Generation, KeyspaceId, SegmentId, Seq};
use esker_format::manifest_edit::{Edit, PastEdit, RecordBody, SegmentRef, keyspace_name_is_valid};
use esker_format::meta::{IndexMeta, PastIndex};
use esker_format::ptr::Extent;

use crate::planted::{self, Bug};
use crate::runs::RunSet;

/// The manifest's state of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceState {
    /// Its name, unique among the living.
    pub name: String,
    /// Payload bytes of its memtable, where not the default.
    pub memtable_bytes: Option<u64>,
    /// The codec of its data blocks.
    pub codec: Codec,
    /// The name of its merge operator, if it has one.
    pub operator: Option<String>,
    /// Its history, if it keeps any.
    pub history: Option<HistoryMeta>,
    /// Its index.
    pub index: Arc<IndexMeta>,
    /// Its past indexes, oldest first.
    pub past: Arc<Vec<PastState>>,
    /// Space of blobs that belongs to the past index of the next split.
    pub released: Arc<RunSet>,
    /// Space of blobs that its levels refer to.
    pub values: Arc<RunSet>,
}

/// The manifest's state of one past index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastState {
    /// What readers search.
    pub index: Arc<PastIndex>,
    /// Space of blobs to which neither the index of now nor a later past index refers.
    pub values: Arc<RunSet>,
}

impl KeyspaceState {
    /// The past indexes, oldest first.
    #[must_use]
    pub fn past_indexes(&self) -> Vec<Arc<PastIndex>> {
        self.past.iter().map(|past| Arc::clone(&past.index)).collect()
    }

    /// All space of the data file that it occupies, blobs included.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let past = self.past.iter().flat_map(|past| past.index.extents());
        self.index.extents().chain(past).copied().chain(self.values.runs())
    }
}

/// The whole state of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestState {
    /// Living keyspaces.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
    /// The id of the next keyspace.
    pub next_keyspace: KeyspaceId,
    /// Versions that stay readable, by their names.
    pub pinned: BTreeMap<String, Seq>,
    /// Log segments in use, oldest first.
    pub segments: BTreeMap<SegmentId, SegmentRef>,
    /// The log was durable up to this number when the last record was written.
    pub durable_seq: Seq,
    /// The next block generation to hand out.
    pub next_generation: Generation,
    /// The last number of the log, when the last record closed the store.
    pub clean_close: Option<Seq>,
    /// The names of `keyspaces`.
    names: BTreeSet<String>,
    /// The files of `segments`.
    files: BTreeSet<u32>,
}

impl Default for ManifestState {
    fn default() -> Self {
        Self {
            keyspaces: BTreeMap::new(),
            next_keyspace: KeyspaceId(1),
            pinned: BTreeMap::new(),
            segments: BTreeMap::new(),
            durable_seq: Seq(0),
            next_generation: Generation(1),
            clean_close: None,
            names: BTreeSet::new(),
            files: BTreeSet::new(),
        }
    }
}

/// The reason why an edit does not fit the state.
pub(super) type Misfit = &'static str;

impl ManifestState {
    /// The number up to which the log must be readable, or durable writes are missing.
    #[must_use]
    pub fn log_must_reach(&self) -> Seq {
        let flushed = self.keyspaces.values().map(|keyspace| keyspace.index.flushed_seq);
        let closed = self.segments.values().filter_map(|segment| segment.end_seq);
        let clean = self.clean_close.unwrap_or_default();
        flushed.chain(closed).fold(self.durable_seq.max(clean), Seq::max)
    }

    /// Whether a segment in use has this file.
    #[must_use]
    pub fn has_segment_file(&self, file: u32) -> bool {
        self.files.contains(&file)
    }

    /// The state that one record makes of an empty one.
    ///
    /// # Errors
    /// The reason why the record does not fit the empty state.
    pub fn of_record(record: &RecordBody, durable_seq: Seq) -> Result<Self, &'static str> {
        let mut state = Self::default();
        state.apply_record(record, durable_seq).map(|()| state)
    }

    /// The state after one record. On an error the state is half changed and of no use.
    pub(super) fn apply_record(
        &mut self,
        record: &RecordBody,
        durable_seq: Seq,
    ) -> Result<(), Misfit> {
        self.clean_close = None;
        for edit in &record.edits {
            self.apply(edit)?;
        }
        self.durable_seq = self.durable_seq.max(durable_seq);
        self.next_generation = self.next_generation.max(record.next_generation);
        Ok(())
    }

    /// The most bytes that edits add to the first record of an epoch, and the bytes that they
    /// remove from it. The segments of the log are not counted: there are few.
    pub(super) fn change_of_size(&self, edits: &[Edit]) -> (u64, u64) {
        let changes = edits.iter().map(|edit| self.change_by(edit));
        changes.fold((0, 0), |sum, (more, less)| (sum.0 + more, sum.1 + less))
    }

    fn change_by(&self, edit: &Edit) -> (u64, u64) {
        let bytes = |edit: &Edit| {
            RecordBody::encode(std::slice::from_ref(edit), Generation(0)).len() as u64
        };
        let index_bytes = |id: KeyspaceId| {
            let index = self.keyspaces.get(&id).map(|keyspace| Arc::clone(&keyspace.index));
            index.map_or(0, |index| bytes(&Edit::Index { id, index }))
        };
        let past_bytes = |id: KeyspaceId| -> u64 {
            let past = self.keyspaces.get(&id).map(|keyspace| Arc::clone(&keyspace.past));
            let edits = past.iter().flat_map(|past| past.iter());
            edits.map(|past| bytes(&past_index(id, past))).sum()
        };
        let pin_bytes = |name: &String| {
            let pinned = self.pinned.get(name);
            pinned.map_or(0, |version| bytes(&Edit::Pin { name: name.clone(), version: *version }))
        };
        match edit {
            Edit::Index { id, .. } => (bytes(edit), index_bytes(*id)),
            Edit::Unpin { name } => (0, pin_bytes(name)),
            Edit::KeyspaceDrop { id } => (0, index_bytes(*id) + past_bytes(*id)),
            // Freed units may cut a run in two.
            Edit::OwnedSpace { .. }
            | Edit::KeyspaceCreate { .. }
            | Edit::KeyspaceCodec { .. }
            | Edit::KeyspaceOperator { .. }
            | Edit::KeyspaceHistory { .. }
            | Edit::Pin { .. }
            | Edit::Past { .. } => (bytes(edit), 0),
            Edit::SegmentAdd(_)
            | Edit::SegmentClose { .. }
            | Edit::SegmentRemove { .. }
            | Edit::CleanClose { .. }
            | Edit::NextKeyspace { .. } => (0, 0),
        }
    }

    /// The state after one edit.
    pub(super) fn apply(&mut self, edit: &Edit) -> Result<(), Misfit> {
        match edit {
            Edit::KeyspaceCreate { id, name, memtable_bytes } => {
                self.create_keyspace(*id, name, *memtable_bytes)
            }
            Edit::KeyspaceCodec { id, codec } => match self.keyspaces.get_mut(id) {
                Some(keyspace) => {
                    keyspace.codec = *codec;
                    Ok(())
                }
                None => Err("chooses a codec for a keyspace that does not exist"),
            },
            Edit::KeyspaceOperator { id, name } => self.name_operator(*id, name),
            Edit::KeyspaceHistory { id, history } => self.keep_history(*id, *history),
            Edit::Past { id, edit } => match edit {
                PastEdit::Index(past) => self.add_past(*id, past),
                PastEdit::Dropped(until) => self.drop_past(*id, *until),
                PastEdit::Space(released) => self.release(*id, released),
                PastEdit::Replaced(past, freed) => self.replace_past(*id, past, freed),
            },
            Edit::KeyspaceDrop { id } => match self.keyspaces.remove(id) {
                Some(dropped) => {
                    self.names.remove(&dropped.name);
                    Ok(())
                }
                None => Err("drops a keyspace that does not exist"),
            },
            Edit::Index { id, index } => self.replace_index(*id, index),
            Edit::OwnedSpace { id, taken, freed } => self.change_values(*id, taken, freed),
            Edit::Pin { name, version } => match self.pinned.insert(name.clone(), *version) {
                None => Ok(()),
                Some(_) => Err("gives a version a name that is in use"),
            },
            Edit::Unpin { name } => match self.pinned.remove(name) {
                Some(_) => Ok(()),
                None => Err("gives up a name that no version has"),
            },
            Edit::SegmentAdd(segment) => self.add_segment(*segment),
            Edit::SegmentClose { id, end_seq } => self.close_segment(*id, *end_seq),
            Edit::SegmentRemove { id } => {
                // Two threads may find the same segment retired: the second removal has no effect.
                if let Some(removed) = self.segments.remove(id) {
                    self.files.remove(&removed.file);
                }
                Ok(())
            }
            Edit::CleanClose { seq } => {
                self.clean_close = Some(*seq);
                Ok(())
            }
            Edit::NextKeyspace { id } => {
                self.next_keyspace = self.next_keyspace.max(*id);
                Ok(())
            }
        }
    }

    fn create_keyspace(
        &mut self,
        id: KeyspaceId,
        name: &str,
        memtable_bytes: Option<u64>,
    ) -> Result<(), Misfit> {
        if id < self.next_keyspace {
            return Err("creates a keyspace whose id was used before");
        }
        if !keyspace_name_is_valid(name) {
            return Err("creates a keyspace whose name is not valid");
        }
        if self.name_is_in_use(name) {
            return Err("creates a keyspace whose name is in use");
        }
        let next = id.0.checked_add(1).ok_or("creates a keyspace when no id is left")?;
        self.next_keyspace = KeyspaceId(next);
        self.names.insert(name.to_string());
        let index = Arc::new(IndexMeta::default());
        let (name, codec) = (name.to_string(), Codec::None);
        let (past, released, values) = (Arc::default(), Arc::default(), Arc::default());
        let keyspace = KeyspaceState {
            name,
            memtable_bytes,
            codec,
            operator: None,
            history: None,
            index,
            past,
            released,
            values,
        };
        self.keyspaces.insert(id, keyspace);
        Ok(())
    }

    fn name_is_in_use(&self, name: &str) -> bool {
        if planted::is(Bug::NamesSearchedOneByOne) {
            return self.keyspaces.values().any(|keyspace| keyspace.name == name);
        }
        self.names.contains(name)
    }

    fn name_operator(&mut self, id: KeyspaceId, name: &str) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("names the merge operator of a keyspace that does not exist")?;
        if !keyspace_name_is_valid(name) {
            return Err("names a merge operator with a name that is not valid");
        }
        if keyspace.operator.as_deref().is_some_and(|old| old != name) {
            return Err("names another merge operator than a keyspace has");
        }
        if keyspace.history.is_some() {
            return Err("names the merge operator of a keyspace with history");
        }
        keyspace.operator = Some(name.to_string());
        Ok(())
    }

    fn keep_history(&mut self, id: KeyspaceId, history: HistoryMeta) -> Result<(), Misfit> {
        let keyspace =
            self.keyspaces.get_mut(&id).ok_or("keeps history of a keyspace that does not exist")?;
        if keyspace.operator.is_some() {
            return Err("keeps history of a keyspace with a merge operator");
        }
        if keyspace.history.is_some_and(|old| old.from != history.from) {
            return Err("begins the history of a keyspace that has one");
        }
        keyspace.history = Some(history);
        Ok(())
    }

    fn add_past(&mut self, id: KeyspaceId, past: &Arc<PastIndex>) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("adds a past index to a keyspace that does not exist")?;
        let Some(history) = keyspace.history else {
            return Err("adds a past index to a keyspace without history");
        };
        if past.from >= past.until {
            return Err("adds a past index of no versions");
        }
        let follows = keyspace.past.last().is_none_or(|last| last.index.until == past.from);
        if !follows || past.from < history.from || past.until > keyspace.index.history.from {
            return Err("adds a past index that leaves a gap");
        }
        let values = std::mem::take(&mut keyspace.released);
        let past = PastState { index: Arc::clone(past), values };
        Arc::make_mut(&mut keyspace.past).push(past);
        Ok(())
    }

    fn drop_past(&mut self, id: KeyspaceId, until: Seq) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("drops past indexes of a keyspace that does not exist")?;
        Arc::make_mut(&mut keyspace.past).retain(|past| past.index.until > until);
        Ok(())
    }

    fn replace_past(
        &mut self,
        id: KeyspaceId,
        past: &Arc<PastIndex>,
        freed: &[Extent],
    ) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("replaces a past index of a keyspace that does not exist")?;
        let mut all = Arc::make_mut(&mut keyspace.past).iter_mut();
        let same = |old: &PastIndex| old.from == past.from && old.until == past.until;
        let old =
            all.find(|old| same(&old.index)).ok_or("replaces a past index that is not there")?;
        old.index = Arc::clone(past);
        let values = Arc::make_mut(&mut old.values);
        let mut freed = freed.iter();
        let done = freed.try_for_each(|run| values.remove(*run));
        done.map_err(|_| "frees a value that a past index does not have")
    }

    fn release(&mut self, id: KeyspaceId, released: &[Extent]) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("releases space of a keyspace that does not exist")?;
        let all = Arc::make_mut(&mut keyspace.released);
        for run in released {
            all.insert(*run).map_err(|_| "releases space of a value twice")?;
        }
        Ok(())
    }

    fn replace_index(&mut self, id: KeyspaceId, index: &Arc<IndexMeta>) -> Result<(), Misfit> {
        let keyspace =
            self.keyspaces.get_mut(&id).ok_or("changes a keyspace that does not exist")?;
        if index.flushed_seq < keyspace.index.flushed_seq {
            return Err("takes an index back to an older state");
        }
        keyspace.index = Arc::clone(index);
        Ok(())
    }

    fn change_values(
        &mut self,
        id: KeyspaceId,
        taken: &[Extent],
        freed: &[Extent],
    ) -> Result<(), Misfit> {
        let keyspace = self
            .keyspaces
            .get_mut(&id)
            .ok_or("changes values of a keyspace that does not exist")?;
        let values = Arc::make_mut(&mut keyspace.values);
        for run in freed {
            values.remove(*run).map_err(|_| "gives up space of a value that is not taken")?;
        }
        for run in taken {
            values.insert(*run).map_err(|_| "takes space of a value that is taken")?;
        }
        Ok(())
    }

    fn add_segment(&mut self, segment: SegmentRef) -> Result<(), Misfit> {
        if let Some((newest, last)) = self.segments.last_key_value() {
            if segment.id <= *newest {
                return Err("adds a log segment that is not the newest");
            }
            // Segments between the two may have been removed, but never the numbers mixed.
            match last.end_seq {
                None => return Err("adds a log segment while another is open"),
                Some(end) if segment.first_seq <= end => {
                    return Err("adds a log segment that overlaps another");
                }
                Some(_) => {}
            }
        }
        if segment.end_seq.is_some_and(|end| end < segment.first_seq) {
            return Err("adds a log segment that ends before it begins");
        }
        if !self.files.insert(segment.file) {
            return Err("adds a log segment in a file that is in use");
        }
        self.segments.insert(segment.id, segment);
        Ok(())
    }

    fn close_segment(&mut self, id: SegmentId, end_seq: Seq) -> Result<(), Misfit> {
        let segment =
            self.segments.get_mut(&id).ok_or("closes a log segment that is not in use")?;
        if segment.end_seq.is_some() || end_seq < segment.first_seq {
            return Err("closes a log segment that is closed or empty");
        }
        segment.end_seq = Some(end_seq);
        Ok(())
    }

    /// The edits that make this state out of an empty one.
    #[must_use]
    pub fn to_edits(&self) -> Vec<Edit> {
        let mut edits = Vec::new();
        for (id, keyspace) in &self.keyspaces {
            edits.push(Edit::KeyspaceCreate {
                id: *id,
                name: keyspace.name.clone(),
                memtable_bytes: keyspace.memtable_bytes,
            });
            if keyspace.codec != Codec::None {
                edits.push(Edit::KeyspaceCodec { id: *id, codec: keyspace.codec });
            }
            if let Some(name) = &keyspace.operator {
                edits.push(Edit::KeyspaceOperator { id: *id, name: name.clone() });
            }
            if let Some(history) = keyspace.history {
                edits.push(Edit::KeyspaceHistory { id: *id, history });
            }
            edits.push(Edit::Index { id: *id, index: Arc::clone(&keyspace.index) });
            edits.extend(past_edits(*id, keyspace));
            if !keyspace.values.is_empty() {
                let taken = keyspace.values.runs().collect();
                edits.push(Edit::OwnedSpace { id: *id, taken, freed: Vec::new() });
            }
        }
        edits.push(Edit::NextKeyspace { id: self.next_keyspace });
        let pinned = self.pinned.iter();
        edits.extend(
            pinned.map(|(name, version)| Edit::Pin { name: name.clone(), version: *version }),
        );
        edits.extend(self.segments.values().copied().map(Edit::SegmentAdd));
        edits.extend(self.clean_close.map(|seq| Edit::CleanClose { seq }));
        edits
    }
}

/// The edit of a past index.
fn past_index(id: KeyspaceId, past: &PastState) -> Edit {
    Edit::Past { id, edit: PastEdit::Index(Arc::clone(&past.index)) }
}

/// The edits that make a keyspace's past indexes.
fn past_edits(id: KeyspaceId, keyspace: &KeyspaceState) -> Vec<Edit> {
    let released = |values: &RunSet| {
        let released = values.runs().collect();
        let edit = PastEdit::Space(released);
        (!values.is_empty()).then_some(Edit::Past { id, edit })
    };
    let mut edits = Vec::new();
    for past in keyspace.past.iter() {
        edits.extend(released(&past.values));
        edits.push(past_index(id, past));
    }
    edits.extend(released(&keyspace.released));
    edits
}

#[cfg(test)]
mod tests;
