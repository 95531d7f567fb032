//! The header of an `.npy` file (format versions 1.0 to 3.0).
//!
//! ```text
//! "\x93NUMPY" · major · minor · length of the text (2 bytes in 1.0, else 4, little-endian)
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } and spaces to a line feed
//! ```
//! Items are never looked into: a type matters by its size, and is written as it was read.

use crate::error::{Result, input, unusable};

/// How the file begins.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read, in bytes.
pub const HEADER_MAX: usize = 64 << 10;
/// What the length of a header is a multiple of.
const ALIGNMENT: usize = 64;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of an item, as text within its quotes.
    pub descr: String,
    /// Bytes of an item.
    pub item_bytes: u64,
    /// Whether the first dimension varies fastest.
    pub is_fortran: bool,
    /// The sizes of the dimensions.
    pub shape: Vec<u64>,
}

impl Header {
    /// Reads the header at the beginning of `bytes`; answers where the items begin.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64)> {
        let damaged = |what: &str| unusable(format!("not a usable .npy file: {what}"));
        let Some((magic, rest)) = bytes.split_first_chunk::<6>() else {
            return damaged("it is too short for a header");
        };
        if magic != MAGIC {
            return damaged("it does not begin as one; for bare items give --shape and --dtype");
        }
        let (length, begin) = match *rest {
            [1, _, low, high, ..] => (usize::from(u16::from_le_bytes([low, high])), 10),
            [2 | 3, _, a, b, c, d, ..] => {
                (usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX), 12)
            }
            [1..=3, ..] => return damaged("its header is cut"),
            [major, ..] => return damaged(&format!("its format version {major} is not known")),
            [] => return damaged("its header is cut"),
        };
        if length > HEADER_MAX - begin {
            return damaged("its header is longer than 64 KiB");
        }
        let Some(text) = bytes.get(begin..begin + length) else {
            return damaged("its header is cut");
        };
        let Ok(text) = str::from_utf8(text) else { return damaged("its header is not text") };
        let header = Self::parse_text(text)?;
        Ok((header, (begin + length) as u64))
    }

    fn parse_text(text: &str) -> Result<Self> {
        let missing =
            |key: &str| unusable(format!("not a usable .npy file: its header has no {key}"));
        let Some(descr) = value(text, "descr") else { return missing("'descr'") };
        let Some(order) = value(text, "fortran_order") else { return missing("'fortran_order'") };
        let Some(shape) = value(text, "shape") else { return missing("'shape'") };
        let Some(descr) = quoted(descr) else {
            return unusable(
                "the items of this .npy file are records with fields; view them as one \
                          type first, such as 'V12' for 12 bytes",
            );
        };
        let is_fortran = match order {
            _ if order.starts_with("True") => true,
            _ if order.starts_with("False") => false,
            _ => return missing("usable 'fortran_order'"),
        };
        let Some(shape) = tuple(shape) else { return missing("usable 'shape'") };
        let item_bytes = item_bytes(descr)?;
        Ok(Self { descr: descr.to_owned(), item_bytes, is_fortran, shape })
    }

    /// The header of a file in C order, with the padding that puts items at a multiple of 64.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let sizes: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        let shape = match sizes.as_slice() {
            [one] => format!("({one},)"),
            _ => format!("({})", sizes.join(", ")),
        };
        let order = if self.is_fortran { "True" } else { "False" };
        let text =
            format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': {shape}, }}", self.descr);
        let long = text.len() + 1 + 10 > usize::from(u16::MAX) - ALIGNMENT;
        let prefix = if long { 12 } else { 10 };
        let total = (prefix + text.len() + 1).next_multiple_of(ALIGNMENT);
        let length = total - prefix;
        let mut bytes = MAGIC.to_vec();
        if long {
            bytes.extend([2, 0]);
            bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        } else {
            bytes.extend([1, 0]);
            bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        }
        bytes.extend(text.as_bytes());
        bytes.resize(total - 1, b' ');
        bytes.push(b'\n');
        bytes
    }
}

/// What follows a key of the dictionary.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    ["'", "\""].iter().find_map(|quote| {
        let (_, after) = text.split_once(&format!("{quote}{key}{quote}"))?;
        Some(after.trim_start().strip_prefix(':')?.trim_start())
    })
}

fn quoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let (inside, _) = text[1..].split_once(quote)?;
    Some(inside)
}

fn tuple(text: &str) -> Option<Vec<u64>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let items = inside.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(|item| item.trim_end_matches('L').parse().ok()).collect()
}

