//! Which pages have changes of which node: lists, oldest page first, and how many lists name each
//! page.
//!
//! Memory as it is counted: a page number for each element of a list and a byte for its length, and
//! a byte for each page that a list may name, or 2 where a page can have units of more than 255
//! nodes.

use crate::error::{Result, broken};

/// The pages of each node.
#[derive(Debug)]
pub struct Lists {
    /// Bytes of a page number.
    number_bytes: usize,
    /// Bytes of a count of lists.
    count_bytes: usize,
    lists: Vec<Vec<u32>>,
    elements: usize,
    /// How many lists name a page.
    named: Vec<u16>,
    pages: usize,
}

impl Lists {
    /// No list. A page number has `number_bytes`, a page changes of at most `nodes_of_page` nodes.
    #[must_use]
    pub fn new(number_bytes: usize, nodes_of_page: usize) -> Self {
        let count_bytes = if nodes_of_page > 255 { 2 } else { 1 };
        let (lists, named) = (Vec::new(), Vec::new());
        Self { number_bytes, count_bytes, lists, elements: 0, named, pages: 0 }
    }

    /// The pages of a node, oldest first.
    #[must_use]
    pub fn of(&self, node: u32) -> &[u32] {
        self.lists.get(node as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds a page to the end of a node's list, unless it ends with it.
    pub fn push(&mut self, node: u32, page: u32) {
        let (node, at) = (node as usize, page as usize);
        if self.lists.len() <= node {
            self.lists.resize_with(node + 1, Vec::new);
        }
        if self.named.len() <= at {
            self.named.resize(at + 1, 0);
        }
        let (Some(list), Some(named)) = (self.lists.get_mut(node), self.named.get_mut(at)) else {
            return;
        };
        if list.last() != Some(&page) {
            list.push(page);
            self.elements += 1;
            self.pages += usize::from(*named == 0);
            *named += 1;
        }
    }

    /// Empties the list of a node, and answers the pages that no list names any more.
    pub fn clear(&mut self, node: u32) -> Vec<u32> {
        let list = self.lists.get_mut(node as usize).map(std::mem::take).unwrap_or_default();
        self.elements -= list.len();
        let mut unused = Vec::new();
        for page in list {
            if let Some(named) = self.named.get_mut(page as usize) {
                *named = named.saturating_sub(1);
                if *named == 0 {
                    self.pages -= 1;
                    unused.push(page);
                }
            }
        }
        unused
    }

    /// The pages that lists name.
    #[must_use]
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// The elements of all lists.
    #[must_use]
    pub const fn elements(&self) -> usize {
        self.elements
    }

    /// Memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.number_bytes * self.elements + self.lists.len() + self.count_bytes * self.named.len()
    }

    /// Compares counts with a recount.
    ///
    /// # Errors
    /// [`Error::Invariant`](crate::Error::Invariant).
    pub fn check(&self) -> Result<()> {
        let mut named = vec![0_u16; self.named.len()];
        for page in self.lists.iter().flatten() {
            if let Some(count) = named.get_mut(*page as usize) {
                *count += 1;
            }
        }
        let pages = named.iter().filter(|count| **count > 0).count();
        let elements: usize = self.lists.iter().map(Vec::len).sum();
        if named == self.named && (pages, elements) == (self.pages, self.elements) {
            return Ok(());
        }
        broken("the counts of pages in lists are not those of a recount")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_given_up_with_its_last_list() {
        let mut lists = Lists::new(2, 15);
        for (node, page) in [(0, 5), (1, 5), (1, 5), (0, 6)] {
            lists.push(node, page);
        }
        assert_eq!((lists.of(0), lists.of(1), lists.elements()), (&[5, 6][..], &[5][..], 3));
        assert_eq!(lists.clear(0), [6]);
        lists.check().unwrap();
        assert_eq!((lists.clear(1), lists.pages()), (vec![5], 0));
        lists.check().unwrap();
        assert!(lists.clear(7).is_empty());
    }
}
