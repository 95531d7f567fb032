use super::*;

/// The value of the key `k`, as the last entry says it.
fn value(text: &str) -> Option<Literal> {
    let entries = dictionary(&format!("{{'k': {text}}}"), true)?;
    entries.into_iter().next_back().map(|(_, value)| value)
}

#[test]
fn values_are_read_as_python_reads_them() {
    let text = |text: &str| Some(Literal::Text(text.to_owned()));
    let whole = |number: u64| Some(Literal::Whole(Some(number)));
    for (literal, expected) in [
        ("'<f8'", text("<f8")),
        ("u\"<f8\"", text("<f8")),
        ("'<' # why\n 'f8'", text("<f8")),
        ("'''<f8'''", text("<f8")),
        ("'\\x3cf\\70'", text("<f8")),
        ("r'\\x'", text("\\x")),
        ("'\\q'", text("\\q")),
        ("('<f8')", text("<f8")),
        ("b'<f8'", Some(Literal::Other)),
        ("1_0", whole(10)),
        ("0x_10", whole(16)),
        ("00", whole(0)),
        ("+ 3", whole(3)),
        ("-0", whole(0)),
        ("3L", whole(3)),
        ("3 L", whole(3)),
        ("-3", Some(Literal::Whole(None))),
        ("99999999999999999999", Some(Literal::Whole(None))),
        ("1.5e-3j", Some(Literal::Other)),
        ("True", Some(Literal::Bool(true))),
        ("{1, 2}", Some(Literal::Other)),
        ("[1, {}, ()]", Some(Literal::Other)),
        ("()", Some(Literal::Tuple(Vec::new()))),
        ("(True,)", Some(Literal::Tuple(vec![Literal::Bool(true)]))),
    ] {
        assert_eq!(value(literal), expected, "{literal}");
    }
}

#[test]
fn what_is_no_literal_is_refused() {
    for literal in [
        "",
        "f8",
        "'<f8",
        "'<f8\n'",
        "'a' b'a'",
        "f'a'",
        "'\\x3'",
        "(,)",
        "(3,,)",
        "03",
        "1__0",
        "0x",
        "3l",
        "3LL",
        "1.2.3",
        "not True",
        "+-3",
        "{1: 2, 3}",
        "{1, 2: 3}",
        "(1",
        "1 2",
        ".",
    ] {
        assert_eq!(value(literal), None, "{literal}");
    }
    for text in ["", "{}}", "{} x", "\n {}", "{}\0", "[]", "{}\\\n", "{},"] {
        assert_eq!(dictionary(text, true), None, "{text:?}");
    }
    assert_eq!(dictionary("{}\n ", true), Some(Vec::new()));
    assert_eq!(dictionary("{}\n ", false), None);
    assert_eq!(dictionary("{'k': 3L}", false), None);
    let deep = format!("{{'k': {}{}}}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(dictionary(&deep, true), None);
}

#[test]
fn lines_around_it_count_for_nothing() {
    for text in [
        "  {}",
        "\n{}",
        "# c\n\n{}\n",
        "{} # c",
        "({})",
        "\\\n{}",
        "{}\\\n \n",
        "{\n# c\n}\n  # c",
        "\n\x0c{}",
    ] {
        assert_eq!(dictionary(text, false), Some(Vec::new()), "{text:?}");
    }
}
