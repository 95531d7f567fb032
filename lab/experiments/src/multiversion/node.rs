//! A page of a multiversion B+-tree, in memory and as bytes.
//!
//! A page covers a range of keys and a span of versions. A leaf has items, an index page routers,
//! each with the part of the rectangle that it covers; entries are sorted by key, then by version.
//! A page is *active* while the transaction that created it runs: it has active entries only.
//!
//! ```text
//! 0   magic u32 | 4 level u16 | 6 count u16 | 8 low u64 | 16 high u64 | 24 born u32 | 28 died u32
//! 32  entries
//! ```
//!
//! Leaf entries have one of two forms. [`LeafForm::Spans`]: key, begin, end and value; a deletion
//! sets an end in place. [`LeafForm::Markers`]: key, version and value, or a mark of deletion,
//! which is an entry of its own and takes as much space; an item ends where the next one of its
//! key begins. Becker et al. and Choi et al. have spans, Haapasalo measured with markers.

use super::limits::Limits;
use super::pages::PageId;
use super::pages::pool::Codec;
use super::{Key, OPEN, Value, Version};
use crate::{Error, Result};

/// The greatest key, exclusive.
pub const KEY_END: Key = Key::MAX;
/// The header of a page.
pub const HEADER_BYTES: usize = 32;
const MAGIC: u32 = 0x4d56_4254;
/// The level of the pages that list roots.
const ROOTS_LEVEL: u16 = u16::MAX;
/// An entry of such a page: a version and a page.
const ROOT_BYTES: usize = 16;
/// The value of a mark of deletion, which is no other value.
const DELETED: Value = Value::MAX;

/// An item: a value of a key, and its life span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The version that wrote it, or that copied it to this page.
    pub begin: Version,
    /// The version that ended it.
    pub end: Version,
    /// The value.
    pub value: Value,
}

/// The way to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Router {
    /// The first key.
    pub low: Key,
    /// The key behind the last.
    pub high: Key,
    /// The first version.
    pub born: Version,
    /// The version behind the last.
    pub died: Version,
    /// The child.
    pub child: PageId,
}

/// The root from a version on; no page if the tree was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The first version.
    pub from: Version,
    /// The page.
    pub page: Option<PageId>,
}

/// The entries of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Of a leaf.
    Leaf(Vec<Item>),
    /// Of an index page.
    Index(Vec<Router>),
    /// Of a page that lists roots.
    Roots(Vec<Root>),
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The height above the leaves.
    pub level: u16,
    /// The first key.
    pub low: Key,
    /// The key behind the last.
    pub high: Key,
    /// The version that created it.
    pub born: Version,
    /// The version that ended it.
    pub died: Version,
    /// What is in it.
    pub entries: Entries,
}

/// How leaves keep items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafForm {
    /// One entry an item.
    Spans,
    /// One entry a write, one a deletion.
    Markers,
}

/// How pages are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The size of a page.
    pub page_bytes: usize,
    /// The form of leaf entries.
    pub form: LeafForm,
    /// Whether keys, values and pages have four bytes instead of eight.
    pub is_narrow: bool,
}

impl Layout {
    /// As Choi et al. have them: 24 bytes an entry. 169 entries to a leaf, 127 to an index page.
    pub const WIDE: Self = Self { page_bytes: 4096, form: LeafForm::Spans, is_narrow: false };
    /// As Haapasalo measured: 12 bytes an entry. 338 entries to a leaf, 203 to an index page.
    pub const NARROW: Self = Self { page_bytes: 4096, form: LeafForm::Markers, is_narrow: true };

    const fn leaf_entry_bytes(self) -> usize {
        match (self.form, self.is_narrow) {
            (LeafForm::Spans, false) => 24,
            (LeafForm::Markers, false) => 20,
            (LeafForm::Spans, true) => 16,
            (LeafForm::Markers, true) => 12,
        }
    }

    const fn index_entry_bytes(self) -> usize {
        if self.is_narrow { 20 } else { 32 }
    }

