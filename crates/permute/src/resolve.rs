//! A pattern, a shape and sizes, made into digits.
//!
//! A dimension that its parts divide makes each part an axis of its own. One that they do not
//! divide stays one axis, cut into digits that are counted: its last tile is short, and the result
//! is tile after tile, not an array. Sizes are never changed to fit.

use std::collections::BTreeMap;

use crate::error::{Result, unfit};
use crate::pattern::{Axis, Group, Pattern};
use crate::plan::cut::Task;
use crate::planted::{self, Bug};
use crate::space::{Digit, Space};
use crate::tree::Tree;

/// The most axes of an array or pattern.
pub const AXES_MAX: usize = 64;

/// The task that a pattern describes, in records of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The digits and their orders; empty arrays have no task.
    pub task: Option<Task>,
    /// The shape of the result; `None` where short tiles make it no array.
    pub shape: Option<Vec<u64>>,
    /// A message that says which sizes do not divide their dimension, if some do not.
    pub short: Option<String>,
    /// The digits of each dimension of the array that is there, from the lowest.
    pub left: Vec<Vec<Digit>>,
    /// Those of the array that is wanted.
    pub right: Vec<Vec<Digit>>,
}

/// A part of a dimension with a size, and where its digits are.
struct Part {
    name: Option<String>,
    size: u64,
    digit: Digit,
    /// Whether tiles of its axis are short.
    is_ragged: bool,
}

/// Fits a pattern to a shape. `sizes` gives sizes of axes by name; `is_fortran` says that the
/// first dimension varies fastest in the file that is read.
pub fn resolve(
    pattern: &Pattern,
    shape: &[u64],
    is_fortran: bool,
    sizes: &BTreeMap<String, u64>,
) -> Result<Resolved> {
    check_sizes(pattern, sizes)?;
    let left = expand(&pattern.left, shape)?;
    let mut trees = Vec::new();
    let mut dimensions: Vec<Vec<Part>> = Vec::new();
    let mut short = None;
    for (group, size) in left.iter().zip(shape) {
        let (parts, words) = split(group, *size, sizes, &mut trees)?;
        dimensions.push(parts);
        short = short.or(words);
    }
    let mut parts: Vec<&Part> = Vec::new();
    let mut input_order = Vec::new();
    let fastest_first: Vec<&Vec<Part>> =
        if is_fortran { dimensions.iter().collect() } else { dimensions.iter().rev().collect() };
    for dimension in fastest_first {
        for part in dimension.iter().rev() {
            input_order.push(part.digit);
            parts.push(part);
        }
    }
    let right = right_parts(&pattern.right, &dimensions, &parts)?;
    let mut flips = vec![false; trees.len()];
    let mut output_order: Vec<Digit> = Vec::new();
    for (part, is_flipped) in right.iter().flatten().rev() {
        if *is_flipped && part.is_ragged {
            let name = part.name.as_deref().unwrap_or_default();
            return unfit(format!(
                "'-{name}': a part of a dimension with a short tile cannot be flipped; flip the \
                 whole dimension first"
            ));
        }
        flips[part.digit.tree] |= is_flipped;
        output_order.push(part.digit);
    }
    // Axes of one value without a name occur only on the left.
    let unnamed = parts.iter().filter(|part| part.name.is_none()).map(|part| part.digit);
    output_order.extend(unnamed);
    let space = Space { trees };
    if !space.is_consistent(&output_order) {
        return unfit(
            "parts of a dimension that they do not divide must keep their order on the right, \
             the coarse one first: short tiles have no place otherwise",
        );
    }
    let is_empty = shape.contains(&0);
    let task = Task { space, input: input_order, output: output_order, flips };
    let shape = short.is_none().then(|| result_shape(&right));
    let digits = |parts: &mut dyn DoubleEndedIterator<Item = &Part>| -> Vec<Digit> {
        parts.rev().map(|part| part.digit).collect()
    };
    let left = dimensions.iter().map(|parts| digits(&mut parts.iter())).collect();
    let right =
        right.iter().map(|parts| digits(&mut parts.iter().map(|(part, _)| *part))).collect();
    Ok(Resolved { task: (!is_empty).then_some(task), shape, short, left, right })
}

