//! Fields of a line: words, whole numbers and seconds with a fraction.

/// What is wrong with a line; its place is added by the reader.
pub(super) type Parsed<T> = Result<T, String>;

/// The words of a line, between spaces and tabs.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

/// A field that must be there.
pub(super) fn required<'a>(field: Option<&'a [u8]>, name: &str) -> Parsed<&'a [u8]> {
    field.ok_or_else(|| format!("the line ends before its {name}"))
}

/// A number of decimal digits alone.
pub(super) fn number(field: Option<&[u8]>, name: &str) -> Parsed<u64> {
    let text = required(field, name)?;
    digits(text)
        .ok_or_else(|| format!("its {name} is '{}', not a whole number below 2^64", shown(text)))
}

/// Seconds with at most nine digits behind the point, as nanoseconds.
pub(super) fn seconds_as_ns(field: Option<&[u8]>, name: &str) -> Parsed<u64> {
    let text = required(field, name)?;
    parse_seconds(text)
        .ok_or_else(|| format!("its {name} is '{}', not seconds such as 12.000345678", shown(text)))
}

/// The end of a range of bytes, if it is below 2^64.
pub(super) fn range(offset: u64, length: u64) -> Parsed<()> {
    match offset.checked_add(length) {
        Some(_) => Ok(()),
        None => Err(format!("offset {offset} and length {length} add up to more than 2^64")),
    }
}

/// Sectors of 512 bytes as bytes.
pub(super) fn sectors(count: u64, name: &str) -> Parsed<u64> {
    count
        .checked_mul(512)
        .ok_or_else(|| format!("its {name} of {count} sectors exceeds 2^64 bytes"))
}

/// Up to 40 bytes of a field, for a message.
pub(super) fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES: usize = 40;
    let cut = text.get(..SHOWN_BYTES);
    let shown = String::from_utf8_lossy(cut.unwrap_or(text));
    let dots = if cut.is_some() { "…" } else { "" };
    format!("{}{dots}", shown.escape_debug())
}

fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

fn parse_seconds(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = digits(parts.next()?)?.checked_mul(1_000_000_000)?;
    let Some(fraction) = parts.next() else { return Some(whole) };
    let missing = 9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_add(digits(fraction)? * 10_u64.pow(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_below_2_64() {
        assert_eq!(digits(b"18446744073709551615"), Some(u64::MAX));
        for wrong in ["18446744073709551616", "", "-1", "+1", "1 ", "0x1", "1.0"] {
            assert_eq!(digits(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_have_up_to_nine_places() {
        assert_eq!(parse_seconds(b"12.000345678"), Some(12_000_345_678));
        assert_eq!(parse_seconds(b"0.5"), Some(500_000_000));
        assert_eq!(parse_seconds(b"3"), Some(3_000_000_000));
        for wrong in ["1.", ".5", "1.0000000001", "1.2.3", "18446744074.0", "a.1"] {
            assert_eq!(parse_seconds(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn long_fields_are_cut_in_messages() {
        assert_eq!(shown(b"a\nb"), "a\\nb");
        assert_eq!(shown(&[b'x'; 50]).chars().count(), 41);
    }
}
