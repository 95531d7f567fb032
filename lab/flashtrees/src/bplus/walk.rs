//! Ranges and the check.

use super::{Backing, Tree};
use crate::error::{Result, broken};
use crate::tree::{KeyRange, Order, Visit};

/// A node to check: its number, level, least key, and the key that ends it.
type ToCheck = (u32, u8, u64, Option<u64>);

impl<B: Backing> Tree<B> {
    /// Visits the entries of a range, a leaf at a time. Cost: a way down for each leaf.
    pub(super) fn walk(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        let KeyRange { mut from, mut to, order } = range;
        while from <= to {
            let key = if order == Order::Ascending { from } else { to };
            let (path, leaf) = self.descend(key)?;
            let (mut least, mut end) = (0, None);
            for (step, level) in path.iter().zip((1..=self.height).rev()) {
                let page = &self.load(step.node, level)?.page;
                if step.at > 0 {
                    least = page.key(step.at);
                }
                if step.at + 1 < page.len() {
                    end = Some(page.key(step.at + 1));
                }
            }
            let page = &self.load(leaf, 0)?.page;
            let in_range = |(key, _): &(u64, u64)| (from..=to).contains(key);
            let mut go_on = true;
            let mut each = |(key, value)| {
                go_on = go_on && visit(key, value);
            };
            let next = match order {
                Order::Ascending => {
                    page.entries().filter(in_range).for_each(&mut each);
                    end.map(|end| from = end)
                }
                Order::Descending => {
                    page.entries().rev().filter(in_range).for_each(&mut each);
                    least.checked_sub(1).map(|before| to = before)
                }
            };
            if !go_on || next.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Checks T1 and T2, and answers the numbers of entries and nodes.
    pub(super) fn check_nodes(&mut self) -> Result<(u64, usize)> {
        let (mut entries, mut nodes) = (0, 0);
        let mut open: Vec<ToCheck> = vec![(self.root, self.height, 0, None)];
        while let Some((node, level, least, end)) = open.pop() {
            nodes += 1;
            let found: Vec<(u64, u64)> = self.load(node, level)?.page.entries().collect();
            if !found.is_sorted_by(|one, next| one.0 < next.0) {
                return broken(format!("the keys of node {node} do not ascend"));
            }
            let is_inside = |key: u64| key >= least && end.is_none_or(|end| key < end);
            // The first entry of an inner node leads to all smaller keys of it.
            let skipped = usize::from(level > 0);
            if !found.iter().skip(skipped).all(|(key, _)| is_inside(*key)) {
                return broken(format!("node {node} has keys outside of {least}..{end:?}"));
            }
            if level == 0 {
                entries += found.len() as u64;
                continue;
            }
            if found.is_empty() {
                return broken(format!("inner node {node} has no child"));
            }
            for (at, (key, child)) in found.iter().enumerate() {
                let from = if at == 0 { least } else { *key };
                let until = found.get(at + 1).map(|(key, _)| *key).or(end);
                open.push((*child as u32, level - 1, from, until));
            }
        }
        Ok((entries, nodes))
    }
}
