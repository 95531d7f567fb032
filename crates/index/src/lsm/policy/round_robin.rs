//! Policy RR (Policy 2): each merge of a level begins where the last one ended.
//!
//! The end of a merge is kept as a key, because data from above changes the blocks in between. A
//! block that now contains that key is taken as a whole: if it were left for the next round, the
//! keys behind it would wait for two cycles.

use super::blocks::{Blocks, Choice, overlapping, run_from};

/// The run of at least that many bytes from the block on that holds `cursor`, the end of the last
/// choice, or from the beginning when that was `None`. At the end of the level it may be shorter.
pub fn choose(level: &impl Blocks, cursor: Option<&[u8]>, run_bytes: u64) -> Option<Choice> {
    let start = overlapping(level, cursor.unwrap_or_default(), None).start;
    Choice::of(level, run_from(level, first_of_key(level, start), run_bytes))
}

/// The first block of those that have this one's key.
fn first_of_key(level: &impl Blocks, mut block: usize) -> usize {
    while block > 0 && level.key(block) == level.key(block - 1) {
        block -= 1;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::super::blocks::tests::{key, level, levels};
    use super::*;
    use proptest::prelude::*;

    /// By hand: two blocks at a time, from the beginning; the last one alone; then the first ones
    /// again.
    #[test]
    fn a_cycle() {
        let level = level(&[0, 10, 20, 30, 40]);
        let mut cursor = None;
        let mut chosen = Vec::new();
        for _ in 0..4 {
            let choice = choose(&level, cursor.as_deref(), 2).unwrap();
            chosen.push(choice.blocks);
            cursor = choice.to;
        }
        assert_eq!(chosen, [0..2, 2..4, 4..5, 0..2]);
    }

    /// By hand: the last merge ended at 20, and the blocks are others now. The one from 15 on
    /// holds 20; without it, the one from 20 on does; with versions of 15 in two, both are taken.
    #[test]
    fn a_block_across_the_cursor_is_taken() {
        let blocks = |level: &Vec<(u16, u64)>| choose(level, Some(&key(20)), 2).unwrap().blocks;
        assert_eq!(blocks(&level(&[0, 15, 25, 35])), 1..3);
        assert_eq!(blocks(&level(&[0, 15, 20, 25, 35])), 2..4);
        assert_eq!(blocks(&level(&[0, 15, 15, 25, 35])), 1..3);
        assert_eq!(blocks(&level(&[30, 40, 50])), 0..2);
        assert_eq!(blocks(&level(&[0, 10])), 1..2);
        assert_eq!(choose(&level(&[]), Some(&key(20)), 2), None);
    }

    proptest! {
        #[test]
        fn every_block_is_visited_once_in_a_cycle(level in levels(40), run_bytes in 1u64..40) {
            let mut cursor: Option<Vec<u8>> = None;
            let mut visited = Vec::new();
            for _ in 0..level.len() {
                let choice = choose(&level, cursor.as_deref(), run_bytes).unwrap();
                let bytes: u64 = level[choice.blocks.clone()].iter().map(|block| block.1).sum();
                prop_assert!(bytes >= run_bytes || choice.to.is_none());
                visited.extend(choice.blocks);
                cursor = choice.to;
                if cursor.is_none() {
                    break;
                }
            }
            prop_assert_eq!(visited, (0..level.len()).collect::<Vec<_>>());
        }

        #[test]
        fn a_choice_holds_the_cursor_and_goes_on(
            level in levels(40),
            cursor in 0u16..450,
            run_bytes in 1u64..40,
        ) {
            let cursor = key(cursor);
            if let Some(choice) = choose(&level, Some(&cursor), run_bytes) {
                prop_assert!(choice.blocks.end <= level.len());
                prop_assert!(choice.to.is_none_or(|to| to > cursor || choice.from > cursor));
            }
        }
    }
}
