//! The places of a checkpoint's nodes, taken over by a process that follows the log of another.
//!
//! The follower has the checkpoint's versions in memory, because it has applied the same records
//! since the same checkpoint. Their trees have the same shape. So only the places of the nodes that
//! the checkpoint wrote are missing, and those are in the list of roots and in the inner nodes.
//!
//! Cost: one read of each inner node that changed; leaves are not read.

use std::sync::Arc;

use esker_device::Purpose;

use crate::alloc::space::Space;
use crate::error::Result;
use crate::log::shared::KeptRoot;
use crate::log::superblock::Superblock;
use crate::media::Media;
use crate::planted::{self, Bug};
use crate::version::map::Root;
use crate::version::node::{decode_inner, decode_roots, node_class};
use crate::version::tree::{Node, NodeRef, Releases};

/// Takes over the places of nodes.
pub(super) struct Adoption<'a> {
    pub(super) media: &'a dyn Media,
    pub(super) space: &'a mut Space,
    pub(super) releases: &'a Releases,
}

impl Adoption<'_> {
    /// Takes over the places of the nodes of a checkpoint, which has the versions `kept`. Returns
    /// the roots of these; `None` when the checkpoint has others, or is not the newest any more:
    /// then some places may have been taken.
    pub(super) fn adopt(
        &mut self,
        block: &Superblock,
        kept: &[KeptRoot],
    ) -> Result<Option<Vec<Arc<Root>>>> {
        let Some(bytes) = self.take(block.roots)? else { return Ok(None) };
        let Ok(roots) = decode_roots(&bytes) else { return Ok(None) };
        if roots.len() != kept.len() {
            return Ok(None);
        }
        for (root, (_, version, known)) in roots.iter().zip(kept) {
            let is_same = root.version == *version
                && (root.page_size, root.pages) == (known.page_size, known.pages)
                && root.height == known.map.height;
            if !is_same || !self.child(root.top, known.map.top.as_ref())? {
                return Ok(None);
            }
        }
        Ok(Some(kept.iter().map(|(_, _, root)| Arc::clone(root)).collect()))
    }

    /// Takes the slot of a node and reads it; `None` where it is not there.
    fn take(&mut self, at: NodeRef) -> Result<Option<Vec<u8>>> {
        if !self.claim(at) {
            return Ok(None);
        }
        let mut bytes = vec![0; at.bytes as usize];
        self.media.read(at.sector.offset(), &mut bytes, Purpose::Recovery)?;
        Ok((crc32c::crc32c(&bytes) == at.crc).then_some(bytes))
    }

    fn claim(&mut self, at: NodeRef) -> bool {
        node_class(at.bytes as usize).is_some_and(|class| self.space.claim(at.sector, class))
    }

    /// `false` when the node there cannot be this one.
    fn child(&mut self, at: Option<NodeRef>, node: Option<&Node>) -> Result<bool> {
        match (at, node) {
            (Some(at), Some(node)) => self.node(at, node),
            (at, node) => Ok(at.is_none() && node.is_none()),
        }
    }

    fn node(&mut self, at: NodeRef, node: &Node) -> Result<bool> {
        if let Some(known) = node.home().get() {
            // All nodes below it are where they were as well.
            return Ok(known == at);
        }
        if planted::is(Bug::NodesNotAdopted) {
            return Ok(true);
        }
        let inner = match node {
            Node::Leaf(_) if !self.claim(at) => return Ok(false),
            Node::Leaf(_) => {
                node.home().set(at, self.releases);
                return Ok(true);
            }
            Node::Inner(inner) => inner,
        };
        let Some(bytes) = self.take(at)? else { return Ok(false) };
        let Ok(children) = decode_inner(&bytes, at.count) else { return Ok(false) };
        let places = children.into_iter().chain(std::iter::repeat(None));
        for (child, place) in inner.children.iter().zip(places) {
            if !self.child(place, child.as_ref())? {
                return Ok(false);
            }
        }
        node.home().set(at, self.releases);
        Ok(true)
    }
}
