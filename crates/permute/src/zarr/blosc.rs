//! Blosc 1 buffers: blocks, each shuffled and compressed (format: c-blosc's
//! `README_CHUNK_FORMAT.rst`).
//!
//! ```text
//! version · version of the compressor · flags · bytes of an item
//! length · length of a block · length of the buffer        (each 4 bytes, little-endian)
//! where each block begins (4 bytes each)
//! blocks: one stream each, or one for each byte of an item; its length (4 bytes) before each
//! ```
//! No length is trusted before it is compared with what is there.

use super::lz;

const HEADER: usize = 16;
const BYTE_SHUFFLE: u8 = 1;
const STORED: u8 = 2;
const BIT_SHUFFLE: u8 = 4;
const ONE_STREAM: u8 = 16;
/// Blocks that are written, in bytes: they fit a processor's second cache.
const BLOCK: usize = 256 << 10;
/// Items larger than this are one stream.
const STREAMS_MAX: usize = 16;
/// Streams have at least this many bytes.
const STREAM_MIN: usize = 128;

/// The reordering of bytes before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// Not at all.
    None,
    /// All first bytes of items, then all second ones.
    Byte,
    /// All first bits, then all second ones.
    Bit,
}

/// The compressor of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// Blosc's own; read alone.
    BloscLz,
    /// LZ4, in either effort.
    Lz4,
    /// Zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

/// The bytes of a buffer, which must be `expected` bytes.
pub fn decode(buffer: &[u8], expected: usize) -> Result<Vec<u8>, &'static str> {
    let word = |at: usize| -> Option<usize> {
        let bytes = buffer.get(at..at + 4)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let header = || Some((*buffer.get(2)?, *buffer.get(3)?, word(4)?, word(8)?, word(12)?));
    let Some((flags, item, length, block, stored)) = header() else {
        return Err("it is too short");
    };
    if length != expected || stored > buffer.len() {
        return Err("its header gives another length");
    }
    if flags & STORED != 0 {
        let bytes = buffer.get(HEADER..HEADER + expected);
        return bytes.map(<[u8]>::to_vec).ok_or("it is too short");
    }
    if block == 0 || length == 0 {
        return if length == 0 { Ok(Vec::new()) } else { Err("its blocks are empty") };
    }
    let compressor = match flags >> 5 {
        0 => Compressor::BloscLz,
        1 => Compressor::Lz4,
        3 => Compressor::Zlib,
        4 => Compressor::Zstd,
        2 => return Err("Snappy is not supported"),
        _ => return Err("its compressor is not known"),
    };
    let item = usize::from(item).max(1);
    let shuffle = shuffle_of(flags, item);
    let mut bytes = Vec::with_capacity(expected);
    let mut streams = Vec::new();
    for index in 0..length.div_ceil(block) {
        let size = block.min(length - index * block);
        let start = word(HEADER + 4 * index).ok_or("it is too short")?;
        let is_split = flags & ONE_STREAM == 0
            && item <= STREAMS_MAX
            && block / item >= STREAM_MIN
            && size == block;
        let count = if is_split { item } else { 1 };
        streams.clear();
        let mut at = start;
        for _ in 0..count {
            let packed = word(at).ok_or("it is too short")?;
            let stream = buffer.get(at + 4..).and_then(|rest| rest.get(..packed));
            let stream = stream.ok_or("it is too short")?;
            decode_stream(compressor, stream, size / count, &mut streams)?;
            at += 4 + packed;
        }
        if streams.len() != size {
            return Err("its blocks have another length");
        }
        unshuffle(shuffle, item, &streams, &mut bytes);
    }
    Ok(bytes)
}

fn shuffle_of(flags: u8, item: usize) -> Shuffle {
    if flags & BYTE_SHUFFLE != 0 && item > 1 {
        Shuffle::Byte
    } else if flags & BIT_SHUFFLE != 0 {
        Shuffle::Bit
    } else {
        Shuffle::None
    }
}

