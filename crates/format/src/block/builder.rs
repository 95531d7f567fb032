//! Packing entries into a block.

use super::{
    BYTE_OFFSETS_MAX, BlockIdentity, BlockKind, HEADER_BYTES, LONG_SHIFT, MAGIC, TRAILER_BYTES,
};
use crate::bytes::varint_len;
use crate::entry::{Kind, Payload, SLOT_BYTES};
use crate::fence::Fence;
use crate::ids::Seq;
use crate::key;
use crate::ptr::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// Collects entries in order until the block is full. One builder serves a whole level: it is
/// emptied by [`BlockBuilder::finish`] and keeps its memory.
///
/// Invariant: `estimate` is at least the encoded length at every moment, because the common
/// prefix only ever gets shorter and lengths are counted as if nothing were shared.
#[derive(Debug)]
pub struct BlockBuilder {
    /// Keys and encoded payloads of the entries, back to back.
    arena: Vec<u8>,
    items: Vec<Item>,
    /// How many leading bytes all keys share.
    prefix_len: usize,
    /// Sum over entries of their encoded length with an unshared key.
    unshared_bytes: usize,
    seq_min: Seq,
    seq_max: Seq,
    puts: u32,
    tombstones: u32,
    /// A block is full when the next entry would take it past this length.
    target_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    kind: Kind,
    seq: Seq,
    key_from: u32,
    key_len: u32,
    payload_len: u32,
}

/// What a finished block is, beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its CRC, which the fence must carry.
    pub crc: u32,
    /// Puts in it.
    pub puts: u32,
    /// Tombstones in it.
    pub tombstones: u32,
}

impl BlockBuilder {
    /// A builder of blocks of `target_bytes`, a multiple of [`UNIT_BYTES`]. A block is longer
    /// only when its first entry alone does not fit.
    #[must_use]
    pub fn new(target_bytes: usize) -> Self {
        Self {
            arena: Vec::with_capacity(target_bytes),
            items: Vec::new(),
            prefix_len: 0,
            unshared_bytes: 0,
            seq_min: Seq::MAX,
            seq_max: Seq(0),
            puts: 0,
            tombstones: 0,
            target_bytes,
        }
    }

    /// Whether nothing has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The key of the first entry.
    #[must_use]
    pub fn first_key(&self) -> &[u8] {
        self.items.first().map_or(&[], |item| self.key(item))
    }

