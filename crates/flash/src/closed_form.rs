//! The write amplification that theory expects of greedy garbage collection.

/// The share of valid pages in a block that greedy garbage collection reclaims, and the write
/// amplification that follows, under uniform random writes to all logical pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Greedy {
    /// Valid pages of a victim, as a share of its pages: 0 to 1.
    pub valid_share: f64,
    /// Pages programmed for each page that the host writes: 1 or more.
    pub write_amplification: f64,
}

/// Greedy garbage collection with `spare` pages for each logical page (0.07 for 7 %).
///
/// With a = 1 + spare, the valid share x of a victim solves x = e^(-a (1 - x)), which is
/// x = -W(-a e^-a) / a with Lambert's W; the write amplification is 1 / (1 - x) (Bux and Iliadis,
/// Performance Evaluation 67, 2010; Desnoyers, SYSTOR 2012; Xiang and Kurkoski, arXiv 1110.4245).
/// It holds for many blocks of many pages each. A `spare` of 0 or less, or one that is not a
/// number, gives an infinite amplification.
#[must_use]
pub fn greedy(spare: f64) -> Greedy {
    if spare.is_nan() || spare <= 0.0 {
        return Greedy { valid_share: 1.0, write_amplification: f64::INFINITY };
    }
    let a = 1.0 + spare;
    // f(x) = x - e^(-a (1 - x)) is negative at 0, positive just below 1, and has one root between.
    let (mut low, mut high) = (0.0_f64, 1.0_f64 - spare.min(1.0) * 1e-6);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle < (-a * (1.0 - middle)).exp() { low = middle } else { high = middle }
    }
    let valid_share = 0.5 * (low + high);
    Greedy { valid_share, write_amplification: 1.0 / (1.0 - valid_share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_met() {
        let published =
            [(0.07, 7.82), (0.14, 4.25), (0.20, 3.19), (0.28, 2.48), (0.30, 2.36), (0.50, 1.72)];
        for (spare, expected) in published {
            let found = greedy(spare).write_amplification;
            assert!((found - expected).abs() < 0.011, "{spare}: {found}, published {expected}");
        }
        assert!((greedy(1.0).write_amplification - 1.26).abs() < 0.01);
    }

    #[test]
    fn no_spare_is_endless_work() {
        for spare in [0.0, -1.0, f64::NAN] {
            assert!(greedy(spare).write_amplification.is_infinite());
        }
        assert!((greedy(1e6).write_amplification - 1.0).abs() < 1e-9);
    }
}