fn decode_stream(
    compressor: Compressor,
    stream: &[u8],
    size: usize,
    to: &mut Vec<u8>,
) -> Result<(), &'static str> {
    // What compression would lengthen is kept as it is.
    if stream.len() == size {
        to.extend_from_slice(stream);
        return Ok(());
    }
    let decoded = match compressor {
        Compressor::BloscLz => lz::blosclz(stream, size),
        Compressor::Lz4 => lz::lz4(stream, size),
        Compressor::Zlib => lz::zlib(stream, size),
        Compressor::Zstd => lz::zstd(stream, size),
    };
    match decoded {
        Some(decoded) if decoded.len() == size => to.extend_from_slice(&decoded),
        _ => return Err("a block cannot be decompressed"),
    }
    Ok(())
}

/// A buffer that holds `bytes`, of items of `item` bytes.
pub fn encode(
    bytes: &[u8],
    item: usize,
    shuffle: Shuffle,
    compressor: Compressor,
    level: i32,
) -> Option<Vec<u8>> {
    let length = u32::try_from(bytes.len()).ok()?;
    let item = if item > usize::from(u8::MAX) { 1 } else { item.max(1) };
    let block = (BLOCK / item * item).min(bytes.len()).max(1);
    let (format, shuffle_flag) = (
        match compressor {
            Compressor::BloscLz => return None,
            Compressor::Lz4 => 1_u8,
            Compressor::Zlib => 3,
            Compressor::Zstd => 4,
        },
        match shuffle {
            Shuffle::None => 0,
            Shuffle::Byte => BYTE_SHUFFLE,
            Shuffle::Bit => BIT_SHUFFLE,
        },
    );
    let flags = format << 5 | ONE_STREAM | shuffle_flag;
    let mut buffer = vec![2, 1, flags, u8::try_from(item).unwrap_or(1)];
    buffer.extend(length.to_le_bytes());
    buffer.extend(u32::try_from(block).ok()?.to_le_bytes());
    let blocks = bytes.len().div_ceil(block);
    buffer.resize(HEADER + 4 * blocks, 0);
    let mut shuffled = Vec::with_capacity(block);
    for (index, block) in bytes.chunks(block).enumerate() {
        let start = u32::try_from(buffer.len()).ok()?;
        buffer[HEADER + 4 * index..][..4].copy_from_slice(&start.to_le_bytes());
        shuffled.clear();
        self::shuffle(shuffle_of(flags, item), item, block, &mut shuffled);
        debug_assert_eq!(shuffled.len(), block.len());
        let packed = match compressor {
            Compressor::Lz4 | Compressor::BloscLz => lz::to_lz4(&shuffled),
            Compressor::Zlib => lz::to_zlib(&shuffled, level)?,
            Compressor::Zstd => lz::to_zstd(&shuffled, level, false)?,
        };
        let stream = if packed.len() < shuffled.len() { &packed } else { &shuffled };
        buffer.extend(u32::try_from(stream.len()).ok()?.to_le_bytes());
        buffer.extend_from_slice(stream);
    }
    if buffer.len() >= HEADER + bytes.len() {
        buffer.truncate(HEADER);
        buffer[2] = flags | STORED;
        buffer.extend_from_slice(bytes);
    }
    let stored = u32::try_from(buffer.len()).ok()?;
    buffer[12..16].copy_from_slice(&stored.to_le_bytes());
    Some(buffer)
}

/// The number of items of a block that are shuffled; what is left over stays behind them as it is.
/// Bits are shuffled where there are eights of items and nothing over.
const fn shuffled_items(shuffle: Shuffle, item: usize, bytes: usize) -> usize {
    let items = bytes / item;
    match shuffle {
        Shuffle::Bit => {
            if items.is_multiple_of(8) {
                items
            } else {
                0
            }
        }
        Shuffle::Byte | Shuffle::None => items,
    }
}

fn shuffle(shuffle: Shuffle, item: usize, from: &[u8], to: &mut Vec<u8>) {
    let count = shuffled_items(shuffle, item, from.len());
    let (items, rest) = from.split_at(count * item);
    match shuffle {
        Shuffle::None => to.extend_from_slice(items),
        Shuffle::Byte => {
            to.extend((0..item).flat_map(|byte| items.iter().skip(byte).step_by(item)));
        }
        Shuffle::Bit => {
            for byte in 0..item {
                for bit in 0..8 {
                    to.extend(items.chunks_exact(8 * item).map(|eight| {
                        (0..8).fold(0, |all, i| all | (eight[i * item + byte] >> bit & 1) << i)
                    }));
                }
            }
        }
    }
    to.extend_from_slice(rest);
}

