//! Writing nodes: pages are filled from ordered entries, and take the places of others.
//!
//! N1: a node that is written anew is written with its ancestors up to the root of its subtree. N2:
//! the keys below a child are at least its key in the parent, which is as short as that allows. The
//! first child has all keys of the node before it, too; its key is the bound of the node when that
//! was written. N3: a node is never empty; a leaf without keys has a removal of a key of its range.

use alloc::vec::Vec;

use crate::buffer::{Buffer, Fragment, FragmentPage, Prefix, SubtreeId};
use crate::chip::{Chip, PageNo};
use crate::error::{Error, Result};
use crate::flash::Flash;
use crate::page::{self, Entry, Kind};
use crate::planted::{self, Bug};
use crate::tree::{LaTree, Spot, has_subtrees};

/// Children and the least keys below them, as the entries of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    bytes: Vec<u8>,
    count: usize,
}

impl Children {
    pub(crate) fn push(&mut self, key: &[u8], child: u32) {
        page::append(&mut self.bytes, (key, Some(&child.to_le_bytes())));
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u32)> {
        page::entries(&self.bytes).map(|(key, value)| (key, page::child(value)))
    }

    /// The payload of a node that has them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The first child.
    fn first(&self) -> Result<PageNo> {
        let first = self.iter().next().ok_or(Error::Invariant("a page was written"))?;
        Ok(PageNo(first.1))
    }
}

/// Fills pages of one level from ascending entries. A page is full, or it and its neighbour have
/// about as many bytes.
pub(crate) struct Builder {
    level: u8,
    capacity: usize,
    /// The bound of the page that comes next, if it is not its first key.
    low: Option<Vec<u8>>,
    /// The last key of the leaf before.
    last: Option<Vec<u8>>,
    pending: Vec<u8>,
    pub out: Children,
}

impl Builder {
    pub(crate) fn new(level: u8, capacity: usize) -> Self {
        Self {
            level,
            capacity,
            low: None,
            last: None,
            pending: Vec::new(),
            out: Children::default(),
        }
    }

    /// Entries of a child with the bound `low` follow.
    pub(crate) fn begin(&mut self, low: &[u8]) {
        if self.pending.is_empty() && self.low.is_none() {
            self.low = Some(low.to_vec());
        }
    }

    /// Whether what waits is too little for a page.
    pub(crate) fn is_small(&self) -> bool {
        !self.pending.is_empty() && self.pending.len() < self.capacity * 2 / 5
    }

    pub(crate) fn push<C: Chip>(&mut self, flash: &mut Flash<C>, entry: Entry<'_>) -> Result<()> {
        let limit = self.capacity + self.capacity / 2;
        if self.pending.len() + page::entry_bytes(entry) > limit {
            self.emit(flash, self.capacity * 3 / 4)?;
        }
        page::append(&mut self.pending, entry);
        Ok(())
    }

    /// Writes all that waits.
    pub(crate) fn finish<C: Chip>(&mut self, flash: &mut Flash<C>) -> Result<()> {
        if self.pending.len() > self.capacity {
            self.emit(flash, self.pending.len() / 2)?;
        }
        if !self.pending.is_empty() {
            self.emit(flash, self.pending.len())?;
        }
        self.low = None;
        Ok(())
    }

    /// Writes a page of the first entries: as few as have `bytes`.
    fn emit<C: Chip>(&mut self, flash: &mut Flash<C>, bytes: usize) -> Result<()> {
        let (mut taken, mut rest) = (0, self.pending.as_slice());
        let (mut first, mut last) = (None, None);
        while taken < bytes {
            let Some((entry, after)) = page::first(rest) else { break };
            let size = page::entry_bytes(entry);
            if taken + size > self.capacity {
                break;
            }
            first.get_or_insert(entry.0);
            last = Some(entry.0);
            (taken, rest) = (taken + size, after);
        }
        let first = first.ok_or(Error::Invariant("an entry fits a page"))?;
        let low =
            self.low.take().unwrap_or_else(|| separator(self.last.as_deref(), first).to_vec());
        // The keys of inner nodes are bounds: there are keys up to the next one.
        self.last = last.filter(|_| self.level == 1).map(<[u8]>::to_vec);
        let payload = self.pending.get(..taken).unwrap_or(&[]);
        let at = flash.write(Kind::Node, self.level, 0, payload)?;
        self.pending.drain(..taken);
        self.out.push(&low, at.0);
        Ok(())
    }
}

