//! The codecs between the items of a chunk and the bytes of its file.

use serde_json::{Map, Value, json};

use super::blosc::{self, Compressor, Shuffle};
use super::lz;
use crate::error::{Result, input, unusable};

/// One step from bytes to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// gzip members.
    Gzip {
        /// 0 to 9.
        level: i32,
    },
    /// A zlib stream (version 2 alone).
    Zlib {
        /// 0 to 9.
        level: i32,
    },
    /// Zstandard frames.
    Zstd {
        /// -131072 to 22.
        level: i32,
        /// Whether frames end in a checksum.
        has_checksum: bool,
    },
    /// A Blosc buffer.
    Blosc {
        /// Its compressor.
        compressor: Compressor,
        /// 0 to 9.
        level: i32,
        /// Its shuffle.
        shuffle: Shuffle,
        /// Bytes of an item.
        item: usize,
    },
    /// CRC-32C of everything before it, little-endian, at the end.
    Crc32c,
}

/// The most bytes that `bytes` become in any of the codecs, several of them on end.
#[must_use]
pub const fn encoded_max(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8).saturating_add(1024)
}

/// The decoded bytes, if they are exactly `expected` bytes; otherwise a description of the error.
pub fn decode(
    codecs: &[Codec],
    encoded: Vec<u8>,
    expected: usize,
) -> std::result::Result<Vec<u8>, String> {
    let slack = usize::try_from(encoded_max(expected as u64)).unwrap_or(usize::MAX);
    let mut bytes = encoded;
    for (index, codec) in codecs.iter().enumerate().rev() {
        let limit = if index == 0 { expected } else { slack };
        bytes = match codec {
            Codec::Gzip { .. } => lz::gzip(&bytes, limit).ok_or("it is no usable gzip stream")?,
            Codec::Zlib { .. } => lz::zlib(&bytes, limit).ok_or("it is no usable zlib stream")?,
            Codec::Zstd { .. } => {
                lz::zstd(&bytes, limit).ok_or("it is no usable Zstandard frame")?
            }
            Codec::Blosc { .. } => {
                let length = if index == 0 { expected } else { blosc_length(&bytes, limit)? };
                let wrong = |what| format!("it is no usable Blosc buffer: {what}");
                blosc::decode(&bytes, length).map_err(wrong)?
            }
            Codec::Crc32c => checked(bytes)?,
        };
    }
    if bytes.len() == expected {
        return Ok(bytes);
    }
    Err(format!("it has {} bytes where {expected} were expected", bytes.len()))
}

fn blosc_length(buffer: &[u8], limit: usize) -> std::result::Result<usize, String> {
    let length = buffer.get(4..8).and_then(|bytes| bytes.first_chunk::<4>());
    let length = length.and_then(|bytes| usize::try_from(u32::from_le_bytes(*bytes)).ok());
    let length = length.filter(|length| *length <= limit);
    length.ok_or_else(|| "it is no usable Blosc buffer".to_owned())
}

fn checked(mut bytes: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
    let Some((body, sum)) = bytes.split_last_chunk::<4>() else {
        return Err("it is too short for its checksum".to_owned());
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong".to_owned());
    }
    bytes.truncate(bytes.len() - 4);
    Ok(bytes)
}

/// The bytes of a file that holds `bytes`.
pub fn encode(codecs: &[Codec], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoded: Option<Vec<u8>> = None;
    for codec in codecs {
        let from = encoded.as_deref().unwrap_or(bytes);
        encoded = Some(match *codec {
            Codec::Gzip { level } => lz::to_gzip(from, level)?,
            Codec::Zlib { level } => lz::to_zlib(from, level)?,
            Codec::Zstd { level, has_checksum } => lz::to_zstd(from, level, has_checksum)?,
            Codec::Blosc { compressor, level, shuffle, item } => {
                blosc::encode(from, item, shuffle, compressor, level)?
            }
            Codec::Crc32c => [from, crc32c::crc32c(from).to_le_bytes().as_slice()].concat(),
        });
    }
    Some(encoded.unwrap_or_else(|| bytes.to_vec()))
}

const NAMES: &str = "none, gzip, zlib (version 2), zstd or blosc";

