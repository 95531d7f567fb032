//! Packing entries into a block.

use super::codec::{Form, whole_sectors};
use super::limit::{self, Limit};
use super::{
    BYTE_OFFSETS_MAX, BlockIdentity, BlockKind, COMPRESSED_AT, Codec, HEADER_BYTES, LONG_SHIFT,
    MAGIC, Packer, ROW_SUFFIX_BYTES_MAX, Rows, TRAILER_BYTES,
};
use crate::bytes::varint_len;
use crate::data::Data;
use crate::entry::{Kind, Payload, SLOT_BYTES};
use crate::fence::Fence;
use crate::ids::Seq;
use crate::key;
use crate::ptr::{BLOCK_BYTES_MAX, UNIT_BYTES};

/// Collects entries in order until the block is full. One builder serves a whole level: it is
/// emptied by [`BlockBuilder::finish`] and keeps its memory.
///
/// Invariant: `measure` is that of `items`, whose keys and payloads are in `arena`.
#[derive(Debug)]
pub struct BlockBuilder {
    /// Keys and encoded payloads of the entries, back to back.
    arena: Vec<u8>,
    items: Vec<Item>,
    measure: Measure,
    puts: u32,
    tombstones: u32,
    limit: Limit,
    /// An entry did not fit.
    has_refused: bool,
}

/// The properties that decide a block's form and length.
///
/// Invariant: the length is at least the encoded one. Of rows it is exact; of slotted entries the
/// lengths of keys and the differences of numbers are counted as if nothing were shared.
#[derive(Clone, Copy, Debug)]
struct Measure {
    count: usize,
    /// The number of leading bytes that all keys share.
    prefix_len: usize,
    /// Sum over entries of their slotted length with an unshared key.
    unshared_bytes: usize,
    /// Lengths of key and value, while all entries are puts that agree in both.
    row: Option<(usize, usize)>,
    /// Numbers of the data entries.
    seq_min: Seq,
    seq_max: Seq,
}

impl Measure {
    const EMPTY: Self = Self {
        count: 0,
        prefix_len: 0,
        unshared_bytes: 0,
        row: None,
        seq_min: Seq::MAX,
        seq_max: Seq(0),
    };

    /// The measure with one more entry, whose key shares the first `prefix_len` bytes with all
    /// others.
    fn with(&self, prefix_len: usize, key: &[u8], seq: Seq, payload: &Payload<'_>) -> Self {
        let row = match payload {
            Payload::Put(value) => Some((key.len(), value.len())),
            Payload::Delete
            | Payload::PutUntil(..)
            | Payload::Reference(_)
            | Payload::Operand(_)
            | Payload::Fence(_) => None,
        };
        let is_data = !matches!(payload, Payload::Fence(_));
        Self {
            count: self.count + 1,
            prefix_len,
            unshared_bytes: self.unshared_bytes + unshared_len(key, seq, payload),
            row: row.filter(|_| self.count == 0 || self.row == row),
            seq_min: if is_data { self.seq_min.min(seq) } else { self.seq_min },
            seq_max: if is_data { self.seq_max.max(seq) } else { self.seq_max },
        }
    }

    /// The form of the rows, if the block can contain rows.
    fn rows(&self) -> Option<Rows> {
        let (key_len, value_len) = self.row?;
        let suffix_len = key_len.saturating_sub(self.prefix_len);
        let number_len = bytes_of(self.seq_max.0.saturating_sub(self.seq_min.0));
        (suffix_len <= ROW_SUFFIX_BYTES_MAX).then_some(Rows {
            suffix_len,
            number_len,
            stride: suffix_len + number_len + value_len,
        })
    }

    fn total_bytes(&self) -> usize {
        let around = HEADER_BYTES + TRAILER_BYTES + self.prefix_len;
        let entries = match self.rows() {
            Some(rows) => self.count.saturating_mul(rows.stride),
            None => self.unshared_bytes.saturating_sub(self.count.saturating_mul(self.prefix_len)),
        };
        around + entries
    }
}

