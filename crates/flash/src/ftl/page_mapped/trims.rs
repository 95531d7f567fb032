//! Trims, durable: bits of which logical pages are not mapped.
//!
//! A trim page has a bit for each of 8 x page size logical pages, which is set for those that are
//! not mapped. Its spare area has a sequence number as that of every page. In a recovery, a logical
//! page whose bit is set in the newest trim page is mapped only if its own page is newer. So a trim
//! page stays true when pages are written after it, and a garbage collector may move it as it is.

use std::collections::BTreeSet;

use crate::error::{Result, broken};
use crate::ftl::map::Map;
use crate::nand::Geometry;

/// Trims that are not durable are written when there are this many: until then their pages take
/// room.
const PENDING_MAX: usize = 8_192;

/// The trims that are not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Trims {
    bits: u32,
    /// Logical pages that were trimmed, some perhaps written since.
    pending: Vec<u32>,
    /// The trim pages of those.
    dirty: BTreeSet<u32>,
}

impl Trims {
    /// The logical pages that one trim page covers.
    pub fn bits_of_page(geometry: &Geometry) -> u32 {
        8 * geometry.page_size()
    }

    pub fn new(geometry: &Geometry) -> Self {
        Self { bits: Self::bits_of_page(geometry), pending: Vec::new(), dirty: BTreeSet::new() }
    }

    /// Notes a logical page that was mapped until now; answers whether trims must be written.
    pub fn add(&mut self, lpn: u32) -> bool {
        self.pending.push(lpn);
        self.dirty.insert(lpn / self.bits);
        self.pending.len() >= PENDING_MAX
    }

    /// A trim page that must be written.
    pub fn first_dirty(&self) -> Option<u32> {
        self.dirty.first().copied()
    }

    /// The content of a trim page; empty if it is not kept.
    pub fn page(&self, index: u32, map: &Map, is_kept: bool) -> Vec<u8> {
        if !is_kept {
            return Vec::new();
        }
        let first = index * self.bits;
        let mut page = vec![0; self.bits as usize / 8];
        for (at, byte) in (0..).zip(&mut page) {
            for bit in 0..8 {
                let lpn = first + at * 8 + bit;
                if lpn < map.logical() && map.find(lpn).is_none() {
                    *byte |= 1 << bit;
                }
            }
        }
        page
    }

    /// The logical pages whose bits are set in trim page `index`.
    pub fn unmapped(&self, index: u32, page: &[u8]) -> impl Iterator<Item = u32> {
        let first = index * self.bits;
        (0..).zip(page).flat_map(move |(at, byte)| {
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| first + at * 8 + bit)
        })
    }

    pub fn written(&mut self, index: u32) {
        self.dirty.remove(&index);
    }

    pub fn take_pending(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.pending)
    }

    pub fn ram_bytes(&self) -> u64 {
        (4 * self.pending.capacity() + 16 * self.dirty.len()) as u64
    }

    /// Every slot that is trimmed and keeps its page is known here.
    pub fn check(&self, map: &Map) -> Result<()> {
        let pending: BTreeSet<u32> = self.pending.iter().copied().collect();
        for slot in (0..map.slots()).filter(|slot| map.is_trimmed(*slot)) {
            if !pending.contains(&slot) || !self.dirty.contains(&(slot / self.bits)) {
                return broken(format!("slot {slot} is trimmed and will never be given up"));
            }
        }
        Ok(())
    }
}
