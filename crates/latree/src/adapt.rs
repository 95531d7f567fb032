//! When a buffer is emptied: ADAPT, the retrospective rule of the LA-tree (VLDB 2009), in O(1).
//!
//! Lookups since the last emptying are numbered 1, 2, … At lookup i, `s_i` is what scanning the
//! buffer cost and `e_i` what emptying it then would have cost. Emptying it after lookup i would
//! have saved `s_i` at each later lookup: by lookup j, `(j - i) * s_i`. The buffer is emptied after
//! the first lookup j for which some i < j has `(j - i) * s_i >= e_i`. Each i becomes due at the
//! fixed lookup `i + ceil(e_i / s_i)`, so that the least of these is the only state.

/// The state of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapt {
    lookups: u32,
    due_at: u32,
}

impl Default for Adapt {
    fn default() -> Self {
        Self { lookups: 0, due_at: u32::MAX }
    }
}

impl Adapt {
    /// Counts a lookup that scanned the buffer for `scan_ns`, when emptying it costs `empty_ns`.
    /// Answers whether it is to be emptied now; then the state begins anew.
    pub fn looked_up(&mut self, scan_ns: u64, empty_ns: u64) -> bool {
        self.lookups = self.lookups.saturating_add(1);
        if self.lookups >= self.due_at {
            *self = Self::default();
            return true;
        }
        if scan_ns > 0 {
            let after = u32::try_from(empty_ns.div_ceil(scan_ns)).unwrap_or(u32::MAX);
            self.due_at = self.due_at.min(self.lookups.saturating_add(after));
        }
        false
    }
}

/// The expected number of `nodes` that `operations` with uniform keys touch.
#[must_use]
pub fn touched(operations: u64, nodes: u64) -> u64 {
    if nodes <= 1 || operations == 0 {
        return nodes.min(operations);
    }
    let miss = 1.0 - 1.0 / nodes as f64;
    let (mut all, mut power, mut left) = (1.0, miss, operations);
    while left > 0 {
        if left & 1 == 1 {
            all *= power;
        }
        power *= power;
        left >>= 1;
    }
    (nodes as f64 * (1.0 - all) + 0.5) as u64
}