/// The shortest bound between two neighbouring keys of leaves: above `last` and at most `first`.
fn separator<'a>(last: Option<&[u8]>, first: &'a [u8]) -> &'a [u8] {
    let Some(last) = last else { return first };
    let common = last.iter().zip(first).take_while(|(a, b)| a == b).count();
    first.get(..=common).unwrap_or(first)
}

impl<C: Chip> LaTree<C> {
    /// Writes inner nodes of `level` with these children.
    pub(crate) fn pack(&mut self, level: u8, children: &Children) -> Result<Children> {
        let mut builder = Builder::new(level, self.flash.capacity());
        for (key, child) in children.iter() {
            builder.push(&mut self.flash, (key, Some(&child.to_le_bytes())))?;
        }
        builder.finish(&mut self.flash)?;
        Ok(builder.out)
    }

    /// Puts `nodes` in the place of the last spot's node, which is released.
    pub(crate) fn replace_node(&mut self, spots: &[Spot], nodes: &Children) -> Result<()> {
        let (spot, above) =
            spots.split_last().ok_or(Error::Invariant("a node that is replaced has a spot"))?;
        self.flash.release(spot.at);
        match above.last() {
            Some(parent) if parent.id == spot.id => self.replace_child(above, nodes),
            _ => self.set_roots(above, spot.id, spot.level, nodes),
        }
    }

    /// Puts `nodes` in the place of the child that the last spot leads to.
    pub(crate) fn replace_child(&mut self, spots: &[Spot], nodes: &Children) -> Result<()> {
        let parent = spots.last().ok_or(Error::Invariant("a child has a parent"))?;
        let old = self.flash.read(parent.at, Kind::Node)?;
        let mut children = Children::default();
        for (index, (key, value)) in page::entries(page::payload(&old)).enumerate() {
            // N2: it may have taken keys before those of the child that was its first.
            let key = if children.len() == 0 { parent.low.as_slice() } else { key };
            if index != parent.index {
                children.push(key, page::child(value));
                continue;
            }
            for (at, (own, child)) in nodes.iter().enumerate() {
                children.push(if at == 0 { key } else { own }, child);
            }
        }
        let nodes = self.pack(parent.level, &children)?;
        drop(children);
        self.replace_node(spots, &nodes)
    }

    /// Makes `nodes` the roots of a subtree and of those that it is split into.
    fn set_roots(
        &mut self,
        above: &[Spot],
        id: SubtreeId,
        level: u8,
        nodes: &Children,
    ) -> Result<()> {
        match nodes.len() {
            0 => self.set_empty(above, id, level),
            1 => self.table.set_root(id, nodes.first()?, level),
            _ if id == self.root => self.grow(level, nodes),
            _ => {
                let list = self.split_subtree(id, level, nodes)?;
                self.replace_child(above, &list)
            }
        }
    }

    /// A subtree has lost its last leaf: it gets one without keys.
    fn set_empty(&mut self, above: &[Spot], id: SubtreeId, level: u8) -> Result<()> {
        let mut low = Vec::new();
        if let Some(parent) = above.last() {
            let node = self.flash.read(parent.at, Kind::Node)?;
            let entry = page::entries(page::payload(&node)).nth(parent.index);
            low.extend_from_slice(entry.map_or(&[], |entry| entry.0));
        }
        let top = if id == self.root { 1 } else { level };
        let mut builder = Builder::new(1, self.flash.capacity());
        builder.push(&mut self.flash, (&low, None))?;
        builder.finish(&mut self.flash)?;
        self.stats.leaves += 1;
        let mut nodes = builder.out;
        for level in 2..=top {
            nodes = self.pack(level, &nodes)?;
        }
        self.vanished.push((id, low));
        self.table.set_root(id, nodes.first()?, top)
    }