    /// The key of the last entry.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        self.items.last().map_or(&[], |item| self.key(item))
    }

    fn key(&self, item: &Item) -> &[u8] {
        let from = item.key_from as usize;
        self.arena.get(from..from + item.key_len as usize).unwrap_or_default()
    }

    fn payload(&self, item: &Item) -> &[u8] {
        let from = item.key_from as usize + item.key_len as usize;
        self.arena.get(from..from + item.payload_len as usize).unwrap_or_default()
    }

    /// An upper bound: the difference to the block's smallest number is not known yet.
    const fn seq_bytes(kind: Kind, seq: Seq) -> usize {
        match kind {
            Kind::Fence => varint_len(seq.0.wrapping_add(1)),
            Kind::Put | Kind::Delete => varint_len(seq.0),
        }
    }

    fn payload_len(payload: &Payload<'_>) -> usize {
        match payload {
            Payload::Delete => 0,
            Payload::Put(value) => value.len(),
            Payload::Fence(fence) => fence.encoded_len(),
        }
    }

    fn unshared_len(key: &[u8], seq: Seq, payload: &Payload<'_>) -> usize {
        let payload_len = Self::payload_len(payload);
        let length_field =
            if matches!(payload, Payload::Put(_)) { varint_len(payload_len as u64) } else { 0 };
        SLOT_BYTES
            + 1
            + varint_len(key.len() as u64)
            + Self::seq_bytes(payload.kind(), seq)
            + length_field
            + key.len()
            + payload_len
    }

    fn total_bytes(count: usize, prefix_len: usize, unshared_bytes: usize) -> usize {
        let shared = count.saturating_mul(prefix_len);
        HEADER_BYTES + TRAILER_BYTES + prefix_len + unshared_bytes.saturating_sub(shared)
    }

    fn prefix_len_with(&self, key: &[u8]) -> usize {
        if self.items.is_empty() {
            return key.len();
        }
        let prefix = self.first_key().get(..self.prefix_len).unwrap_or_default();
        if key.starts_with(prefix) { prefix.len() } else { key::common_prefix_len(prefix, key) }
    }

    /// Adds an entry unless it would take the block past its target length, and says whether it
    /// did. The first entry always fits.
    pub fn try_push(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> bool {
        let prefix_len = self.prefix_len_with(key);
        let unshared_bytes = self.unshared_bytes + Self::unshared_len(key, seq, payload);
        let bytes = Self::total_bytes(self.items.len() + 1, prefix_len, unshared_bytes);
        let fits = self.items.is_empty() || bytes <= self.target_bytes;
        if fits {
            self.append(key, seq, payload, prefix_len, unshared_bytes);
        }
        fits
    }

    /// Adds an entry that must stand in this block, whatever its length: the duplicate fence of
    /// I2, or the first entry behind it.
    pub fn push(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) {
        let prefix_len = self.prefix_len_with(key);
        let unshared_bytes = self.unshared_bytes + Self::unshared_len(key, seq, payload);
        self.append(key, seq, payload, prefix_len, unshared_bytes);
    }

    /// Entries come in order.
    fn append(
        &mut self,
        key: &[u8],
        seq: Seq,
        payload: &Payload<'_>,
        prefix_len: usize,
        unshared_bytes: usize,
    ) {
        debug_assert!(
            self.items.last().is_none_or(|last| {
                key::compare((self.key(last), last.seq), (key, seq)).is_le()
            }),
            "entries come in order"
        );
        self.unshared_bytes = unshared_bytes;
        self.prefix_len = prefix_len;
        let key_from = self.arena.len() as u32;
        self.arena.extend_from_slice(key);
        match payload {
            Payload::Delete => self.tombstones += 1,
            Payload::Put(value) => {
                self.puts += 1;
                self.arena.extend_from_slice(value);
            }
            Payload::Fence(fence) => fence.encode(&mut self.arena),
        }
        if !matches!(payload, Payload::Fence(_)) {
            self.seq_min = self.seq_min.min(seq);
            self.seq_max = self.seq_max.max(seq);
        }
        self.items.push(Item {
            kind: payload.kind(),
            seq,
            key_from,
            key_len: key.len() as u32,
            payload_len: (self.arena.len() - key_from as usize - key.len()) as u32,
        });
    }

    /// Adds a fence.
    pub fn push_fence(&mut self, key: &[u8], seq: Seq, fence: &Fence<'_>) {
        self.push(key, seq, &Payload::Fence(*fence));
    }

    /// The length that [`BlockBuilder::finish`] will give the block: whole units.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        let used = Self::total_bytes(self.items.len(), self.prefix_len, self.unshared_bytes);
        // Entries of long blocks start at multiples of 16.
        let aligned =
            if used > BYTE_OFFSETS_MAX { used + (self.items.len() << LONG_SHIFT) } else { used };
        aligned.next_multiple_of(UNIT_BYTES as usize).min(BLOCK_BYTES_MAX)
    }

    /// Writes the block into `out`, whose length must be [`BlockBuilder::block_bytes`], and
    /// empties the builder.
    pub fn finish(&mut self, identity: BlockIdentity, out: &mut [u8]) -> Finished {
        let data = self.puts + self.tombstones;
        let kind = if data > 0 { BlockKind::Data } else { BlockKind::Fences };
        let base = if data > 0 { self.seq_min } else { Seq(0) };
        let shift = if out.len() > BYTE_OFFSETS_MAX { LONG_SHIFT } else { 0 };
        let mut scratch = Scratch::new(out);
        scratch.skip(HEADER_BYTES);
        scratch.put(self.first_key().get(..self.prefix_len).unwrap_or_default());
        let mut slot_at = scratch.at;
        scratch.skip(self.items.len() * SLOT_BYTES);
        for item in &self.items {
            scratch.align(1 << shift);
            let key = self.key(item);
            let suffix = key.get(self.prefix_len..).unwrap_or_default();
            scratch.patch(slot_at, &key::head(suffix).to_le_bytes());
            scratch.patch(slot_at + 4, &((scratch.at >> shift) as u16).to_le_bytes());
            slot_at += SLOT_BYTES;
            scratch.entry(item, base, suffix, self.payload(item));
        }
        let used = scratch.at;
        let header = Header {
            kind,
            identity,
            length: scratch.out.len() as u32,
            base,
            count: self.items.len() as u32,
            prefix_len: self.prefix_len as u32,
            used: used as u32,
            shift,
        };
        scratch.patch(0, &header.encode());
        scratch.zero_rest();
        let crc = scratch.seal();
        let finished = Finished { crc, puts: self.puts, tombstones: self.tombstones };
        self.clear();
        finished
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.items.clear();
        self.prefix_len = 0;
        self.unshared_bytes = 0;
        self.seq_min = Seq::MAX;
        self.seq_max = Seq(0);
        self.puts = 0;
        self.tombstones = 0;
    }
}

