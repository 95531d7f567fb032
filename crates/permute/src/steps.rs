//! From two files to passes: the division into tasks, and the decoding and encoding of chunks.
//!
//! A file in chunks whose bytes are encoded is read and written by whole chunks, so that the
//! planner, which reads and writes any runs, cannot plan for it. In that case a pass acts on the
//! digits inside a chunk, of both files if they fit in memory. If they do not, or if the other file
//! would be read or written in small pieces, the chunks are first decoded to a flat file, or
//! finally encoded from one.
//!
//! Everything here is a pure function of sizes.

use crate::budget::Budget;
use crate::coalesce::coalesce;
use crate::error::{Result, input};
use crate::file::BLOCK;
use crate::layout::{Arranged, Arrangement, Layout};
use crate::message::{Message, Value};
use crate::pass::Pass;
use crate::plan::cut::Task;
use crate::plan::passes::plan;
use crate::plan::price::{Figures, Mode, Terms};
use crate::space::Digit;

/// One end of the work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    /// The arrangement of the array in the file.
    pub(crate) arrangement: Arrangement<'a>,
    /// Bytes of a chunk if it is encoded, and what is held while one is decoded or encoded.
    pub(crate) coded: Option<Coding>,
    /// Bytes of memory that one thread needs to reach the rows of a chunk.
    pub(crate) window: u64,
}

/// The memory that encoded chunks cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    /// Bytes of a chunk.
    pub(crate) chunk: u64,
    /// Bytes of memory that a thread needs in addition.
    pub(crate) working: u64,
}

/// A pass with its memory.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The pass.
    pub(crate) pass: Pass,
    /// The division of memory.
    pub(crate) budget: Budget,
    /// The price, in the unit of the mode.
    pub(crate) price: f64,
}

/// The settings of every step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Bytes of an item.
    pub(crate) item: u64,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// The quantity that is minimised.
    pub(crate) mode: Mode,
}

/// Segments and flushes below this many bytes are worth another pass over a flat file.
const SMALL: u64 = 64 << 10;
/// Segments and flushes of this many bytes are not worth growing.
const LARGE: u64 = 1 << 20;

/// The passes from one file to another; `shapes` are those of the two arrays, the second `None`
/// where it has short tiles.
pub(crate) fn steps(
    layout: &Layout,
    shapes: (&[u64], Option<&[u64]>),
    ends: (End<'_>, End<'_>),
    setting: Setting,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for part in tasks(layout, shapes, ends)? {
        steps.extend(of_task(&part.arranged, part.first, part.last, setting)?);
    }
    Ok(steps)
}

const FLAT: Arrangement<'_> = Arrangement::Flat { is_fortran: false };

/// A task between two files, and which of them are ends of the whole work.
struct Part<'a> {
    arranged: Arranged,
    first: Option<End<'a>>,
    last: Option<End<'a>>,
}

/// The tasks with flat files between them: as few as digits allow.
fn tasks<'a>(
    layout: &Layout,
    shapes: (&[u64], Option<&[u64]>),
    ends: (End<'a>, End<'a>),
) -> Result<Vec<Part<'a>>> {
    let (from, to) = (ends.0.arrangement, ends.1.arrangement);
    let part = |arranged, is_first: bool, is_last: bool| Part {
        arranged,
        first: is_first.then_some(ends.0),
        last: is_last.then_some(ends.1),
    };
    if let Some(all) = layout.arranged(from, to) {
        return Ok(vec![part(all, true, true)]);
    }
    let before = || Layout::identity(shapes.0).arranged(from, FLAT);
    let after = || Layout::identity(shapes.1?).arranged(FLAT, to);
    let two = |first, second| vec![part(first, true, false), part(second, false, true)];
    if let (Some(first), Some(second)) = (layout.arranged(from, FLAT), after()) {
        return Ok(two(first, second));
    }
    if let (Some(first), Some(second)) = (before(), layout.arranged(FLAT, to)) {
        return Ok(two(first, second));
    }
    match (before(), layout.arranged(FLAT, FLAT), after()) {
        (Some(first), Some(second), Some(third)) => {
            Ok(vec![part(first, true, false), part(second, false, false), part(third, false, true)])
        }
        _ => input("these chunks cannot be combined with this pattern"),
    }
}

