//! The schemes of the paper, as policies of one merge loop.
//!
//! | scheme | readers see the new side | old space comes back | memory is shared |
//! |---|---|---|---|
//! | FD+FC | at every write unit | as the wavefront passes | yes |
//! | FD+FC without sharing | at every write unit | as the wavefront passes | no |
//! | FD+FC, a view a key | at every write unit | as the wavefront passes | yes |
//! | FD+DS | when the merge is done | when the merge is done | no |
//! | FD+XM | when the merge is done; no reads or writes before | when the merge is done | no |
//! | FD-tree | as FD+XM | when the merge is done | no |
//!
//! The papers' FD+FC/TUP, which moves entries one by one, is not built. `FcTuple` moves write units
//! as FD+FC does, and publishes the view that it already has once more before each key: it tests
//! how readers and the queue of old views perform with many publications.
//!
//! The FD-tree takes two levels at a time, all others all levels at once. Flushes run under the
//! scheme too, for every kind of index; a kind may have merges to which the scheme does not apply.

use esker_substrate::budget::SMALL_BYTES;

use crate::build::writer::WRITE_UNIT_BYTES;

/// The scheme by which merges run concurrently with reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// FD+FC: full concurrency.
    #[default]
    Fc,
    /// FD+FC whose frozen memtable keeps its memory until the merge is done.
    FcUnshared,
    /// FD+FC that publishes a view before every key, with nothing new in it. Not FD+FC/TUP.
    FcTuple,
    /// FD+DS: the old tree serves until a second one is complete.
    Ds,
    /// FD+XM: one lock around every merge.
    Xm,
    /// FD-tree: as FD+XM, but a merge takes two levels at a time, and only I1 to I3 hold.
    FdTree,
}

impl Scheme {
    /// All schemes.
    pub const ALL: [Self; 6] =
        [Self::Fc, Self::FcUnshared, Self::FcTuple, Self::Ds, Self::Xm, Self::FdTree];

    /// Those that keep I1 to I6, between which a store may change.
    pub const TIGHT: [Self; 5] = [Self::Fc, Self::FcUnshared, Self::FcTuple, Self::Ds, Self::Xm];

    /// Whether readers and writers wait while a merge runs.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Xm | Self::FdTree)
    }

    /// Whether it keeps all of I1 to I6, and not I1 to I3 alone.
    #[must_use]
    pub const fn tightens(self) -> bool {
        !matches!(self, Self::FdTree)
    }

    /// Whether the memory of a frozen memtable is freed piece by piece.
    #[must_use]
    pub const fn shares_memory(self) -> bool {
        matches!(self, Self::Fc | Self::FcTuple)
    }

    /// Whether old space is freed before the merge is done.
    pub(crate) const fn reclaims(self) -> bool {
        matches!(self, Self::Fc | Self::FcUnshared | Self::FcTuple)
    }

    /// Bytes written between two publish points; beyond any bound where there are none.
    pub(crate) const fn publish_bytes(self, pace: &Pace) -> u64 {
        if self.reclaims() { pace.publish_bytes } else { u64::MAX }
    }
}

/// The least write unit and the least bytes between two records with a small memory budget, where
/// the memtable is not smaller than twice the one, and a quarter of the other: each publish point
/// leaves the last block of each level partly empty, and each record is written twice.
const LEAST_BYTES: (u64, u64) = (16 << 10, 128 << 10);
/// Most bytes that are written before a merge that lacks space is recorded.
const SHORT_BYTES_MAX: u64 = 64 << 10;

/// The amount of work between two publish points and between two records of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes written between two publish points.
    pub publish_bytes: u64,
    /// Bytes written between two durable records of the merge's progress.
    pub record_bytes: u64,
    /// The least bytes between two publish points, where space is short.
    least_bytes: u64,
}

impl Pace {
    /// The pace of a merge of `merged_bytes` in a keyspace whose memtable holds κ0: write units of
    /// 256 KiB and a record every 8 MiB; less for small memtables, so that memory and space are
    /// freed in time for them too, but no more than 256 publish points and 32 records (each with
    /// its syncs) for the work of one merge. With a small memory budget both are less frequent.
    #[must_use]
    pub fn of(kappa0_bytes: u64, merged_bytes: u64, budget_bytes: u64) -> Self {
        let unit = WRITE_UNIT_BYTES as u64;
        let least_bytes = (kappa0_bytes / 16).max(merged_bytes / 256).clamp(4096, unit);
        let record_bytes = (kappa0_bytes / 2).max(merged_bytes / 32).clamp(8192, 32 * unit);
        let pace = Self { publish_bytes: least_bytes, record_bytes, least_bytes };
        if budget_bytes >= SMALL_BYTES {
            return pace;
        }
        Self {
            publish_bytes: least_bytes.max((kappa0_bytes / 2).min(LEAST_BYTES.0)),
            record_bytes: record_bytes.max(kappa0_bytes.saturating_mul(4).min(LEAST_BYTES.1)),
            ..pace
        }
    }

    /// Bytes after which a merge that lacks space is recorded. Fewer would hardly free anything:
    /// each publish point leaves the last unit of each level partly empty.
    #[must_use]
    pub fn short_bytes(self) -> u64 {
        self.least_bytes.min(SHORT_BYTES_MAX)
    }

    /// The pace with the least space between two records.
    #[must_use]
    pub const fn frugal(self) -> Self {
        let least_bytes = self.least_bytes;
        Self { publish_bytes: least_bytes, record_bytes: 2 * least_bytes, least_bytes }
    }

    /// Half of the space between two records, but no less than the frugal pace.
    #[must_use]
    pub fn slower(self) -> Self {
        let record_bytes = (self.record_bytes / 2).max(self.frugal().record_bytes);
        Self { publish_bytes: self.publish_bytes.min(record_bytes / 2), record_bytes, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_publishes_less_often_unless_space_is_short() {
        let bytes = |pace: Pace| (pace.publish_bytes, pace.record_bytes, pace.short_bytes());
        let small = Pace::of(35_000, 0, 128 << 10);
        assert_eq!(bytes(small), (16_384, 131_072, 4_096));
        assert_eq!(bytes(small.frugal()), (4_096, 8_192, 4_096));
        assert_eq!(bytes((0..5).fold(small, |pace, _| pace.slower())), bytes(small.frugal()));
        assert_eq!(bytes(Pace::of(35_000, 0, 1 << 20)), (4_096, 17_500, 4_096));
        let large = Pace::of(8 << 20, 0, 64 << 20);
        assert_eq!(bytes(large), (256 << 10, 4 << 20, 64 << 10));
        assert_eq!(bytes(large.frugal()), (256 << 10, 512 << 10, 64 << 10));
        assert_eq!(bytes((0..3).fold(large, |pace, _| pace.slower())), bytes(large.frugal()));
    }
}
