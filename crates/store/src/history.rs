//! What of a keyspace's past is kept.

use std::time::Duration;

use esker_format::history::{HistoryMeta, MILLIONTHS, Retention, millionths, of_millionths};
use esker_format::ids::Seq;
use esker_index::IndexKind;

use crate::error::{Error, Result};

/// The versions of a keyspace that stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// All of them, for ever: nothing that was committed is dropped, and space grows with every
    /// write.
    All,
    /// Those of at least this long, from 1 ms: what was readable so long ago. Space of earlier ones
    /// is freed as whole indexes are not needed any more.
    For(Duration),
    /// At least those with the last numbers, this many, from 1. Each write of the store takes a
    /// number.
    Newest(u64),
}

/// The share of superseded entries at which a keyspace's live entries are copied, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(pub u32);

impl Share {
    /// Never.
    pub const NEVER: Self = Self(MILLIONTHS);
    /// The least, and the greatest but never.
    const BOUNDS: (u32, u32) = (200_000, 800_000);

    /// A share, which [`is_valid`](Self::is_valid) checks.
    pub fn of(share: f64) -> Self {
        Self(millionths(share))
    }

    pub fn is_valid(self) -> bool {
        self == Self::NEVER || (Self::BOUNDS.0..=Self::BOUNDS.1).contains(&self.0)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self(MILLIONTHS / 2)
    }
}

impl History {
    /// The record of a keyspace that begins to keep history at `from`.
    pub(crate) fn meta(self, share: Share, from: Seq) -> HistoryMeta {
        let (retention, share_millionths) = (self.retention(), share.0);
        HistoryMeta { retention, share_millionths, from, expires: false }
    }

    pub(crate) fn retention(self) -> Retention {
        match self {
            Self::All => Retention::All,
            Self::For(time) => {
                Retention::For { millis: u64::try_from(time.as_millis()).unwrap_or(u64::MAX) }
            }
            Self::Newest(versions) => Retention::Newest { versions },
        }
    }

    /// The history with such a retention.
    pub(crate) const fn of(retention: Retention) -> Self {
        match retention {
            Retention::All => Self::All,
            Retention::For { millis } => Self::For(Duration::from_millis(millis)),
            Retention::Newest { versions } => Self::Newest(versions),
        }
    }

    /// Fails where it keeps nothing.
    pub(crate) fn validate(self) -> Result<()> {
        match self.retention() {
            Retention::For { millis: 0 } | Retention::Newest { versions: 0 } => {
                Err(Error::invalid("history is kept for 1 ms, or for 1 version, at least"))
            }
            _ => Ok(()),
        }
    }

    /// Fails for a keyspace that cannot keep any.
    pub(crate) fn validate_keyspace(index: Option<IndexKind>, has_operator: bool) -> Result<()> {
        if has_operator {
            return Err(Error::invalid("a keyspace with history has no merge operator"));
        }
        if index.is_some_and(|index| index != IndexKind::FdTree) {
            return Err(Error::invalid("a keyspace with history has an index of kind fdtree"));
        }
        Ok(())
    }
}

/// Whether nothing is ever copied: then everything stays, in one index.
pub(crate) fn never_splits(history: &HistoryMeta) -> bool {
    Share(history.share_millionths) == Share::NEVER
}

/// The history that an index keeps according to its keyspace's record.
pub(crate) fn kept(history: &HistoryMeta) -> esker_index::History {
    let share = of_millionths(history.share_millionths);
    esker_index::History { from: history.from, share, expires: history.expires }
}
