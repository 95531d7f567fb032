//! The header of an `.npy` file (format versions 1.0 to 3.0).
//!
//! ```text
//! "\x93NUMPY" · major · minor · length of the text (2 bytes in 1.0, else 4, little-endian)
//! {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } and spaces to a line feed
//! ```
//! The text is a literal of Python, and is read as one (`literal`): what numpy takes is
//! taken, as numpy takes it, and what it refuses is refused. Items are never looked into: a type
//! matters by its size, and is written as numpy writes it.

use crate::error::{Result, input, unusable};
use crate::literal::{self, Literal};
use crate::message::{Message, Value, tuple};
use crate::planted::{self, Bug};

/// The first bytes of the file.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest header that is read, in bytes.
pub const HEADER_MAX: usize = 64 << 10;
/// The unit of the length of a header.
const ALIGNMENT: usize = 64;

/// The contents of a header.
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
            let text = "not a usable .npy file: it does not begin as one; for bare items give ";
            let both = Message::from(text).option("shape", Value::Any).then(" and ");
            return unusable(both.option("dtype", Value::Any));
        }
        let (length, begin) = match *rest {
            [1..=3, minor, ..] if minor != 0 => {
                return damaged(&format!("its format version {}.{minor} is not known", rest[0]));
            }
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
        let is_latin = rest.first() != Some(&3);
        let text: String = if is_latin {
            text.iter().map(|byte| char::from(*byte)).collect()
        } else {
            let Ok(text) = str::from_utf8(text) else { return damaged("its header is not text") };
            text.to_owned()
        };
        // Python 2 wrote the first two versions.
        let Some(entries) = literal::dictionary(&text, is_latin) else {
            return damaged("its header is no dictionary of Python");
        };
        Ok((Self::of(entries)?, (begin + length) as u64))
    }

    /// The header of a dictionary, of which the last entry of a key counts.
    fn of(mut entries: Vec<(Literal, Literal)>) -> Result<Self> {
        let (mut descr, mut order, mut shape) = (None, None, None);
        if planted::is(Bug::FirstKeyCounts) {
            entries.reverse();
        }
        for (key, value) in entries {
            match key {
                Literal::Text(key) if key == "descr" => descr = Some(value),
                Literal::Text(key) if key == "fortran_order" => order = Some(value),
                Literal::Text(key) if key == "shape" => shape = Some(value),
                _ => return unusable("not a usable .npy file: its header has other keys"),
            }
        }
        let missing =
            |key: &str| unusable(format!("not a usable .npy file: its header has no {key}"));
        let descr = match descr {
            Some(Literal::Text(descr)) => descr,
            Some(Literal::Other | Literal::Tuple(_)) => {
                return unusable(
                    "the items of this .npy file are records with fields; view them as one type \
                     first, such as 'V12' for 12 bytes",
                );
            }
            _ => return missing("usable 'descr'"),
        };
        let Some(Literal::Bool(is_fortran)) = order else {
            return missing("usable 'fortran_order'");
        };
        let Some(Literal::Tuple(sizes)) = shape else { return missing("usable 'shape'") };
        let size = |size: Literal| match size {
            Literal::Whole(size) => size,
            _ => None,
        };
        let Some(shape) = sizes.into_iter().map(size).collect() else {
            return missing("usable 'shape'");
        };
        // That name is not numpy's.
        let item_bytes = item_bytes(if descr == BFLOAT16 { "" } else { &descr })?;
        Ok(Self { descr: descr_of(&descr), item_bytes, is_fortran, shape })
    }

    /// The header of a file in C order, with the padding that puts items at a multiple of 64.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let shape = tuple(&self.shape);
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

/// The largest item that numpy has, in bytes.
const ITEM_MAX: u64 = i32::MAX as u64;

/// The bytes of an item of a type: `<f8`, `|u1`, `>i4`, `<U10`, `|V12`, or without the byte
/// order `f8`, or a usual name such as `float64`.
pub fn item_bytes(dtype: &str) -> Result<u64> {
    match canonical(dtype) {
        Some((_, 0)) => {
            input(format!("the type '{dtype}' has items of no bytes: nothing can be moved"))
        }
        Some((_, bytes)) => Ok(bytes),
        None if dtype.trim_start_matches(['<', '>', '|', '=']).starts_with('O') => {
            input("items of Python objects have no fixed size; convert the array first")
        }
        None => input(format!(
            "the type '{dtype}' is not known: use one such as float64, <f8, >i4, |u1 or |V12"
        )),
    }
}

