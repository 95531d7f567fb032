//! Changes of the structure: pages are replaced by copies of what lives in them.

use super::super::OPEN;
use super::super::limits::Change;
use super::super::node::{Entries, KEY_END, LeafForm, Node, Router};
use super::super::pages::PageId;
use super::Tree;
use crate::{Error, Result};

/// What lived in the pages that are replaced, and the active ones among them, which are used again.
struct Taken {
    entries: Entries,
    reused: Vec<PageId>,
    low: u64,
    high: u64,
    level: u16,
}

impl Tree {
    /// Replaces the page at a depth of a path, which has no room or in which too little lives; or,
    /// if its parent has no room for what this adds, the parent alone: the caller looks again.
    pub(super) fn restructure(&mut self, path: &[u64], depth: usize) -> Result<()> {
        let page = path.get(depth).copied().ok_or_else(missing)?;
        let parent = depth.checked_sub(1).and_then(|above| path.get(above)).copied();
        let sibling = match parent {
            Some(parent) => self.sibling(parent, page)?,
            None => None,
        };
        let change = self.decide(page, sibling)?;
        let replaced = replaced(change, page, sibling);
        if let Some(parent) = parent
            && !self.has_room(parent, &replaced, change.pieces())?
        {
            return self.restructure(path, depth - 1);
        }
        self.changes.key_splits += u64::from(change == Change::Divide);
        self.changes.merges += u64::from(change.replaced() == 2);
        let taken = self.take(&replaced)?;
        let level = taken.level;
        let pieces = self.place(taken, change.pieces())?;
        match parent {
            Some(parent) => self.route(parent, &replaced, &pieces),
            None => self.crown(level, &pieces),
        }
    }

    fn decide(&mut self, page: PageId, sibling: Option<PageId>) -> Result<Change> {
        let node = self.pool.read(page)?;
        let (live, limits) = (node.live(), self.layout.limits(node.level));
        let beside = match sibling {
            Some(sibling) if live < limits.min_split => Some(self.pool.read(sibling)?.live()),
            _ => None,
        };
        Ok(Change::decide(limits, live, beside))
    }

    /// The live neighbour of a page: the one before, or the one after the first.
    fn sibling(&mut self, parent: PageId, page: PageId) -> Result<Option<PageId>> {
        let routers = self.pool.read(parent)?.routes()?;
        let live: Vec<PageId> =
            routers.iter().filter(|of| of.died == OPEN).map(|of| of.child).collect();
        let at = live.iter().position(|child| *child == page).ok_or_else(missing)?;
        Ok(live.get(at.checked_sub(1).unwrap_or(1)).copied())
    }

    /// Whether an index page can take routers to `pieces` pages in place of those to `replaced`.
    /// Routers that the active transaction added go; others stay, with an end.
    fn has_room(&mut self, parent: PageId, replaced: &[PageId], pieces: usize) -> Result<bool> {
        let (form, active) = (self.layout.form, self.active);
        let node = self.pool.read(parent)?;
        let capacity = self.layout.limits(node.level).capacity;
        let goes =
            |of: &&Router| of.died == OPEN && of.born == active && replaced.contains(&of.child);
        let removed = node.routes()?.iter().filter(goes).count();
        Ok(node.slots(form) + pieces <= capacity + removed)
    }

    /// Takes what lives out of neighbouring pages, which die unless they are active.
    fn take(&mut self, pages: &[PageId]) -> Result<Taken> {
        let mut taken: Option<Taken> = None;
        for page in pages {
            let (form, active) = (self.layout.form, self.active);
            let node = self.pool.change(*page)?;
            let is_active = node.born == active;
            let entries = if is_active {
                std::mem::replace(&mut node.entries, Entries::Leaf(Vec::new()))
            } else {
                node.died = active;
                kill(&mut node.entries, active, form)
            };
            let (low, high, level) = (node.low, node.high, node.level);
            let reused = is_active.then_some(*page).into_iter().collect();
            self.changes.version_splits += u64::from(!is_active);
            let next = Taken { entries, reused, low, high, level };
            taken = Some(match taken {
                Some(before) => before.and(next)?,
                None => next,
            });
        }
        taken.ok_or_else(missing)
    }

