use super::*;

fn slots(text: &str, count: u64, seed: u64) -> Vec<(OpKind, u64)> {
    let workload = text.parse().unwrap();
    let ops = Generator::new(workload, count, 4096, seed).take(100_000);
    ops.map(|op| (op.kind, op.offset / 4096)).collect()
}

#[test]
fn names_are_read_as_they_are_written() {
    for name in ["randwrite", "seqwrite", "randread", "mixed:70", "zipf:0.99", "hotcold:20/80"] {
        assert_eq!(name.parse::<Workload>().unwrap().to_string(), name);
    }
    for wrong in [
        "",
        "rand",
        "randwrite:1",
        "mixed",
        "mixed:101",
        "zipf",
        "zipf:0",
        "zipf:nan",
        "zipf:11",
        "hotcold:20",
        "hotcold:0/80",
        "hotcold:100/80",
    ] {
        let error = wrong.parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("hotcold:HOT%/WRITES%"), "{error}");
    }
}

#[test]
fn the_stream_follows_from_the_seed() {
    for name in ["randwrite", "mixed:50", "zipf:0.99", "hotcold:20/80"] {
        assert_eq!(slots(name, 1000, 1), slots(name, 1000, 1));
        assert_ne!(slots(name, 1000, 1), slots(name, 1000, 2));
    }
    assert!(slots("randwrite", 0, 1).is_empty());
    assert!(slots("zipf:0.99", 1, 1).iter().all(|(_, slot)| *slot == 0));
}

#[test]
fn random_writes_reach_every_slot_evenly() {
    let mut counts = [0_u32; 100];
    for (kind, slot) in slots("randwrite", 100, 3) {
        assert_eq!(kind, OpKind::Write);
        counts[slot as usize] += 1;
    }
    assert!(counts.iter().all(|count| (840..=1160).contains(count)), "{counts:?}");
}

#[test]
fn a_sequence_wraps_at_the_end() {
    let found: Vec<_> = slots("seqwrite", 3, 1).into_iter().take(5).map(|(_, slot)| slot).collect();
    assert_eq!(found, [0, 1, 2, 0, 1]);
}

#[test]
fn shares_are_those_of_the_name() {
    let reads = slots("mixed:70", 1000, 1).iter().filter(|(kind, _)| *kind == OpKind::Read).count();
    assert!((69_000..=71_000).contains(&reads), "{reads}");
    let hot = slots("hotcold:20/80", 1000, 1).iter().filter(|(_, slot)| *slot < 200).count();
    assert!((79_000..=81_000).contains(&hot), "{hot}");
}
