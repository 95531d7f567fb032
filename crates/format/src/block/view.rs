//! Reading a block: checked once as a whole, then searched in place.

use core::cmp::Ordering;

use super::{
    BODY_BYTES_MAX, BlockIdentity, BlockKind, COMPRESSED_AT, Codec, HEADER_BYTES, LONG_SHIFT,
    MAGIC, Rows, TRAILER_BYTES, Unpacker,
};
use crate::bytes::Reader;
use crate::entry::{Entry, Kind, Payload, SLOT_BYTES};
use crate::error::{DecodeError, Result};
use crate::fence::Fence;
use crate::ids::{Generation, KeyspaceId, Seq, StoreId};
use crate::ptr::{BLOCK_BYTES_MAX, SECTOR_BYTES};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX, key};

/// The positions of the parts of a verified block. Kept with the block's bytes, so that the header
/// is read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// The contents of the block.
    pub kind: BlockKind,
    /// The identity in the block's header.
    pub identity: BlockIdentity,
    /// The codec that its entries are stored with. A view needs them unpacked.
    pub codec: Codec,
    /// Bytes that they are compressed to.
    compressed_len: usize,
    base: Seq,
    count: usize,
    prefix_len: usize,
    used: usize,
    shift: u8,
    rows: Option<Rows>,
}

impl BlockLayout {
    /// Verifies a whole block: checksum, expected checksum, identity, and that header, prefix and
    /// slots are within it. Entries are decoded where they are read, with the same checks.
    pub fn verify(bytes: &[u8], expected: BlockIdentity, crc: u32) -> Result<Self> {
        let layout = Self::parse(bytes)?;
        let stored = stored_crc(bytes)?;
        if stored != crc {
            return Err(DecodeError::new(
                bytes.len().saturating_sub(TRAILER_BYTES),
                "block is not the one its fence names (checksum differs from the fence's)",
            ));
        }
        let found = layout.identity;
        if found.store != expected.store {
            return Err(DecodeError::new(8, "block belongs to another store"));
        }
        if found.keyspace != expected.keyspace {
            return Err(DecodeError::new(16, "block belongs to another keyspace"));
        }
        if found.sector != expected.sector {
            return Err(DecodeError::new(24, "block belongs to another address"));
        }
        if found.generation != expected.generation {
            return Err(DecodeError::new(32, "block is of another generation"));
        }
        Ok(layout)
    }