/// The type as `.npy` files write it: names become codes, a missing byte order little-endian.
#[must_use]
pub fn descr_of(dtype: &str) -> String {
    canonical(dtype).map_or_else(|| dtype.to_owned(), |(descr, _)| descr)
}

/// A type as numpy writes it, and the bytes of an item.
fn canonical(dtype: &str) -> Option<(String, u64)> {
    let code = NAMES.iter().find(|(name, _)| *name == dtype).map_or(dtype, |(_, code)| code);
    let (order, body) = match code.as_bytes() {
        [b'>', ..] => ('>', &code[1..]),
        [b'<' | b'|' | b'=', ..] => ('<', &code[1..]),
        _ => ('<', code),
    };
    let body = LETTERS.iter().find(|(letter, _)| *letter == body).map_or(body, |(_, code)| code);
    let kind = body.chars().next()?;
    let rest = body.get(kind.len_utf8()..)?;
    let (size, unit) = match (kind, rest.find('[')) {
        ('M' | 'm', Some(at)) => rest.split_at(at),
        _ => (rest, ""),
    };
    let is_number = size.bytes().all(|byte| byte.is_ascii_digit());
    let size: u64 = match (kind, size) {
        ('S' | 'U' | 'V', "") => 0,
        _ if is_number => size.parse().ok()?,
        _ => return None,
    };
    let bytes = match (kind, size) {
        ('b', 1) | ('i' | 'u', 1 | 2 | 4 | 8) | ('f', 2 | 4 | 8 | 16) | ('c', 8 | 16 | 32) => size,
        ('M' | 'm', 8) if is_unit(unit) => 8,
        ('S' | 'a' | 'V', _) => size,
        ('U', _) => size.checked_mul(4)?,
        _ => return None,
    };
    let order = if matches!(kind, 'S' | 'a' | 'V') || bytes == 1 { '|' } else { order };
    let kind = if kind == 'a' { 'S' } else { kind };
    (bytes <= ITEM_MAX).then(|| (format!("{order}{kind}{size}{unit}"), bytes))
}

/// Units of time.
const UNITS: [&str; 13] = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"];

/// Whether a unit of time is nothing, or one such as `[ns]` or `[25s]`.
fn is_unit(unit: &str) -> bool {
    let Some(inside) = unit.strip_prefix('[') else { return unit.is_empty() };
    let Some(inside) = inside.strip_suffix(']') else { return false };
    let name = inside.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &inside[..inside.len() - name.len()];
    let fits = number.is_empty() || number.parse::<i32>().is_ok();
    fits && UNITS.contains(&name)
}

/// A name that numpy does not have, of a type that others add to it.
const BFLOAT16: &str = "bfloat16";

/// Usual names, and their codes.
const NAMES: [(&str, &str); 15] = [
    ("bool", "|b1"),
    ("int8", "|i1"),
    ("uint8", "|u1"),
    ("int16", "<i2"),
    ("uint16", "<u2"),
    ("float16", "<f2"),
    (BFLOAT16, "|V2"),
    ("int32", "<i4"),
    ("uint32", "<u4"),
    ("float32", "<f4"),
    ("int64", "<i8"),
    ("uint64", "<u8"),
    ("float64", "<f8"),
    ("complex64", "<c8"),
    ("complex128", "<c16"),
];

/// Letters that numpy takes alone, on the platforms that this runs on, and their codes.
const LETTERS: [(&str, &str); 20] = [
    ("?", "b1"),
    ("b", "i1"),
    ("B", "u1"),
    ("h", "i2"),
    ("H", "u2"),
    ("i", "i4"),
    ("I", "u4"),
    ("l", "i8"),
    ("L", "u8"),
    ("q", "i8"),
    ("Q", "u8"),
    ("p", "i8"),
    ("P", "u8"),
    ("e", "f2"),
    ("f", "f4"),
    ("d", "f8"),
    ("g", "f16"),
    ("F", "c8"),
    ("D", "c16"),
    ("G", "c32"),
];

#[cfg(test)]
mod tests;
