//! Policy Test: the thesis's feasibility study for Mixed, on two levels below memory.
//!
//! Merges out of memory are partial and all others full. It shows where Mixed gains, and the
//! occupancy of the last level from which full merges into it cost more than they save.

use super::mixed::Merge;

/// The part of level `level` that is merged into the one below.
#[must_use]
pub fn decide(level: usize) -> Merge {
    if level == 0 { Merge::Partial } else { Merge::Full }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_is_merged_in_parts() {
        assert_eq!([0, 1, 2].map(decide), [Merge::Partial, Merge::Full, Merge::Full]);
    }
}