    /// Verifies checksum and structure, without knowing where the block should belong.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > BLOCK_BYTES_MAX {
            return Err(DecodeError::new(0, "block length is out of bounds"));
        }
        if stored_crc(bytes)? != crc32c::crc32c(body_of(bytes)) {
            return Err(DecodeError::new(0, "block checksum does not fit its content"));
        }
        Self::parse_unchecked(bytes)
    }

    /// Verifies the structure alone.
    pub fn parse_unchecked(bytes: &[u8]) -> Result<Self> {
        let body = body_of(bytes);
        if bytes.len() < HEADER_BYTES + TRAILER_BYTES || bytes.len() > BLOCK_BYTES_MAX {
            return Err(DecodeError::new(0, "block length is out of bounds"));
        }
        let layout = Self::header(bytes)?;
        // Rows end where `used` says, by their form.
        let slots = if layout.rows.is_some() { 0 } else { layout.count.saturating_mul(SLOT_BYTES) };
        let slots_end = layout.entries_at().checked_add(slots);
        let used_max = match layout.codec {
            Codec::None => body.len(),
            Codec::Lz4 | Codec::Zstd => HEADER_BYTES + BODY_BYTES_MAX,
        };
        if slots_end.is_none_or(|end| end > layout.used) || layout.used > used_max {
            return Err(DecodeError::new(64, "block parts overlap"));
        }
        let stored_end = layout.stored_end();
        if stored_end > body.len() {
            return Err(DecodeError::new(HEADER_BYTES, "compressed bytes end behind their block"));
        }
        if body.get(stored_end..).unwrap_or_default().iter().any(|byte| *byte != 0) {
            return Err(DecodeError::new(stored_end, "block padding is not zero"));
        }
        Ok(layout)
    }

    /// The first byte of the padding.
    const fn stored_end(&self) -> usize {
        match self.codec {
            Codec::None => self.used,
            Codec::Lz4 | Codec::Zstd => COMPRESSED_AT.saturating_add(self.compressed_len),
        }
    }

    /// Whether the entries are compressed.
    #[must_use]
    pub const fn is_packed(&self) -> bool {
        !matches!(self.codec, Codec::None)
    }

    /// Bytes of the block in memory, without padding.
    #[must_use]
    pub const fn plain_bytes(&self) -> usize {
        self.used
    }

    /// Makes of the verified block `bytes` one that a view can read, in `out`: its header, which is
    /// as it is stored, and its entries decompressed. At most as long as the longest block.
    pub fn unpack(&self, bytes: &[u8], unpacker: &mut Unpacker, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        // A view has no access to bytes that it must not read.
        let header = bytes.get(..HEADER_BYTES).unwrap_or_default();
        let from = bytes.get(COMPRESSED_AT..self.stored_end()).unwrap_or_default();
        out.extend_from_slice(header);
        out.resize(self.used.max(HEADER_BYTES), 0);
        let to = out.get_mut(HEADER_BYTES..).unwrap_or_default();
        unpacker.unpack(self.codec, from, to).inspect_err(|_| out.clear())
    }

    fn header(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        if reader.take(4)? != MAGIC {
            return Err(DecodeError::new(0, "not a block"));
        }
        if reader.u8()? != 1 {
            return Err(DecodeError::new(4, "block layout is newer than this version"));
        }
        let kind = match reader.u8()? {
            1 => BlockKind::Data,
            2 => BlockKind::Fences,
            _ => return Err(DecodeError::new(5, "block kind is unknown to this version")),
        };
        let codec = Codec::from_number(reader.u8()?)
            .ok_or_else(|| DecodeError::new(6, "block codec is unknown to this version"))?;
        if reader.u8()? != 0 {
            return Err(DecodeError::new(7, "block cipher is unknown to this version"));
        }
        let store = StoreId(reader.u64()?);
        let keyspace = KeyspaceId(reader.u32()?);
        if reader.u32()? as usize != bytes.len()
            || !bytes.len().is_multiple_of(SECTOR_BYTES as usize)
        {
            return Err(DecodeError::new(20, "block length differs from its header"));
        }
        let sector = reader.u64()?;
        let generation = Generation(reader.u64()?);
        if reader.take(16)?.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::new(40, "reserved bytes are not zero"));
        }
        let base = Seq(reader.u64()?);
        let count = reader.u32()? as usize;
        let prefix_len = reader.u32()? as usize;
        let used = reader.u32()? as usize;
        let shift = reader.u8()?;
        if prefix_len > KEY_BYTES_MAX || (shift != 0 && shift != LONG_SHIFT) {
            return Err(DecodeError::new(68, "block header is out of bounds"));
        }
        let form = [reader.u8()?, reader.u8()?, reader.u8()?];
        let identity = BlockIdentity { store, keyspace, sector, generation };
        let compressed_len = if codec == Codec::None { 0 } else { reader.u32()? as usize };
        let slotted = Self {
            kind,
            identity,
            codec,
            compressed_len,
            base,
            count,
            prefix_len,
            used,
            shift,
            rows: None,
        };
        match form {
            [0, 0, 0] => Ok(slotted),
            [1, number_len, suffix_len] => slotted.with_rows(number_len.into(), suffix_len.into()),
            _ => Err(DecodeError::new(77, "block form is unknown to this version")),
        }
    }

    /// The layout as one of rows, which fill the block up to `used`.
    fn with_rows(self, number_len: usize, suffix_len: usize) -> Result<Self> {
        let bytes = self.used.saturating_sub(self.entries_at());
        let stride = bytes.checked_div(self.count).unwrap_or(0);
        let value_len = stride.checked_sub(number_len + suffix_len);
        let fits = self.kind == BlockKind::Data
            && self.shift == 0
            && stride.checked_mul(self.count) == Some(bytes)
            && number_len <= 8
            && self.prefix_len + suffix_len <= KEY_BYTES_MAX
            && value_len.is_some_and(|len| len <= VALUE_BYTES_MAX);
        if !fits {
            return Err(DecodeError::new(77, "block rows are out of bounds"));
        }
        Ok(Self { rows: Some(Rows { suffix_len, number_len, stride }), ..self })
    }

    /// The offset of slots or rows.
    const fn entries_at(&self) -> usize {
        HEADER_BYTES + self.prefix_len
    }
}

