//! The history that a keyspace keeps.
//!
//! ```text
//! u8 retention · varint amount · varint share in millionths · varint first version · u8 expiries
//! ```

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Seq;

/// One, in millionths.
pub const MILLIONTHS: u32 = 1_000_000;

/// A share in millionths. NaN and what is below 0 become 0; what a `u32` cannot hold, its greatest.
#[must_use]
pub fn millionths(share: f64) -> u32 {
    (share * f64::from(MILLIONTHS)).round() as u32
}

/// The share of a count of millionths.
#[must_use]
pub fn of_millionths(millionths: u32) -> f64 {
    f64::from(millionths) / f64::from(MILLIONTHS)
}

const RETENTION_ALL: u8 = 0;
const RETENTION_FOR: u8 = 1;
const RETENTION_NEWEST: u8 = 2;

/// The versions that stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// All of them.
    All,
    /// Those of the last milliseconds, this many, at least 1.
    For {
        /// Milliseconds.
        millis: u64,
    },
    /// Those with the last numbers, this many, at least 1.
    Newest {
        /// Numbers.
        versions: u64,
    },
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
    /// Values in it may have an expiry.
    pub expires: bool,
}

impl HistoryMeta {
    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, amount) = match self.retention {
            Retention::All => (RETENTION_ALL, 0),
            Retention::For { millis } => (RETENTION_FOR, millis),
            Retention::Newest { versions } => (RETENTION_NEWEST, versions),
        };
        out.push(kind);
        put_varint(out, amount);
        put_varint(out, self.share_millionths.into());
        put_varint(out, self.from.0);
        out.push(self.expires.into());
    }

    /// Reads what [`HistoryMeta::encode`] writes.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let retention = match (reader.u8()?, reader.varint()?) {
            (RETENTION_ALL, 0) => Retention::All,
            (RETENTION_ALL, _) => return Err(at.error("history of an amount that has none")),
            (RETENTION_FOR | RETENTION_NEWEST, 0) => {
                return Err(at.error("history of nothing"));
            }
            (RETENTION_FOR, millis) => Retention::For { millis },
            (RETENTION_NEWEST, versions) => Retention::Newest { versions },
            _ => return Err(at.error("history is kept in an unknown way: use a newer esker")),
        };
        let at = reader.clone();
        let share_millionths = reader.varint_u32()?;
        if share_millionths == 0 || share_millionths > MILLIONTHS {
            return Err(at.error("share of superseded entries is out of range"));
        }
        let from = Seq(reader.varint()?);
        let at = reader.clone();
        let expires = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(at.error("history has an unknown kind of values: use a newer esker")),
        };
        Ok(Self { retention, share_millionths, from, expires })
    }
}
