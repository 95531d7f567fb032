//! A cursor: a gap between two versions of a leaf, and the steps from there.
//!
//! The pages of a chain are each ordered separately. A cursor reads the order of each as it enters
//! the chain, and then merges them step by step: it may pass over versions that are inserted into
//! the chain meanwhile.

use super::leaf::{CHAIN_PAGES, Leaf};
use super::order::Order;
use super::page::{Found, Page};
use super::position::Position;

/// A gap between two versions of a leaf, or before its first or behind its last.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    leaf: &'a Leaf,
    page: usize,
    runs: [Option<Run<'a>>; CHAIN_PAGES],
}

/// One page of the chain: `passed` of its versions are before the gap.
#[derive(Clone, Copy)]
struct Run<'a> {
    page: &'a Page,
    order: Order,
    passed: usize,
}

impl<'a> Cursor<'a> {
    /// The gap before the first version at or behind `position`, which is in the leaf's range.
    pub(super) fn new(leaf: &'a Leaf, position: Position<'_>) -> Self {
        let position = leaf.headed(position);
        Self::enter(leaf, leaf.page(position), |page, order| page.rank(order, position))
    }

    /// The gap before everything in the leaf.
    pub(super) fn start(leaf: &'a Leaf) -> Self {
        Self::enter(leaf, 0, |_, _| 0)
    }

    /// The gap behind everything in the leaf.
    pub(super) fn end(leaf: &'a Leaf) -> Self {
        Self::enter(leaf, leaf.page_count().saturating_sub(1), |_, order| order.len())
    }

    fn enter(leaf: &'a Leaf, page: usize, passed: impl Fn(&Page, Order) -> usize) -> Self {
        let mut runs = [None; CHAIN_PAGES];
        for (run, page) in runs.iter_mut().zip(leaf.chain(page)) {
            let order = page.order();
            *run = Some(Run { page, order, passed: passed(page, order) });
        }
        Self { leaf, page, runs }
    }

    /// Moves over the next version, and returns it: none at the end of the leaf.
    pub(super) fn up(&mut self) -> Option<Found<'a>> {
        loop {
            let ahead = self.runs.iter_mut().flatten().filter_map(|run| {
                let found = run.page.at(run.order, run.passed)?;
                Some((found, run))
            });
            if let Some((found, run)) = ahead.min_by_key(|(found, _)| found.headed) {
                run.passed += 1;
                return Some(found);
            }
            if self.page + 1 >= self.leaf.page_count() {
                return None;
            }
            *self = Self::enter(self.leaf, self.page + 1, |_, _| 0);
        }
    }

    /// Moves over the version before, and returns it: none at the start of the leaf.
    pub(super) fn down(&mut self) -> Option<Found<'a>> {
        loop {
            let passed = self.runs.iter_mut().flatten().filter_map(|run| {
                let found = run.page.at(run.order, run.passed.checked_sub(1)?)?;
                Some((found, run))
            });
            if let Some((found, run)) = passed.max_by_key(|(found, _)| found.headed) {
                run.passed -= 1;
                return Some(found);
            }
            *self = Self::enter(self.leaf, self.page.checked_sub(1)?, |_, order| order.len());
        }
    }
}
