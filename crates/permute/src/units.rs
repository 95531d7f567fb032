//! Sizes as people write them.

use crate::error::{Result, input};

/// Bytes of a size such as `64MiB`, `1.5GiB`, `4000` or `10 MB`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || input(format!("'{text}' is no size: write one such as 64MiB or 1GiB"));
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, unit) = text.split_at(end);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1_u64,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return wrong(),
    };
    if let Ok(whole) = count.parse::<u64>() {
        return whole.checked_mul(factor).map_or_else(wrong, Ok);
    }
    let Ok(count) = count.parse::<f64>() else { return wrong() };
    let bytes = count * factor as f64;
    if bytes.is_finite() && bytes < 1e18 { Ok(bytes as u64) } else { wrong() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("4096", 4096),
            ("64KiB", 64 << 10),
            ("64 MiB", 64 << 20),
            ("1.5g", 3 << 29),
            ("10MB", 10_000_000),
        ] {
            assert_eq!(parse_bytes(text).ok(), Some(expected), "{text}");
        }
        for text in ["", "MiB", "1x", "-1", "99999999999999999999", "99999999999GiB", "1..2"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
