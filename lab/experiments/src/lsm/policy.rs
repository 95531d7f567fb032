//! The policies that are compared, and their names in figures.

use esker_index::lsm::policy::Policy;

/// A policy, with or without block preservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Which part of a level is merged.
    pub policy: Policy,
    /// Whether blocks may stay.
    pub preserves: bool,
}

/// Whose keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Those of G_U.
    Uniform,
    /// Those of G_N.
    Normal,
}

impl Keys {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Normal];
}

const fn preserving(policy: Policy) -> Contender {
    Contender { policy, preserves: true }
}

const fn plain(policy: Policy) -> Contender {
    Contender { policy, preserves: false }
}

/// Full.
pub const FULL: Contender = preserving(Policy::Full);
/// RR.
pub const RR: Contender = preserving(Policy::RoundRobin);
/// Partial.
pub const PARTIAL: Contender = preserving(Policy::ChooseBest);
/// Mixed.
pub const MIXED: Contender = preserving(Policy::Mixed);
/// Test.
pub const TEST: Contender = preserving(Policy::Test);
/// The policy of bLSM.
pub const BLSM: Contender = plain(Policy::Full);
/// The policy of LevelDB.
pub const LDB: Contender = plain(Policy::RoundRobin);
/// The policy of HyperLevelDB.
pub const HLDB: Contender = plain(Policy::ChooseBest);

/// The seven of the thesis's section 5.5.
pub const SEVEN: [Contender; 7] = [MIXED, PARTIAL, HLDB, RR, LDB, FULL, BLSM];

/// Their names over uniform and over normal keys.
const NAMES: [(Contender, [&str; 2]); 8] = [
    (FULL, ["G_U Full", "G_N Full"]),
    (RR, ["G_U RR", "G_N RR"]),
    (PARTIAL, ["G_U Partial", "G_N Partial"]),
    (MIXED, ["G_U Mixed", "G_N Mixed"]),
    (TEST, ["G_U Test", "G_N Test"]),
    (BLSM, ["G_U ~BLSM", "G_N ~BLSM"]),
    (LDB, ["G_U ~LDB", "G_N ~LDB"]),
    (HLDB, ["G_U ~HLDB", "G_N ~HLDB"]),
];

/// The name of a policy over keys: in series, a system.
#[must_use]
pub fn name(keys: Keys, contender: Contender) -> &'static str {
    let found = NAMES.into_iter().find(|(of, _)| *of == contender);
    let [uniform, normal] = found.map_or(["G_U other", "G_N other"], |(_, names)| names);
    match keys {
        Keys::Uniform => uniform,
        Keys::Normal => normal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_systems_are_different() {
        let all = SEVEN.into_iter().chain([TEST]);
        let names: BTreeSet<_> = all.flat_map(|c| Keys::ALL.map(|keys| name(keys, c))).collect();
        assert_eq!(names.len(), 16);
        assert_eq!(name(Keys::Normal, HLDB), "G_N ~HLDB");
    }
}
