//! Histories made by hand: what is refused, and what is not.

use super::*;

/// `reads` at a number, then `writes` with the next ones: key and version, versions above 100 are
/// deletes.
fn transaction(
    span: (u64, u64),
    reads_at: u64,
    reads: &[(Key, Version)],
    number: u64,
    writes: &[(Key, Version)],
) -> Transaction {
    let write = |(key, version): &(Key, Version)| Write {
        key: *key,
        version: *version,
        is_delete: *version > 100,
    };
    Transaction {
        span: Span { invoked: span.0, returned: span.1 },
        reads_at,
        reads: reads.to_vec(),
        number: (!writes.is_empty()).then_some(number),
        writes: writes.iter().map(write).collect(),
    }
}

/// Keys 1 and 2 have versions 1 and 2.
fn begun() -> Transaction {
    transaction((0, 1), 0, &[], 2, &[(1, 1), (2, 2)])
}

fn oracle(history: &[Transaction]) -> Option<Oracle> {
    check(history).err().map(|violation| violation.oracle)
}

#[test]
fn one_after_the_other_is_fine() {
    let history = [
        begun(),
        transaction((2, 3), 2, &[(1, 1), (9, ABSENT)], 3, &[(1, 3)]),
        transaction((4, 5), 3, &[(1, 3), (2, 2)], 5, &[(1, 101), (9, 4)]),
        transaction((6, 7), 5, &[(1, ABSENT), (9, 4)], 0, &[]),
    ];
    assert_eq!(oracle(&history), None);
    assert_eq!(oracle(&[]), None);
}

#[test]
fn a_lost_update_is_a_circle() {
    let history = [
        begun(),
        transaction((2, 9), 2, &[(1, 1)], 3, &[(1, 3)]),
        transaction((3, 8), 2, &[(1, 1)], 4, &[(1, 4)]),
    ];
    assert_eq!(oracle(&history), Some(Oracle::Serializable));
}

#[test]
fn write_skew_is_a_circle() {
    let skew = |first: &[(Key, Version)]| {
        [
            begun(),
            transaction((2, 9), 2, first, 3, &[(2, 3)]),
            transaction((3, 8), 2, &[(1, 1), (2, 2)], 4, &[(1, 4)]),
        ]
    };
    assert_eq!(oracle(&skew(&[(1, 1), (2, 2)])), Some(Oracle::Serializable));
    // The second one read what the first one wrote over, and the other way around nothing.
    assert_eq!(oracle(&skew(&[(2, 2)])), None);
}

#[test]
fn phantoms_make_circles() {
    let count = [(5, ABSENT), (6, ABSENT)];
    let history = [
        begun(),
        transaction((2, 9), 2, &count, 3, &[(5, 5)]),
        transaction((3, 8), 2, &count, 4, &[(6, 6)]),
    ];
    assert_eq!(oracle(&history), Some(Oracle::Serializable));
    let after_a_delete = [
        begun(),
        transaction((2, 3), 2, &[], 3, &[(1, 101)]),
        transaction((4, 9), 3, &[(1, ABSENT), (2, 2)], 4, &[(2, 3)]),
        transaction((5, 8), 3, &[(2, 2), (1, ABSENT)], 5, &[(1, 4)]),
    ];
    assert_eq!(oracle(&after_a_delete), Some(Oracle::Serializable));
}

#[test]
fn an_old_state_does_not_fit_the_clock() {
    let old = |span| {
        [begun(), transaction((2, 3), 2, &[], 3, &[(1, 3)]), {
            transaction(span, 2, &[(1, 1)], 0, &[])
        }]
    };
    assert_eq!(oracle(&old((4, 5))), Some(Oracle::Serializable));
    let beside = [begun(), transaction((2, 6), 2, &[], 3, &[(1, 3)]), {
        transaction((4, 5), 2, &[(1, 1)], 0, &[])
    }];
    assert_eq!(oracle(&beside), None);
}

#[test]
fn a_torn_read_is_a_circle() {
    let history = [
        begun(),
        transaction((2, 9), 2, &[], 4, &[(1, 3), (2, 4)]),
        transaction((3, 8), 2, &[(1, 3), (2, 2)], 0, &[]),
    ];
    assert_eq!(oracle(&history), Some(Oracle::Serializable));
}

#[test]
fn versions_from_nowhere_and_false_absences_are_named() {
    let reads = |reads: &[(Key, Version)]| [begun(), transaction((2, 3), 2, reads, 0, &[])];
    assert_eq!(oracle(&reads(&[(1, 77)])), Some(Oracle::NothingFromNowhere));
    assert_eq!(oracle(&reads(&[(1, 2)])), Some(Oracle::NothingFromNowhere), "of another key");
    assert_eq!(oracle(&reads(&[(1, ABSENT)])), Some(Oracle::ContentMatches));
}

#[test]
fn a_cycle_is_reported() {
    let history = [
        begun(),
        transaction((2, 9), 2, &[(1, 1)], 3, &[(1, 3)]),
        transaction((3, 8), 2, &[(1, 1)], 4, &[(1, 4)]),
    ];
    let told = check(&history).unwrap_err().to_string();
    assert!(told.contains("key 1"), "{told}");
}

#[test]
fn an_operand_applies_to_the_version_before() {
    let history = [
        begun(),
        transaction((2, 3), 2, &[], 3, &[(1, 3)]),
        transaction((4, 5), 3, &[], 4, &[(1, 101)]),
        transaction((6, 7), 4, &[], 5, &[(1, 5)]),
    ];
    let fits = |on, version| stacks_fit(&history, &[Stood { key: 1, on, version }]).is_ok();
    assert!(fits(1, 3) && fits(ABSENT, 5) && fits(ABSENT, 1));
    assert!(!fits(ABSENT, 3) && !fits(2, 3) && !fits(3, 5), "another version, or none");
    assert!(fits(1, 77), "nobody has committed it");
}
