//! The planner against exhaustion and against the thesis's closed form.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use esker_permute::budget::Budget;
use esker_permute::pass::Pass;
use esker_permute::plan::cut::{Extent, Task};
use esker_permute::plan::one_pass::{Effort, best};
use esker_permute::plan::passes::plan;
use esker_permute::plan::price::{Figures, Mode, Profile, Terms};
use esker_permute::planted::{self, Bug};
use esker_permute::space::{Digit, Space};

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }
}

fn task(radices: &[u64], output: &[usize]) -> Task {
    let digit = |tree| Digit { tree, leaf: 0 };
    Task {
        space: Space::whole(radices),
        input: (0..radices.len()).map(digit).collect(),
        output: output.iter().copied().map(digit).collect(),
        flips: vec![false; radices.len()],
    }
}

fn terms(block: u64, memory: u64, mode: Mode) -> Terms {
    Terms { block, memory, record: 8, request: 1 << 40, filtered: 1 << 40, is_aligned: true, mode }
}

/// All tasks with every digit whole or cut once anywhere.
fn cut_tasks(task: &Task) -> Vec<Task> {
    let mut all = vec![task.clone()];
    for tree in 0..task.space.trees.len() {
        let before = all.clone();
        for low in 2..task.space.trees[tree].radix() {
            all.extend(before.iter().map(|task| {
                let mut task = task.clone();
                assert!(task.cut(tree, 0, low));
                task
            }));
        }
    }
    all
}

/// The least price of any plan: every cut, every component-wise suffix, every segment.
fn least(task: &Task, terms: &Terms) -> (Option<(Pass, f64)>, u64) {
    let mut least: Option<(Pass, f64)> = None;
    let mut count = 0;
    for task in cut_tasks(task) {
        let leaves: Vec<usize> = task.space.trees.iter().map(|tree| tree.leaves().len()).collect();
        let mut upto = vec![0; leaves.len()];
        loop {
            let acts = |tree: usize| (0..leaves[tree]).map(|leaf| leaf < upto[tree]).collect();
            let acts: Vec<Vec<bool>> = (0..leaves.len()).map(acts).collect();
            for beta in 0..=task.input.len() {
                let Task { space, input, output, flips } = task.clone();
                let pass = Pass { space, input, output, flips, acts: acts.clone(), beta };
                let figures = Figures::of(&pass);
                count += 1;
                // (Digits that a read must span are contiguous in the input by definition.)
                if figures.meets(terms) {
                    let price = figures.price(terms);
                    if least.as_ref().is_none_or(|(_, other)| price < *other) {
                        least = Some((pass, price));
                    }
                }
            }
            let mut moved = false;
            for (digit, all) in upto.iter_mut().zip(&leaves) {
                *digit += 1;
                if *digit <= *all {
                    moved = true;
                    break;
                }
                *digit = 0;
            }
            if !moved {
                break;
            }
        }
    }
    (least, count)
}

const CASES: [(&[u64], &[usize], u64, u64); 12] = [
    (&[13, 11], &[1, 0], 3, 40),
    (&[13, 11], &[1, 0], 4, 30),
    (&[7, 31], &[1, 0], 5, 64),
    (&[64, 64], &[1, 0], 8, 256),
    (&[3, 5, 7], &[2, 1, 0], 4, 24),
    (&[3, 5, 7], &[1, 2, 0], 4, 30),
    (&[8, 8, 8], &[2, 1, 0], 8, 64),
    (&[8, 4, 8], &[1, 0, 2], 4, 64),
    (&[2, 6, 9], &[2, 0, 1], 6, 40),
    (&[9, 2, 6], &[1, 2, 0], 2, 17),
    (&[4, 3, 5, 2], &[3, 1, 0, 2], 3, 24),
    (&[2, 4, 2, 5], &[3, 2, 1, 0], 4, 20),
];

