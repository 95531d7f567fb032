//! Policies of garbage collection: which block is reclaimed, as pure functions.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, invalid};

/// How a victim is chosen among the full blocks of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The fewest valid pages; of several, the one that came to that number first. O(1).
    Greedy,
    /// The greatest (1 - u) / 2u x age, with the share u of valid pages and the time since a page
    /// of the block was written or became invalid (Kawaguchi, Nishioka, Motoda, USENIX 1995).
    /// Reads the counts of all blocks of the die.
    CostBenefit,
    /// The fewest valid pages among so many blocks that are drawn at random (Van Houdt,
    /// SIGMETRICS 2013). 1 is a random choice.
    DChoices(u32),
    /// The block that was full first, whatever its valid pages. Reads the counts of all blocks of
    /// the die.
    Fifo,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => f.write_str("greedy"),
            Self::CostBenefit => f.write_str("cost-benefit"),
            Self::DChoices(d) => write!(f, "d-choices:{d}"),
            Self::Fifo => f.write_str("fifo"),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    /// `greedy`, `cost-benefit`, `d-choices` (10 of them), `d-choices:D`, `fifo`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(count) = text.strip_prefix("d-choices:") {
            return match count.parse() {
                Ok(count @ 1..=1_000) => Ok(Self::DChoices(count)),
                _ => invalid(format!("{count} choices: use d-choices:1 to d-choices:1000")),
            };
        }
        match text {
            "greedy" => Ok(Self::Greedy),
            "cost-benefit" => Ok(Self::CostBenefit),
            "d-choices" => Ok(Self::DChoices(10)),
            "fifo" => Ok(Self::Fifo),
            _ => invalid(format!(
                "there is no policy {text}: the policies are greedy, cost-benefit, d-choices, \
                 d-choices:D, fifo"
            )),
        }
    }
}

/// What a policy knows of a full block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Valid pages.
    pub valid: u32,
    /// All pages of the block, 1 or more.
    pub pages: u32,
    /// Pages that were programmed in the pool since the block was full.
    pub age: u64,
    /// Pages that were programmed in the pool since a page of the block was written or became
    /// invalid; at most `age`.
    pub idle: u64,
    /// How often the block was erased.
    pub erases: u32,
}

/// The index of the victim among the candidates; none if there are none. Of equal ones, the block
/// that was erased least, then the first. O(candidates).
#[must_use]
pub fn choose(policy: Policy, candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let mut best: Option<(usize, Candidate)> = None;
    for (at, candidate) in candidates.into_iter().enumerate() {
        let is_better = best.is_none_or(|(_, best)| is_better(policy, &candidate, &best));
        if is_better {
            best = Some((at, candidate));
        }
    }
    best.map(|(at, _)| at)
}

fn is_better(policy: Policy, one: &Candidate, best: &Candidate) -> bool {
    let order = match policy {
        Policy::Greedy | Policy::DChoices(_) => best.valid.cmp(&one.valid),
        Policy::CostBenefit => benefit(one).total_cmp(&benefit(best)),
        Policy::Fifo => one.age.cmp(&best.age),
    };
    order.then(best.erases.cmp(&one.erases)).is_gt()
}

/// Benefit by cost: reading a block costs 1, and writing its valid share u costs u; with both
/// counted alike as in log-structured file systems this is 2u.
fn benefit(of: &Candidate) -> f64 {
    let valid = f64::from(of.valid) / f64::from(of.pages.max(1));
    if valid == 0.0 { f64::INFINITY } else { (1.0 - valid) / (2.0 * valid) * of.idle as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(valid: u32, age: u64, idle: u64, erases: u32) -> Candidate {
        Candidate { valid, pages: 10, age, idle, erases }
    }

    #[test]
    fn each_policy_has_its_victim() {
        let candidates = [
            candidate(3, 50, 1, 9),
            candidate(5, 60, 40, 0),
            candidate(10, 99, 99, 0),
            candidate(3, 20, 1, 4),
        ];
        assert_eq!(choose(Policy::Greedy, candidates), Some(3), "erased less than the first");
        assert_eq!(choose(Policy::CostBenefit, candidates), Some(1), "long unchanged");
        assert_eq!(choose(Policy::Fifo, candidates), Some(2), "although all of it is valid");
        assert_eq!(choose(Policy::DChoices(2), candidates[..2].iter().copied()), Some(0));
        assert_eq!(choose(Policy::Greedy, []), None);
    }

    #[test]
    fn an_empty_block_is_the_best_and_a_valid_one_the_worst() {
        for policy in [Policy::Greedy, Policy::CostBenefit] {
            let candidates = [candidate(10, 9, 9, 0), candidate(0, 1, 0, 7), candidate(1, 9, 9, 0)];
            assert_eq!(choose(policy, candidates), Some(1), "{policy}");
            assert_eq!(choose(policy, candidates[..1].iter().copied()), Some(0), "{policy}");
        }
    }

    #[test]
    fn names_lead_back() {
        for policy in [Policy::Greedy, Policy::CostBenefit, Policy::DChoices(7), Policy::Fifo] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("d-choices".parse(), Ok(Policy::DChoices(10)));
        for wrong in ["", "d-choices:0", "d-choices:x", "lru"] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }
}
