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
    let numbers = [(2, "2L"), (3, "2")];
    for (major, size) in numbers {
        let text = format!("{{\"shape\":({size},),\"fortran_order\":True,\"descr\":\"<f4\"}}\n");
        let text = text.as_bytes();
        let mut bytes = [MAGIC.as_slice(), &[major, 0]].concat();
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text);
        let (found, start) = Header::parse(&bytes).unwrap();
        assert_eq!(found, header("<f4", true, &[2]));
        assert_eq!(start, 12 + text.len() as u64);
    }
}

#[test]
fn the_last_of_keys_that_repeat_counts() {
    let text =
        b"{'shape': (9,), 'descr': '<i2', 'fortran_order': True,\n# later\n 'shape': (3, 4), \
                'descr': '>' 'f4', 'fortran_order': False}";
    let bytes = [MAGIC.as_slice(), &[1, 0, u8::try_from(text.len()).unwrap(), 0], text].concat();
    assert_eq!(Header::parse(&bytes).unwrap().0, header(">f4", false, &[3, 4]));
}

#[test]
fn types_are_those_of_numpy() {
    for (dtype, descr, bytes) in [
        ("=f8", "<f8", 8),
        ("|f8", "<f8", 8),
        ("f", "<f4", 4),
        (">d", ">f8", 8),
        ("?", "|b1", 1),
        (">u1", "|u1", 1),
        ("a5", "|S5", 5),
        ("U3", "<U3", 12),
        ("<f08", "<f8", 8),
        (">M8[25s]", ">M8[25s]", 8),
    ] {
        assert_eq!((descr_of(dtype).as_str(), item_bytes(dtype).unwrap()), (descr, bytes));
    }
    for dtype in ["", "<", "é", "f3", "S2147483648", "U536870912", "M8[2147483648s]", "i4,i4"] {
        assert!(item_bytes(dtype).is_err(), "{dtype}");
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
        ("(3,)", "(3)"),
        ("(3,)", "(3,,)"),
        ("(3,)", "(3 4)"),
        ("(3,)", "(3.0,)"),
        ("(3,)", "(True,)"),
        ("False", "0"),
        ("False", "Falsely"),
        ("'descr'", "'more': 1, 'descr'"),
        ("<f8", "bfloat16"),
        ("<f8", "<f12"),
        ("<f8", "f8[s]"),
        ("<f8", "<M8[xs]"),
        ("<f8", "<f+8"),
        ("'<f8'", "b'<f8'"),
        (", }", ", } x"),
        ("False", "maybe"),
    ] {
        assert!(with(from, to).is_err(), "{to}");
    }
    let mut bytes = good;
    bytes[6] = 9;
    assert!(Header::parse(&bytes).is_err());
}