/// The passes of one task.
fn of_task(
    arranged: &Arranged,
    first: Option<End<'_>>,
    last: Option<End<'_>>,
    setting: Setting,
) -> Result<Vec<Step>> {
    let coded = (first.and_then(|end| end.coded), last.and_then(|end| end.coded));
    let window = first.map_or(0, |end| end.window).max(last.map_or(0, |end| end.window));
    let task = &arranged.task;
    if coded == (None, None) {
        return planned(task, window, setting);
    }
    if let Some(step) = large(whole_chunks(arranged, coded, setting), coded, setting) {
        return Ok(vec![step]);
    }
    let mut steps = Vec::new();
    let mut rest = Arranged { task: task.clone(), ..arranged.clone() };
    if let Some(coding) = coded.0 {
        let same = Task { output: task.input.clone(), ..unflipped(task) };
        let inner = arranged.inner_input;
        let decode = Arranged { task: same, inner_input: inner, inner_output: inner };
        steps.push(needed(whole_chunks(&decode, (Some(coding), None), setting), coding, setting)?);
        rest.inner_input = None;
    }
    let Some(coding) = coded.1 else {
        steps.extend(planned(task, window, setting)?);
        return Ok(steps);
    };
    if coded.0.is_some()
        && let coded = (None, Some(coding))
        && let Some(step) = large(whole_chunks(&rest, coded, setting), coded, setting)
    {
        steps.push(step);
        return Ok(steps);
    }
    steps.extend(planned(task, window, setting)?);
    let same = Task { input: task.output.clone(), ..unflipped(task) };
    let inner = arranged.inner_output;
    let encode = Arranged { task: same, inner_input: inner, inner_output: inner };
    steps.push(needed(whole_chunks(&encode, (None, Some(coding)), setting), coding, setting)?);
    Ok(steps)
}

fn unflipped(task: &Task) -> Task {
    Task { flips: vec![false; task.flips.len()], ..task.clone() }
}

fn needed(step: Option<Step>, coding: Coding, setting: Setting) -> Result<Step> {
    let least = Budget::chunks_min(coding.chunk, coding.working);
    step.map_or_else(
        || {
            let text = format!(
                "a chunk of {} bytes is decoded or encoded whole, and {} bytes of memory are too \
                 few for that: give ",
                coding.chunk, setting.memory,
            );
            let enough = Value::Text(format!("{}MiB", (least >> 20) + 1));
            input(Message::from(text).option("memory", enough))
        },
        Ok,
    )
}

/// Passes that may read and write any part of their files.
fn planned(task: &Task, window: u64, setting: Setting) -> Result<Vec<Step>> {
    let (task, record) = coalesce(task, setting.item);
    let record = usize::try_from(record).unwrap_or(usize::MAX);
    let budget = Budget::new(setting.memory, record, window)?;
    let terms = terms(&budget, setting.mode);
    let (passes, _) = plan(&task, &terms);
    if passes.is_empty() {
        return input("too little memory for one record at a time");
    }
    let step = |pass: Pass| {
        let price = Figures::of(&pass).price(&terms);
        Step { pass, budget, price }
    };
    Ok(passes.into_iter().map(step).collect())
}

fn terms(budget: &Budget, mode: Mode) -> Terms {
    let record = budget.record as u64;
    let block = BLOCK as u64;
    Terms {
        block: (block / record).max(1),
        memory: budget.records() / record,
        record,
        request: budget.request(),
        filtered: budget.filtered(),
        // A header shifts the records.
        is_aligned: false,
        mode,
    }
}

