//! Random histories: the same operations on a tree and on a map.

use std::collections::BTreeMap;
use std::ops::Bound;

use esker_harness::random::Random;
use esker_latree::{Chip, Direction, Error, LaTree};

/// What the tree must hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys and values of a history.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Different keys.
    pub keys: u64,
    /// The greatest length of a value.
    pub value_bytes: usize,
    /// Lookups in a hundred operations.
    pub lookups: u32,
    /// Removals in a hundred updates.
    pub removals: u32,
}

/// A step of a history.
#[derive(Clone, Debug)]
pub enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    Range(Vec<u8>, Option<Vec<u8>>, Direction, usize),
    Sync,
}

fn key(random: &Random, shape: &Shape) -> Vec<u8> {
    let number = random.below(shape.keys);
    let mut key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    // Some keys have common prefixes of more than 8 bytes, some are short or empty.
    match number % 7 {
        0 => key.splice(0..0, *b"a common prefix").for_each(drop),
        1 => key.truncate((number % 9) as usize),
        _ => {}
    }
    key
}

/// Steps from a seed.
pub fn step(random: &Random, shape: &Shape) -> Step {
    if random.percent(shape.lookups) {
        if random.percent(95) {
            return Step::Get(key(random, shape));
        }
        let (a, b) = (key(random, shape), key(random, shape));
        let direction = if random.percent(50) { Direction::Forward } else { Direction::Backward };
        let to = random.percent(70).then_some(b);
        return Step::Range(a, to, direction, 1 + random.index(200));
    }
    if random.below(200) == 0 {
        return Step::Sync;
    }
    let key = key(random, shape);
    if random.percent(shape.removals) {
        return Step::Remove(key);
    }
    Step::Put(key, random.bytes(random.index(shape.value_bytes + 1)))
}

/// Applies a step to the map.
pub fn apply_to_model(model: &mut Model, step: &Step) {
    match step {
        Step::Put(key, value) => {
            model.insert(key.clone(), value.clone());
        }
        Step::Remove(key) => {
            model.remove(key);
        }
        Step::Get(_) | Step::Range(..) | Step::Sync => {}
    }
}

/// Applies a step to a tree and compares what it answers with the map, which is as before.
pub fn apply<C: Chip>(tree: &mut LaTree<C>, model: &Model, step: &Step) -> Result<(), String> {
    let failed = |error: Error| error.to_string();
    match step {
        Step::Put(key, value) => tree.put(key, value).map_err(failed),
        Step::Remove(key) => tree.remove(key).map_err(failed),
        Step::Sync => tree.sync().map_err(failed),
        Step::Get(key) => {
            let found = tree.get(key).map_err(failed)?;
            if found.as_ref() == model.get(key) {
                return Ok(());
            }
            Err(format!("{key:?} is {found:?}, not {:?}", model.get(key)))
        }
        Step::Range(from, to, direction, count) => {
            let found = tree.range(from, to.as_deref(), *direction).take(*count);
            let found: Vec<_> = found.collect::<Result<_, _>>().map_err(failed)?;
            let expected = range_of(model, from, to.as_deref(), *direction, *count);
            if found == expected {
                return Ok(());
            }
            let lengths = (found.len(), expected.len());
            Err(format!("range {from:?}..{to:?} {direction:?}: {lengths:?} {found:?} {expected:?}"))
        }
    }
}

/// The entries of a range of the map.
pub fn range_of(
    model: &Model,
    from: &[u8],
    to: Option<&[u8]>,
    direction: Direction,
    count: usize,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    if to.is_some_and(|to| to <= from) {
        return Vec::new();
    }
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    let range = model.range::<[u8], _>((Bound::Included(from), end));
    let pairs = range.map(|(key, value)| (key.clone(), value.clone()));
    match direction {
        Direction::Forward => pairs.take(count).collect(),
        Direction::Backward => pairs.rev().take(count).collect(),
    }
}

/// Compares the whole tree with the map, in both directions, and checks it.
pub fn compare<C: Chip>(tree: &mut LaTree<C>, model: &Model) -> Result<(), String> {
    for direction in [Direction::Forward, Direction::Backward] {
        let found: Result<Vec<_>, _> = tree.range(&[], None, direction).collect();
        let found = found.map_err(|error| error.to_string())?;
        let expected = range_of(model, &[], None, direction, usize::MAX);
        if found != expected {
            let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
            let lengths = (found.len(), expected.len());
            return Err(format!(
                "{direction:?}: {lengths:?} entries, the first wrong at {wrong:?}"
            ));
        }
    }
    tree.check().map(drop).map_err(|error| error.to_string())
}
