//! The papers' parameters, and their allowed values.

use std::fmt;

use super::loosened;

/// The parameters of levels and merge policies, by their names in the thesis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// ω: most unused space, as a share of a level.
    pub omega: f64,
    /// δ: the share of a level that a partial merge takes.
    pub delta: f64,
    /// γ: the ratio of the size of a level to that of the level above it.
    pub gamma: f64,
    /// µ: the step between the thresholds that are tried.
    pub mu: f64,
}

impl Params {
    /// The paper's.
    pub const DEFAULT: Self = Self { omega: 0.2, delta: 0.07, gamma: 10.0, mu: 0.1 };
}

impl Default for Params {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A parameter outside its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadParam {
    /// The parameter's name.
    pub name: &'static str,
    /// The given value.
    pub value: f64,
    /// The allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for BadParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; it must be {}", self.name, self.value, self.allowed)
    }
}

impl std::error::Error for BadParam {}

impl Params {
    /// Whether each parameter is in its range: the first that is not.
    pub fn check(&self) -> Result<(), BadParam> {
        // Comparisons with NaN are false: it is in no range.
        let Self { omega, delta, gamma, mu } = *self;
        let rules = [
            ("omega (unused space)", omega, (0.0..=0.5).contains(&omega), "in [0, 0.5]"),
            ("delta (share of a level)", delta, delta > 0.0 && delta <= 1.0, "in (0, 1]"),
            ("gamma (growth of levels)", gamma, gamma >= 2.0 && gamma.is_finite(), "at least 2"),
            ("mu (step of thresholds)", mu, mu > 0.0 && mu <= 1.0, "in (0, 1]"),
        ];
        match rules.iter().find(|(_, _, is_allowed, _)| !is_allowed) {
            Some(&(name, value, _, allowed)) => Err(BadParam { name, value, allowed }),
            None => Ok(()),
        }
    }

    /// ω in millionths.
    pub(crate) fn omega_millionths(&self) -> u64 {
        (self.omega * 1e6).round() as u64
    }

    /// The same with a γ for this many bytes of data and this many bytes of memory (κ0): smaller
    /// where a slightly smaller one adds a level and leaves the last one nearly empty, so that full
    /// merges into it are cheap (section 5.5.5). Full and Mixed write up to a fifth less then; the
    /// level above the last may hold versions of nearly all data, which takes space.
    #[must_use]
    pub fn loosened(self, data_bytes: u64, kappa0_bytes: u64) -> Self {
        Self { gamma: loosened::growth(data_bytes, kappa0_bytes, self.gamma), ..self }
    }

    /// δκ: the least bytes of a partial merge out of a level with this capacity.
    #[must_use]
    pub fn run_bytes(&self, capacity_bytes: u64) -> u64 {
        ((capacity_bytes as f64 * self.delta) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_parameters_are_allowed() {
        let paper = Params::default();
        assert_eq!(paper.check(), Ok(()));
        let extremes = [
            Params { omega: 0.0, delta: 1.0, gamma: 2.0, mu: 1.0 },
            Params { omega: 0.5, delta: 1e-9, gamma: 1e9, mu: 1e-9 },
        ];
        for params in extremes {
            assert_eq!(params.check(), Ok(()));
        }
        assert_eq!((paper.run_bytes(1000), paper.run_bytes(3)), (70, 1));
    }

    /// The paper's case, and data in one level, where nothing is to be gained.
    #[test]
    fn a_known_size_loosens_growth_alone() {
        let paper = Params::default();
        let loosened = paper.loosened(1500, 16);
        assert!((loosened.gamma - 75f64.sqrt()).abs() < 1e-9, "{loosened:?}");
        assert_eq!(Params { gamma: paper.gamma, ..loosened }, paper);
        assert_eq!(loosened.check(), Ok(()));
        assert_eq!(paper.loosened(10, 16), paper);
    }

    #[test]
    fn what_is_out_of_range_is_said() {
        let paper = Params::default();
        let message = |params: Params| params.check().unwrap_err().to_string();
        assert_eq!(
            message(Params { omega: 0.51, ..paper }),
            "omega (unused space) is 0.51; it must be in [0, 0.5]"
        );
        let refused = [
            Params { omega: -0.1, ..paper },
            Params { omega: f64::NAN, ..paper },
            Params { delta: 0.0, ..paper },
            Params { delta: 1.1, ..paper },
            Params { gamma: 1.9, ..paper },
            Params { gamma: f64::INFINITY, ..paper },
            Params { mu: 0.0, ..paper },
            Params { mu: 1.5, ..paper },
        ];
        for params in refused {
            assert!(message(params).contains("; it must be "), "{params:?}");
        }
    }
}