fn unshuffle(shuffle: Shuffle, item: usize, from: &[u8], to: &mut Vec<u8>) {
    let count = shuffled_items(shuffle, item, from.len());
    let (items, rest) = from.split_at(count * item);
    match shuffle {
        Shuffle::None => to.extend_from_slice(items),
        Shuffle::Byte => {
            let start = to.len();
            to.resize(start + items.len(), 0);
            for (byte, plane) in items.chunks_exact(count.max(1)).enumerate() {
                let places = to[start..].iter_mut().skip(byte).step_by(item);
                places.zip(plane).for_each(|(place, value)| *place = *value);
            }
        }
        Shuffle::Bit => {
            let start = to.len();
            to.resize(start + items.len(), 0);
            let planes = items.chunks_exact((count / 8).max(1));
            for (plane, values) in planes.enumerate() {
                let (byte, bit) = (plane / 8, plane % 8);
                for (eight, value) in to[start..].chunks_exact_mut(8 * item).zip(values) {
                    for i in 0..8 {
                        eight[i * item + byte] |= (value >> i & 1) << bit;
                    }
                }
            }
        }
    }
    to.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHUFFLES: [Shuffle; 3] = [Shuffle::None, Shuffle::Byte, Shuffle::Bit];

    fn items(len: usize, modulus: u32) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) % modulus) as u8).collect()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for (len, item, modulus) in [
            (0, 4, 7),
            (1, 1, 7),
            (100, 4, 7),
            (70_001, 8, 3),
            (600_000, 8, 1),
            (600_000, 8, 256),
            (300_000, 3, 2),
            (99, 300, 5),
        ] {
            let bytes = items(len, modulus);
            for shuffle in SHUFFLES {
                for compressor in [Compressor::Lz4, Compressor::Zlib, Compressor::Zstd] {
                    let buffer = encode(&bytes, item, shuffle, compressor, 5).unwrap();
                    assert_eq!(decode(&buffer, len).unwrap(), bytes, "{len} {item} {shuffle:?}");
                    assert!(decode(&buffer, len + 1).is_err());
                    if len > 0 {
                        assert!(decode(&buffer[..buffer.len() - 1], len).is_err());
                    }
                }
            }
        }
    }

    #[test]
    fn bits_are_shuffled_in_planes() {
        let from: Vec<u8> = (0..8).collect();
        let mut to = Vec::new();
        shuffle(Shuffle::Bit, 1, &from, &mut to);
        assert_eq!(to, [0b1010_1010, 0b1100_1100, 0b1111_0000, 0, 0, 0, 0, 0]);
        let mut again = Vec::new();
        unshuffle(Shuffle::Bit, 1, &to, &mut again);
        assert_eq!(again, from);
    }

    proptest! {
        #[test]
        fn no_buffer_makes_it_panic(
            mut buffer in prop::collection::vec(any::<u8>(), 0..200),
            length in 0..300_u32, block in 0..300_u32, flags in any::<u8>(),
        ) {
            if buffer.len() >= HEADER {
                buffer[2] = flags;
                buffer[4..8].copy_from_slice(&length.to_le_bytes());
                buffer[8..12].copy_from_slice(&block.to_le_bytes());
                let len = buffer.len() as u32;
                buffer[12..16].copy_from_slice(&len.to_le_bytes());
            }
            let _ = decode(&buffer, length as usize);
        }

        #[test]
        fn no_flipped_byte_makes_it_panic(
            at in 0..4000_usize, value in any::<u8>(), item in 1..9_usize,
        ) {
            let bytes = items(5000, 5);
            let mut buffer = encode(&bytes, item, Shuffle::Byte, Compressor::Lz4, 5).unwrap();
            let at = at % buffer.len();
            buffer[at] = value;
            let _ = decode(&buffer, 5000);
        }
    }
}