    /// Puts what was taken into a number of pages; active pages that are left over go.
    fn place(&mut self, taken: Taken, pieces: usize) -> Result<Vec<(PageId, u64, u64)>> {
        let Taken { entries, mut reused, low, high, level } = taken;
        self.log.append(entries.len() * self.layout.entry_bytes(level));
        let parts = entries.into_parts(pieces);
        let bounds: Vec<u64> = parts.iter().map(Entries::low).collect();
        let mut placed = Vec::with_capacity(pieces);
        for (at, entries) in parts.into_iter().enumerate() {
            let low = if at == 0 { low } else { bounds.get(at).copied().unwrap_or(low) };
            let high = bounds.get(at + 1).copied().unwrap_or(high);
            let node = Node { level, low, high, born: self.active, died: OPEN, entries };
            let id = match reused.pop() {
                Some(id) => {
                    *self.pool.change(id)? = node;
                    id
                }
                None => self.create(node)?,
            };
            placed.push((id, low, high));
        }
        reused.into_iter().for_each(|id| self.free(id, level));
        Ok(placed)
    }

    /// Replaces routers of an index page.
    fn route(
        &mut self,
        parent: PageId,
        replaced: &[PageId],
        pieces: &[(PageId, u64, u64)],
    ) -> Result<()> {
        let active = self.active;
        let routers = self.pool.change(parent)?.routers()?;
        let is_old = |of: &Router| of.died == OPEN && replaced.contains(&of.child);
        routers.retain(|of| !(is_old(of) && of.born == active));
        routers.iter_mut().filter(|of| is_old(of)).for_each(|of| of.died = active);
        for (child, low, high) in pieces.iter().copied() {
            let router = Router { low, high, born: active, died: OPEN, child };
            let at = routers.partition_point(|of| (of.low, of.born) < (low, active));
            routers.insert(at, router);
        }
        Ok(())
    }

    /// Makes pages that replace a root the root, or the children of a new one.
    fn crown(&mut self, level: u16, pieces: &[(PageId, u64, u64)]) -> Result<()> {
        if let [(page, _, _)] = pieces {
            return self.set_root(Some(*page));
        }
        let born = self.active;
        let router = |(child, low, high): &(PageId, u64, u64)| Router {
            low: *low,
            high: *high,
            born,
            died: OPEN,
            child: *child,
        };
        let entries = Entries::Index(pieces.iter().map(router).collect());
        let (low, high) = (0, KEY_END);
        let root = self.create(Node { level: level + 1, low, high, born, died: OPEN, entries })?;
        self.set_root(Some(root))
    }

    /// Makes every page on the path of a key have enough live entries, from the root down.
    pub(super) fn repair(&mut self, key: u64) -> Result<()> {
        while self.roots.current().is_some() {
            let path = self.path(key)?;
            let Some(depth) = self.first_poor(&path)? else { return Ok(()) };
            if depth == 0 { self.shrink(&path)? } else { self.restructure(&path, depth)? }
        }
        Ok(())
    }

    /// The depth of the first page of a path in which too little lives.
    fn first_poor(&mut self, path: &[u64]) -> Result<Option<usize>> {
        for (depth, page) in path.iter().enumerate() {
            let node = self.pool.read(*page)?;
            let least = match (depth, node.level) {
                (0, 0) => 1,
                (0, _) => 2,
                (_, level) => self.layout.limits(level).min_live,
            };
            if node.live() < least {
                return Ok(Some(depth));
            }
        }
        Ok(None)
    }

