//! The levels that exist, and the places where empty ones are put in among them.

/// The levels that a slice leaves, by number from the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// The number of levels before.
    pub before: usize,
    /// The number of levels afterwards.
    pub levels: usize,
    /// The number of the first that is put in.
    at: usize,
}

impl Layout {
    /// New ones are put in above all others.
    pub fn above_all(before: usize, levels: usize) -> Self {
        Self { before, levels: levels.max(before), at: 0 }
    }

    /// New ones are put in above the last.
    pub fn above_last(before: usize, levels: usize) -> Self {
        Self { before, levels: levels.max(before), at: before.saturating_sub(1) }
    }

    /// The number of levels that are put in.
    pub fn missing(&self) -> usize {
        self.levels - self.before
    }

    /// The number that a level has had; `None` of one that is put in.
    pub fn standing(&self, number: usize) -> Option<usize> {
        if number < self.at {
            return Some(number);
        }
        number.checked_sub(self.missing()).filter(|before| *before >= self.at)
    }

    /// Puts in an element for each new level, into a list with one for each level.
    pub fn put_in<T>(&self, levels: &mut Vec<T>, empty: impl Fn() -> T) {
        let at = self.at.min(levels.len());
        let missing = self.levels.saturating_sub(levels.len());
        levels.splice(at..at, (0..missing).map(|_| empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_put_in_above_all_or_above_the_last() {
        let standing = |layout: Layout| (0..5).map(|n| layout.standing(n)).collect::<Vec<_>>();
        let above_all = Layout::above_all(3, 5);
        assert_eq!(standing(above_all), [None, None, Some(0), Some(1), Some(2)]);
        let above_last = Layout::above_last(3, 5);
        assert_eq!(standing(above_last), [Some(0), Some(1), None, None, Some(2)]);
        assert_eq!(Layout::above_last(0, 1).standing(0), None);
        for layout in [above_all, above_last, Layout::above_last(5, 3)] {
            let mut levels = (0..layout.before).map(Some).collect();
            layout.put_in(&mut levels, || None);
            assert_eq!(levels, standing(layout));
        }
    }
}