#[test]
fn in_blocks_the_planner_finds_the_least_of_all_plans() {
    let mut looked = 0;
    for (radices, output, block, memory) in CASES {
        for alpha in [0.0, 1.0 / 16.0, 1.0] {
            let task = task(radices, output);
            let terms = terms(block, memory, Mode::Blocks { alpha });
            let (least, count) = least(&task, &terms);
            looked += count;
            let found = best(&task, &terms, Effort::Full);
            match (&least, &found) {
                (None, None) => {}
                (Some((pass, expected)), Some((_, price))) => {
                    let same = (expected - price).abs() < 1e-9 * expected;
                    assert!(same, "{radices:?} {output:?} {terms:?}: {price} {expected} {pass:?}");
                }
                _ => panic!("{radices:?} {output:?} {terms:?} {least:?} {found:?}"),
            }
        }
    }
    assert!(looked > 100_000, "{looked}");
}

#[test]
fn in_seconds_the_planner_is_never_dearer_than_the_plan_of_least_blocks() {
    for (radices, output, block, memory) in CASES {
        let task = task(radices, output);
        let in_blocks = terms(block, memory, Mode::Blocks { alpha: 1.0 });
        let in_seconds = Terms { mode: Mode::Seconds(Profile::NVME), ..in_blocks };
        let Some((pass, _)) = least(&task, &in_blocks).0 else { continue };
        let (_, price) = best(&task, &in_seconds, Effort::Full).unwrap();
        assert!(price <= Figures::of(&pass).price(&in_seconds) * (1.0 + 1e-9));
    }
}

/// Algorithm 4: the least over numbers of passes, the entering digits spread evenly, each pass
/// costing N/B · (α · r^max(0, δ − (m − b)) + 1) (Lemma 5).
fn closed_form(radix: u64, digits: u32, b: u32, m: u32, delta: u32, alpha: f64) -> f64 {
    let blocks = radix.pow(digits - b) as f64;
    let cost =
        |delta: u32| blocks * (alpha * (radix.pow(delta.saturating_sub(m - b)) as f64) + 1.0);
    let spread =
        |passes: u32| -> f64 { (0..passes).map(|pass| cost((delta + pass) / passes)).sum() };
    (1..=delta.max(1)).map(spread).fold(f64::INFINITY, f64::min)
}

#[test]
fn on_perfect_powers_one_pass_costs_what_the_closed_form_says() {
    for radix in [2_u64, 3] {
        for (digits, b, m) in [(6_u32, 3_u32, 4_u32), (6, 2, 4), (5, 2, 3)] {
            // Rotations: the top digits enter.
            for delta in 1..=b.min(digits - b) {
                let count = digits as usize;
                let turn = delta as usize;
                let output: Vec<usize> = (0..count).map(|i| (i + count - turn) % count).collect();
                let radices = vec![radix; count];
                // Digits on their own, as the closed form has them.
                let task = task(&radices, &output);
                let alpha = 1.0 / 16.0;
                let terms = terms(radix.pow(b), radix.pow(m), Mode::Blocks { alpha });
                let (passes, price) = plan(&task, &terms);
                let expected = closed_form(radix, digits, b, m, delta, alpha);
                assert!(
                    price <= expected * (1.0 + 1e-9),
                    "{output:?} {terms:?}: {price} {expected} {passes:?}"
                );
            }
        }
    }
}