/// The bytes of an item of a type: `<f8`, `|u1`, `>i4`, `<U10`, `|V12`, or without the byte
/// order `f8`, or a usual name such as `float64`.
pub fn item_bytes(dtype: &str) -> Result<u64> {
    if let Some((_, _, bytes)) = NAMES.iter().find(|(name, ..)| *name == dtype) {
        return Ok(*bytes);
    }
    let unknown = || {
        input(format!(
            "the type '{dtype}' is not known: use one such as float64, <f8, >i4, |u1 or |V12"
        ))
    };
    let body = dtype.strip_prefix(['<', '>', '|', '=']).unwrap_or(dtype);
    let mut characters = body.chars();
    let kind = characters.next();
    if kind == Some('O') {
        return input("items of Python objects have no fixed size; convert the array first");
    }
    let digits = characters.as_str();
    let digits = digits.split_once('[').map_or(digits, |(digits, _)| digits);
    let Ok(size) = digits.parse::<u64>() else { return unknown() };
    let bytes = match (kind, size) {
        (Some('b'), 1) => size,
        (Some('i' | 'u'), 1 | 2 | 4 | 8) | (Some('f'), 2 | 4 | 8 | 12 | 16) => size,
        (Some('c'), 8 | 16 | 24 | 32) | (Some('M' | 'm'), 8) => size,
        (Some('S' | 'a' | 'V'), _) => size,
        (Some('U'), _) => size.saturating_mul(4),
        _ => return unknown(),
    };
    if bytes == 0 {
        return input(format!("the type '{dtype}' has items of no bytes: nothing can be moved"));
    }
    Ok(bytes)
}

/// The type as `.npy` files write it: names become codes, a missing byte order little-endian.
#[must_use]
pub fn descr_of(dtype: &str) -> String {
    if let Some((_, code, _)) = NAMES.iter().find(|(name, ..)| *name == dtype) {
        return (*code).to_owned();
    }
    match dtype.as_bytes() {
        [b'<' | b'>' | b'|', ..] => dtype.to_owned(),
        [b'=', ..] => format!("<{}", &dtype[1..]),
        [b'S' | b'a' | b'V' | b'b', ..] | [_, b'1'] => format!("|{dtype}"),
        _ => format!("<{dtype}"),
    }
}

/// Usual names: name, code, bytes.
const NAMES: [(&str, &str, u64); 15] = [
    ("bool", "|b1", 1),
    ("int8", "|i1", 1),
    ("uint8", "|u1", 1),
    ("int16", "<i2", 2),
    ("uint16", "<u2", 2),
    ("float16", "<f2", 2),
    ("bfloat16", "|V2", 2),
    ("int32", "<i4", 4),
    ("uint32", "<u4", 4),
    ("float32", "<f4", 4),
    ("int64", "<i8", 8),
    ("uint64", "<u8", 8),
    ("float64", "<f8", 8),
    ("complex64", "<c8", 8),
    ("complex128", "<c16", 16),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, is_fortran: bool, shape: &[u64]) -> Header {
        let item_bytes = item_bytes(descr).unwrap();
        Header { descr: descr.into(), item_bytes, is_fortran, shape: shape.to_vec() }
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        for shape in [&[][..], &[5], &[0, 3], &[11503, 11677], &[1; 40]] {
            for descr in ["<f8", ">i4", "|u1", "<U10", "|V12", "<M8[ns]"] {
                let header = header(descr, shape.len() == 1, shape);
                let bytes = header.encode();
                assert_eq!(bytes.len() % 64, 0);
                assert_eq!(bytes.last(), Some(&b'\n'));
                assert_eq!(Header::parse(&bytes).unwrap(), (header, bytes.len() as u64));
            }
        }
    }

    /// As numpy 1.26 writes it.
    #[test]
    fn the_bytes_are_those_of_numpy() {
        let text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        let bytes = header("<f8", false, &[3, 4]).encode();
        assert_eq!(bytes.len(), 128);
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(&bytes[10..10 + text.len()], text);
    }

    #[test]
    fn versions_2_and_3_have_longer_lengths() {
        let text = b"{\"shape\":(2L,),\"fortran_order\":True,\"descr\":\"<f4\"}\n";
        for major in [2, 3] {
            let mut bytes = [MAGIC.as_slice(), &[major, 0]].concat();
            bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
            bytes.extend(text);
            let (found, start) = Header::parse(&bytes).unwrap();
            assert_eq!(found, header("<f4", true, &[2]));
            assert_eq!(start, 12 + text.len() as u64);
        }
    }

    #[test]
    fn what_is_not_a_header_is_refused() {
        let good = header("<f8", false, &[3]).encode();
        for len in 0..good.len() {
            assert!(Header::parse(&good[..len]).is_err(), "{len}");
        }
        let with = |from: &str, to: &str| {
            let text = String::from_utf8_lossy(&good[10..]).replace(from, to);
            let mut bytes = good[..8].to_vec();
            bytes.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
            bytes.extend(text.as_bytes());
            Header::parse(&bytes)
        };
        assert!(with("x", "x").is_ok());
        for (from, to) in [
            ("descr", "desc"),
            ("'<f8'", "[('a', '<f8')]"),
            ("<f8", "|O"),
            ("<f8", "<f7"),
            ("<f8", "|S0"),
            ("(3,)", "(x,)"),
            ("(3,)", "(-3,)"),
            ("(3,)", "(99999999999999999999,)"),
            ("(3,)", "3"),
            ("False", "maybe"),
        ] {
            assert!(with(from, to).is_err(), "{to}");
        }
        let mut bytes = good;
        bytes[6] = 9;
        assert!(Header::parse(&bytes).is_err());
    }
}
