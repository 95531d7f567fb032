//! The sizes of a comparison of stores, at each scale.

use std::time::Duration;

use esker_peers::Name;

use crate::stores::rows::Row;

/// How much of everything is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds in all: shows that everything runs, and nothing else.
    Tiny,
    /// Minutes: 200,000 entries and 4 MiB of memory. Ratios are rough.
    Small,
    /// Half an hour: 1 million entries and 16 MiB of memory.
    Medium,
    /// Half an hour: 8 million entries and 32 MiB of memory, a thirtieth of the data.
    LowMemory,
    /// An hour or two: 5 million entries and 64 MiB of memory. The bars are made for this one.
    Full,
}

impl Scale {
    /// Every scale.
    pub const ALL: [Self; 5] = [Self::Tiny, Self::Small, Self::Medium, Self::LowMemory, Self::Full];

    /// The name as it is typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::LowMemory => "low-memory",
            Self::Full => "full",
        }
    }

    /// The scale with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scale| scale.as_str() == name)
    }
}

/// The sizes of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// N: entries of a loaded store.
    pub entries: u64,
    /// B: memory that each store may use.
    pub budget_bytes: u64,
    /// Memory of the control group, page cache included; `None`: no group. Less than the store
    /// and what a process needs besides, so that the page cache cannot hold everything.
    pub memory_limit_bytes: Option<u64>,
    /// Writes before those that count in the steady rows.
    pub warm_up: u64,
    /// Writes that count in the steady rows: whole periods of full merges.
    pub steady: u64,
    /// Lookups before those that count.
    pub lookups_warm_up: u64,
    /// Lookups that count.
    pub lookups: u64,
    /// Lookups a second during a full merge.
    pub lookup_rate: f64,
    /// Scans that count.
    pub scans: u64,
    /// Durable puts of one thread, and of eight together.
    pub durable_puts: u64,
    /// Requests before a full merge begins.
    pub lead_in: Duration,
    /// Entries of the store that is killed in a full merge.
    pub crash_entries: u64,
}

impl Sizes {
    /// The sizes of a comparison at a scale.
    #[must_use]
    pub const fn at(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => Self {
                memory_limit_bytes: None,
                lookup_rate: 500.0,
                lead_in: Duration::from_millis(20),
                ..Self::following(6_000, 1 << 20, 2_000, 100)
            },
            Scale::Small => Self {
                memory_limit_bytes: Some(40 << 20),
                lookup_rate: 1000.0,
                lead_in: Duration::from_millis(200),
                ..Self::following(200_000, 4 << 20, 40_000, 4_000)
            },
            Scale::Medium => Self {
                memory_limit_bytes: Some(96 << 20),
                lookup_rate: 1500.0,
                lead_in: Duration::from_millis(500),
                ..Self::following(1_000_000, 16 << 20, 200_000, 10_000)
            },
            Scale::LowMemory => Self {
                memory_limit_bytes: Some(192 << 20),
                lookup_rate: 1500.0,
                lead_in: Duration::from_millis(500),
                ..Self::following(8_000_000, 32 << 20, 200_000, 10_000)
            },
            Scale::Full => Self {
                memory_limit_bytes: Some(384 << 20),
                lookup_rate: 2000.0,
                lead_in: Duration::from_secs(1),
                ..Self::following(5_000_000, 64 << 20, 1_000_000, 20_000)
            },
        }
    }

    /// The sizes that follow from four numbers.
    const fn following(entries: u64, budget_bytes: u64, lookups: u64, scans: u64) -> Self {
        Self {
            entries,
            budget_bytes,
            memory_limit_bytes: None,
            warm_up: entries + entries / 2,
            steady: 3 * entries,
            lookups_warm_up: lookups,
            lookups,
            lookup_rate: 0.0,
            scans,
            durable_puts: scans,
            lead_in: Duration::ZERO,
            // A little over 1 GiB of user bytes with 5 million entries of 116 bytes.
            crash_entries: entries * 93 / 50,
        }
    }

    /// User bytes of a loaded store.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.entries * esker_workload::entry::ENTRY_BYTES
    }
}

/// Alternated runs of a row with a system. redb is slow here and no bar asks for it: once.
#[must_use]
pub const fn repeats(scale: Scale, row: Row, system: Name) -> u32 {
    if matches!(system, Name::Redb) {
        return 1;
    }
    match (scale, row) {
        (Scale::Full, Row::Merge) => 7,
        (Scale::Full, Row::Durable) => 5,
        (Scale::Tiny, _) => 1,
        (_, Row::Load | Row::Lookups | Row::Scans | Row::LongScans | Row::HotScans) => 3,
        (_, Row::Durable) => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(Scale::ALL.iter().all(|scale| Scale::parse(scale.as_str()) == Some(*scale)));
        assert_eq!(Scale::parse("huge"), None);
    }

    #[test]
    fn the_full_scale_is_what_the_bars_are_made_for() {
        let full = Sizes::at(Scale::Full);
        assert!(full.live_bytes() >= 500_000_000);
        assert!(full.crash_entries * 116 >= 1 << 30 && full.crash_entries * 116 < 1100 << 20);
        assert_eq!((full.warm_up, full.steady), (7_500_000, 15_000_000));
        assert_eq!(repeats(Scale::Full, Row::Merge, Name::Esker), 7);
        assert_eq!(repeats(Scale::Small, Row::Merge, Name::Esker), 1);
    }
}
