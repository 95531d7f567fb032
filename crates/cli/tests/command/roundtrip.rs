//! Round trips: `load` reads all that `dump` writes, any bytes, in both forms.

use std::collections::BTreeMap;

use esker::{INLINE_BYTES_MAX, KEY_BYTES_MAX};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::support::{Place, esker, esker_reading};

/// The text form, written down a second time and plainly, as the oracle.
fn line(key: &[u8], value: &[u8]) -> Vec<u8> {
    let escape = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().flat_map(|byte| format!("\\x{byte:02X}").into_bytes()).collect()
    };
    [escape(key), b"\t".to_vec(), escape(value), b"\n".to_vec()].concat()
}

fn entries() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    let bytes = || prop_oneof![vec(any::<u8>(), 0..50), any::<String>().prop_map(Into::into)];
    let mut entries =
        btree_map(bytes(), bytes(), 500..600).new_tree(&mut runner).unwrap().current();
    for byte in 0..=u8::MAX {
        entries.insert(vec![byte], vec![byte; 3]);
        entries.insert(vec![b'k', byte], vec![b'\\', byte]);
    }
    entries.insert(vec![], vec![]);
    entries.insert(vec![0xff; KEY_BYTES_MAX], vec![0x01; INLINE_BYTES_MAX + 1]);
    entries
}

#[test]
fn dump_then_load_keeps_every_byte() {
    let entries = entries();
    let input: Vec<u8> = entries.iter().flat_map(|(key, value)| line(key, value)).collect();
    for place in Place::of_each_kind() {
        let db = place.load(&input);
        let dumped = esker(["dump", &db]).stdout().to_vec();
        assert_eq!(dumped.iter().filter(|&&byte| byte == b'\n').count(), entries.len());

        for format in ["tsv", "jsonl"] {
            let written = esker(["dump", &db, "--format", format]).stdout().to_vec();
            let copy = place.path(format).into_os_string().into_string().unwrap();
            let kind = place.kind().name();
            esker_reading(["load", &copy, "--format", format, "--index", kind], &written).stdout();
            let copied = esker(["dump", &copy]);
            assert!(copied.stdout() == dumped, "the {format} copy differs");
        }
        for (key, value) in &entries {
            let mut expected = Vec::new();
            esker_cli::text::Format::Tsv.encode(key, value, &mut expected);
            let position = dumped.windows(expected.len()).position(|window| window == expected);
            assert!(expected.len() > 1000 || position.is_some(), "{key:?} is not in the dump");
        }
    }
}
