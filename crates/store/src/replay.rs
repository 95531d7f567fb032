//! One operation of the log, on its way into the index of its keyspace.

use esker_format::action::WriteOp;
use esker_format::ids::{KeyspaceId, Seq};
use esker_index::Index;
use esker_substrate::log::Place;
use esker_substrate::planted::{self, Bug};

/// Calls its second argument with the index of a keyspace, if it is there.
pub(crate) type With<'a> = dyn Fn(KeyspaceId, &mut dyn FnMut(&Index)) + 'a;

/// The batch that is replayed, as far as keyspaces with history are concerned: all of it has one
/// number there, so that no memtable may be frozen within it.
#[derive(Debug, Default)]
pub(crate) struct HistoryBatch {
    pub has_writes: bool,
    /// The removed ranges, each by its first key.
    removed: Vec<(KeyspaceId, Vec<u8>)>,
}

impl HistoryBatch {
    /// Takes an operation of a keyspace.
    pub fn replay(&mut self, tree: &Index, id: KeyspaceId, place: Place, action: WriteOp<'_>) {
        let keeps_history = tree.keeps_history();
        self.has_writes |= keeps_history;
        let is_one_version = keeps_history && !planted::is(Bug::ReplayedAsVersions);
        let seq = if is_one_version { place.last } else { place.seq };
        match action {
            WriteOp::Point(key, data) => tree.replay(key, seq, data),
            WriteOp::DeleteRange(keys) => {
                tree.replay_removal(keys, seq);
                if keeps_history {
                    self.removed.push((id, keys.begin.to_vec()));
                }
            }
        }
    }

    /// The batch ends, with the number `last`.
    pub fn end(&mut self, last: Seq, with: &With<'_>) {
        for (id, begin) in self.removed.drain(..) {
            with(id, &mut |tree| tree.replay_mark(&begin, last));
        }
        self.has_writes = false;
    }
}

/// The error for an operation of a keyspace that there never was.
pub(crate) fn unknown_keyspace(seq: Seq, id: KeyspaceId) -> esker_substrate::Error {
    esker_substrate::Error::Corrupt {
        file: "log".into(),
        offset: 0,
        what: format!("operation {seq} is for keyspace {id}, which was never created"),
    }
}
