//! Types of items and their fill values, in both versions of Zarr.
//!
//! A type is known by what `.npy` calls it ([`npy`](crate::npy)); version 2 of Zarr uses the same
//! names, version 3 has its own. Items are never looked into: a value matters only where a chunk is
//! missing, whose items are all the fill value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::error::{Result, unusable};
use crate::message::{self, Message};
use crate::npy;

/// The type of an item in pieces.
#[derive(Clone, Copy, Debug)]
struct Shape<'a> {
    is_big: bool,
    kind: char,
    size: usize,
    /// The unit of times.
    unit: &'a str,
}

fn shape(descr: &str) -> Option<Shape<'_>> {
    let is_big = descr.starts_with('>');
    let body = descr.strip_prefix(['<', '>', '|', '='])?;
    let kind = body.chars().next()?;
    let digits = body.get(1..)?;
    let (digits, unit) = digits.split_once('[').unwrap_or((digits, ""));
    let size: usize = digits.parse().ok()?;
    let size = if kind == 'U' { size.checked_mul(4)? } else { size };
    Some(Shape { is_big, kind, size, unit: unit.trim_end_matches(']') })
}

/// The number of bytes that are reversed together where the order of bytes is the other.
fn component(shape: &Shape<'_>) -> usize {
    match shape.kind {
        'i' | 'u' | 'f' | 'M' | 'm' => shape.size,
        'c' => shape.size / 2,
        'U' => 4,
        _ => 1,
    }
}

/// The type that version 3 calls `data_type`, as `.npy` calls it.
pub(super) fn of_v3(data_type: &Value, is_big: bool) -> Result<String> {
    let unknown = || unusable(format!("its items of type {data_type} are not supported"));
    let (name, settings) = match data_type {
        Value::String(name) => (name.as_str(), None),
        Value::Object(object) => {
            let Some(name) = object.get("name").and_then(Value::as_str) else { return unknown() };
            (name, object.get("configuration"))
        }
        _ => return unknown(),
    };
    let number = |key: &str| settings.and_then(|settings| settings.get(key)?.as_u64());
    let order = if is_big { '>' } else { '<' };
    let bits = |kind: &str| name.strip_prefix(kind).and_then(|bits| bits.parse::<u64>().ok());
    let sized = |letter: char, bits: u64| match bits {
        8 => format!("|{letter}1"),
        _ => format!("{order}{letter}{}", bits / 8),
    };
    let descr = match name {
        "bool" => "|b1".to_owned(),
        "bfloat16" => "|V2".to_owned(),
        "raw_bytes" | "null_terminated_bytes" | "fixed_length_utf32" => {
            let Some(bytes) = number("length_bytes") else { return unknown() };
            match name {
                "raw_bytes" => format!("|V{bytes}"),
                "null_terminated_bytes" => format!("|S{bytes}"),
                _ => format!("{order}U{}", bytes / 4),
            }
        }
        "numpy.datetime64" | "numpy.timedelta64" => {
            let letter = if name == "numpy.datetime64" { 'M' } else { 'm' };
            let unit = settings.and_then(|settings| settings.get("unit")?.as_str());
            let Some(unit) = unit else { return unknown() };
            match number("scale_factor").unwrap_or(1) {
                _ if unit == "generic" => format!("{order}{letter}8"),
                1 => format!("{order}{letter}8[{unit}]"),
                scale => format!("{order}{letter}8[{scale}{unit}]"),
            }
        }
        _ => match (bits("int"), bits("uint"), bits("float"), bits("complex"), bits("r")) {
            (Some(n @ (8 | 16 | 32 | 64)), ..) => sized('i', n),
            (_, Some(n @ (8 | 16 | 32 | 64)), ..) => sized('u', n),
            (_, _, Some(n @ (16 | 32 | 64)), ..) => sized('f', n),
            (_, _, _, Some(n @ (64 | 128)), _) => sized('c', n),
            (.., Some(n)) if n > 0 && n % 8 == 0 => format!("|V{}", n / 8),
            _ => return unknown(),
        },
    };
    npy::item_bytes(&descr)?;
    Ok(descr)
}