    /// The size of an entry of a page of this level.
    #[must_use]
    pub const fn entry_bytes(self, level: u16) -> usize {
        match level {
            0 => self.leaf_entry_bytes(),
            ROOTS_LEVEL => ROOT_BYTES,
            _ => self.index_entry_bytes(),
        }
    }

    /// The bounds of a page of this level.
    #[must_use]
    pub const fn limits(self, level: u16) -> Limits {
        Limits::of((self.page_bytes - HEADER_BYTES) / self.entry_bytes(level))
    }

    const fn word(self) -> usize {
        if self.is_narrow { 4 } else { 8 }
    }
}

impl Item {
    /// Whether it is alive in a version.
    #[must_use]
    pub const fn lives_in(&self, version: Version) -> bool {
        self.begin <= version && version < self.end
    }
}

impl Router {
    /// Whether it covers a key in a version.
    #[must_use]
    pub const fn covers(&self, key: Key, version: Version) -> bool {
        self.low <= key && key < self.high && self.born <= version && version < self.died
    }
}

impl Node {
    /// An empty leaf of all keys.
    #[must_use]
    pub const fn leaf(born: Version) -> Self {
        let entries = Entries::Leaf(Vec::new());
        Self { level: 0, low: 0, high: KEY_END, born, died: OPEN, entries }
    }

    /// A page that lists roots.
    #[must_use]
    pub const fn roots(born: Version) -> Self {
        let entries = Entries::Roots(Vec::new());
        Self { level: ROOTS_LEVEL, low: 0, high: KEY_END, born, died: OPEN, entries }
    }

    /// Entries that take space.
    #[must_use]
    pub fn slots(&self, form: LeafForm) -> usize {
        match &self.entries {
            Entries::Leaf(items) if form == LeafForm::Markers => {
                items.len() + (0..items.len()).filter(|at| has_mark(items, *at)).count()
            }
            Entries::Leaf(items) => items.len(),
            Entries::Index(routers) => routers.len(),
            Entries::Roots(roots) => roots.len(),
        }
    }

    /// Entries that still live.
    #[must_use]
    pub fn live(&self) -> usize {
        match &self.entries {
            Entries::Leaf(items) => items.iter().filter(|item| item.end == OPEN).count(),
            Entries::Index(routers) => routers.iter().filter(|of| of.died == OPEN).count(),
            Entries::Roots(roots) => roots.len(),
        }
    }

    /// Its items.
    ///
    /// # Errors
    /// When it is no leaf.
    pub fn items(&mut self) -> Result<&mut Vec<Item>> {
        match &mut self.entries {
            Entries::Leaf(items) => Ok(items),
            _ => Err(unlike("leaf")),
        }
    }

    /// Its routers.
    ///
    /// # Errors
    /// When it is no index page.
    pub fn routers(&mut self) -> Result<&mut Vec<Router>> {
        match &mut self.entries {
            Entries::Index(routers) => Ok(routers),
            _ => Err(unlike("index page")),
        }
    }

    /// Its routers, to be read.
    ///
    /// # Errors
    /// When it is no index page.
    pub fn routes(&self) -> Result<&[Router]> {
        match &self.entries {
            Entries::Index(routers) => Ok(routers),
            _ => Err(unlike("index page")),
        }
    }

    /// The child that covers a key in a version.
    ///
    /// # Errors
    /// When there is none.
    pub fn child(&self, key: Key, version: Version) -> Result<PageId> {
        let found = self.routes()?.iter().find(|router| router.covers(key, version));
        let nowhere = || Error::Invalid(format!("no child covers key {key} at {version}"));
        found.map(|router| router.child).ok_or_else(nowhere)
    }
}

/// Whether the item at a place of a leaf needs a mark of deletion: it ended, and no item of its key
/// begins there.
fn has_mark(items: &[Item], at: usize) -> bool {
    let Some(item) = items.get(at) else { return false };
    let is_followed =
        items.get(at + 1).is_some_and(|next| next.key == item.key && next.begin == item.end);
    item.end != OPEN && !is_followed
}

pub(super) fn unlike(what: &str) -> Error {
    Error::Invalid(format!("a page is no {what}"))
}

