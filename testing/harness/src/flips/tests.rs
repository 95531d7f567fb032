use std::collections::BTreeMap;

use super::*;
use crate::violation::{Oracle, Violation};

const PLAIN: Sampling = Sampling { stride: 1, run_stride: 16, masks: 1 };

/// Two files: one without zeros, and one that is 100 ones and 1000 zeros.
fn image() -> Image {
    let zeros = [vec![1; 100], vec![0; 1000]].concat();
    Image::from_files([
        ("a".to_owned(), (0..1500).map(|n| n as u8 | 1).collect()),
        ("z".to_owned(), zeros),
    ])
}

fn read(file: &str, is_read: impl Fn(usize) -> bool) -> Touched {
    let len = image().bytes(file).len();
    BTreeMap::from([(file.to_owned(), (0..len).map(is_read).collect())])
}

/// All damages of a kind, which must differ from the image as they say.
fn all<T>(run: impl FnOnce(&mut Judge<'_>) -> Verdict<T>) -> (Vec<String>, T) {
    let mut places = Vec::new();
    let original = image();
    let result = run(&mut |damage| {
        let (before, after) = (original.bytes(damage.file), damage.image.bytes(damage.file));
        if let Some(range) = &damage.range {
            assert_eq!(before.len(), after.len(), "{}", damage.place);
            let differing = (0..before.len()).filter(|at| before[*at] != after[*at]);
            assert!(differing.into_iter().all(|at| range.contains(&at)), "{}", damage.place);
        } else {
            assert!(!damage.place.is_empty());
        }
        places.push(damage.place.clone());
        Ok(())
    });
    (places, result.unwrap())
}

#[test]
fn bytes_that_were_read_are_flipped_with_rotating_patterns() {
    let read = read("a", |at| at < 3 || at == 1000);
    let (places, taken) = all(|judge| bytes(&image(), &read, PLAIN, judge));
    assert_eq!(places, ["a@0 ^ 0x01", "a@1 ^ 0x80", "a@2 ^ 0xff", "a@1000 ^ 0x80"]);
    assert_eq!(taken, Taken { bytes: 1500, never_read: 1496, left_out: 0, judged: 4 });
    let every_other = Sampling { stride: 2, masks: 3, ..PLAIN };
    let (places, taken) = all(|judge| bytes(&image(), &read, every_other, judge));
    assert_eq!(places[..4], ["a@0 ^ 0x01", "a@0 ^ 0x80", "a@0 ^ 0xff", "a@2 ^ 0xff"]);
    assert_eq!(taken.judged, 6);
}

#[test]
fn long_runs_of_zeros_are_sampled() {
    let read = read("z", |_| true);
    let (places, taken) = all(|judge| bytes(&image(), &read, PLAIN, judge));
    // The ones, the zeros within 32 bytes of them, and multiples of 16 of the rest.
    assert_eq!(
        taken.judged,
        132 + (132..1100_u64).filter(|at| at.is_multiple_of(16)).count() as u64
    );
    assert_eq!(taken.judged + taken.left_out, 1100);
    assert_eq!(places[130..134], ["z@130 ^ 0x80", "z@131 ^ 0xff", "z@144 ^ 0x01", "z@160 ^ 0x80"]);
    let whole = Sampling { run_stride: 1, ..PLAIN };
    assert_eq!(all(|judge| bytes(&image(), &read, whole, judge)).1.judged, 1100);
}

#[test]
fn units_become_zeros_others_and_older_ones() {
    let (places, seen) = all(|judge| units(&image(), None, 512, judge));
    assert_eq!((seen, places.len()), (3 + 3, 2 * 6));
    assert_eq!(places[0], "a unit 0 became zeros");
    let older = Image::from_files([("a".to_owned(), vec![9; 700])]);
    let mut second = Vec::new();
    let seen = units(&image(), Some(&older), 512, &mut |damage| {
        if damage.place == "a unit 1 became its older version" {
            second = damage.image.bytes("a");
        }
        Ok(())
    });
    assert_eq!(seen.unwrap(), 6);
    let expected = [&image().bytes("a")[..512], &[9; 188], &image().bytes("a")[700..]].concat();
    assert_eq!(second, expected);
}

#[test]
fn files_are_cut_and_lose_their_heads_at_sectors_and_next_to_them() {
    let (places, cut) = all(|judge| cuts(&image(), 100, judge));
    // 0, 1, 511 to 513, 1023 to 1025, and one less than all.
    assert_eq!(cut, 2 * 9);
    assert_eq!(places[8], "a cut from 1500 to 1499");
    let (places, zeroed) = all(|judge| heads(&image(), 100, judge));
    assert_eq!(zeroed, 2 * 10);
    assert_eq!(places[9], "a, 1500 zeros of 1500");
    assert_eq!(all(|judge| cuts(&image(), 3, judge)).1, 2 * 3);
}

#[test]
fn files_are_removed_and_replaced_but_never_all() {
    let (places, ()) = all(|judge| removals(&image(), judge));
    assert_eq!(places, [r#"without ["a"]"#, r#"without ["z"]"#]);
    assert_eq!(all(|judge| combinations(&image(), judge)).0, places);
    let (places, mixed) = all(|judge| mixtures(&image(), &image(), judge));
    assert_eq!(mixed, 3);
    assert_eq!(places[2], r#"with ["z"] of another"#);
}

#[test]
fn a_violation_and_a_panic_have_the_place_of_the_damage() {
    let read = read("a", |_| true);
    for panics in [false, true] {
        let verdict = bytes(&image(), &read, PLAIN, &mut |damage| match &damage.range {
            Some(range) if range.start == 7 => {
                assert!(!panics, "a panic");
                Err(Violation::new(Oracle::DamageIsNotData, "wrong"))
            }
            _ => Ok(()),
        });
        let violation = verdict.unwrap_err();
        assert_eq!(violation.place, "a@7 ^ 0x80");
        assert_eq!(violation.oracle == Oracle::NoPanic, panics);
    }
}
