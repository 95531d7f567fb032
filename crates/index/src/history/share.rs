//! When a full merge splits, and how much may come between two full merges.
//!
//! θ is the share of superseded entries that a scan of the present may meet: it passes at most
//! 1/(1 - θ) versions of a key on average. With L live entries and D superseded ones after a merge,
//! of new entries the share r of which supersede others, A entries may come until
//! D + r A = θ (L + D + A).

use esker_format::meta::{LevelCounts, LevelMeta, TreeMeta};

/// What a full merge would meet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// All entries.
    pub entries: u64,
    /// Those that are known to be superseded, by entries that they have been merged with, and
    /// tombstones.
    pub known_dead: u64,
    /// The others above the bottom: a share of them supersedes something below.
    pub upper: u64,
}

impl Load {
    /// That of sorted runs and a main tree, the bottom of which is the level for which `is_bottom`
    /// answers true.
    pub fn of(runs: &[TreeMeta], main: &TreeMeta, is_bottom: impl Fn(&LevelMeta) -> bool) -> Self {
        let mut load = Self::default();
        let runs = runs.iter().flat_map(|run| &run.levels);
        let levels = main.levels.iter().map(|level| (level, is_bottom(level)));
        for (level, is_bottom) in runs.map(|level| (level, false)).chain(levels) {
            let entries = level.counts.data_entries();
            load.entries += entries;
            load.known_dead += known_dead(&level.counts);
            let superseded = level.counts.kept_for_snapshots;
            load.upper += if is_bottom { 0 } else { entries.saturating_sub(superseded) };
        }
        load
    }

    /// The superseded entries, where the share `replaced` of new ones supersedes others.
    pub fn dead(&self, replaced: f64) -> f64 {
        let dead = self.known_dead as f64 + replaced * self.upper as f64;
        dead.min(self.entries as f64)
    }

    /// Whether a full merge splits: it would otherwise leave so many superseded entries that less
    /// than half as much as after a split may come until the next one.
    pub fn splits(&self, replaced: f64, share: f64) -> bool {
        share < 1.0 && self.dead(replaced) > self.entries as f64 * share / (2.0 - share)
    }

    /// The share of new entries that superseded others, where `dead` of all are superseded.
    pub fn replaced(&self, dead: u64) -> f64 {
        let found = dead.saturating_sub(self.known_dead);
        if self.upper == 0 { 0.0 } else { (found as f64 / self.upper as f64).min(1.0) }
    }
}

/// The entries of a level that are known to be superseded, and its tombstones.
pub(crate) fn known_dead(counts: &LevelCounts) -> u64 {
    counts.kept_for_snapshots.saturating_add(counts.tombstones).min(counts.data_entries())
}

/// The most entries that may come until the next full merge, as a share of those that are there:
/// `entries`, of which `dead` are superseded.
pub(crate) fn upper_max(entries: u64, dead: u64, replaced: f64, share: f64) -> f64 {
    if replaced <= share || entries == 0 {
        return f64::INFINITY;
    }
    let (dead, live) = (dead as f64, entries.saturating_sub(dead) as f64);
    let most = (share * live - (1.0 - share) * dead) / (replaced - share);
    most.max(0.0) / entries as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(rank: u8, puts: u64, tombstones: u64, kept_for_snapshots: u64) -> LevelMeta {
        let counts = LevelCounts { puts, tombstones, kept_for_snapshots, ..LevelCounts::default() };
        LevelMeta { rank, counts, ..LevelMeta::default() }
    }

    /// By hand: the bottom has 100 entries, 20 of them superseded; level 1 has 30, 4 of them
    /// superseded within it; a run has 10 puts and 5 tombstones.
    #[test]
    fn a_load_is_counted_level_by_level() {
        let tree = |levels| TreeMeta { levels, ..TreeMeta::default() };
        let main = tree(vec![level(1, 30, 0, 4), level(2, 100, 0, 20)]);
        let runs = [tree(vec![level(1, 10, 5, 0)])];
        let load = Load::of(&runs, &main, |level| level.rank == 2);
        assert_eq!(load, Load { entries: 145, known_dead: 29, upper: 41 });
        assert_eq!(load.dead(0.0), 29.0);
        assert_eq!(load.dead(1.0), 70.0);
        assert_eq!(load.replaced(70), 1.0);
        assert_eq!(load.replaced(29), 0.0);
    }

    /// By hand, θ = ½: as many overwrites as live entries may come; inserts never split.
    #[test]
    fn overwrites_split_and_inserts_do_not() {
        assert_eq!(upper_max(100, 0, 1.0, 0.5), 1.0);
        assert_eq!(upper_max(100, 0, 0.75, 0.5), 2.0);
        assert!(upper_max(100, 0, 0.0, 0.5).is_infinite());
        assert!((upper_max(150, 50, 1.0, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(upper_max(100, 50, 1.0, 0.5), 0.0);
        assert!(upper_max(100, 0, 0.75, 0.8).is_infinite());
        let after =
            |replaced| Load { entries: 200, known_dead: 0, upper: 100 }.splits(replaced, 0.5);
        assert!(after(1.0) && !after(0.0) && !after(0.66) && after(0.68));
        assert!(!Load { entries: 200, known_dead: 199, upper: 0 }.splits(1.0, 1.0));
    }

    proptest! {
        /// What a full merge may leave, and what may come then, keeps the bound.
        #[test]
        fn the_share_of_superseded_entries_is_bounded(
            entries in 1u64..1_000_000, dead in 0.0..1.0f64, replaced in 0.75..1.0f64,
            share in 0.2..0.8f64,
        ) {
            let dead = (entries as f64 * dead) as u64;
            let load = Load { entries, known_dead: dead, upper: 0 };
            if !load.splits(replaced, share) {
                let more = upper_max(entries, dead, replaced, share) * entries as f64;
                let after = (dead as f64 + replaced * more) / (entries as f64 + more);
                prop_assert!(more.is_infinite() || after <= share + 1e-9, "{}", after);
            }
        }
    }
}