/// The number of bytes of a number without leading zeros; none for 0.
const fn bytes_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(8) as usize
}

/// An upper bound: the difference to the block's smallest number is not known yet.
const fn seq_bytes(kind: Kind, seq: Seq) -> usize {
    match kind {
        Kind::Fence => varint_len(seq.0.wrapping_add(1)),
        Kind::Put | Kind::Delete | Kind::PutUntil | Kind::Reference | Kind::Operand => {
            varint_len(seq.0)
        }
    }
}

/// The length of a slotted entry and its slot with an unshared key.
fn unshared_len(key: &[u8], seq: Seq, payload: &Payload<'_>) -> usize {
    let (length_field, payload_len) = match payload {
        Payload::Fence(fence) => (0, fence.encoded_len()),
        Payload::Delete
        | Payload::Put(_)
        | Payload::PutUntil(..)
        | Payload::Reference(_)
        | Payload::Operand(_) => {
            let len = payload.data().and_then(|data| data.content_len());
            len.map_or((0, 0), |len| (varint_len(len as u64), len))
        }
    };
    SLOT_BYTES
        + 1
        + varint_len(key.len() as u64)
        + seq_bytes(payload.kind(), seq)
        + length_field
        + key.len()
        + payload_len
}

#[derive(Clone, Copy, Debug)]
struct Item {
    kind: Kind,
    seq: Seq,
    key_from: u32,
    key_len: u32,
    payload_len: u32,
}