/// The name of a type in version 3, if it has the type.
pub(super) fn to_v3(descr: &str) -> Result<Value> {
    let Some(found) = shape(descr) else {
        return unusable(format!("version 3 of Zarr has no type for '{descr}'"));
    };
    let bits = found.size * 8;
    let named = |name: &str, settings: Value| json!({"name": name, "configuration": settings});
    Ok(match (found.kind, found.size) {
        ('b', 1) => json!("bool"),
        ('i', 1 | 2 | 4 | 8) => json!(format!("int{bits}")),
        ('u', 1 | 2 | 4 | 8) => json!(format!("uint{bits}")),
        ('f', 2 | 4 | 8) => json!(format!("float{bits}")),
        ('c', 8 | 16) => json!(format!("complex{bits}")),
        ('S', bytes) => named("null_terminated_bytes", json!({"length_bytes": bytes})),
        ('V', bytes) => named("raw_bytes", json!({"length_bytes": bytes})),
        ('U', bytes) => named("fixed_length_utf32", json!({"length_bytes": bytes})),
        ('M' | 'm', 8) => {
            let name = if found.kind == 'M' { "numpy.datetime64" } else { "numpy.timedelta64" };
            let letters = found.unit.trim_start_matches(|c: char| c.is_ascii_digit());
            let scale = found.unit.len() - letters.len();
            let scale: u64 = found.unit[..scale].parse().unwrap_or(1);
            let unit = if letters.is_empty() { "generic" } else { letters };
            named(name, json!({"unit": unit, "scale_factor": scale}))
        }
        _ => {
            let text = format!("version 3 of Zarr has no type for '{descr}': write version 2 (");
            let version = message::Value::Number(2);
            return unusable(Message::from(text).option("zarr_format", version).then(")"));
        }
    })
}

/// The bytes of an item that is the fill value, in the order that the type says; `None` where the
/// value does not fit the type.
pub(super) fn fill(descr: &str, value: &Value) -> Option<Vec<u8>> {
    let found = shape(descr)?;
    if value.is_null() {
        return Some(vec![0; found.size]);
    }
    let mut bytes = little(&found, value)?;
    if bytes.len() != found.size {
        return None;
    }
    if found.is_big {
        bytes.chunks_mut(component(&found)).for_each(<[u8]>::reverse);
    }
    Some(bytes)
}

fn little(found: &Shape<'_>, value: &Value) -> Option<Vec<u8>> {
    let whole = |value: &Value| {
        let signed = value.as_i64().map(i64::to_le_bytes);
        signed.or_else(|| value.as_u64().map(u64::to_le_bytes))
    };
    match found.kind {
        'b' => Some(vec![u8::from(value.as_bool().or_else(|| value.as_u64().map(|v| v != 0))?)]),
        'M' | 'm' if value == "NaT" => Some(i64::MIN.to_le_bytes().to_vec()),
        'i' | 'u' | 'M' | 'm' => {
            // A float that is whole: some writers put a point behind it.
            let float = || value.as_f64().filter(|v| v.fract() == 0.0 && v.abs() < 9e15);
            let bytes = whole(value).or_else(|| float().map(|v| (v as i64).to_le_bytes()))?;
            let fits = narrowed_fits(found, &bytes);
            fits.then(|| bytes[..found.size.min(8)].to_vec())
        }
        'f' => float(found.size, value),
        'c' => {
            let [real, imaginary] = value.as_array()?.as_slice() else { return None };
            let half = found.size / 2;
            Some([float(half, real)?, float(half, imaginary)?].concat())
        }
        'U' => {
            let mut bytes: Vec<u8> =
                value.as_str()?.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
            padded(&mut bytes, found.size)
        }
        'S' | 'V' => raw(found, value),
        _ => None,
    }
}

/// Whether a whole number is in the range of a narrower type.
fn narrowed_fits(found: &Shape<'_>, bytes: &[u8; 8]) -> bool {
    let (kept, rest) = bytes.split_at(found.size.min(8));
    let is_negative = found.kind != 'u' && kept.last().is_some_and(|top| *top >= 128);
    rest.iter().all(|byte| *byte == if is_negative { 255 } else { 0 })
}

fn padded(bytes: &mut Vec<u8>, size: usize) -> Option<Vec<u8>> {
    if bytes.len() > size {
        return None;
    }
    bytes.resize(size, 0);
    Some(std::mem::take(bytes))
}

