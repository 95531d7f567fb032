//! The history that a keyspace keeps.
//!
//! ```text
//! u8 retention · varint amount · varint share in millionths · varint first version
//! ```

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Seq;

/// One, in millionths.
pub const MILLIONTHS: u32 = 1_000_000;

const RETENTION_ALL: u8 = 0;

/// The versions that stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// All of them.
    All,
}

/// A keyspace's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryMeta {
    /// The versions that stay readable.
    pub retention: Retention,
    /// The share of superseded entries at which the living ones are copied, in millionths: more
    /// than 0, and [`MILLIONTHS`] for never.
    pub share_millionths: u32,
    /// The first version that is readable: the state when the keyspace began to keep history.
    pub from: Seq,
}

impl HistoryMeta {
    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, amount) = match self.retention {
            Retention::All => (RETENTION_ALL, 0),
        };
        out.push(kind);
        put_varint(out, amount);
        put_varint(out, self.share_millionths.into());
        put_varint(out, self.from.0);
    }

    /// Reads what [`HistoryMeta::encode`] writes.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let retention = match (reader.u8()?, reader.varint()?) {
            (RETENTION_ALL, 0) => Retention::All,
            (RETENTION_ALL, _) => return Err(at.error("history of an amount that has none")),
            _ => return Err(at.error("history is kept in an unknown way: use a newer esker")),
        };
        let at = reader.clone();
        let share_millionths = reader.varint_u32()?;
        if share_millionths == 0 || share_millionths > MILLIONTHS {
            return Err(at.error("share of superseded entries is out of range"));
        }
        Ok(Self { retention, share_millionths, from: Seq(reader.varint()?) })
    }
}