impl Codec for Layout {
    type Page = Node;

    fn encode(&self, page: &Node, bytes: &mut [u8]) -> Result<()> {
        let count = page.slots(self.form);
        if HEADER_BYTES + count * self.entry_bytes(page.level) > bytes.len() {
            return Err(Error::Invalid(format!("{count} entries do not fit a page")));
        }
        bytes.fill(0);
        let mut to = Put { bytes, at: 0, is_narrow: self.is_narrow };
        to.u32(MAGIC)?;
        to.raw(&page.level.to_le_bytes())?;
        to.raw(&(count as u16).to_le_bytes())?;
        to.raw(&page.low.to_le_bytes())?;
        to.raw(&page.high.to_le_bytes())?;
        to.u32(page.born)?;
        to.u32(page.died)?;
        match &page.entries {
            Entries::Leaf(items) => put_items(&mut to, items, self.form),
            Entries::Index(routers) => routers.iter().try_for_each(|router| {
                to.word(router.low)?;
                to.word(router.high)?;
                to.u32(router.born)?;
                to.u32(router.died)?;
                to.word(router.child)
            }),
            Entries::Roots(roots) => roots.iter().try_for_each(|root| {
                to.raw(&u64::from(root.from).to_le_bytes())?;
                to.raw(&root.page.unwrap_or(PageId::MAX).to_le_bytes())
            }),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<Node> {
        let mut of = Get { bytes, at: 0, word: self.word() };
        if of.u32()? != MAGIC {
            return Err(unlike("page of a tree"));
        }
        let (level, count) = (of.number(2)? as u16, of.number(2)? as usize);
        let (low, high) = (of.number(8)?, of.number(8)?);
        let (born, died) = (of.u32()?, of.u32()?);
        let entries = match level {
            0 => Entries::Leaf(get_items(&mut of, count, self.form)?),
            ROOTS_LEVEL => Entries::Roots(get_roots(&mut of, count)?),
            _ => Entries::Index(get_routers(&mut of, count)?),
        };
        Ok(Node { level, low, high, born, died, entries })
    }
}

fn put_items(to: &mut Put<'_>, items: &[Item], form: LeafForm) -> Result<()> {
    for (at, item) in items.iter().enumerate() {
        to.word(item.key)?;
        to.u32(item.begin)?;
        if form == LeafForm::Spans {
            to.u32(item.end)?;
        }
        to.word(item.value)?;
        if form == LeafForm::Markers && has_mark(items, at) {
            to.word(item.key)?;
            to.u32(item.end)?;
            to.word(DELETED)?;
        }
    }
    Ok(())
}

fn get_items(of: &mut Get<'_>, count: usize, form: LeafForm) -> Result<Vec<Item>> {
    let mut items: Vec<Item> = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, begin) = (of.word()?, of.u32()?);
        let end = if form == LeafForm::Spans { of.u32()? } else { OPEN };
        let value = of.word()?;
        if form == LeafForm::Markers {
            if let Some(last) = items.last_mut().filter(|of| of.key == key && of.end == OPEN) {
                last.end = begin;
            }
            if value == DELETED {
                continue;
            }
        }
        items.push(Item { key, begin, end, value });
    }
    Ok(items)
}

fn get_routers(of: &mut Get<'_>, count: usize) -> Result<Vec<Router>> {
    let mut routers = Vec::with_capacity(count);
    for _ in 0..count {
        let (low, high, born) = (of.word()?, of.word()?, of.u32()?);
        let (died, child) = (of.u32()?, of.word()?);
        routers.push(Router { low, high, born, died, child });
    }
    Ok(routers)
}

fn get_roots(of: &mut Get<'_>, count: usize) -> Result<Vec<Root>> {
    let mut roots = Vec::with_capacity(count);
    for _ in 0..count {
        let (from, page) = (of.number(8)? as Version, of.number(8)?);
        roots.push(Root { from, page: (page != PageId::MAX).then_some(page) });
    }
    Ok(roots)
}

/// Writes numbers one behind the other.
struct Put<'a> {
    bytes: &'a mut [u8],
    at: usize,
    is_narrow: bool,
}

