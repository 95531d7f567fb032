use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const FORMATS: [Format; 2] = [Format::Tsv, Format::Jsonl];

fn encoded(format: Format, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    format.encode(key, value, &mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    line
}

fn entry(key: &[u8], value: &[u8]) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// Bytes that meet every rule: text, escapes, control bytes, halves of UTF-8.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..40),
        any::<String>().prop_map(String::into_bytes),
        vec(
            prop_oneof![
                Just(b'\\'),
                Just(b'\t'),
                Just(b'\n'),
                Just(b'\r'),
                Just(b'x'),
                Just(b'0'),
                Just(b'"'),
                Just(0xc3),
                Just(0xa9),
                Just(0x7f)
            ],
            0..20
        ),
    ]
}

proptest! {
    #[test]
    fn decoding_an_encoded_line_gives_the_entry(key in bytes(), value in bytes()) {
        for format in FORMATS {
            let line = encoded(format, &key, &value);
            prop_assert!(line.iter().filter(|byte| byte.is_ascii_control()).count() <= 1);
            prop_assert!(line.len() <= format.line_bytes_max());
            prop_assert_eq!(format.decode(&line), Ok((key.clone(), value.clone())));
        }
    }

    #[test]
    fn an_accepted_line_has_one_canonical_form(line in bytes(), tab in bytes()) {
        let line = [line, b"\t".to_vec(), tab].concat();
        for format in FORMATS {
            if let Ok((key, value)) = format.decode(&line) {
                let canonical = encoded(format, &key, &value);
                prop_assert_eq!(format.decode(&canonical), Ok((key, value)));
            }
        }
    }

    #[test]
    fn any_line_is_read_or_refused(line in vec(any::<u8>(), 0..80)) {
        for format in FORMATS {
            let _ = format.decode(&line);
        }
    }

    #[test]
    fn lines_do_not_depend_on_chunks(
        text in vec(prop_oneof![3 => Just(b'a'), 1 => Just(b'\n')], 0..60),
        cuts in vec(0_usize..60, 0..6),
        bytes_max in 0_usize..8,
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|&cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&text[from..cut]);
            from = cut;
        }
        chunks.push(&text[from..]);

        let expected: Vec<Option<Vec<u8>>> = text
            .split_inclusive(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
            .map(|line| (line.len() <= bytes_max).then(|| line.to_vec()))
            .collect();
        prop_assert_eq!(split(&chunks, bytes_max), expected);
    }
}

/// A function that turns a key which is given on the command line into bytes.
type Decoder = fn(&[u8]) -> Option<Vec<u8>>;

/// A key comes back from what `scan` prints of it, and from its hexadecimal digits.
fn keys_come_back(escaped: Decoder, hex: Decoder) -> bool {
    use proptest::test_runner::{Config, TestRunner};
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let judged = runner.run(&bytes(), |key| {
        let line = encoded(Format::Tsv, &key, b"");
        let shown = line.strip_suffix(b"\t").unwrap_or(&line);
        prop_assert_eq!(escaped(shown), Some(key.clone()));
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        for digits in [digits.to_uppercase(), format!("0x{digits}"), digits] {
            prop_assert_eq!(hex(digits.as_bytes()), Some(key.clone()));
        }
        Ok(())
    });
    judged.is_ok()
}

#[test]
fn keys_come_back_from_what_is_printed_of_them() {
    let escaped: Decoder = |text| unescaped(text).ok();
    assert!(keys_come_back(escaped, from_hex));
    // A test that cannot fail proves nothing: keys as they are given, and digits as text.
    assert!(!keys_come_back(|text| Some(text.to_vec()), from_hex));
    assert!(!keys_come_back(escaped, |text| Some(text.to_vec())));
}

fn split(chunks: &[&[u8]], bytes_max: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines = Vec::new();
    let mut each = |line: Line<'_>| {
        lines.push(match line {
            Line::Whole(line) => Some(line.to_vec()),
            Line::TooLong => None,
        });
        Ok::<(), ()>(())
    };
    let mut splitter = LineSplitter::new(bytes_max);
    for chunk in chunks {
        splitter.feed(chunk, &mut each).unwrap();
        assert!(splitter.partial.len() <= bytes_max);
    }
    splitter.finish(&mut each).unwrap();
    lines
}

#[test]
fn tsv_escapes_what_would_not_survive_a_line() {
    let line = encoded(Format::Tsv, b"a\\b\tc", b"\r\n\x00\x7f\xff caf\xc3\xa9");
    assert_eq!(line, b"a\\\\b\\tc\t\\r\\n\\x00\\x7f\\xff caf\xc3\xa9");
}