/// The codecs that a user asks for by a name.
pub fn named(name: &str, item: u64, format: u8) -> Result<Vec<Codec>> {
    let item = usize::try_from(item).unwrap_or(1);
    let codec = match (name, format) {
        ("none", _) => return Ok(Vec::new()),
        ("gzip", _) => Codec::Gzip { level: 5 },
        ("zlib", 2) => Codec::Zlib { level: 5 },
        ("zstd", _) => with_zstd(Codec::Zstd { level: 1, has_checksum: false })?,
        ("blosc", _) => {
            let (compressor, shuffle) = (Compressor::Lz4, Shuffle::Byte);
            Codec::Blosc { compressor, level: 5, shuffle, item }
        }
        _ => return input(format!("the compressor '{name}' is not known: use {NAMES}")),
    };
    Ok(vec![codec])
}

fn whole(settings: &Map<String, Value>, key: &str, default: i64) -> i32 {
    let value = settings.get(key).and_then(Value::as_i64).unwrap_or(default);
    i32::try_from(value).unwrap_or(0)
}

/// Returns `what`, which needs Zstandard, in a build that has it; fails in another.
fn with_zstd<T>(what: T) -> Result<T> {
    if cfg!(feature = "zstd") {
        return Ok(what);
    }
    unusable("Zstandard is not in this build: build esker-permute with its feature zstd")
}

/// Levels are clamped: they say how to write, never whether something can be read.
fn level(settings: &Map<String, Value>, key: &str, default: i64, most: i32) -> i32 {
    whole(settings, key, default).clamp(if most > 9 { -131_072 } else { 0 }, most)
}

/// A codec of version 2 (`compressor`) or 3, where `name` is its id or name.
pub(super) fn parse(name: &str, settings: &Map<String, Value>, item: u64) -> Result<Codec> {
    let bare = name.strip_prefix("numcodecs.").unwrap_or(name);
    Ok(match bare {
        "gzip" => Codec::Gzip { level: level(settings, "level", 5, 9) },
        "zlib" => Codec::Zlib { level: level(settings, "level", 5, 9) },
        "zstd" => {
            let has_checksum = settings.get("checksum") == Some(&Value::Bool(true));
            with_zstd(Codec::Zstd { level: level(settings, "level", 1, 22), has_checksum })?
        }
        "crc32c" => Codec::Crc32c,
        "blosc" => {
            let compressor = match settings.get("cname").and_then(Value::as_str) {
                Some("blosclz") => Compressor::BloscLz,
                Some("zlib") => Compressor::Zlib,
                Some("zstd") => with_zstd(Compressor::Zstd)?,
                Some("lz4" | "lz4hc") | None => Compressor::Lz4,
                Some(other) => {
                    return unusable(format!("Blosc's compressor '{other}' is not supported"));
                }
            };
            let size = settings.get("typesize").and_then(Value::as_u64).unwrap_or(item);
            let shuffle = match settings.get("shuffle") {
                Some(Value::String(name)) if name == "bitshuffle" => Shuffle::Bit,
                Some(Value::String(name)) if name == "noshuffle" => Shuffle::None,
                Some(Value::Number(number)) if number.as_i64() == Some(0) => Shuffle::None,
                Some(Value::Number(number)) if number.as_i64() == Some(2) => Shuffle::Bit,
                // -1: bits where items are bytes.
                Some(Value::Number(number)) if number.as_i64() == Some(-1) && item == 1 => {
                    Shuffle::Bit
                }
                _ => Shuffle::Byte,
            };
            let item = usize::try_from(size).unwrap_or(1);
            Codec::Blosc { compressor, level: level(settings, "clevel", 5, 9), shuffle, item }
        }
        _ => {
            return unusable(format!(
                "its codec '{name}' is not supported: gzip, zlib, zstd, blosc and crc32c are"
            ));
        }
    })
}

impl Codec {
    /// The nearest codec that can be written in a version.
    #[must_use]
    pub const fn in_format(self, format: u8) -> Option<Self> {
        match self {
            Self::Zlib { level } if format == 3 => Some(Self::Gzip { level }),
            Self::Crc32c if format == 2 => None,
            // BloscLZ is read alone.
            Self::Blosc { compressor: Compressor::BloscLz, level, shuffle, item } => {
                Some(Self::Blosc { compressor: Compressor::Lz4, level, shuffle, item })
            }
            other => Some(other),
        }
    }