impl Put<'_> {
    fn raw(&mut self, from: &[u8]) -> Result<()> {
        let end = self.at + from.len();
        let to = self.bytes.get_mut(self.at..end).ok_or_else(|| unlike("page with room"))?;
        to.copy_from_slice(from);
        self.at = end;
        Ok(())
    }

    fn u32(&mut self, number: u32) -> Result<()> {
        self.raw(&number.to_le_bytes())
    }

    /// A key, a value or a page. The greatest number, which is the end of the keys or a mark of
    /// deletion, is the greatest one of four bytes, too.
    fn word(&mut self, number: u64) -> Result<()> {
        if !self.is_narrow {
            return self.raw(&number.to_le_bytes());
        }
        let narrow = u32::try_from(number).unwrap_or(u32::MAX);
        if narrow == u32::MAX && number != u64::MAX {
            return Err(Error::Invalid(format!("{number} does not fit four bytes")));
        }
        self.u32(narrow)
    }
}

/// Reads numbers one behind the other.
struct Get<'a> {
    bytes: &'a [u8],
    at: usize,
    word: usize,
}

impl Get<'_> {
    fn number(&mut self, bytes: usize) -> Result<u64> {
        let from = self.bytes.get(self.at..self.at + bytes).ok_or_else(|| unlike("whole page"))?;
        self.at += bytes;
        let mut number = [0; 8];
        number.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(u64::from_le_bytes(number))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    fn word(&mut self) -> Result<u64> {
        let number = self.number(self.word)?;
        let is_greatest = self.word == 4 && number == u64::from(u32::MAX);
        Ok(if is_greatest { u64::MAX } else { number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(key: Key, begin: Version, end: Version) -> Item {
        Item { key, begin, end, value: key + 1 }
    }

    fn leaf() -> Node {
        let items = vec![item(1, 1, 3), item(1, 3, 5), item(1, 6, OPEN), item(2, 4, 7)];
        Node { high: 9, entries: Entries::Leaf(items), ..Node::leaf(1) }
    }

    #[test]
    fn a_mark_of_deletion_takes_space_and_an_overwritten_item_has_none() {
        assert_eq!(leaf().slots(LeafForm::Spans), 4);
        assert_eq!(leaf().slots(LeafForm::Markers), 6);
        assert_eq!(leaf().live(), 1);
    }

    #[test]
    fn pages_have_the_capacities_of_the_papers() {
        let capacities = |layout: Layout| [0, 1].map(|level| layout.limits(level).capacity);
        assert_eq!(capacities(Layout::WIDE), [169, 127]);
        assert_eq!(capacities(Layout::NARROW), [338, 203]);
    }

    #[test]
    fn pages_are_read_back() {
        let router = Router { low: 0, high: KEY_END, born: 2, died: OPEN, child: 7 };
        let roots = vec![Root { from: 1, page: Some(3) }, Root { from: 9, page: None }];
        let index = Node { level: 2, entries: Entries::Index(vec![router]), ..Node::leaf(2) };
        let listed = Node { entries: Entries::Roots(roots), ..Node::roots(1) };
        for form in [LeafForm::Spans, LeafForm::Markers] {
            for is_narrow in [false, true] {
                let layout = Layout { page_bytes: 200, form, is_narrow };
                for node in [leaf(), index.clone(), listed.clone()] {
                    let mut bytes = vec![0; layout.page_bytes];
                    layout.encode(&node, &mut bytes).unwrap();
                    assert_eq!(layout.decode(&bytes).unwrap(), node);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let layout = Layout { page_bytes: 100, ..Layout::NARROW };
        let mut bytes = vec![0; layout.page_bytes];
        assert!(layout.encode(&leaf(), &mut bytes).is_err());
        let wide = Node { entries: Entries::Leaf(vec![item(1 << 40, 1, OPEN)]), ..leaf() };
        assert!(layout.encode(&wide, &mut bytes).is_err());
        assert!(layout.decode(&[0; 100]).is_err());
        assert!(leaf().routers().is_err());
    }
}
