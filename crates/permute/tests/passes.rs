//! Passes with any acting digits and any segments, in memory, against the definition of addresses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_permute::budget::Budget;
use esker_permute::error::Result;
use esker_permute::exec::{Files, Payload, run};
use esker_permute::file::{BLOCK, Sink, Source};
use esker_permute::pass::Pass;
use esker_permute::plan::price::Figures;
use esker_permute::space::{Digit, Space};
use esker_permute::tree::Tree;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }
}

/// A file in memory that checks what it is asked.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    written: AtomicU64,
}

impl Source for Memory {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        assert_eq!((offset as usize % 512, buf.len() % 512), (0, 0));
        let bytes = self.bytes.lock().unwrap();
        let rest = &bytes[(offset as usize).min(bytes.len())..];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn alignment(&self) -> usize {
        512
    }
}

impl Sink for Memory {
    fn write_blocks(&self, offset: u64, buf: &[u8]) -> Result<()> {
        assert_eq!((offset as usize % BLOCK, buf.len() % BLOCK), (0, 0));
        self.write_part(offset, buf)
    }

    fn alignment(&self) -> usize {
        512
    }

    fn write_part(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        let offset = offset as usize;
        self.bytes.lock().unwrap()[offset..offset + buf.len()].copy_from_slice(buf);
        Ok(())
    }
}

fn random_tree(random: &mut Random) -> Tree {
    let mut tree = Tree::whole(2 + random.below(17) as u64);
    for _ in 0..random.below(3) {
        let leaf = random.below(tree.leaves().len());
        tree.cut(leaf, 2 + random.below(6) as u64);
    }
    tree
}

fn random_order(random: &mut Random, space: &Space) -> Vec<Digit> {
    let mut left: Vec<usize> = space.trees.iter().map(|tree| tree.leaves().len()).collect();
    let mut order = Vec::new();
    while left.iter().any(|count| *count > 0) {
        let tree = random.below(left.len());
        if left[tree] > 0 {
            order.push(Digit { tree, leaf: space.trees[tree].leaves().len() - left[tree] });
            left[tree] -= 1;
        }
    }
    order
}

/// The orders need not part what only the plan cuts: as often as not an axis stays together.
fn random_pass(random: &mut Random) -> Pass {
    let mut trees: Vec<Tree> = Vec::new();
    let mut records = 1;
    for _ in 0..1 + random.below(4) {
        let tree = random_tree(random);
        records *= tree.radix();
        if records > 3000 {
            break;
        }
        trees.push(tree);
    }
    let space = Space { trees };
    let whole: Vec<Digit> = (0..space.trees.len())
        .flat_map(|tree| {
            (0..space.trees[tree].leaves().len()).map(move |leaf| Digit { tree, leaf })
        })
        .collect();
    let is_dense = random.below(2) == 0;
    let input = if is_dense { whole } else { random_order(random, &space) };
    let output = random_order(random, &space);
    let flips = space.trees.iter().map(|_| is_dense && random.below(3) == 0).collect();
    let acts = space.trees.iter().map(|tree| {
        let count = tree.leaves().len();
        let upto = random.below(count + 1);
        (0..count).map(|leaf| leaf < upto).collect()
    });
    let acts = acts.collect();
    let beta = random.below(input.len() + 1);
    Pass { space, input, output, flips, acts, beta }
}

/// For each record, where it is and where it belongs.
fn moves(pass: &Pass) -> Vec<(usize, usize)> {
    let space = &pass.space;
    let radices: Vec<u64> = space.trees.iter().map(Tree::radix).collect();
    let mut values = vec![0_u64; radices.len()];
    let mut all = Vec::new();
    loop {
        let digits = |values: &[u64]| -> Vec<Vec<u64>> {
            let of = |(tree, value): (&Tree, &u64)| {
                let mut rest = *value;
                let mut kappa = tree.radix();
                let mut digits = vec![0; tree.leaves().len()];
                for leaf in (0..digits.len()).rev() {
                    digits[leaf] = rest / tree.leaf(leaf).z;
                    rest %= tree.leaf(leaf).z;
                    kappa = tree.kappa(leaf, kappa, digits[leaf]);
                }
                assert_eq!(kappa, 1);
                digits
            };
            space.trees.iter().zip(values).map(of).collect()
        };
        let flipped: Vec<u64> = (0..values.len())
            .map(|t| if pass.flips[t] { radices[t] - 1 - values[t] } else { values[t] })
            .collect();
        let from = space.address(&pass.input, &digits(&flipped));
        let to = space.address(&pass.output, &digits(&values));
        all.push((from as usize, to as usize));
        let mut moved = false;
        for (value, radix) in values.iter_mut().zip(&radices) {
            *value += 1;
            if *value < *radix {
                moved = true;
                break;
            }
            *value = 0;
        }
        if !moved {
            return all;
        }
    }
}