fn check_sizes(pattern: &Pattern, sizes: &BTreeMap<String, u64>) -> Result<()> {
    let names = pattern.left.iter().flat_map(|group| &group.axes);
    let names: Vec<&str> = names
        .filter_map(|axis| match axis {
            Axis::Named(name, _) => Some(name.as_str()),
            Axis::One | Axis::Ellipsis => None,
        })
        .collect();
    match sizes.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => unfit(format!("'{name}' has a size but is not in the pattern")),
        None => Ok(()),
    }
}

/// The groups of the left side, one a dimension, `...` as axes named by their number.
fn expand(groups: &[Group], shape: &[u64]) -> Result<Vec<Group>> {
    let is_ellipsis = |group: &&Group| group.axes == [Axis::Ellipsis];
    let named = groups.len() - groups.iter().filter(is_ellipsis).count();
    let has_ellipsis = named < groups.len();
    if shape.len() < named || (shape.len() > named && !has_ellipsis) {
        let least = if has_ellipsis { "at least " } else { "" };
        return unfit(format!(
            "the pattern's left side has {least}{named} dimensions, the array {} (its shape is \
             {shape:?})",
            shape.len()
        ));
    }
    let mut expanded = Vec::new();
    for group in groups {
        if is_ellipsis(&group) {
            for index in 0..shape.len() - named {
                let axes = vec![Axis::Named(format!("...{index}"), false)];
                expanded.push(Group { axes, is_joined: false });
            }
        } else {
            expanded.push(group.clone());
        }
    }
    if expanded.iter().map(|group| group.axes.len().max(1)).sum::<usize>() > AXES_MAX {
        return unfit(format!("more than {AXES_MAX} axes"));
    }
    Ok(expanded)
}

/// The parts of one dimension, and a message that says which tiles are short, if they do not
/// divide it; their axes are added to `trees`.
fn split(
    group: &Group,
    size: u64,
    sizes: &BTreeMap<String, u64>,
    trees: &mut Vec<Tree>,
) -> Result<(Vec<Part>, Option<String>)> {
    let name_of = |axis: &Axis| match axis {
        Axis::Named(name, _) => Some(name.clone()),
        Axis::One | Axis::Ellipsis => None,
    };
    let names: Vec<Option<String>> = group.axes.iter().map(name_of).collect();
    let mut known: Vec<Option<u64>> = names
        .iter()
        .map(|name| name.as_ref().map_or(Some(1), |name| sizes.get(name).copied()))
        .collect();
    let label = describe(&names);
    let product =
        known.iter().flatten().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let Some(product) = product else {
        return unfit(format!("the sizes of {label} are too large"));
    };
    match known.iter().filter(|size| size.is_none()).count() {
        0 => {}
        1 if product == 0 => {
            return unfit(format!("a size in {label} is 0, so the other one cannot be known"));
        }
        1 => known = known.iter().map(|s| s.or(Some(size.div_ceil(product)))).collect(),
        _ => {
            return unfit(format!(
                "{label} needs the sizes of all its axes but one: add name=size"
            ));
        }
    }
    let mut parts: Vec<u64> = known.into_iter().flatten().collect();
    let product =
        |parts: &[u64]| parts.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let mut is_short = product(&parts) != Some(size);
    let given = parts.clone();
    let short = || format!("{label} is {given:?}, which does not divide a dimension of {size}");
    clamp(&mut parts, size);
    if product(&parts) == Some(size) {
        is_short &= !planted::is(Bug::SizesMadeToFit);
        let axis = |(name, size): (Option<String>, u64)| {
            trees.push(Tree::whole(size));
            let digit = Digit { tree: trees.len() - 1, leaf: 0 };
            Part { name, size, digit, is_ragged: false }
        };
        let parts = names.into_iter().zip(parts).map(axis).collect();
        return Ok((parts, is_short.then(short)));
    }
    match short_tiles(names, &parts, size, trees) {
        Some(parts) => Ok((parts, Some(short()))),
        None => unfit(format!(
            "{label} is {given:?}, which does not make up a dimension of {size}: the first must \
             be the number of tiles of the others, the last of them perhaps short"
        )),
    }
}

