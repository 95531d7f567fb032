//! Power cuts: after every program and erase of a trace, with all that a cut may leave.
//!
//! After a cut the tree opens as it was after some number of operations, at least those that were
//! synced, and goes on; a second cut may come at any time, also in the recovery.

use esker_flash::nand::Cut;
use esker_harness::counts::budget;
use esker_harness::random::Random;
use esker_latree::{Buffering, Chip, LaTree, Options, Scan};

use crate::common::{Flash, Tree, chip, options, small_pages};
use crate::history::{Model, Shape, Step, apply, apply_to_model, compare, step};

/// A trace, and the options of its tree.
pub struct Trace {
    pub options: Options,
    steps: Vec<Step>,
    /// The state before every hundredth step.
    states: Vec<State<Flash>>,
    /// Programs and erases of the whole trace.
    last: u64,
}

/// A tree in the middle of a trace.
#[derive(Clone)]
pub struct State<C> {
    pub step: usize,
    pub tree: LaTree<C>,
    /// What the tree holds, and what it held at the last sync.
    pub model: Model,
    pub synced: Model,
    /// The updates since.
    pub later: Vec<Step>,
}

impl<C: Chip> State<C> {
    /// Before the first step.
    pub fn new(tree: LaTree<C>) -> Self {
        let (model, synced, later) = (Model::new(), Model::new(), Vec::new());
        Self { step: 0, tree, model, synced, later }
    }

    /// Applies steps up to the first that fails.
    pub fn run(&mut self, steps: &[Step]) {
        while let Some(step) = steps.get(self.step) {
            if self.apply(step).is_err() {
                break;
            }
        }
    }

    /// Applies a step. An update that fails may have been done or not.
    pub fn apply(&mut self, step: &Step) -> Result<(), String> {
        let done = apply(&mut self.tree, &self.model, step);
        if matches!(step, Step::Put(..) | Step::Remove(_)) {
            self.later.push(step.clone());
        }
        done?;
        self.step += 1;
        apply_to_model(&mut self.model, step);
        if matches!(step, Step::Sync) {
            (self.synced, self.later) = (self.model.clone(), Vec::new());
        }
        Ok(())
    }
}

impl Trace {
    /// A trace on a chip of blocks of 8 pages, on which blocks are collected after few operations.
    pub fn new(seed: u64, steps: usize, options: Options) -> Result<Self, String> {
        let random = Random::new(seed);
        let shape = Shape { keys: 1500, value_bytes: 30, lookups: 10, removals: 33 };
        let steps: Vec<_> = (0..steps).map(|_| step(&random, &shape)).collect();
        let blocks = [40, 34, 42][usize::from(options.subtree_levels) - 1];
        let tree = Tree::create(chip(blocks, 8, 512), options.clone()).map_err(text)?;
        let mut state = State::new(tree);
        let mut states = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            if at % 100 == 0 {
                states.push(state.clone());
            }
            state.apply(step)?;
        }
        // With three levels the nodes above are written with each leaf that is moved, and a chip
        // on which that is frequent may be full after a recovery.
        let stats = state.tree.stats();
        assert!(stats.collected_blocks > 10 || options.subtree_levels == 3, "{stats:?}");
        Ok(Self { options, steps, states, last: count(state.tree.chip()) })
    }

    /// Runs the trace with a cut after `at` operations of the chip, recovers, compares, goes on
    /// for a few steps and compares again. With `second`, the recovery is cut, too.
    pub fn cut(&self, at: u64, cut: Cut, second: Option<u64>) -> Result<(), String> {
        let after = self.states.partition_point(|state| count(state.tree.chip()) <= at);
        let mut state = self.states[after.saturating_sub(1)].clone();
        let done = count(state.tree.chip());
        state.tree.chip_mut().0.cut_after(at.saturating_sub(done), cut);
        state.run(&self.steps);
        let State { tree, synced, later, .. } = state;
        let mut chip = tree.into_chip();
        chip.0.power_on();
        if let Some(second) = second {
            chip.0.cut_after(second, cut);
            LaTree::open(&mut chip, self.options.clone()).map(drop).unwrap_or_default();
            chip.0.power_on();
        }
        recovered(chip, &self.options, synced, &later, &self.steps)
            .map_err(|what| format!("cut {cut:?} at {at}: {what}"))
    }

    /// Cuts after about `most` operations of the chip, at equal distances, each with the next kind
    /// of cut.
    pub fn cuts(&self, most: u64) -> Result<u64, String> {
        let first = count(self.states[0].tree.chip());
        let stride = ((self.last - first) / most).max(1);
        let mut tried = 0;
        for (at, cut) in (first..self.last).step_by(stride as usize).zip(Cut::ALL.iter().cycle()) {
            let second = (tried % 4 == 3).then_some(tried % 50);
            self.cut(at, *cut, second)?;
            tried += 1;
        }
        Ok(tried)
    }
}

