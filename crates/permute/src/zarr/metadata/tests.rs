use super::*;
use proptest::prelude::*;

fn v2() -> Value {
    json!({
        "zarr_format": 2, "shape": [5, 4], "chunks": [2, 4], "dtype": ">f4", "order": "F",
        "compressor": {"id": "zlib", "level": 1}, "filters": null, "fill_value": 1.0,
    })
}

fn v3() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [5, 4, 3], "data_type": "int16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 4, 9]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": -1,
        "codecs": [
            {"name": "transpose", "configuration": {"order": [2, 0, 1]}},
            {"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "gzip", "configuration": {"level": 1}},
            "crc32c",
        ],
        "attributes": {"unit": "m"}, "dimension_names": ["x", null, "z"],
        "storage_transformers": [],
    })
}

fn parse(value: &Value) -> Result<Array> {
    let text = value.to_string();
    if value["zarr_format"] == 2 {
        Array::parse_v2(text.as_bytes(), None)
    } else {
        Array::parse_v3(text.as_bytes())
    }
}

#[test]
fn version_2_is_read() {
    let array = Array::parse_v2(v2().to_string().as_bytes(), Some(b"{\"a\": 1}")).unwrap();
    assert_eq!(
        array.grid,
        Grid { shape: vec![5, 4], chunk: vec![2, 4], inner: vec![1, 0], item: 4 }
    );
    assert_eq!(array.descr, ">f4");
    assert_eq!(array.fill, [0x3f, 0x80, 0, 0]);
    assert_eq!(array.codecs, [Codec::Zlib { level: 1 }]);
    assert_eq!(array.keys, Keys { has_prefix: false, separator: '.' });
    assert_eq!(array.attributes["a"], 1);
}

#[test]
fn version_3_is_read() {
    let array = parse(&v3()).unwrap();
    assert_eq!(array.grid.inner, [2, 0, 1]);
    assert_eq!((array.descr.as_str(), array.grid.item), (">i2", 2));
    assert_eq!(array.fill, [255, 255]);
    assert_eq!(array.codecs, [Codec::Gzip { level: 1 }, Codec::Crc32c]);
    assert_eq!(array.keys, Keys { has_prefix: true, separator: '.' });
    assert_eq!(array.dimension_names.unwrap()[0], "x");
}

#[test]
fn what_is_written_is_read_again() {
    for mut array in [parse(&v2()).unwrap(), parse(&v3()).unwrap()] {
        array.grid.inner.sort_unstable();
        let files = array.encode().unwrap();
        let value: Value = serde_json::from_str(&files[0].1).unwrap();
        assert_eq!(parse(&value).unwrap(), array, "{}", files[0].1);
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    for (base, pointer, value, word) in [
        (v2(), "/zarr_format", json!(7), "zarr_format"),
        (v2(), "/shape", json!("big"), "shape"),
        (v2(), "/shape", json!([5, -4]), "shape"),
        (v2(), "/shape", json!([1_u64 << 62, 16]), "larger than any file"),
        (v2(), "/chunks", json!([2]), "dimensions"),
        (v2(), "/chunks", json!([0, 4]), "size of 0"),
        (v2(), "/dtype", json!("|O"), "Python objects"),
        (v2(), "/dtype", json!([["a", "<f4"]]), "records"),
        (v2(), "/order", json!("K"), "order"),
        (v2(), "/filters", json!([{"id": "delta"}]), "'delta'"),
        (v2(), "/compressor", json!({"id": "lzma"}), "'lzma'"),
        (v2(), "/fill_value", json!("x"), "fill value"),
        (v3(), "/node_type", json!("group"), "group"),
        (v3(), "/chunk_grid/name", json!("rectilinear"), "'rectilinear'"),
        (v3(), "/chunk_grid/configuration", json!({}), "chunk_shape"),
        (v3(), "/data_type", json!("string"), "string"),
        (v3(), "/codecs", json!([]), "'bytes'"),
        (v3(), "/codecs/0/configuration/order", json!([0, 0, 1]), "order"),
        (v3(), "/codecs/1/name", json!("sharding_indexed"), "shards"),
        (v3(), "/codecs/2/name", json!("pcodec"), "'pcodec'"),
        (v3(), "/chunk_key_encoding/name", json!("x"), "'x'"),
        (v3(), "/storage_transformers", json!([1]), "storage"),
        (v3(), "/attributes", json!(1), "attributes"),
    ] {
        let mut changed = base;
        let Some(place) = changed.pointer_mut(pointer) else { panic!("{pointer}") };
        *place = value;
        let format = changed["zarr_format"].clone();
        let text = changed.to_string();
        let parsed = if format == 3 {
            Array::parse_v3(text.as_bytes())
        } else {
            Array::parse_v2(text.as_bytes(), None)
        };
        let error = parsed.unwrap_err().to_string();
        assert!(error.contains(word), "{pointer}: {error}");
        assert!(!error.contains('\n'));
    }
    assert!(Array::parse_v3(b"[1]").is_err());
    assert!(Array::parse_v3(&[b'['; 100_000]).is_err());
}

/// Any JSON of a few levels.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9<>|]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop_oneof![Just("name"), Just("id")], inner), 0..3)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_metadata_makes_it_panic(value in anything(), place in 0..24_usize) {
        for base in [v2(), v3()] {
            let mut changed = base.clone();
            let keys: Vec<String> = base.as_object().unwrap().keys().cloned().collect();
            changed[&keys[place % keys.len()]] = value.clone();
            let text = changed.to_string();
            let _ = Array::parse_v3(text.as_bytes());
            let _ = Array::parse_v2(text.as_bytes(), Some(text.as_bytes()));
        }
    }
}