/// Bytes as such: base64, or a list of numbers; of a number of two bytes that is a bfloat16 too.
fn raw(found: &Shape<'_>, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => {
            if let (2, Some(bytes)) = (found.size, float(4, value)) {
                return Some(bytes[2..].to_vec());
            }
            // Old writers give zero as a number.
            padded(&mut STANDARD.decode(text).ok()?, found.size)
        }
        Value::Array(numbers) => {
            let bytes = numbers.iter().map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok()));
            bytes.collect()
        }
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(vec![0; found.size]),
        Value::Number(_) if found.size == 2 => Some(float(4, value)?[2..].to_vec()),
        _ => None,
    }
}

fn float(size: usize, value: &Value) -> Option<Vec<u8>> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            // Its bits.
            text => {
                let digits = text.strip_prefix("0x")?;
                let bits = u64::from_str_radix(digits, 16).ok()?;
                let bytes = bits.to_le_bytes();
                return (digits.len() == 2 * size).then(|| bytes[..size].to_vec());
            }
        },
        _ => return None,
    };
    match size {
        2 => Some(half(number).to_le_bytes().to_vec()),
        4 => Some((number as f32).to_le_bytes().to_vec()),
        8 => Some(number.to_le_bytes().to_vec()),
        // An extended float has no portable bytes, but for zero.
        _ => (number == 0.0).then(|| vec![0; size]),
    }
}

/// The bits of the half float nearest to a number, ties to even.
fn half(number: f64) -> u16 {
    let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
    if number.is_nan() {
        return 0x7e00;
    }
    let size = number.abs();
    if size >= 65_520.0 {
        return sign | 0x7c00;
    }
    // Steps of the last bit: 2^-24 below 2^-14, above that 2^(exponent - 10).
    let exponent = if size < 2.0_f64.powi(-14) { -14 } else { size.log2().floor() as i32 };
    let steps = (size / 2.0_f64.powi(exponent - 10)).round_ties_even() as u16;
    // A mantissa that was rounded up to the next power carries into the exponent.
    let biased = u16::try_from(exponent + 14).unwrap_or(0) << 10;
    sign | (biased + steps)
}

/// A fill value as JSON, from its bytes; the inverse of [`fill`].
pub(super) fn fill_value(descr: &str, bytes: &[u8]) -> Value {
    let Some(found) = shape(descr) else { return json!(0) };
    let mut bytes = bytes.to_vec();
    if found.is_big {
        bytes.chunks_mut(component(&found)).for_each(<[u8]>::reverse);
    }
    match found.kind {
        'b' => json!(bytes.first().is_some_and(|byte| *byte != 0)),
        'i' | 'M' | 'm' => {
            let fill = if bytes.last().is_some_and(|top| *top >= 128) { 255 } else { 0 };
            bytes.resize(8, fill);
            json!(bytes.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes)))
        }
        'u' => {
            bytes.resize(8, 0);
            json!(bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
        }
        'f' => float_value(&bytes),
        'c' => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            json!([float_value(real), float_value(imaginary)])
        }
        'U' => {
            let letters = bytes.chunks_exact(4).map_while(|bytes| {
                let code = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
                char::from_u32(code).filter(|c| *c != '\0')
            });
            json!(letters.collect::<String>())
        }
        'S' => {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            json!(STANDARD.encode(&bytes[..end]))
        }
        _ => json!(STANDARD.encode(&bytes)),
    }
}