#[test]
fn tsv_takes_raw_bytes_and_either_case_of_hex() {
    let decode = |line: &[u8]| Format::Tsv.decode(line);
    assert_eq!(decode(b"k\tv"), Ok(entry(b"k", b"v")));
    assert_eq!(decode(b"\t"), Ok(entry(b"", b"")));
    assert_eq!(decode(b"k\ta\tb\r"), Ok(entry(b"k", b"a\tb\r")));
    assert_eq!(decode(b"\\xFf\t\xff"), Ok(entry(b"\xff", b"\xff")));
    assert_eq!(decode(b"\\t\t\\x5c"), Ok(entry(b"\t", b"\\")));
}

#[test]
fn tsv_refuses_what_it_does_not_know() {
    let decode = |line: &[u8]| Format::Tsv.decode(line);
    assert_eq!(decode(b""), Err(LineError::NoTab));
    assert_eq!(decode(b"key value"), Err(LineError::NoTab));
    for (line, column) in [
        (&b"\\\tv"[..], 1),
        (b"k\t\\", 3),
        (b"k\tab\\q", 5),
        (b"k\t\\x", 3),
        (b"k\t\\x1", 3),
        (b"k\t\\x1g", 3),
        (b"k\\0\t", 2),
    ] {
        assert_eq!(decode(line), Err(LineError::UnknownEscape { column }));
    }
}

#[test]
fn jsonl_uses_base64_only_for_what_is_not_text() {
    assert_eq!(encoded(Format::Jsonl, b"k", b"v\n"), br#"{"k":"k","v":"v\n"}"#);
    assert_eq!(encoded(Format::Jsonl, b"\xff", b"\x00\xfe"), br#"{"k64":"/w==","v64":"AP4="}"#);
    assert_eq!(encoded(Format::Jsonl, b"\x7f", b"\x1b"), br#"{"k":"\u007f","v":"\u001b"}"#);
    let written_otherwise = br#" { "v" : "v", "k64": "aw==" } "#;
    assert_eq!(Format::Jsonl.decode(written_otherwise), Ok(entry(b"k", b"v")));
}

#[test]
fn jsonl_refuses_what_is_not_one_entry() {
    let not_json: [&[u8]; 6] =
        [b"", b"{", b"{}x", b"\xff", br#"{"k":"\ud800","v":""}"#, br#"{"k":"","v":"",}"#];
    for line in not_json {
        let answer = Format::Jsonl.decode(line);
        assert!(matches!(answer, Err(LineError::NotJson { .. })), "{answer:?}");
    }
    let not_an_entry: [&[u8]; 9] = [
        b"[]",
        b"null",
        b"{}",
        br#"{"k":"a"}"#,
        br#"{"v":"a"}"#,
        br#"{"k":1,"v":"a"}"#,
        br#"{"k":"a","k64":"","v":"a"}"#,
        br#"{"k64":"a","v":"a"}"#,
        br#"{"k":"a","v":"a","ttl":"1"}"#,
    ];
    for line in not_an_entry {
        let answer = Format::Jsonl.decode(line);
        assert!(matches!(answer, Err(LineError::NotAnEntry(_))), "{answer:?}");
    }
}

#[test]
fn deep_nesting_is_refused_without_recursion() {
    let line = vec![b'['; Format::Jsonl.line_bytes_max()];
    assert!(matches!(Format::Jsonl.decode(&line), Err(LineError::NotJson { .. })));
}

#[test]
fn keys_and_values_at_the_limit_pass_and_one_byte_more_does_not() {
    for format in FORMATS {
        for byte in [b'a', 0, 0xff] {
            let (key, value) = (vec![byte; KEY_BYTES_MAX], vec![byte; VALUE_BYTES_MAX]);
            let line = encoded(format, &key, &value);
            assert!(line.len() <= format.line_bytes_max());
            assert_eq!(format.decode(&line), Ok((key.clone(), value.clone())));

            let longer_key = vec![byte; KEY_BYTES_MAX + 1];
            let bytes = longer_key.len();
            let answer = format.decode(&encoded(format, &longer_key, b""));
            assert_eq!(answer, Err(LineError::KeyTooLong { bytes }));

            let longer_value = vec![byte; VALUE_BYTES_MAX + 1];
            let bytes = longer_value.len();
            let answer = format.decode(&encoded(format, b"", &longer_value));
            assert_eq!(answer, Err(LineError::ValueTooLong { bytes }));
        }
    }
}

#[test]
fn errors_never_repeat_the_line() {
    let secret = "hunter2";
    for line in [
        secret.to_owned(),
        format!("k\t{secret}\\q"),
        format!("{{\"k\":\"a\",\"v\":\"a\",\"{secret}\":1}}"),
        format!("{{\"k\":\"a\",\"v64\":\"{secret}!\"}}"),
        format!("{{\"k\":{secret}"),
    ] {
        for format in FORMATS {
            if let Err(error) = format.decode(line.as_bytes()) {
                assert!(!error.to_string().contains(secret), "{error}");
            }
        }
    }
}