/// A step, if it does not read or write a file that is not encoded in small pieces.
fn large(
    step: Option<Step>,
    coded: (Option<Coding>, Option<Coding>),
    setting: Setting,
) -> Option<Step> {
    step.filter(|step| {
        let figures = Figures::of(&step.pass);
        let least = SMALL.min(figures.records * setting.item);
        let is_large =
            |coded: Option<Coding>, records| coded.is_some() || records * setting.item >= least;
        is_large(coded.0, figures.segment) && is_large(coded.1, figures.flush)
    })
}

/// The pass that reads and writes whole chunks of those files that are encoded; `None` where
/// memory is too small for it.
fn whole_chunks(
    arranged: &Arranged,
    coded: (Option<Coding>, Option<Coding>),
    setting: Setting,
) -> Option<Step> {
    let coding = match coded {
        (Some(one), Some(other)) => {
            Coding { chunk: one.chunk.max(other.chunk), working: one.working.max(other.working) }
        }
        (one, other) => one.or(other)?,
    };
    let record = usize::try_from(setting.item).ok()?;
    let budget = Budget::of_chunks(setting.memory, record, coding.chunk, coding.working)?;
    let terms = terms(&budget, setting.mode);
    let mut task = arranged.task.clone();
    let inner = |order: &[Digit], coding: Option<Coding>, count: Option<usize>| -> Vec<Digit> {
        let count = coding.and(count).unwrap_or(0);
        order[..count].to_vec()
    };
    let mut acting = inner(&task.input, coded.0, arranged.inner_input);
    acting.extend(inner(&task.output, coded.1, arranged.inner_output));
    let mut acts: Vec<usize> = vec![0; task.space.trees.len()];
    for digit in acting {
        acts[digit.tree] = acts[digit.tree].max(digit.leaf + 1);
    }
    let fits = |task: &Task, acts: &[usize]| {
        let pass = pass_of(task, acts);
        Figures::of(&pass).load <= terms.memory
    };
    if !fits(&task, &acts) {
        return None;
    }
    for is_output in [true, false] {
        grow(&mut task, &mut acts, is_output, setting.item, &fits);
    }
    let pass = pass_of(&task, &acts);
    let price = Figures::of(&pass).price(&terms);
    Some(Step { pass, budget, price })
}

/// Has more act, from the low end of an order, while memory holds it and requests are small.
fn grow(
    task: &mut Task,
    acts: &mut [usize],
    is_output: bool,
    item: u64,
    fits: &impl Fn(&Task, &[usize]) -> bool,
) {
    loop {
        let figures = Figures::of(&pass_of(task, acts));
        let size = if is_output { figures.flush } else { figures.segment };
        let order = if is_output { &task.output } else { &task.input };
        let next = order.iter().find(|digit| digit.leaf >= acts[digit.tree]).copied();
        let Some(digit) = next.filter(|_| size.saturating_mul(item) < LARGE) else { return };
        // The digits of an axis act from the lowest on.
        if digit.leaf != acts[digit.tree] {
            return;
        }
        let mut more = acts.to_vec();
        more[digit.tree] += 1;
        if fits(task, &more) {
            acts.copy_from_slice(&more);
            continue;
        }
        let lows = task.lows(digit);
        let cut = lows.into_iter().rev().find_map(|low| {
            let mut cut = task.clone();
            (cut.cut(digit.tree, digit.leaf, low) && fits(&cut, &more)).then_some(cut)
        });
        if let Some(cut) = cut {
            *task = cut;
            acts.copy_from_slice(&more);
        }
        return;
    }
}

/// The pass in which the lowest digits of each axis act, as many as `acts` says.
fn pass_of(task: &Task, acts: &[usize]) -> Pass {
    let is_acting = |digit: &&Digit| digit.leaf < acts[digit.tree];
    let beta = task.input.iter().take_while(is_acting).count();
    let leaves = |(tree, count): (usize, &usize)| -> Vec<bool> {
        (0..task.space.trees[tree].leaves().len()).map(|leaf| leaf < *count).collect()
    };
    Pass {
        space: task.space.clone(),
        input: task.input.clone(),
        output: task.output.clone(),
        flips: task.flips.clone(),
        acts: acts.iter().enumerate().map(leaves).collect(),
        beta,
    }
}
