//! A page: up to fifteen versions, ordered by one word.
//!
//! Thread safety: one writer, any readers.
//! Invariant: what the word names was written before the word, and is never written again.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::order::{ORDERED, Order};
use super::position::{Headed, Position};
use super::version::Version;

/// Versions with their order, and where further ones of the same range of positions are.
///
/// All their keys have the same first `skip` bytes; callers search the page only for positions that
/// share them.
#[derive(Default)]
pub(super) struct Page {
    order: AtomicU64,
    /// The heads of the slots, together: most searches read nothing else.
    heads: [AtomicU64; ORDERED],
    skip: usize,
    slots: [OnceLock<Version>; ORDERED],
    more: OnceLock<Box<Page>>,
}

/// A version in a page. Its position is known without a look at the key.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) headed: Headed<'a>,
    pub(super) version: &'a Version,
}

/// Memory of a page, in bytes.
pub(super) const PAGE_BYTES: u64 = size_of::<Page>() as u64;

impl Page {
    /// A page of these versions, which are in order; at most [`ORDERED`].
    pub(super) fn new(skip: usize, versions: impl Iterator<Item = Version>) -> Self {
        let mut page = Self { skip, ..Self::default() };
        let mut order = Order::default();
        for ((version, slot), head) in versions.zip(&mut page.slots).zip(&mut page.heads) {
            *head = AtomicU64::new(version.position().headed(skip).head);
            *slot = OnceLock::from(version);
            order = order.with(order.len());
        }
        page.order = AtomicU64::new(order.0);
        page
    }

    /// The versions that are in it now, and their order.
    pub(super) fn order(&self) -> Order {
        Order(self.order.load(Ordering::Acquire))
    }

    /// Adds a version; returns it when the page is full.
    pub(super) fn insert(&self, version: Version) -> Result<(), Version> {
        let order = self.order();
        let (Some(slot), Some(head)) = (self.slots.get(order.len()), self.heads.get(order.len()))
        else {
            return Err(version);
        };
        let headed = version.position().headed(self.skip);
        let rank = self.rank(order, headed);
        head.store(headed.head, Ordering::Relaxed);
        slot.set(version)?;
        self.order.store(order.with(rank).0, Ordering::Release);
        Ok(())
    }

    /// This page and those that follow for the same range of positions.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |page| page.more.get().map(|more| &**more))
    }

    /// Adds a page with one version to a chain that ends here. Gives the version back when the
    /// chain does not end here.
    pub(super) fn extend(&self, version: Version) -> Result<(), Version> {
        if self.more.get().is_some() {
            return Err(version);
        }
        self.more.get_or_init(|| Box::new(Self::new(self.skip, std::iter::once(version))));
        Ok(())
    }

    /// The version that was put there first.
    pub(super) fn eldest(&self) -> Option<Found<'_>> {
        self.in_slot(0)
    }

    /// The version with this rank in an order of this page.
    pub(super) fn at(&self, order: Order, rank: usize) -> Option<Found<'_>> {
        if rank < order.len() { self.in_slot(order.slot(rank)) } else { None }
    }

    fn in_slot(&self, slot: usize) -> Option<Found<'_>> {
        let version = self.slots.get(slot)?.get()?;
        let head = self.heads.get(slot)?.load(Ordering::Relaxed);
        let key = version.key().get(self.skip..)?;
        Some(Found { headed: Headed { head, rest: Position::new(key, version.seq()) }, version })
    }

    /// The number of versions in an order of this page before a position.
    pub(super) fn rank(&self, order: Order, position: Headed<'_>) -> usize {
        let (mut less, mut equal) = (0, 0);
        for head in self.heads.iter().take(order.len()) {
            let head = head.load(Ordering::Relaxed);
            less += usize::from(head < position.head);
            equal += usize::from(head == position.head);
        }
        let (mut low, mut high) = (less, less + equal);
        while low < high {
            let middle = low.midpoint(high);
            let found = self.at(order, middle).map(|found| found.headed.cmp(&position));
            match found.unwrap_or(Greater) {
                Less => low = middle + 1,
                Equal => return middle,
                Greater => high = middle,
            }
        }
        low
    }
}
