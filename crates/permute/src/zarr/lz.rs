//! Compressed streams of a known length, decoded into no more than that.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

/// The bytes of a reader, if it ends at or before `limit` bytes.
fn all(mut reader: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(limit);
    let wanted = u64::try_from(limit).ok()?;
    reader.by_ref().take(wanted).read_to_end(&mut bytes).ok()?;
    // The end is checked: a checksum is there.
    let mut more = [0];
    matches!(reader.read(&mut more), Ok(0)).then_some(bytes)
}

/// At most `limit` bytes of gzip members.
pub(super) fn gzip(stream: &[u8], limit: usize) -> Option<Vec<u8>> {
    all(MultiGzDecoder::new(stream), limit)
}

/// At most `limit` bytes of a zlib stream.
pub(super) fn zlib(stream: &[u8], limit: usize) -> Option<Vec<u8>> {
    all(ZlibDecoder::new(stream), limit)
}

/// At most `limit` bytes of Zstandard frames. Decoded in one call, so that no header can ask for a
/// window.
#[cfg(feature = "zstd")]
pub(super) fn zstd(stream: &[u8], limit: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(stream, limit).ok()
}

/// Nothing is made of a frame in a build without Zstandard: metadata that name it were refused.
#[cfg(not(feature = "zstd"))]
pub(super) fn zstd(_: &[u8], _: usize) -> Option<Vec<u8>> {
    None
}

/// At most `limit` bytes of an LZ4 block.
pub(super) fn lz4(stream: &[u8], limit: usize) -> Option<Vec<u8>> {
    lz4_flex::block::decompress(stream, limit).ok()
}

/// Room for what `bytes` become, so that it does not grow by doubling.
fn room(bytes: &[u8]) -> Vec<u8> {
    Vec::with_capacity(bytes.len() + bytes.len() / 8 + 256)
}

pub(super) fn to_gzip(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    let level = Compression::new(u32::try_from(level).unwrap_or(6).min(9));
    let mut encoder = GzEncoder::new(room(bytes), level);
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

pub(super) fn to_zlib(bytes: &[u8], level: i32) -> Option<Vec<u8>> {
    let level = Compression::new(u32::try_from(level).unwrap_or(6).min(9));
    let mut encoder = ZlibEncoder::new(room(bytes), level);
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

#[cfg(feature = "zstd")]
pub(super) fn to_zstd(bytes: &[u8], level: i32, has_checksum: bool) -> Option<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(level).ok()?;
    compressor.include_checksum(has_checksum).ok()?;
    compressor.compress(bytes).ok()
}

#[cfg(not(feature = "zstd"))]
pub(super) fn to_zstd(_: &[u8], _: i32, _: bool) -> Option<Vec<u8>> {
    None
}

pub(super) fn to_lz4(bytes: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(bytes)
}

/// Exactly `size` bytes of a BloscLZ stream (a dialect of FastLZ level 2).
///
/// An instruction is literals, up to 32 of them after a byte below 32, or a copy of what was
/// decoded: 3 bits of length, more bytes of it where those are all ones, 13 bits of distance, and
/// 16 more where those are all ones. The first byte is always literals.
pub(super) fn blosclz(stream: &[u8], size: usize) -> Option<Vec<u8>> {
    const NEAR: usize = 8191;
    let mut input = stream.iter().copied();
    let mut output: Vec<u8> = Vec::with_capacity(size);
    let mut control = usize::from(input.next()? & 31);
    loop {
        if control >= 32 {
            let mut len = (control >> 5) - 1;
            if len == 6 {
                loop {
                    let more = usize::from(input.next()?);
                    len = len.checked_add(more)?;
                    if more != 255 {
                        break;
                    }
                }
            }
            let low = usize::from(input.next()?);
            let high = (control & 31) << 8;
            let mut distance = high + low + 1;
            if low == 255 && high == 31 << 8 {
                let far = usize::from(input.next()?) << 8;
                distance = far + usize::from(input.next()?) + NEAR + 1;
            }
            let len = len + 3;
            let start = output.len().checked_sub(distance)?;
            if output.len() + len > size {
                return None;
            }
            for at in start..start + len {
                output.push(output[at]);
            }
        } else {
            let count = control + 1;
            if output.len() + count > size {
                return None;
            }
            for _ in 0..count {
                output.push(input.next()?);
            }
        }
        match input.next() {
            Some(next) => control = usize::from(next),
            None => break,
        }
    }
    (output.len() == size).then_some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_longer_than_expected_are_refused() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i % 7) as u8).collect();
        type Decode = fn(&[u8], usize) -> Option<Vec<u8>>;
        let streams: [(Decode, Vec<u8>); 4] = [
            (gzip, to_gzip(&bytes, 5).unwrap()),
            (zlib, to_zlib(&bytes, 5).unwrap()),
            (zstd, to_zstd(&bytes, 3, true).unwrap()),
            (lz4, to_lz4(&bytes)),
        ];
        for (decode, stream) in streams {
            assert_eq!(decode(&stream, 5000).as_ref(), Some(&bytes));
            assert_eq!(decode(&stream, 4999), None);
            // A block of LZ4 says nothing of its end; the decoder's caller checks the length.
            let whole = |bytes: &Vec<u8>| bytes.len() == 5000;
            assert_eq!(decode(&stream[..stream.len() - 3], 5000).filter(whole), None);
            assert_eq!(decode(b"nothing", 5000).filter(whole), None);
        }
    }

    #[test]
    fn blosclz_copies_and_literals() {
        // Four literals; 3 + 2 bytes from 4 back; one literal.
        let stream = [3, b'a', b'b', b'c', b'd', 3 << 5, 3, 0, b'e'];
        assert_eq!(blosclz(&stream, 10).as_deref(), Some(b"abcdabcdae".as_slice()));
        assert_eq!(blosclz(&stream, 9), None);
        assert_eq!(blosclz(&stream, 11), None);
        // From before the beginning.
        assert_eq!(blosclz(&[0, b'a', 1 << 5, 1], 4), None);
        // A long one of the byte before.
        assert_eq!(blosclz(&[0, b'a', 7 << 5, 255, 5, 0], 1 + 9 + 260), Some(vec![b'a'; 270]));
    }
}