    /// Makes each node a subtree; the first keeps the id. The buffer is divided among them.
    fn split_subtree(&mut self, id: SubtreeId, level: u8, nodes: &Children) -> Result<Children> {
        let mut list = Children::default();
        let mut last = id;
        for (at, (key, root)) in nodes.iter().enumerate() {
            if at == 0 {
                self.table.set_root(id, PageNo(root), level)?;
            } else {
                let new = self.table.add(PageNo(root), level);
                self.divide_buffer(last, key, new)?;
                last = new;
            }
            list.push(key, last.0);
        }
        Ok(list)
    }

    /// The root of the tree has become several nodes.
    fn grow(&mut self, level: u8, nodes: &Children) -> Result<()> {
        let id = self.root;
        let is_new = has_subtrees(level + 1, self.k());
        let tops = if is_new {
            let children = self.split_subtree(id, level, nodes)?;
            self.pack(level + 1, &children)?
        } else {
            self.pack(level + 1, nodes)?
        };
        if is_new {
            self.root = self.table.add(tops.first()?, level + 1);
        }
        self.set_roots(&[], self.root, level + 1, &tops)
    }

    /// Moves the operations of a buffer from `key` on to that of a new subtree. Pages of fragments
    /// are moved by their descriptors; the one that `key` divides is written as two.
    fn divide_buffer(&mut self, id: SubtreeId, key: &[u8], to: SubtreeId) -> Result<()> {
        if planted::is(Bug::SplitKeepsBuffer) {
            return Ok(());
        }
        let mut left = self.table.take(id)?;
        if left.part.live_bytes() > self.plan.batch {
            // A large part is not copied in memory. The reserve has room for a whole pool.
            self.write_part(&mut left, false)?;
        }
        let mut right = Buffer { adapt: left.adapt, ..Buffer::default() };
        right.part = left.part.split_off(left.part.position(key));
        let fragments = core::mem::take(&mut left.fragments);
        for fragment in fragments {
            let (low, high) = self.divide_fragment(&fragment, key, true)?;
            left.keep_pages(low, &fragment);
            right.keep_pages(high, &fragment);
        }
        self.table.put_back(id, left)?;
        self.table.put_back(to, right.into())
    }

    /// The pages of a fragment before `key` and from it on. The one that it divides is written
    /// again, its first half only if `keeps_first`.
    pub(crate) fn divide_fragment(
        &mut self,
        fragment: &Fragment,
        key: &[u8],
        keeps_first: bool,
    ) -> Result<(Vec<FragmentPage>, Vec<FragmentPage>)> {
        let prefix = Prefix::of(key);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (at, page) in fragment.pages.iter().enumerate() {
            let is_before = fragment.pages.get(at + 1).is_some_and(|next| next.prefix < prefix);
            if is_before {
                left.push(*page);
                continue;
            }
            if page.prefix > prefix {
                right.push(*page);
                continue;
            }
            let bytes = self.flash.read(page.at, Kind::Fragment)?;
            let payload = page::payload(&bytes);
            let before = page::entries(payload).take_while(|entry| entry.0 < key);
            let (low, high) = payload.split_at(before.map(page::entry_bytes).sum());
            if low.is_empty() {
                right.push(*page);
            } else if high.is_empty() {
                left.push(*page);
            } else {
                if keeps_first {
                    left.push(self.write_fragment_page(low)?);
                }
                right.push(self.write_fragment_page(high)?);
                self.flash.release(page.at);
            }
        }
        Ok((left, right))
    }

    /// Programs a page of operations.
    pub(crate) fn write_fragment_page(&mut self, payload: &[u8]) -> Result<FragmentPage> {
        let ((key, _), _) =
            page::first(payload).ok_or(Error::Invariant("a page has operations"))?;
        let at = self.flash.write(Kind::Fragment, 0, 0, payload)?;
        Ok(FragmentPage { at, prefix: Prefix::of(key) })
    }
}
