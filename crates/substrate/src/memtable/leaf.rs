//! A leaf: a short ordered set of versions with a memory of its own.
//!
//! A leaf is made of pages with a few versions each, and space for more. The pages divide the
//! leaf's positions permanently: each begins at the version that was first in it, except the first
//! page, which begins where the leaf does. A full page is followed by another one for the same
//! positions, up to [`CHAIN_PAGES`]; then the leaf is full there.
//!
//! So an insert reads a few neighbouring cache lines, where a skip list reads one or two for each
//! comparison.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_format::key::common_prefix_len;

use super::add;
use super::cursor::Cursor;
use super::cut::Limits;
use super::page::{Found, PAGE_BYTES, Page};
use super::position::{Boundary, Headed, Position};
use super::version::Version;

/// Pages for one range of positions.
pub(super) const CHAIN_PAGES: usize = 4;

/// Versions in a page of a new leaf. A page has space for fifteen.
const FILL: usize = 8;

/// Memory of a leaf in addition to its pages, versions and boundary's key, in bytes: itself, the
/// heads of its pages, two entries in lists, and what an allocator adds to each.
const LEAF_BYTES: u64 = 256;

/// The versions between its lower boundary and that of the leaf behind it.
pub struct Leaf {
    lower: Boundary,
    /// The number of first bytes that all keys in the leaf's range share with `lower`.
    skip: usize,
    /// The head of the version at which each page begins.
    heads: Box<[u64]>,
    /// At least one.
    pages: Box<[Page]>,
    len: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Leaf {
    /// A leaf from `lower` to `upper` or to the end of everything, with these versions, which are
    /// in order and in this range.
    pub(super) fn new(
        lower: Boundary,
        upper: Option<Position<'_>>,
        versions: Vec<Version>,
    ) -> Self {
        let len = versions.len();
        let page_count = len.div_ceil(FILL).max(1);
        let lower_key = lower.position().key;
        let skip = upper.map_or(0, |upper| common_prefix_len(lower_key, upper.key));
        let version_bytes: u64 = versions.iter().map(Version::memory_bytes).sum();
        let page_bytes = page_count as u64 * PAGE_BYTES;
        let memory_bytes = LEAF_BYTES + lower_key.len() as u64 + version_bytes + page_bytes;
        let mut rest = versions.into_iter();
        let pages: Box<[Page]> = (0..page_count)
            .map(|page| Page::new(skip, rest.by_ref().take((len + page) / page_count)))
            .collect();
        let heads = pages.iter().map(|page| page.eldest().map_or(0, |eldest| eldest.headed.head));
        Self {
            lower,
            skip,
            heads: heads.collect(),
            pages,
            len: AtomicU64::new(len as u64),
            memory_bytes: AtomicU64::new(memory_bytes),
        }
    }

    /// Adds a version of the leaf's range, if there is space for it: returns the memory that it
    /// takes, in bytes, or returns the version.
    pub(super) fn insert(&self, version: Version, limits: &Limits) -> Result<u64, Version> {
        let chain = self.chain(self.page(self.headed(version.position())));
        let Some((index, last)) = chain.enumerate().last() else { return Err(version) };
        let is_full = last.order().is_full();
        let added_bytes = version.memory_bytes() + if is_full { PAGE_BYTES } else { 0 };
        let has_room = limits.hold(self.len() + 1, self.memory_bytes() + added_bytes)
            && !(is_full && index + 1 == CHAIN_PAGES);
        if !has_room {
            return Err(version);
        }
        if is_full { last.extend(version) } else { last.insert(version) }?;
        add(&self.len, 1);
        add(&self.memory_bytes, added_bytes);
        Ok(added_bytes)
    }

    pub(super) const fn boundary(&self) -> &Boundary {
        &self.lower
    }

    /// Versions in it.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimated memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// A position of the leaf's range, to be compared with those of its versions.
    pub(super) fn headed<'a>(&self, position: Position<'a>) -> Headed<'a> {
        position.headed(self.skip)
    }

    pub(super) const fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The pages for one range of positions.
    pub(super) fn chain(&self, page: usize) -> impl Iterator<Item = &Page> {
        self.pages.get(page).into_iter().flat_map(Page::chain)
    }

    /// The page whose range holds `position`: the last that begins by it, or the first.
    pub(super) fn page(&self, position: Headed<'_>) -> usize {
        let less = self.heads.partition_point(|head| *head < position.head);
        let equal = self.heads.get(less..).unwrap_or_default();
        let equal = equal.partition_point(|head| *head == position.head);
        let equal = self.pages.get(less..less + equal).unwrap_or_default();
        let begins_by = |page: &Page| page.eldest().is_some_and(|eldest| eldest.headed <= position);
        (less + equal.partition_point(begins_by)).saturating_sub(1)
    }

    /// The last version.
    pub(super) fn last(&self) -> Option<Found<'_>> {
        Cursor::end(self).down()
    }

    /// Appends all versions in order.
    pub fn collect(&self, out: &mut Vec<Version>) {
        out.reserve(self.len());
        out.extend(self.iter().cloned());
    }

    fn iter(&self) -> impl Iterator<Item = &Version> {
        let mut cursor = Cursor::start(self);
        std::iter::from_fn(move || cursor.up().map(|found| found.version))
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("len", &self.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