/// Recovers a tree, compares it with the map at the last sync and some of the updates after it,
/// goes on for a few steps, and compares again.
pub fn recovered<C: Chip>(
    chip: C,
    options: &Options,
    synced: Model,
    later: &[Step],
    steps: &[Step],
) -> Result<(), String> {
    let mut tree = LaTree::open(chip, options.clone()).map_err(text)?;
    let found: Result<Vec<_>, _> =
        tree.range(&[], None, esker_latree::Direction::Forward).collect();
    let found: Model = found.map_err(text)?.into_iter().collect();
    let mut model = synced;
    let mut left = later.iter();
    while model != found {
        let Some(step) = left.next() else {
            return Err("the tree is as after no number of operations".to_owned());
        };
        apply_to_model(&mut model, step);
    }
    compare(&mut tree, &model)?;
    for step in steps.iter().take(60) {
        apply(&mut tree, &model, step)?;
        apply_to_model(&mut model, step);
    }
    compare(&mut tree, &model)
}

fn text(error: esker_latree::Error) -> String {
    error.to_string()
}

fn count(chip: &Flash) -> u64 {
    let total = esker_flash::Nand::counters(&chip.0).total();
    total.programs + total.erases
}

#[test]
fn after_a_cut_the_tree_is_as_after_some_operation_and_goes_on() {
    let budget = budget().min(10) as usize;
    for levels in 1..=3 {
        for scan in [Scan::Sorted, Scan::Whole] {
            let options = options(20 << 10, levels, scan, Buffering::Adaptive);
            let trace = Trace::new(levels.into(), 4000 * budget, options);
            let tried =
                trace.and_then(|trace| trace.cuts(if budget == 1 { 200 } else { u64::MAX }));
            let tried = tried.unwrap_or_else(|what| panic!("{levels} levels, {scan:?}: {what}"));
            eprintln!("{levels} levels, {scan:?}: {tried} cuts");
            assert!(tried > 100, "{tried} cuts");
        }
    }
}

#[test]
fn a_creation_that_was_cut_is_refused_or_whole() {
    for at in 0..6 {
        for cut in Cut::ALL {
            let mut chip = small_pages(40);
            chip.0.cut_after(at, cut);
            let options = options(20 << 10, 2, Scan::Sorted, Buffering::Adaptive);
            let created = LaTree::create(&mut chip, options.clone()).is_ok();
            chip.0.power_on();
            match LaTree::open(&mut chip, options.clone()) {
                Ok(mut tree) => compare(&mut tree, &Model::new()).unwrap(),
                Err(error) => {
                    assert!(!created, "{error}");
                    let message = error.to_string();
                    let known = ["blank", "interrupted", "holds no tree"];
                    assert!(known.iter().any(|word| message.contains(word)), "{message}");
                }
            }
            let mut again = Tree::create(chip, options).unwrap();
            again.put(b"key", b"value").unwrap();
            assert_eq!(again.get(b"key").unwrap().unwrap(), b"value");
        }
    }
}
