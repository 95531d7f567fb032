//! The alternatives that people use, against the definition: the peers of a measurement must be
//! right, too.
#![cfg(feature = "_baselines")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use esker_permute::baselines::{Turn, cached, sorted, tiled};

fn next(random: &mut u64, end: u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 33) % end
}

/// Record by record.
fn expected(turn: &Turn, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = vec![0_u64; turn.sizes.len()];
    loop {
        let mut address = 0;
        for (axis, size) in turn.sizes.iter().enumerate() {
            let place = turn.order.iter().position(|other| *other == axis).unwrap();
            address = address * size + at[place];
        }
        let first = address as usize * turn.record;
        out.extend_from_slice(&bytes[first..first + turn.record]);
        let Some(place) =
            (0..at.len()).rev().find(|place| at[*place] + 1 < turn.sizes[turn.order[*place]])
        else {
            return out;
        };
        at[place] += 1;
        at[place + 1..].fill(0);
    }
}

#[test]
fn each_gives_what_the_definition_gives() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 5;
    for case in 0..60 {
        let count = 1 + next(&mut random, 4) as usize;
        let sizes: Vec<u64> = (0..count).map(|_| 1 + next(&mut random, 24)).collect();
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, next(&mut random, index as u64 + 1) as usize);
        }
        let record = 1 << next(&mut random, 5);
        let start = [0, 128, 77][next(&mut random, 3) as usize];
        let (source, target) = (folder.path().join("from"), folder.path().join("to"));
        let len = sizes.iter().product::<u64>() as usize * record;
        let bytes: Vec<u8> = (0..len).map(|_| next(&mut random, 256) as u8).collect();
        fs::write(&source, [vec![0; start as usize], bytes.clone()].concat()).unwrap();
        let tiles = (1 << 20) + 16 + (record as u64) * 2 + next(&mut random, 100_000);
        let memory = 600_000 + next(&mut random, 2_000_000);
        let turn = Turn { source, start, sizes, order, record, target, memory };
        let wanted = expected(&turn, &bytes);
        for (name, run, memory) in [
            ("sorted", sorted::run as fn(&Turn) -> _, memory),
            ("cached", cached::run, (1 << 20) + memory / 10),
            ("tiled", tiled::run, tiles),
        ] {
            let turn = Turn { memory, ..turn.clone() };
            run(&turn).unwrap();
            assert!(fs::read(&turn.target).unwrap() == wanted, "{name}, {case}: {turn:?}");
            fs::remove_file(&turn.target).unwrap();
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the array is left");
}

#[test]
fn a_sort_of_many_runs_merges_more_than_once() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("from"), folder.path().join("to"));
    let bytes: Vec<u8> = (0..300 * 700_u64).flat_map(u64::to_le_bytes).collect();
    fs::write(&source, &bytes).unwrap();
    let (sizes, order) = (vec![300, 700], vec![1, 0]);
    // A hundred runs, merged two by two.
    let memory = (2 * (256 << 10)) + 2 * 16 * 2100;
    let turn = Turn { source, start: 0, sizes, order, record: 8, target, memory };
    sorted::run(&turn).unwrap();
    assert!(fs::read(&turn.target).unwrap() == expected(&turn, &bytes));
}

#[test]
fn what_is_no_order_is_refused() {
    let turn = Turn {
        source: "a".into(),
        start: 0,
        sizes: vec![3, 4],
        order: vec![0, 0],
        record: 8,
        target: "b".into(),
        memory: 1 << 20,
    };
    for run in [sorted::run, cached::run, tiled::run] {
        assert!(run(&turn).unwrap_err().to_string().contains("order"));
    }
}
