//! The buffer in front of a subtree: a part in memory, and fragments on flash.
//!
//! O1: for a key, an operation in the buffer of an ancestor is newer than one in the buffer of a
//! descendant or in a leaf. O2: within a buffer, the part in memory is newer than all fragments,
//! and a fragment is newer than those before it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::adapt::Adapt;
use crate::chip::PageNo;
use crate::filter::Filter;
use crate::part::Part;

/// A subtree's root, by its index in the table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubtreeId(pub u32);

/// A page of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentPage {
    pub at: PageNo,
    /// The first 8 bytes of its first key.
    pub prefix: Prefix,
}

/// The first 8 bytes of a key, with zeros where it is shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix(pub [u8; 8]);

impl Prefix {
    pub(crate) fn of(key: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
        Self(bytes)
    }
}

/// Pages whose keys ascend, and the filter of their keys if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fragment {
    pub pages: Box<[FragmentPage]>,
    pub filter: Option<Filter>,
}

impl Fragment {
    /// Whether it may have an operation of `key`.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(key))
    }

    fn heap_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::heap_bytes);
        size_of::<FragmentPage>() * self.pages.len() + filter
    }
}

/// Memory of a buffer besides its part and its fragments' pages, about.
pub(crate) const BUFFER_BYTES: usize = size_of::<Buffer>() + 16;

/// What waits in front of a subtree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    pub part: Part,
    /// The oldest first.
    pub fragments: Vec<Fragment>,
    pub adapt: Adapt,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.part.is_empty() && self.fragments.is_empty()
    }

    /// The number of its pages on flash.
    pub(crate) fn pages(&self) -> usize {
        self.fragments.iter().map(|fragment| fragment.pages.len()).sum()
    }

    pub(crate) fn all_pages(&self) -> impl Iterator<Item = &FragmentPage> {
        self.fragments.iter().flat_map(|fragment| &fragment.pages)
    }

    /// Adds pages of a fragment that was divided, which have its filter.
    pub(crate) fn keep_pages(&mut self, pages: Vec<FragmentPage>, of: &Fragment) {
        if !pages.is_empty() {
            self.fragments.push(Fragment { pages: pages.into(), filter: of.filter.clone() });
        }
    }

    /// The memory of its descriptors.
    pub(crate) fn descriptor_bytes(&self) -> usize {
        let fragments = self.fragments.iter().map(Fragment::heap_bytes).sum::<usize>();
        size_of::<Fragment>() * self.fragments.capacity() + fragments
    }
}

/// A subtree: where its root is, and its buffer if there is something in it.
#[derive(Clone, Debug)]
pub(crate) struct Subtree {
    pub root: PageNo,
    pub level: u8,
    pub buffer: Option<Box<Buffer>>,
}

/// The pages of a fragment that may have `key`: from the first to the last, usually one.
pub(crate) fn candidates(fragment: &[FragmentPage], key: &[u8]) -> core::ops::Range<usize> {
    let prefix = Prefix::of(key);
    let end = fragment.partition_point(|page| page.prefix <= prefix);
    let before = fragment.partition_point(|page| page.prefix < prefix);
    before.saturating_sub(1)..end
}