#[test]
fn plans_are_made_in_less_than_a_second() {
    let started = std::time::Instant::now();
    for (radices, output, memory) in [
        (vec![23_003_u64, 23_339], vec![1_usize, 0], 1 << 18),
        (vec![7; 10], vec![9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 1 << 14),
        (vec![50, 100, 100, 574], vec![3, 2, 1, 0], 1 << 23),
    ] {
        let task = task(&radices, &output);
        let terms = Terms {
            is_aligned: false,
            request: 1 << 18,
            filtered: 1 << 18,
            ..terms(512, memory, Mode::Seconds(Profile::NVME))
        };
        let (passes, _) = plan(&task, &terms);
        println!("{radices:?}: {} passes in {:?}", passes.len(), started.elapsed());
        assert!(!passes.is_empty());
    }
    // Three plans, on a busy machine, without full optimisation.
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

/// Requests of the device cost the same in every order of the file between two passes; memory does
/// not: a segment of columns that went to rows of the file between, record by record, took more
/// processor time than everything else.
#[test]
fn no_pass_scatters_single_records_where_another_order_does_not() {
    let terms = Terms {
        is_aligned: false,
        request: 48 << 10,
        filtered: 256 << 10,
        ..terms(512, 370_000, Mode::Seconds(Profile::NVME))
    };
    let (passes, _) = plan(&task(&[23_339, 23_003], &[1, 0]), &terms);
    assert_eq!(passes.len(), 2);
    for pass in &passes {
        let figures = Figures::of(pass);
        assert!(figures.together * terms.record >= 64, "{figures:?}");
    }
}

/// The best of some passes: of each axis nothing acts, or a power of two, or all.
fn obvious(task: &Task, terms: &Terms) -> Option<(Pass, f64)> {
    let parts = |tree: usize| -> Vec<Extent> {
        let all = task.all_of(tree);
        let powers = (1..63).map(|bit| 1_u64 << bit).filter(|low| *low < all.low);
        let extent = |low| Extent { leaf: all.leaf, low };
        std::iter::once(Extent::NONE).chain(powers.map(extent)).chain([all]).collect()
    };
    let extents: Vec<Vec<Extent>> = (0..task.space.trees.len()).map(parts).collect();
    let mut found: Option<(Pass, f64)> = None;
    let mut indices = vec![0; extents.len()];
    loop {
        let acting: Vec<Extent> = indices.iter().zip(&extents).map(|(i, all)| all[*i]).collect();
        let pass = task.pass(&acting, &acting);
        let figures = Figures::of(&pass);
        if figures.meets(terms) {
            let price = figures.price(terms);
            if found.as_ref().is_none_or(|(_, least)| price < *least) {
                found = Some((pass, price));
            }
        }
        let Some(at) = (0..indices.len()).find(|at| indices[*at] + 1 < extents[*at].len()) else {
            return found;
        };
        indices[at] += 1;
        indices[..at].fill(0);
    }
}

/// Large arrays, of which the planner looks at a few passes only: it may be somewhat dearer than
/// the best of the obvious ones, and has no more passes than one of the same cost.
fn judge_large_arrays() {
    let profile = Mode::Seconds(Profile::NVME);
    let mut random = Random(11);
    let budget = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|b| b.parse().ok()).unwrap_or(1);
    let mut cases = vec![(vec![589_000_000, 3], vec![1, 0], 1), (vec![1 << 32, 3], vec![1, 0], 1)];
    for _ in 0..40 * budget {
        let axes = 2 + random.below(2);
        let radices = (0..axes).map(|_| {
            let most = [4, 4, 100, 10_000, 1_000_000_000][random.below(5)];
            2 + random.below(most) as u64
        });
        let radices: Vec<u64> = radices.collect();
        let mut output: Vec<usize> = (0..axes).collect();
        for at in (1..axes).rev() {
            output.swap(at, random.below(at + 1));
        }
        cases.push((radices, output, [1, 2, 4, 8, 16][random.below(5)]));
    }
    for (radices, output, record) in cases {
        let task = task(&radices, &output);
        let size = radices.iter().try_fold(record, |size: u64, radix| size.checked_mul(*radix));
        if size.is_none_or(|size| size > 1 << 44) || task.input == task.output {
            continue;
        }
        let budget = Budget::new(256 << 20, record as usize, 0).unwrap();
        let terms = Terms {
            block: 4096 / record,
            memory: budget.records() / record,
            record,
            request: budget.request(),
            filtered: budget.filtered(),
            is_aligned: false,
            mode: profile,
        };
        let (passes, price) = plan(&task, &terms);
        let case = format!("{radices:?} {output:?} of {record} bytes");
        if let Some((_, least)) = obvious(&task, &terms) {
            assert!(price <= 1.2 * least, "{case}: {price} in {} passes, {least}", passes.len());
            assert!(passes.len() == 1 || price < least, "{case}: {} passes", passes.len());
        }
    }
}

#[test]
fn of_large_arrays_no_obvious_pass_is_much_cheaper() {
    judge_large_arrays();
}

/// A suite that cannot fail proves nothing.
#[test]
fn a_planner_that_charges_what_costs_nothing_is_found() {
    let hunt = || planted::with(Bug::InterleavedCharged, judge_large_arrays);
    assert!(std::panic::catch_unwind(hunt).is_err());
}