    /// As `.zarray` names it.
    pub(super) fn to_v2(self) -> Value {
        match self {
            Self::Gzip { level } => json!({"id": "gzip", "level": level}),
            Self::Zlib { level } => json!({"id": "zlib", "level": level}),
            // Older readers know no other key.
            Self::Zstd { level, has_checksum: false } => json!({"id": "zstd", "level": level}),
            Self::Zstd { level, has_checksum: true } => {
                json!({"id": "zstd", "level": level, "checksum": true})
            }
            Self::Blosc { compressor, level, shuffle, .. } => json!({
                "id": "blosc",
                "cname": name_of(compressor),
                "clevel": level,
                "shuffle": match shuffle {
                    Shuffle::None => 0,
                    Shuffle::Byte => 1,
                    Shuffle::Bit => 2,
                },
                "blocksize": 0,
            }),
            Self::Crc32c => json!({"id": "crc32c"}),
        }
    }

    /// As `zarr.json` names it.
    pub(super) fn to_v3(self) -> Value {
        match self {
            Self::Gzip { level } => json!({"name": "gzip", "configuration": {"level": level}}),
            Self::Zlib { level } => {
                json!({"name": "numcodecs.zlib", "configuration": {"level": level}})
            }
            Self::Zstd { level, has_checksum } => json!({
                "name": "zstd",
                "configuration": {"level": level, "checksum": has_checksum},
            }),
            Self::Blosc { compressor, level, shuffle, item } => json!({
                "name": "blosc",
                "configuration": {
                    "typesize": item,
                    "cname": name_of(compressor),
                    "clevel": level,
                    "shuffle": match shuffle {
                        Shuffle::None => "noshuffle",
                        Shuffle::Byte => "shuffle",
                        Shuffle::Bit => "bitshuffle",
                    },
                    "blocksize": 0,
                },
            }),
            Self::Crc32c => json!({"name": "crc32c"}),
        }
    }
}

const fn name_of(compressor: Compressor) -> &'static str {
    match compressor {
        Compressor::BloscLz => "blosclz",
        Compressor::Lz4 => "lz4",
        Compressor::Zlib => "zlib",
        Compressor::Zstd => "zstd",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec(name: &str, settings: Value) -> Codec {
        parse(name, settings.as_object().unwrap(), 4).unwrap()
    }

    #[test]
    fn codecs_are_read_as_they_are_written() {
        for settings in [
            codec("gzip", json!({"level": 9})),
            codec("zstd", json!({"level": -3, "checksum": true})),
            codec("blosc", json!({"cname": "zstd", "clevel": 3, "shuffle": 2})),
            codec("blosc", json!({"cname": "lz4", "shuffle": "noshuffle", "typesize": 8})),
        ] {
            let v3 = settings.to_v3();
            let name = v3["name"].as_str().unwrap();
            assert_eq!(codec(name, v3["configuration"].clone()), settings);
            let v2 = settings.to_v2();
            let again = codec(v2["id"].as_str().unwrap(), v2.clone()).to_v2();
            assert_eq!(again, v2);
        }
    }

    #[test]
    fn chains_are_undone_and_damage_is_found() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i / 9) as u8).collect();
        let blosc = codec("blosc", json!({}));
        for chain in [
            vec![],
            vec![Codec::Crc32c],
            vec![Codec::Gzip { level: 1 }, Codec::Crc32c],
            vec![blosc, Codec::Zstd { level: 1, has_checksum: true }],
            vec![Codec::Zlib { level: 1 }, blosc],
        ] {
            let encoded = encode(&chain, &bytes).unwrap();
            assert!(encoded.len() as u64 <= encoded_max(10_000));
            assert_eq!(decode(&chain, encoded.clone(), 10_000).as_ref(), Ok(&bytes), "{chain:?}");
            assert!(decode(&chain, encoded.clone(), 9_999).is_err());
            let mut shorter = encoded;
            shorter.pop();
            assert!(decode(&chain, shorter, 10_000).is_err());
        }
        let mut summed = encode(&[Codec::Crc32c], &bytes).unwrap();
        summed[77] ^= 1;
        assert_eq!(decode(&[Codec::Crc32c], summed, 10_000).unwrap_err(), "its checksum is wrong");
    }

    #[test]
    fn what_is_not_known_is_named() {
        let error = parse("lzma", &Map::new(), 4).unwrap_err().to_string();
        assert!(error.contains("'lzma'"), "{error}");
        let snappy = json!({"cname": "snappy"});
        assert!(parse("blosc", snappy.as_object().unwrap(), 4).is_err());
        assert!(named("bz2", 4, 3).is_err());
        assert_eq!(named("none", 4, 3).unwrap(), []);
    }
}