/// A pass that may write to the file that it reads does; any other refuses to.
fn stays_in_place(
    pass: &Pass,
    (memory, record, start): (u64, usize, usize),
    from: &[u8],
    expected: &[u8],
) -> bool {
    let file = Memory { bytes: Mutex::new(from.to_vec()), written: AtomicU64::new(0) };
    let files = Files {
        source: Payload { file: &file, start: start as u64 },
        sink: Payload { file: &file, start: start as u64 },
        is_in_place: true,
    };
    let done = run(pass, Budget::new(memory, record, 0).unwrap(), files, &mut |_| true);
    assert_eq!(done.is_ok(), pass.is_in_place());
    let bytes = file.bytes.lock().unwrap();
    let is_as = |wanted: &[u8]| bytes[start..] == wanted[start..];
    assert!(if done.is_ok() { is_as(expected) } else { is_as(from) }, "{pass:?}");
    done.is_ok()
}

#[test]
fn any_pass_moves_every_record_to_its_address() {
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|b| b.parse().ok()).unwrap_or(1);
    let mut random = Random(99);
    let (mut filtered, mut ragged, mut flipped, mut several) = (0, 0, 0, 0);
    let mut in_place = 0;
    let cases = 1500 * budget;
    for _ in 0..cases {
        let pass = random_pass(&mut random);
        let figures = Figures::of(&pass);
        let record = [1, 2, 3, 4, 7, 8, 12, 16, 24][random.below(9)];
        // A filtered segment is read into one buffer.
        let memory = if figures.waste > 1 { 64 << 20 } else { 1 << (16 + random.below(8)) };
        let start = [0, 128, 4096, 77][random.below(4)];
        let records = pass.space.records() as usize;
        let moves = moves(&pass);
        let mut from = vec![0; start + records * record];
        for byte in &mut from {
            *byte = random.below(256) as u8;
        }
        let mut expected = vec![0; start + records * record];
        for (there, here) in &moves {
            let (there, here) = (start + there * record, start + here * record);
            expected[here..here + record].copy_from_slice(&from[there..there + record]);
        }
        in_place += u64::from(stays_in_place(&pass, (memory, record, start), &from, &expected));
        let source = Memory { bytes: Mutex::new(from), written: AtomicU64::new(0) };
        let sink =
            Memory { bytes: Mutex::new(vec![0; expected.len()]), written: AtomicU64::new(0) };
        let budget = Budget::new(memory, record, 0).unwrap();
        let counters = run(
            &pass,
            budget,
            Files {
                source: Payload { file: &source, start: start as u64 },
                sink: Payload { file: &sink, start: start as u64 },
                is_in_place: false,
            },
            &mut |_| true,
        )
        .unwrap_or_else(|error| panic!("{pass:?}: {error}"));
        assert!(*sink.bytes.lock().unwrap() == expected, "{pass:?} {record} {memory} {start}");
        // Each byte is written once, whatever the flushes.
        assert_eq!(sink.written.load(Ordering::Relaxed), (records * record) as u64);
        if figures.waste == 1 {
            assert_eq!(counters.read_bytes, (records * record) as u64);
        }
        filtered += u64::from(figures.waste > 1);
        ragged += u64::from(pass.space.trees.iter().any(|tree| !tree.is_exact()));
        flipped += u64::from(pass.flips.contains(&true));
        several += u64::from(figures.load < figures.records);
    }
    println!(
        "{cases} passes: {filtered} filtered, {ragged} short, {flipped} flipped, {several} of \
         several loads, {in_place} in place"
    );
    assert!(filtered > 100 && ragged > 200 && flipped > 100 && several > 200);
    assert!(in_place > 40, "{in_place}");
}
