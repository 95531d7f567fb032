//! The share of incoming data that replaces or deletes something.
//!
//! Only that share of the data above the last level is garbage. A load replaces nothing, so the
//! levels above may then hold the same amount again. Every incoming entry either leaves the index
//! by being dropped or makes it one larger: the share is what merges drop of what they read, over a
//! whole round of the keys.

/// The share, from what slices have read and dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replaced {
    /// Entries that came.
    entered: f64,
    /// Entries that were read and not written again.
    dropped: f64,
}

impl Replaced {
    /// A slice took `entered` entries out of the runs, and dropped `dropped` of all that it read.
    /// Entries earlier than the last `recent` ones lose their weight gradually.
    pub fn note(&mut self, entered: u64, dropped: u64, recent: u64) {
        let entered = entered as f64;
        let before = (recent as f64 - entered).max(0.0);
        // Without incoming entries, nothing is forgotten: a level is packed.
        let fades = entered > 0.0 && self.entered > before;
        let fades = if fades { before / self.entered } else { 1.0 };
        self.entered = self.entered * fades + entered;
        self.dropped = self.dropped * fades + dropped as f64;
    }

    /// The share; 1 as long as nothing is known. Where tombstones are dropped with the versions
    /// that they hide, two entries are dropped for one that came.
    pub fn share(&self) -> f64 {
        if self.entered < 1.0 { 1.0 } else { (self.dropped / self.entered).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 100 entries count. After 100 new ones, 50 that all replace are a half, 50 more
    /// everything but a quarter of the half that is forgotten.
    #[test]
    fn the_share_follows_what_comes_within_a_round() {
        let mut replaced = Replaced::default();
        assert!((replaced.share() - 1.0).abs() < 1e-9, "nothing is known");
        replaced.note(100, 0, 100);
        assert!(replaced.share() < 1e-9);
        replaced.note(50, 50, 100);
        assert!((replaced.share() - 0.5).abs() < 1e-9);
        replaced.note(50, 50, 100);
        assert!((replaced.share() - 0.75).abs() < 1e-9);
        replaced.note(0, 5, 0);
        assert!((replaced.share() - 0.8).abs() < 1e-9, "80 of 100");
        replaced.note(200, 400, 100);
        assert!((replaced.share() - 1.0).abs() < 1e-9);
    }
}