/// All that the checksum covers.
fn body_of(bytes: &[u8]) -> &[u8] {
    bytes.get(..bytes.len().saturating_sub(TRAILER_BYTES)).unwrap_or_default()
}

fn stored_crc(bytes: &[u8]) -> Result<u32> {
    let at = bytes.len().saturating_sub(TRAILER_BYTES);
    Reader::new(bytes.get(at..).unwrap_or_default()).u32()
}

/// A verified block. Entries are numbered from 0 in key order.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    bytes: &'a [u8],
    layout: BlockLayout,
}

impl<'a> BlockView<'a> {
    /// A view of `bytes`, whose layout has been verified, and which have been
    /// [unpacked](BlockLayout::unpack) where they were packed. With another block's layout the
    /// results are errors or wrong data, never a panic.
    #[must_use]
    pub const fn new(bytes: &'a [u8], layout: BlockLayout) -> Self {
        Self { bytes, layout }
    }

    /// Number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.layout.count
    }

    /// Whether the block has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.layout.count == 0
    }

    /// The leading bytes that all keys share.
    #[must_use]
    pub fn prefix(&self) -> &'a [u8] {
        let end = HEADER_BYTES + self.layout.prefix_len;
        self.bytes.get(HEADER_BYTES..end).unwrap_or_default()
    }

    /// Row `index`: key suffix, number and value.
    fn row(&self, rows: &Rows, index: usize) -> Result<(&'a [u8], Seq, &'a [u8])> {
        let at = self.layout.entries_at().saturating_add(index.saturating_mul(rows.stride));
        let outside = || DecodeError::new(at, "entry number is out of bounds");
        let row = self.bytes.get(at..at.saturating_add(rows.stride));
        let row = row.filter(|_| index < self.len()).ok_or_else(outside)?;
        let (suffix, rest) = row.split_at_checked(rows.suffix_len).ok_or_else(outside)?;
        let (number, value) = rest.split_at_checked(rows.number_len).ok_or_else(outside)?;
        let mut difference = [0; 8];
        for (to, from) in difference.iter_mut().zip(number) {
            *to = *from;
        }
        let seq = self.layout.base.0.checked_add(u64::from_le_bytes(difference)).map(Seq);
        let seq = seq.ok_or_else(|| DecodeError::new(at, "sequence number overflows"))?;
        Ok((suffix, seq, value))
    }

    fn slot(&self, index: usize) -> Result<(u32, usize)> {
        let at = self.layout.entries_at() + index.saturating_mul(SLOT_BYTES);
        let slot = self.bytes.get(at..).and_then(<[u8]>::first_chunk::<SLOT_BYTES>);
        let Some([a, b, c, d, low, high]) = slot else {
            return Err(DecodeError::new(at, "entry number is out of bounds"));
        };
        let offset = usize::from(u16::from_le_bytes([*low, *high])) << self.layout.shift;
        Ok((u32::from_le_bytes([*a, *b, *c, *d]), offset))
    }

    fn reader_at(&self, offset: usize) -> Reader<'a> {
        // Errors name offsets within the entry; precise enough, and no bookkeeping on reads.
        Reader::new(self.bytes.get(offset..self.layout.used).unwrap_or_default())
    }

    /// Entry `index`.
    pub fn entry(&self, index: usize) -> Result<Entry<'a>> {
        if let Some(rows) = &self.layout.rows {
            let (suffix, seq, value) = self.row(rows, index)?;
            return Ok(Entry { suffix, seq, payload: Payload::Put(value) });
        }
        let (_, offset) = self.slot(index)?;
        let at = |error: DecodeError| DecodeError::new(offset + error.offset, error.what);
        Entry::decode(&mut self.reader_at(offset), self.layout.base).map_err(at)
    }

    /// Kind, key suffix and number of entry `index`, at less cost than the whole entry.
    pub fn entry_key(&self, index: usize) -> Result<(Kind, &'a [u8], Seq)> {
        if let Some(rows) = &self.layout.rows {
            let (suffix, seq, _) = self.row(rows, index)?;
            return Ok((Kind::Put, suffix, seq));
        }
        let (_, offset) = self.slot(index)?;
        Entry::decode_key(&mut self.reader_at(offset), self.layout.base)
    }

    /// The full key of an entry of this block, appended to `out`.
    pub fn append_key(&self, suffix: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(suffix);
    }

    /// The number of the first entry whose internal key is at or behind (`key`, `seq`). A fence
    /// at exactly that key counts.
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> Result<usize> {
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Ok(if key < prefix { 0 } else { self.len() });
        };
        let head = key::head(suffix);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let order = match &self.layout.rows {
                Some(rows) => {
                    let (found, number, _) = self.row(rows, middle)?;
                    key::compare((found, number), (suffix, seq))
                }
                None => self.compare_slotted(middle, head, (suffix, seq))?,
            };
            if order == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Compares slotted entry `index` with a suffix, whose head is known, and a number.
    fn compare_slotted(
        &self,
        index: usize,
        head: u32,
        (suffix, seq): (&[u8], Seq),
    ) -> Result<Ordering> {
        let (slot_head, offset) = self.slot(index)?;
        match slot_head.cmp(&head) {
            Ordering::Equal => {
                let mut reader = self.reader_at(offset);
                let (_, found, number) = Entry::decode_key(&mut reader, self.layout.base)?;
                Ok(key::compare((found, number), (suffix, seq)))
            }
            order => Ok(order),
        }
    }

    /// The newest data entry of `key` with a number of at most `seq`.
    pub fn find(&self, key: &[u8], seq: Seq) -> Result<Option<Entry<'a>>> {
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return Ok(None) };
        for index in self.lower_bound(key, seq)?..self.len() {
            let entry = self.entry(index)?;
            if entry.suffix != suffix {
                break;
            }
            if !matches!(entry.payload, Payload::Fence(_)) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The number of the last fence at or before (`key`, `seq`).
    pub fn fence_index(&self, key: &[u8], seq: Seq) -> Result<Option<usize>> {
        let bound = self.lower_bound(key, seq)?;
        if bound < self.len() {
            let (kind, suffix, number) = self.entry_key(bound)?;
            let same = number == seq && key.strip_prefix(self.prefix()) == Some(suffix);
            if kind == Kind::Fence && same {
                return Ok(Some(bound));
            }
        }
        self.fence_before(bound)
    }

    /// The number of the last fence before entry `index`.
    pub fn fence_before(&self, index: usize) -> Result<Option<usize>> {
        for candidate in (0..index.min(self.len())).rev() {
            if self.entry_key(candidate)?.0 == Kind::Fence {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// The number of the first fence at or behind entry `index`.
    pub fn fence_from(&self, index: usize) -> Result<Option<usize>> {
        for candidate in index..self.len() {
            if self.entry_key(candidate)?.0 == Kind::Fence {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Entry `index` as a fence.
    pub fn fence(&self, index: usize) -> Result<Fence<'a>> {
        match self.entry(index)?.payload {
            Payload::Fence(fence) => Ok(fence),
            _ => Err(DecodeError::new(0, "entry is not a fence")),
        }
    }
}