/// The properties of a finished block, without its bytes.
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
            measure: Measure::EMPTY,
            puts: 0,
            tombstones: 0,
            limit: Limit { target_bytes, grows_above: None },
            has_refused: false,
        }
    }

    /// A builder whose blocks grow beyond the target as long as more than one part in `parts` of
    /// their units would be empty, to [`GROWN_BYTES_MAX`](limit::GROWN_BYTES_MAX): for entries so
    /// long that few fit.
    #[must_use]
    pub fn growing(self, parts: usize) -> Self {
        Self { limit: Limit { grows_above: Some(parts), ..self.limit }, ..self }
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

    fn prefix_len_with(&self, key: &[u8]) -> usize {
        if self.items.is_empty() {
            return key.len();
        }
        let prefix = self.first_key().get(..self.measure.prefix_len).unwrap_or_default();
        if key.starts_with(prefix) { prefix.len() } else { key::common_prefix_len(prefix, key) }
    }

    fn measure_with(&self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> Measure {
        self.measure.with(self.prefix_len_with(key), key, seq, payload)
    }

    /// Adds an entry unless it would make the block longer than its target length, and returns
    /// whether it did. The first entry always fits.
    pub fn try_push(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> bool {
        let measure = self.measure_with(key, seq, payload);
        let bytes = measure.total_bytes();
        let fits = self.items.is_empty()
            // For most entries this suffices, without a look at the block's contents.
            || bytes <= self.limit.target_bytes
            || self.limit.allows(self.bytes_at_most(), bytes);
        if fits {
            self.append(key, seq, payload, measure);
        }
        self.has_refused |= !fits;
        fits
    }

    /// When it is full.
    #[must_use]
    pub const fn limit(&self) -> Limit {
        self.limit
    }

    /// Whether there is no space for another entry of the others' average length.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.limit.is_reached(self.bytes_at_most(), self.items.len())
    }

    /// Adds an entry that must be in this block, regardless of its length: the duplicate fence of
    /// I2, or the first entry behind it.
    pub fn push(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) {
        let measure = self.measure_with(key, seq, payload);
        self.append(key, seq, payload, measure);
    }

    /// Entries come in order.
    fn append(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>, measure: Measure) {
        debug_assert!(
            self.items.last().is_none_or(|last| {
                key::compare((self.key(last), last.seq), (key, seq)).is_le()
            }),
            "entries come in order"
        );
        self.measure = measure;
        let key_from = self.arena.len() as u32;
        self.arena.extend_from_slice(key);
        match payload {
            Payload::Delete => self.tombstones += 1,
            Payload::Put(value) | Payload::Reference(value) | Payload::Operand(value) => {
                self.puts += 1;
                self.arena.extend_from_slice(value);
            }
            Payload::PutUntil(until, value) => {
                self.puts += 1;
                Data::PutUntil(*until, value).put_content(&mut self.arena);
            }
            Payload::Fence(fence) => fence.encode(&mut self.arena),
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

    /// The length that [`BlockBuilder::finish`] gives the block: whole units.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.bytes_at_most().next_multiple_of(UNIT_BYTES as usize).min(BLOCK_BYTES_MAX)
    }

    /// The length of the block without padding, or more.
    #[must_use]
    pub fn bytes_at_most(&self) -> usize {
        let used = self.measure.total_bytes();
        // Slotted entries of long blocks start at multiples of 16.
        if self.is_long() { used + (self.items.len() << LONG_SHIFT) } else { used }
    }

    /// Whether the entries are too long for offsets in bytes.
    fn is_long(&self) -> bool {
        self.measure.total_bytes() > BYTE_OFFSETS_MAX && self.measure.rows().is_none()
    }

    /// Whether no entry like the others fits any more, and the block takes whole units if it is not
    /// compressed.
    #[must_use]
    pub fn fills_its_units(&self) -> bool {
        self.is_full() && !self.is_of_long_entries()
    }

    /// Whether whole units would be too empty although no entry fits any more: the next one did
    /// not, or one of the others' average length would not.
    fn is_of_long_entries(&self) -> bool {
        limit::leaves_too_much(self.bytes_at_most(), self.block_bytes())
            && (self.has_refused || self.is_full())
    }

    /// Compresses the block, if that saves enough, and returns the length that
    /// [`BlockBuilder::finish_packed`] will give it. That is whole units where the packer has no
    /// codec and is not set to sectors, unless no entry fits any more and more than a quarter of
    /// the units is empty. Else it is whole sectors. Until then nothing may be added.
    pub fn pack(&self, packer: &mut Packer) -> usize {
        packer.form = Form::Direct;
        if packer.codec() == Codec::None && !packer.in_sectors && !self.is_of_long_entries() {
            return self.block_bytes();
        }
        if packer.codec() == Codec::None || !packer.tries() {
            return whole_sectors(self.bytes_at_most());
        }
        let most = self.bytes_at_most().min(BLOCK_BYTES_MAX);
        packer.plain.resize(most.max(packer.plain.len()), 0);
        let mut scratch = Scratch::new(&mut packer.plain);
        scratch.skip(HEADER_BYTES);
        self.put_body(&mut scratch);
        let used = scratch.at;
        packer.pack(HEADER_BYTES, used)
    }

    /// Writes the block into `out`, whose length must be [`BlockBuilder::block_bytes`], and
    /// empties the builder.
    pub fn finish(&mut self, identity: BlockIdentity, out: &mut [u8]) -> Finished {
        self.finish_packed(identity, &Packer::default(), out)
    }

    /// Writes the block into `out`, whose length must be what [`BlockBuilder::pack`] returned for
    /// this packer, and empties the builder.
    pub fn finish_packed(
        &mut self,
        identity: BlockIdentity,
        packer: &Packer,
        out: &mut [u8],
    ) -> Finished {
        let mut scratch = Scratch::new(out);
        scratch.skip(HEADER_BYTES);
        let (codec, used) = match packer.form {
            Form::Direct => {
                self.put_body(&mut scratch);
                (Codec::None, scratch.at)
            }
            Form::Plain { used } => {
                scratch.put(packer.plain.get(HEADER_BYTES..used).unwrap_or_default());
                (Codec::None, used)
            }
            Form::Compressed { used, len } => {
                scratch.put(&(len as u32).to_le_bytes());
                debug_assert_eq!(scratch.at, COMPRESSED_AT);
                scratch.put(packer.compressed.get(..len).unwrap_or_default());
                (packer.codec(), used)
            }
        };
        let header = self.header(identity, codec, scratch.out.len(), used);
        scratch.patch(0, &header.encode());
        scratch.zero_rest();
        let crc = scratch.seal();
        let finished = Finished { crc, puts: self.puts, tombstones: self.tombstones };
        self.clear();
        finished
    }

    fn header(&self, identity: BlockIdentity, codec: Codec, length: usize, used: usize) -> Header {
        let data = self.puts + self.tombstones;
        Header {
            kind: if data > 0 { BlockKind::Data } else { BlockKind::Fences },
            codec,
            identity,
            length: length as u32,
            base: self.base(),
            count: self.items.len() as u32,
            prefix_len: self.measure.prefix_len as u32,
            used: used as u32,
            shift: self.shift(),
            rows: self.measure.rows(),
        }
    }

    /// The smallest number of a data entry.
    const fn base(&self) -> Seq {
        if self.puts + self.tombstones > 0 { self.measure.seq_min } else { Seq(0) }
    }

    fn shift(&self) -> u8 {
        if self.is_long() { LONG_SHIFT } else { 0 }
    }

    /// Common prefix, slots and entries, or rows.
    fn put_body(&self, scratch: &mut Scratch<'_>) {
        scratch.put(self.first_key().get(..self.measure.prefix_len).unwrap_or_default());
        match &self.measure.rows() {
            Some(rows) => self.put_rows(scratch, rows, self.base()),
            None => self.put_slotted(scratch, self.shift(), self.base()),
        }
    }

    fn put_rows(&self, scratch: &mut Scratch<'_>, rows: &Rows, base: Seq) {
        for item in &self.items {
            let number = item.seq.0.saturating_sub(base.0).to_le_bytes();
            scratch.put(self.key(item).get(self.measure.prefix_len..).unwrap_or_default());
            scratch.put(number.get(..rows.number_len).unwrap_or_default());
            scratch.put(self.payload(item));
        }
    }

    fn put_slotted(&self, scratch: &mut Scratch<'_>, shift: u8, base: Seq) {
        let mut slot_at = scratch.at;
        scratch.skip(self.items.len() * SLOT_BYTES);
        for item in &self.items {
            scratch.align(1 << shift);
            let suffix = self.key(item).get(self.measure.prefix_len..).unwrap_or_default();
            scratch.patch(slot_at, &key::head(suffix).to_le_bytes());
            scratch.patch(slot_at + 4, &((scratch.at >> shift) as u16).to_le_bytes());
            slot_at += SLOT_BYTES;
            scratch.entry(item, base, suffix, self.payload(item));
        }
    }

    fn clear(&mut self) {
        self.arena.clear();
        self.items.clear();
        self.measure = Measure::EMPTY;
        self.puts = 0;
        self.tombstones = 0;
        self.has_refused = false;
    }
}

struct Header {
    kind: BlockKind,
    codec: Codec,
    identity: BlockIdentity,
    length: u32,
    base: Seq,
    count: u32,
    prefix_len: u32,
    used: u32,
    shift: u8,
    rows: Option<Rows>,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        // Version of the block layout, kind, codec, cipher (none).
        out.extend_from_slice(&[1, self.kind as u8, self.codec as u8, 0]);
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
        out.push(self.shift);
        match &self.rows {
            // Both are within a byte: a suffix by `Measure::rows`, a number by its type.
            Some(rows) => out.extend_from_slice(&[1, rows.number_len as u8, rows.suffix_len as u8]),
            None => out.extend_from_slice(&[0; 3]),
        }
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
            None => debug_assert!(false, "an entry is past the end of its block"),
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
            Kind::Put | Kind::Delete | Kind::PutUntil | Kind::Reference | Kind::Operand => {
                self.varint(item.seq.0.saturating_sub(base.0));
            }
        }
        if item.kind.has_content() {
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
