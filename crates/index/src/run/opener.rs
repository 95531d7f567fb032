//! Opening trees beside an older opening of the same index.
//!
//! A record of a tree names its blocks by place, generation and checksum. So a tree that is in two
//! records of an index is the same, and the fences that one opening has in memory are the other's.

use std::sync::Arc;

use esker_format::meta::TreeMeta;

use crate::run::tree::{BlockReader, Tree};

/// Opens the trees of an index.
pub(crate) struct TreeOpener<'a> {
    /// Reads their blocks.
    pub reader: &'a BlockReader,
    /// Trees of an older opening, none of which lacks fences.
    known: Vec<&'a Tree>,
}

impl<'a> TreeOpener<'a> {
    /// Opens trees where there is no older opening.
    pub const fn alone(reader: &'a BlockReader) -> Self {
        Self { reader, known: Vec::new() }
    }

    /// Opens trees beside those of an older opening, of which there may be none.
    pub fn new(reader: &'a BlockReader, older: impl Iterator<Item = &'a Tree>) -> Self {
        Self { reader, known: older.filter(|tree| tree.is_complete()).collect() }
    }

    /// Opens a tree: see [`Tree::enter_or_warn`].
    pub fn open(&self, meta: &TreeMeta) -> Arc<Tree> {
        let tree =
            self.known(meta).map_or_else(|| Tree::unopened(meta.clone()), Tree::opened_again);
        tree.enter_or_warn(self.reader);
        Arc::new(tree)
    }

    /// The same for a level that owns its blocks one by one.
    pub fn open_level(&self, meta: &TreeMeta) -> Arc<Tree> {
        let top = self.open(meta).held(0);
        Arc::new(Tree::level(Arc::new(meta.clone()), top))
    }

    fn known(&self, meta: &TreeMeta) -> Option<&'a Tree> {
        self.known.iter().copied().find(|tree| *tree.meta == *meta)
    }
}
