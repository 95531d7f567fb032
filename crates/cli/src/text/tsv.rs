//! `key<TAB>value`, readable as it is and safe to print.
//!
//! Canonical: `\\`, `\t`, `\n`, `\r` for those four, `\xHH` (lower case) for every other control
//! byte and every byte that is not part of valid UTF-8; every other byte is written as it is.
//! Reading accepts more: every byte except the backslash means itself (a TAB too, after the first),
//! and the hex digits may be of either case. A carriage return before the line feed is therefore
//! data.

use super::{Entry, LineError};

pub(super) fn encode(key: &[u8], value: &[u8], line: &mut Vec<u8>) {
    escape(key, line);
    line.push(b'\t');
    escape(value, line);
}

pub(super) fn decode(line: &[u8]) -> Result<Entry, LineError> {
    let tab = line.iter().position(|&byte| byte == b'\t').ok_or(LineError::NoTab)?;
    let (key, rest) = line.split_at(tab);
    let value = rest.strip_prefix(b"\t").unwrap_or(rest);
    Ok((unescape(key, 0)?, unescape(value, tab + 1)?))
}

pub(super) fn escape(bytes: &[u8], line: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'\\' => line.extend_from_slice(b"\\\\"),
                b'\t' => line.extend_from_slice(b"\\t"),
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                _ if byte.is_ascii_control() => escape_hex(byte, line),
                _ => line.push(byte),
            }
        }
        for &byte in chunk.invalid() {
            escape_hex(byte, line);
        }
    }
}

fn escape_hex(byte: u8, line: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let [high, low] = [byte >> 4, byte & 0xf].map(|digit| DIGITS[usize::from(digit)]);
    line.extend_from_slice(&[b'\\', b'x', high, low]);
}

/// `column_base` is the number of bytes of the line before `text`.
pub(super) fn unescape(text: &[u8], column_base: usize) -> Result<Vec<u8>, LineError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        let (plain, escaped) = rest.split_at(at);
        bytes.extend_from_slice(plain);
        let Some((byte, escape_bytes)) = unescape_one(escaped) else {
            let column = column_base + (text.len() - escaped.len()) + 1;
            return Err(LineError::UnknownEscape { column });
        };
        bytes.push(byte);
        rest = &escaped[escape_bytes..];
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

/// The byte that an escape at the start of `escaped` represents, and the escape's length.
fn unescape_one(escaped: &[u8]) -> Option<(u8, usize)> {
    match *escaped {
        [b'\\', b'\\', ..] => Some((b'\\', 2)),
        [b'\\', b't', ..] => Some((b'\t', 2)),
        [b'\\', b'n', ..] => Some((b'\n', 2)),
        [b'\\', b'r', ..] => Some((b'\r', 2)),
        [b'\\', b'x', high, low, ..] => Some((hex_digit(high)? << 4 | hex_digit(low)?, 4)),
        _ => None,
    }
}

pub(super) fn hex_digit(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
