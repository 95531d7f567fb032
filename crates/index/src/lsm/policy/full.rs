//! Policy Full (Policy 1): a level that overflows goes down as a whole, and is empty.

use super::blocks::{Blocks, Choice};

/// The whole level; `None` when it is empty.
pub fn choose(level: &impl Blocks) -> Option<Choice> {
    Choice::of(level, 0..level.len())
}

#[cfg(test)]
mod tests {
    use super::super::blocks::tests::{key, level};
    use super::*;

    #[test]
    fn everything_goes() {
        let all = Choice { blocks: 0..3, from: key(5), to: None };
        assert_eq!(choose(&level(&[5, 6, 9])), Some(all));
        assert_eq!(choose(&level(&[])), None);
    }
}
