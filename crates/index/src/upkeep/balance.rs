//! The share of tombstones in an index, and when it triggers a merge (I6).

use esker_format::ids::Seq;
use esker_format::meta::IndexMeta;

/// N∆ and N∇ of a keyspace, without versions that are kept for snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Puts.
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of the tombstones.
    pub tombstone_bytes: u64,
}

/// Whether I6 asks for a full merge: more than a third as many tombstones as puts.
///
/// Two bounds keep it from being asked for in vain: the tombstones must be worth a merge (an
/// eighth of κ0; below that the garbage is bounded by κ0 itself), and N∇ must have grown by an
/// eighth of the puts since a merge that could not drop them because snapshots needed them.
#[must_use]
pub const fn underflows(balance: &Balance, kappa0_bytes: u64, kept_tombstones: u64) -> bool {
    let beyond = balance.tombstones.saturating_sub(kept_tombstones);
    balance.tombstones.saturating_mul(3) > balance.puts
        && balance.tombstone_bytes.saturating_mul(8) > kappa0_bytes
        && beyond.saturating_mul(8) > balance.puts
}

/// Tombstones that the last full merge had to keep, and the readers that needed them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeptTombstones {
    pub count: u64,
    /// Removals of ranges that it could not retire.
    pub removals: usize,
    pub oldest_snapshot: Option<Seq>,
}

/// The balance of the data on the device.
pub(crate) fn flushed_balance(meta: &IndexMeta) -> Balance {
    let mut balance = Balance::default();
    for counts in meta.counts() {
        balance.puts += counts.puts;
        balance.tombstones += counts.tombstones;
        balance.tombstone_bytes += counts.tombstone_bytes;
    }
    balance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underflow_waits_until_it_is_worth_a_merge() {
        let balance =
            |puts, tombstones| Balance { puts, tombstones, tombstone_bytes: tombstones * 30 };
        assert!(!underflows(&balance(9, 3), 1000, 0));
        assert!(!underflows(&balance(6, 3), 1000, 0));
        assert!(underflows(&balance(600, 300), 1000, 0));
        assert!(!underflows(&balance(600, 300), 1000, 300));
        assert!(underflows(&balance(600, 400), 1000, 300));
    }
}