struct Header {
    kind: BlockKind,
    identity: BlockIdentity,
    length: u32,
    base: Seq,
    count: u32,
    prefix_len: u32,
    used: u32,
    shift: u8,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        // Version of the block layout, kind, codec (none), cipher (none).
        out.extend_from_slice(&[1, self.kind as u8, 0, 0]);
        out.extend_from_slice(&self.identity.store.0.to_le_bytes());
        out.extend_from_slice(&self.identity.keyspace.0.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.identity.sector.to_le_bytes());
        out.extend_from_slice(&self.identity.generation.0.to_le_bytes());
        // Room for a nonce or a tag.
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.prefix_len.to_le_bytes());
        out.extend_from_slice(&self.used.to_le_bytes());
        out.extend_from_slice(&[self.shift, 0, 0, 0]);
        out
    }
}

/// A write position in the block's memory. Writing past its end is dropped; the lengths above
/// make sure that it does not happen, and the round-trip tests that they do.
struct Scratch<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Scratch<'a> {
    const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    const fn skip(&mut self, len: usize) {
        self.at += len;
    }

    fn put(&mut self, bytes: &[u8]) {
        self.patch(self.at, bytes);
        self.at += bytes.len();
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        match self.out.get_mut(at..at + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => debug_assert!(false, "an entry lies past the end of its block"),
        }
    }

    fn align(&mut self, grain: usize) {
        let to = self.at.next_multiple_of(grain);
        if let Some(gap) = self.out.get_mut(self.at..to) {
            gap.fill(0);
        }
        self.at = to;
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put(&[(value & 0x7f) as u8 | 0x80]);
            value >>= 7;
        }
        self.put(&[value as u8]);
    }

    /// The same bytes as [`Entry::encode`], with the payload already encoded.
    fn entry(&mut self, item: &Item, base: Seq, suffix: &[u8], payload: &[u8]) {
        self.put(&[item.kind as u8]);
        self.varint(suffix.len() as u64);
        match item.kind {
            Kind::Fence => self.varint(item.seq.0.wrapping_add(1)),
            Kind::Put | Kind::Delete => self.varint(item.seq.0.saturating_sub(base.0)),
        }
        if item.kind == Kind::Put {
            self.varint(payload.len() as u64);
        }
        self.put(suffix);
        self.put(payload);
    }

    fn zero_rest(&mut self) {
        if let Some(rest) = self.out.get_mut(self.at..) {
            rest.fill(0);
        }
    }

    fn seal(&mut self) -> u32 {
        let end = self.out.len().saturating_sub(TRAILER_BYTES);
        let crc = crc32c::crc32c(self.out.get(..end).unwrap_or_default());
        self.patch(end, &crc.to_le_bytes());
        crc
    }
}