/// Tiles larger than their dimension become as large: where there is one tile, its parts need not
/// reach past the end.
fn clamp(parts: &mut [u64], size: u64) {
    for index in 1..parts.len() {
        if parts[..index].iter().any(|part| *part != 1) || size == 0 {
            return;
        }
        let below =
            parts[index + 1..].iter().fold(1, |product: u64, part| product.saturating_mul(*part));
        parts[index] = parts[index].min(size.div_ceil(below.max(1)));
    }
}

/// The parts of a dimension that they do not divide: digits of one axis.
fn short_tiles(
    names: Vec<Option<String>>,
    parts: &[u64],
    size: u64,
    trees: &mut Vec<Tree>,
) -> Option<Vec<Part>> {
    let product = parts.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    if product.is_none_or(|product| product < size) || parts.contains(&0) || size == 0 {
        return None;
    }
    // Parts of one value have no digit of their own, but keep their place.
    let mut tree = Tree::whole(size);
    let many: Vec<usize> = (0..parts.len()).filter(|index| parts[*index] > 1).collect();
    let (&first, lower) = many.split_first()?;
    let below: u64 = lower.iter().map(|index| parts[*index]).product();
    if (parts[first] - 1).saturating_mul(below) >= size {
        return None;
    }
    // From the coarsest: each cut parts one digit off the top of what is left.
    let mut rest = below;
    for index in lower {
        if !tree.cut(0, rest) {
            return None;
        }
        rest /= parts[*index];
    }
    let mut leaf = tree.leaves().len();
    trees.push(tree);
    let number = trees.len() - 1;
    let mut made = Vec::new();
    for (name, size) in names.into_iter().zip(parts) {
        let (digit, is_ragged) = if *size > 1 {
            leaf -= 1;
            (Digit { tree: number, leaf }, true)
        } else {
            trees.push(Tree::whole(1));
            (Digit { tree: trees.len() - 1, leaf: 0 }, false)
        };
        made.push(Part { name, size: *size, digit, is_ragged });
    }
    Some(made)
}

/// The parts of the right side, dimension by dimension, with what is flipped. Axes of one value
/// that only the left has are added to the first dimension, where they change nothing.
fn right_parts<'a>(
    groups: &[Group],
    dimensions: &'a [Vec<Part>],
    parts: &[&'a Part],
) -> Result<Vec<Vec<(&'a Part, bool)>>> {
    let find = |name: &str| parts.iter().find(|part| part.name.as_deref() == Some(name)).copied();
    let rest: Vec<&Part> = dimensions
        .iter()
        .flatten()
        .filter(|part| part.name.as_deref().is_some_and(|name| name.starts_with("...")))
        .collect();
    let mut right: Vec<Vec<(&Part, bool)>> = Vec::new();
    for group in groups {
        let mut made = Vec::new();
        for axis in &group.axes {
            match axis {
                Axis::One => {}
                Axis::Ellipsis => made.extend(rest.iter().map(|part| (*part, false))),
                Axis::Named(name, is_flipped) => match find(name) {
                    Some(part) => made.push((part, *is_flipped)),
                    None => return unfit(format!("'{name}' is missing on the left")),
                },
            }
        }
        if !group.is_joined && group.axes == [Axis::Ellipsis] {
            right.extend(made.into_iter().map(|part| vec![part]));
        } else {
            right.push(made);
        }
    }
    Ok(right)
}

/// The shape of the result.
fn result_shape(right: &[Vec<(&Part, bool)>]) -> Vec<u64> {
    let product = |product: u64, (part, _): &(&Part, bool)| product.saturating_mul(part.size);
    right.iter().map(|group| group.iter().fold(1, product)).collect()
}

fn describe(names: &[Option<String>]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or("1")).collect();
    match names.as_slice() {
        [one] => format!("'{one}'"),
        _ => format!("'({})'", names.join(" ")),
    }
}