fn float_value(bytes: &[u8]) -> Value {
    let number = match bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        // Of two bytes, or of more than eight.
        _ if bytes.iter().all(|byte| *byte == 0) => 0.0,
        [a, b] => {
            let bits = u16::from_le_bytes([*a, *b]);
            let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
            let size = match exponent {
                0 => mantissa * 2.0_f64.powi(-24),
                31 if mantissa > 0.0 => f64::NAN,
                31 => f64::INFINITY,
                _ => (1024.0 + mantissa) * 2.0_f64.powi(exponent - 25),
            };
            if bits & 0x8000 == 0 { size } else { -size }
        }
        _ => f64::NAN,
    };
    if number.is_nan() {
        json!("NaN")
    } else if number.is_infinite() {
        json!(if number > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_in_version_3() {
        for descr in [
            "|b1", "|i1", "|u1", "<i2", "<u4", "<f2", "<f8", "<c8", "|S3", "|V12", "<U4",
            "<M8[ns]", "<m8[25s]", "<M8",
        ] {
            assert_eq!(of_v3(&to_v3(descr).unwrap(), false).unwrap(), descr);
        }
        assert_eq!(of_v3(&json!("float64"), true).unwrap(), ">f8");
        assert_eq!(of_v3(&json!("r24"), true).unwrap(), "|V3");
        for value in [
            json!("int7"),
            json!("string"),
            json!(7),
            json!({"name": "raw_bytes"}),
            json!("r0"),
            json!("r12"),
            json!({"name": "raw_bytes", "configuration": {"length_bytes": 0}}),
        ] {
            assert!(of_v3(&value, false).is_err(), "{value}");
        }
        assert!(to_v3("<f16").is_err());
    }

    #[test]
    fn fill_values_are_bytes_and_back() {
        for (descr, value, bytes) in [
            ("|b1", json!(true), vec![1]),
            ("|i1", json!(-2), vec![254]),
            ("<i2", json!(-2), vec![254, 255]),
            (">u2", json!(258), vec![1, 2]),
            ("<u8", json!(u64::MAX), vec![255; 8]),
            (">f4", json!(1.0), vec![0x3f, 0x80, 0, 0]),
            ("<f8", json!("NaN"), f64::NAN.to_le_bytes().to_vec()),
            ("<f4", json!("-Infinity"), f32::NEG_INFINITY.to_le_bytes().to_vec()),
            ("<f2", json!(1.5), vec![0, 0x3e]),
            (">c8", json!([1.0, 2.0]), vec![0x3f, 0x80, 0, 0, 0x40, 0, 0, 0]),
            ("<U2", json!("é"), vec![0xe9, 0, 0, 0, 0, 0, 0, 0]),
            ("|S3", json!("YWI="), vec![b'a', b'b', 0]),
            ("|V2", json!("AQI="), vec![1, 2]),
            ("<M8[s]", json!(i64::MIN), i64::MIN.to_le_bytes().to_vec()),
        ] {
            assert_eq!(fill(descr, &value), Some(bytes.clone()), "{descr} {value}");
            assert_eq!(fill_value(descr, &bytes), value, "{descr}");
            assert_eq!(fill(descr, &Value::Null).map(|b| b.len()), Some(bytes.len()));
        }
        assert_eq!(fill("<f4", &json!("0x7fc00001")), Some(vec![1, 0, 0xc0, 0x7f]));
        assert_eq!(fill("<i4", &json!(3.0)), Some(vec![3, 0, 0, 0]));
        assert_eq!(fill("|V3", &json!([1, 2, 3])), Some(vec![1, 2, 3]));
        assert_eq!(fill("|V2", &json!("NaN")), Some(vec![0xc0, 0x7f]));
        assert_eq!(fill("<M8[s]", &json!("NaT")), Some(i64::MIN.to_le_bytes().to_vec()));
        for (descr, value) in [
            ("|i1", json!(128)),
            ("|u1", json!(-1)),
            ("<i4", json!("x")),
            ("<f8", json!("0x12")),
            ("|S1", json!("YWI=")),
            ("<c8", json!(1.0)),
            ("<U1", json!("ab")),
            ("|b1", json!("t")),
            ("|V3", json!([1, 2])),
        ] {
            assert_eq!(fill(descr, &value), None, "{descr} {value}");
        }
    }

    #[test]
    fn halves_are_rounded_to_the_nearest() {
        for (number, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.0, 0xc000),
            (65_504.0, 0x7bff),
            (65_520.0, 0x7c00),
            (1e9, 0x7c00),
            (5.960_464_5e-8, 1),
            (6.103_515_6e-5, 0x0400),
            (1.000_48, 0x3c00),
            (1.000_49, 0x3c01),
            (2.980_232_2e-8, 0),
            (1.999_9, 0x4000),
        ] {
            assert_eq!(half(number), bits, "{number}");
        }
    }
}
