//! Full blocks by their number of valid pages: the greedy victim in O(1).
//!
//! Each domain has a doubly linked list for each number of valid pages. A block that loses a page
//! moves to the end of the next lower list; the victim is the head of the lowest one.

/// No block.
const NONE: u32 = u32::MAX;

/// The lists of all domains. Memory: 8 bytes for each block, and 8 for each list.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// The greatest number of valid pages.
    pages: u32,
    links: Vec<Link>,
    /// Of the lists with 0 to `pages` valid pages of the first domain, then of the next one.
    lists: Vec<List>,
    /// For each domain, a number of valid pages below which all lists are empty.
    lowest: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

impl Buckets {
    /// Empty lists for `domains` domains with `blocks` blocks in all, of `pages` pages each.
    pub fn new(domains: u32, blocks: u32, pages: u32) -> Self {
        let lists = domains as usize * (pages as usize + 1);
        Self {
            pages,
            links: vec![Link { previous: NONE, next: NONE }; blocks as usize],
            lists: vec![List { head: NONE, tail: NONE }; lists],
            lowest: vec![pages; domains as usize],
        }
    }

    /// Adds a block that is in no list.
    pub fn add(&mut self, domain: u32, valid: u32, block: u32) {
        let list = self.list(domain, valid);
        let tail = std::mem::replace(&mut self.lists[list].tail, block);
        self.links[block as usize] = Link { previous: tail, next: NONE };
        match self.links.get_mut(tail as usize) {
            Some(last) => last.next = block,
            None => self.lists[list].head = block,
        }
        let lowest = &mut self.lowest[domain as usize];
        *lowest = valid.min(*lowest);
    }

    /// Takes out a block that is in the list of `valid`.
    pub fn remove(&mut self, domain: u32, valid: u32, block: u32) {
        let list = self.list(domain, valid);
        let Link { previous, next } = self.links[block as usize];
        match self.links.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.lists[list].head = next,
        }
        match self.links.get_mut(next as usize) {
            Some(after) => after.previous = previous,
            None => self.lists[list].tail = previous,
        }
    }

    /// A block with the fewest valid pages, and their number; of several, the one that was added
    /// first. Amortised O(1): the search goes on where the last one ended.
    pub fn least(&mut self, domain: u32) -> Option<(u32, u32)> {
        let lowest = &mut self.lowest[domain as usize];
        let base = domain as usize * (self.pages as usize + 1);
        while *lowest < self.pages && self.lists[base + *lowest as usize].head == NONE {
            *lowest += 1;
        }
        let head = self.lists[base + *lowest as usize].head;
        (head != NONE).then_some((head, *lowest))
    }

    /// Memory in bytes.
    pub fn ram_bytes(&self) -> u64 {
        8 * (self.links.capacity() + self.lists.capacity()) as u64
            + 4 * self.lowest.capacity() as u64
    }

    fn list(&self, domain: u32, valid: u32) -> usize {
        domain as usize * (self.pages as usize + 1) + valid as usize
    }
}

#[cfg(test)]
mod tests;