    /// Replaces a root with one child by the child, and an empty root by none.
    fn shrink(&mut self, path: &[u64]) -> Result<()> {
        let root = path.first().copied().ok_or_else(missing)?;
        let (active, form) = (self.active, self.layout.form);
        self.set_root(path.get(1).copied())?;
        let (born, level) = (self.pool.read(root)?.born, self.pool.read(root)?.level);
        if born == active {
            self.free(root, level);
            return Ok(());
        }
        let node = self.pool.change(root)?;
        node.died = active;
        kill(&mut node.entries, active, form);
        Ok(())
    }
}

/// The pages that a change replaces, in the order of their keys as far as the caller knows it.
fn replaced(change: Change, page: PageId, sibling: Option<PageId>) -> Vec<PageId> {
    let beside = sibling.filter(|_| change.replaced() == 2);
    beside.into_iter().chain([page]).collect()
}

/// Ends what lives in a page; the answer are copies that begin now. What began now moves. Markers
/// are not added: the end of the page ends its items.
fn kill(entries: &mut Entries, active: u32, form: LeafForm) -> Entries {
    match entries {
        Entries::Leaf(items) => {
            let live = items.iter().filter(|item| item.end == OPEN).copied();
            let mut copies: Vec<_> = live.collect();
            copies.iter_mut().for_each(|item| item.begin = active);
            items.retain(|item| item.begin != active || item.end != OPEN);
            if form == LeafForm::Spans {
                let live = items.iter_mut().filter(|item| item.end == OPEN);
                live.for_each(|item| item.end = active);
            }
            Entries::Leaf(copies)
        }
        Entries::Index(routers) => {
            let live = routers.iter().filter(|router| router.died == OPEN).copied();
            let mut copies: Vec<_> = live.collect();
            copies.iter_mut().for_each(|router| router.born = active);
            routers.retain(|router| router.born != active || router.died != OPEN);
            let live = routers.iter_mut().filter(|router| router.died == OPEN);
            live.for_each(|router| router.died = active);
            Entries::Index(copies)
        }
        Entries::Roots(_) => Entries::Roots(Vec::new()),
    }
}

impl Taken {
    /// Joins what two neighbours held, whichever is first.
    fn and(mut self, mut other: Self) -> Result<Self> {
        let is_first = self.low < other.low;
        self.reused.append(&mut other.reused);
        let (first, last) =
            if is_first { (self.entries, other.entries) } else { (other.entries, self.entries) };
        self.entries = first.and(last)?;
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        Ok(self)
    }
}

impl Entries {
    fn and(self, other: Self) -> Result<Self> {
        match (self, other) {
            (Self::Leaf(mut first), Self::Leaf(last)) => {
                first.extend(last);
                Ok(Self::Leaf(first))
            }
            (Self::Index(mut first), Self::Index(last)) => {
                first.extend(last);
                Ok(Self::Index(first))
            }
            _ => Err(Error::Invalid("neighbours are of different levels".to_owned())),
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::Leaf(items) => items.len(),
            Self::Index(routers) => routers.len(),
            Self::Roots(roots) => roots.len(),
        }
    }

    /// The first key.
    fn low(&self) -> u64 {
        match self {
            Self::Leaf(items) => items.first().map_or(0, |item| item.key),
            Self::Index(routers) => routers.first().map_or(0, |router| router.low),
            Self::Roots(_) => 0,
        }
    }

    /// One or two parts, as even as can be.
    fn into_parts(mut self, parts: usize) -> Vec<Self> {
        if parts < 2 {
            return vec![self];
        }
        let half = self.len().div_ceil(2);
        let last = match &mut self {
            Self::Leaf(items) => Self::Leaf(items.split_off(half)),
            Self::Index(routers) => Self::Index(routers.split_off(half)),
            Self::Roots(roots) => Self::Roots(roots.split_off(half)),
        };
        vec![self, last]
    }
}

fn missing() -> Error {
    Error::Invalid("a page is not where its parent says".to_owned())
}
