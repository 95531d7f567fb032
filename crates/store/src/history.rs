//! What of a keyspace's past is kept.

use esker_format::history::{HistoryMeta, MILLIONTHS, Retention};
use esker_format::ids::Seq;

/// The versions of a keyspace that stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// All of them, for ever: nothing that was committed is dropped, and space grows with every
    /// write.
    All,
}

impl History {
    /// The record of a keyspace that begins to keep history at `from`.
    pub(crate) const fn meta(self, from: Seq) -> HistoryMeta {
        let retention = match self {
            Self::All => Retention::All,
        };
        HistoryMeta { retention, share_millionths: MILLIONTHS, from }
    }
}
