//! Compaction policies of LSM indexes and their parameters.

use std::str::FromStr;

use esker_index::lsm;
pub use esker_index::lsm::policy::{Params as CompactionParams, Policy as CompactionPolicy};

use crate::error::{Error, Result};

/// The compaction policy of a store's LSM indexes, and its parameters, for
/// [`DbBuilder::compaction`](crate::DbBuilder::compaction). It applies while the store is open and
/// is not stored; each policy reads what the others have written. Policies and parameters are
/// settings of an algorithm and are not covered by the version promise: a minor version may change
/// them.
///
/// The default, [`CompactionPolicy::Pull`], chooses the sizes of levels itself. The other policies
/// are those of R. Thonangi's thesis (chapter 5), with its parameters:
///
/// - Level 0 has the flushed sorted runs; κ0 is the size of a keyspace's memtable. Level i below it
///   may hold κ0 γ^i. The data determines the number of levels: when the last one holds more than
///   it may, an empty one is inserted above it.
/// - A level that holds more than it may is merged into the next one alone: all of it, or runs of
///   its blocks of the size δ κ, as the policy says. A merge of the runs takes all of them when
///   there are many, regardless of the policy, because a lookup reads each run.
/// - Under every policy, blocks that stay as they are may leave at most the share ω of a level
///   empty, and more than half of ω only where that saves enough. If merges leave more, the level
///   is packed, unless its entries are so long that it does not help: a small ω saves space and
///   costs writes.
/// - If the size of the data is known, [`CompactionParams::loosened`] chooses a γ for it.
/// - [`CompactionPolicy::Mixed`] learns in a steady state, by thresholds in steps of µ, when all of
///   a level is cheaper to merge than the best part of it; until then it takes parts. What it has
///   learnt is kept with the index, and is learnt anew when the cost is more than a fifth off.
///
/// ```
/// use esker::{Db, CompactionParams, CompactionPolicy, Compaction};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("store");
/// let params = CompactionParams { gamma: 8.0, ..CompactionParams::default() };
/// let merging = Compaction::by(CompactionPolicy::ChooseBest).params(params);
/// let db = Db::builder(&path).compaction(merging).open()?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Compaction {
    policy: CompactionPolicy,
    params: CompactionParams,
    read_worth_bytes: u64,
    preserves: bool,
}

impl Default for Compaction {
    fn default() -> Self {
        Self::by(CompactionPolicy::Pull)
    }
}

impl Compaction {
    /// Compaction by `policy`, with the thesis's parameters.
    pub const fn by(policy: CompactionPolicy) -> Self {
        let lsm::Compaction { params, read_worth_bytes, preserves, .. } =
            lsm::Compaction::by(policy);
        Self { policy, params, read_worth_bytes, preserves }
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> CompactionPolicy {
        self.policy
    }

    /// Sets the parameters: ω in [0, 0.5], δ and µ in (0, 1], γ at least 2. For others, opening the
    /// store returns [`Error::Invalid`]. Pull uses ω alone.
    pub const fn params(mut self, params: CompactionParams) -> Self {
        self.params = params;
        self
    }

    /// Sets the bytes of writes that a scan's read of a block is worth, orthogonal to the policy.
    /// Where scans read a range of keys so often between two flushes that merging its sorted runs
    /// would have paid for itself by now, these are merged into one level, so that scans read one
    /// block there instead of one of each run (ADAPT of the lazy-adaptive tree). The default is
    /// 4,096 with [`CompactionPolicy::Pull`], and 0 with the other policies. With 0 scans cause no
    /// compaction.
    pub const fn adaptive(mut self, read_worth_bytes: u64) -> Self {
        self.read_worth_bytes = read_worth_bytes;
        self
    }

    /// Plain merges, which read and write every block that they meet. With the policies Full,
    /// RoundRobin and ChooseBest they model bLSM, LevelDB and HyperLevelDB.
    #[cfg(feature = "_baselines")]
    #[doc(hidden)]
    pub const fn plain(mut self) -> Self {
        self.preserves = false;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.params.check().map_err(|bad| Error::invalid(bad.to_string()))
    }

    pub(crate) const fn for_index(&self) -> lsm::Compaction {
        lsm::Compaction {
            policy: self.policy,
            params: self.params,
            read_worth_bytes: self.read_worth_bytes,
            preserves: self.preserves,
        }
    }
}

/// The policy with the given name, as [`CompactionPolicy::name`] returns it.
///
/// # Errors
/// [`Error::Invalid`] for another name.
pub(crate) fn policy_by_name(name: &str) -> Result<CompactionPolicy> {
    let found = CompactionPolicy::ALL.into_iter().find(|policy| policy.name() == name);
    found.ok_or_else(|| {
        let names = CompactionPolicy::ALL.map(CompactionPolicy::name).join(", ");
        Error::invalid(format!("a merge policy is one of {names}, and not {name:?}"))
    })
}

impl FromStr for Compaction {
    type Err = Error;

    /// Returns compaction by the policy with the given name.
    fn from_str(name: &str) -> Result<Self> {
        policy_by_name(name).map(Self::by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_names() {
        for policy in CompactionPolicy::ALL {
            assert_eq!(policy.to_string().parse::<Compaction>().unwrap(), Compaction::by(policy));
        }
        let error = "best".parse::<Compaction>().unwrap_err().to_string();
        assert!(error.contains("choose-best, mixed, test, and not \"best\""), "{error}");
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let paper = CompactionParams::default();
        let refused = [
            (CompactionParams { omega: 0.6, ..paper }, "omega (unused space) is 0.6"),
            (CompactionParams { delta: 0.0, ..paper }, "delta (share of a level) is 0"),
            (CompactionParams { gamma: 1.5, ..paper }, "gamma (growth of levels) is 1.5"),
            (CompactionParams { mu: f64::NAN, ..paper }, "mu (step of thresholds) is NaN"),
        ];
        for (params, what) in refused {
            let error = Compaction::default().params(params).check().unwrap_err();
            assert!(matches!(&error, Error::Invalid { .. }), "{error:?}");
            assert!(error.to_string().contains(what), "{error}");
        }
        assert!(Compaction::by(CompactionPolicy::Mixed).check().is_ok());
    }
}
