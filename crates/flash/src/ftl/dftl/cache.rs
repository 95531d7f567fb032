//! Which entries of the map are cached: a segmented LRU (Karedla, Love, Wherry, IEEE Computer
//! 1994).
//!
//! A new entry goes to the *probationary* segment, and to the *protected* one when it is used
//! again. Protected entries are at most half of all; the one that was used longest ago goes back.
//! What is evicted is the probationary entry that was used longest ago.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// No node.
const NONE: u32 = u32::MAX;

/// The logical pages whose entries are cached. Memory: about 40 bytes for each.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    capacity: u32,
    nodes: Vec<Node>,
    index: HashMap<u32, u32, BuildHasherDefault<Mix>>,
    probationary: Segment,
    protected: Segment,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    lpn: u32,
    is_protected: bool,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    newest: u32,
    oldest: u32,
    len: u32,
}

const EMPTY: Segment = Segment { newest: NONE, oldest: NONE, len: 0 };

impl Cache {
    /// An empty cache of `capacity` entries, 1 or more.
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity: capacity.max(1),
            nodes: Vec::new(),
            index: HashMap::default(),
            probationary: EMPTY,
            protected: EMPTY,
        }
    }

    pub fn contains(&self, lpn: u32) -> bool {
        self.index.contains_key(&lpn)
    }

    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Uses an entry; answers whether it is cached.
    pub fn touch(&mut self, lpn: u32) -> bool {
        let Some(at) = self.index.get(&lpn).copied() else { return false };
        self.unlink(at);
        self.link(at, true);
        if self.protected.len > (self.capacity / 2).max(1) {
            let oldest = self.protected.oldest;
            self.unlink(oldest);
            self.link(oldest, false);
        }
        true
    }

    /// Adds an entry that is not cached; answers the one that it replaces.
    pub fn insert(&mut self, lpn: u32) -> Option<u32> {
        if self.len() < self.capacity {
            let at = self.len();
            self.nodes.push(Node { lpn, is_protected: false, newer: NONE, older: NONE });
            self.index.insert(lpn, at);
            self.link(at, false);
            return None;
        }
        let from = if self.probationary.len > 0 { self.probationary } else { self.protected };
        let at = from.oldest;
        self.unlink(at);
        let evicted = std::mem::replace(&mut self.nodes[at as usize].lpn, lpn);
        self.index.remove(&evicted);
        self.index.insert(lpn, at);
        self.link(at, false);
        Some(evicted)
    }

    pub fn ram_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>() + self.index.capacity() * 9) as u64
    }

    fn segment(&mut self, is_protected: bool) -> &mut Segment {
        if is_protected { &mut self.protected } else { &mut self.probationary }
    }

    fn link(&mut self, at: u32, is_protected: bool) {
        let segment = self.segment(is_protected);
        segment.len += 1;
        let before = std::mem::replace(&mut segment.newest, at);
        if before == NONE {
            segment.oldest = at;
        } else {
            self.nodes[before as usize].newer = at;
        }
        let node = &mut self.nodes[at as usize];
        (node.is_protected, node.newer, node.older) = (is_protected, NONE, before);
    }

    fn unlink(&mut self, at: u32) {
        let Node { is_protected, newer, older, .. } = self.nodes[at as usize];
        if let Some(node) = self.nodes.get_mut(newer as usize) {
            node.older = older;
        }
        if let Some(node) = self.nodes.get_mut(older as usize) {
            node.newer = newer;
        }
        let segment = self.segment(is_protected);
        segment.len -= 1;
        if newer == NONE {
            segment.newest = older;
        }
        if older == NONE {
            segment.oldest = newer;
        }
    }
}

/// A multiplicative hash of one number (Knuth, volume 3, section 6.4): the keys are no input of an
/// adversary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests;
