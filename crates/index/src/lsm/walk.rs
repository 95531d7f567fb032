//! The walk of a slice: all sources in key order, and the decision for each block.
//!
//! Where a source is in front of a block and no other has anything within the block's keys, the
//! block goes to the level below unread. Every other block is opened. A fence gives a lower bound
//! of a block's keys, not their exact begin: a block that turns out to have nothing of another
//! source between its first and its last key still goes down as it is. Reading it was cheap, and
//! writing it would not be. All others are merged entry by entry, and even of them those stay that
//! would be written again as they are (`unchanged_block`).

use esker_format::action::KeyRange;
use esker_format::entry::Payload;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};
use esker_substrate::snapshots::Snapshots;

use super::input::{Input, content_bytes};
use super::output::Output;
use super::unchanged_block::{Repeat, Repeated, Repeating};
use super::yield_to_writers::YieldToWriters;
use crate::kind::context::KindContext;
use crate::merge::group::Group;
use crate::read::range_tombstones::RangeTombstones;
use crate::run::cursor::OwnedFence;
use crate::run::tournament::Tournament;
use crate::upkeep::values::Moved;

/// The rules by which a slice is merged.
pub(super) struct Rules {
    pub removed: RangeTombstones,
    /// Nothing older is below.
    pub to_last: bool,
    /// Every block is opened, and none stays.
    pub opens_all: bool,
}

impl Rules {
    /// Whether a block with these keys may go to the level below as it is: nothing in it could go.
    fn let_stay(&self, fence: &OwnedFence, keys: KeyRange<'_>) -> bool {
        let removed = self.removed.ranges().any(|range| range.keys().meets(&keys));
        !self.opens_all && !removed && (fence.tombstones == 0 || !self.to_last)
    }
}

/// Whether other sources have anything within a block's keys.
enum Others {
    Nothing,
    Something,
    /// This one is in front of a block that may have something.
    Closed(usize),
}

/// A walk under way.
pub(super) struct Walk<'w, 'a> {
    /// The sources, the newest first.
    inputs: &'w mut [Input<'a>],
    output: &'w mut Output,
    rules: &'w Rules,
    group: Group,
    repeat: Repeat,
    snapshots: &'w Snapshots,
    yielding: YieldToWriters,
    order: Tournament,
}

impl<'w, 'a> Walk<'w, 'a> {
    pub fn new(
        context: KindContext<'w>,
        inputs: &'w mut [Input<'a>],
        output: &'w mut Output,
        rules: &'w Rules,
    ) -> Self {
        let mut group = Group::none();
        group.serve(context, None);
        let snapshots = context.snapshots();
        let (repeat, yielding) = (Repeat::default(), YieldToWriters::default());
        let before = |a: usize, b: usize| is_before(inputs, a, b);
        let order = Tournament::new(inputs.len(), before);
        Self { inputs, output, rules, group, repeat, snapshots, yielding, order }
    }

    /// The sink of merged entries, with the group that they come from.
    fn sink(&mut self) -> (Repeating<'_, 'a>, &mut Group) {
        let Self { inputs, output, repeat, group, .. } = self;
        (Repeating { inputs, output, repeat, placed: None }, group)
    }

    /// Walks all sources to their ends.
    ///
    /// # Errors
    /// When a block cannot be read, without space, and errors of the device.
    pub fn run(mut self, values: &mut Moved) -> Result<()> {
        while let Some(index) = self.first() {
            self.yielding.step(self.snapshots);
            self.finish_before(index)?;
            let Some(input) = self.inputs.get(index) else { break };
            if input.at_border().is_some() {
                self.pass_border(index)?;
            } else if input.untouched().is_some() {
                self.look(index)?;
            } else {
                self.take(index, values)?;
            }
            self.moved(index);
        }
        self.close()
    }

    /// The source that is first; of those at one key, the newest.
    fn first(&self) -> Option<usize> {
        let stands =
            |index: &usize| self.inputs.get(*index).is_some_and(|i| i.position().is_some());
        self.order.first().filter(stands)
    }

    /// The source at `index` may have moved.
    fn moved(&mut self, index: usize) {
        let Self { inputs, order, .. } = self;
        order.moved(index, |a, b| is_before(inputs, a, b));
    }

    fn others(&self, index: usize) -> impl Iterator<Item = (usize, &Input<'a>)> {
        self.inputs.iter().enumerate().filter(move |(other, _)| *other != index)
    }

    /// Writes the held entries of the last key, and those held back of a block.
    fn close(&mut self) -> Result<()> {
        let to_last = self.rules.to_last;
        let (mut sink, group) = self.sink();
        group.close(&mut sink, to_last)?;
        self.finish_block()
    }

    /// When the source at `index`, which is first, is behind the last key, nothing more of that
    /// comes: a block that has been repeated to its end stays.
    fn finish_before(&mut self, index: usize) -> Result<()> {
        if self.repeat.whole(self.inputs).is_none() {
            return Ok(());
        }
        let next = self.inputs.get(index).and_then(Input::position);
        let is_same = next.is_some_and(|(key, _)| self.group.key.as_deref() == Some(key));
        if is_same { Ok(()) } else { self.close() }
    }

    /// A block that has been repeated to its end stays; entries held back of any other are written.
    fn finish_block(&mut self) -> Result<()> {
        if let Some(of) = self.repeat.whole(self.inputs)
            && self.stay_repeated(&of)?
        {
            return Ok(());
        }
        self.sink().0.write_held_back()
    }

    /// Whether there is space for a block that has been repeated; then it stays.
    fn stay_repeated(&mut self, of: &Repeated) -> Result<bool> {
        let Some(input) = self.inputs.get_mut(of.source) else { return Ok(false) };
        let (fence, first, last) = input.ends(of.block)?;
        if !self.output.lets_stay(fence) {
            return Ok(false);
        }
        self.output.stay_within(fence, &first, &last)?;
        input.stay_behind(of.block, of.read_before);
        self.repeat.of = None;
        Ok(true)
    }

    /// Whether there is space for a block to stay into which no other source has keys. Held-back
    /// entries of the keys before it are written first: the block being built may be another one
    /// then.
    fn makes_room(&mut self, index: usize) -> Result<bool> {
        self.close()?;
        let Some(input) = self.inputs.get(index) else { return Ok(false) };
        let fence = input.at_border().or_else(|| input.untouched().map(|(fence, ..)| fence));
        Ok(fence.is_some_and(|fence| self.output.lets_stay(fence)))
    }

    /// The block that a source is in front of goes down unread, or is opened.
    fn pass_border(&mut self, index: usize) -> Result<()> {
        let stays = self.could_stay(index) && self.makes_room(index)?;
        let Some(input) = self.inputs.get_mut(index) else { return Ok(()) };
        let Some(fence) = input.at_border().filter(|_| stays) else { return input.open() };
        self.output.stay(fence, input.upper())?;
        input.stay();
        Ok(())
    }

    /// Whether the block that a source is in front of could stay: no other source has keys within
    /// its keys, and nothing in it could be dropped.
    fn could_stay(&self, index: usize) -> bool {
        let Some(input) = self.inputs.get(index).filter(|input| input.may_stay()) else {
            return false;
        };
        let Some(fence) = input.at_border() else { return false };
        let upper = input.upper();
        let is_behind = |key: &[u8]| upper.is_some_and(|upper| upper <= key);
        let mut others = self.others(index).filter_map(|(_, other)| other.position());
        let alone = others.all(|(key, _)| is_behind(key));
        (alone || planted::is(Bug::StaysAmongOthers))
            && self.rules.let_stay(fence, KeyRange { begin: &fence.key, end: upper })
    }

    /// Decides of the block that has been opened at `index`, when nothing of it has been taken.
    fn look(&mut self, index: usize) -> Result<()> {
        if !self.could_stay_open(index) {
            self.inputs.get_mut(index).map(Input::take);
            return Ok(());
        }
        let stays = match self.others_in_block(index) {
            Others::Nothing => self.makes_room(index)?,
            Others::Something => false,
            // Its contents will be known when it is open, which it has to be in any case.
            Others::Closed(other) => {
                self.inputs.get_mut(other).map_or(Ok(()), Input::open)?;
                self.moved(other);
                return Ok(());
            }
        };
        let Some(input) = self.inputs.get_mut(index) else { return Ok(()) };
        match input.untouched().filter(|_| stays) {
            Some((fence, first, last)) => {
                self.output.stay_within(fence, first, last)?;
                input.stay();
                Ok(())
            }
            None => self.begin_repeating(index),
        }
    }

    /// The block that has been opened at `index` is merged; perhaps to itself.
    fn begin_repeating(&mut self, index: usize) -> Result<()> {
        // Of a block that is repeated the next entry comes behind this block's first.
        self.sink().0.write_held_back()?;
        let Some(input) = self.inputs.get_mut(index) else { return Ok(()) };
        if let Some(block) = input.opened() {
            self.repeat.begin(index, block, input.read);
        }
        input.take();
        Ok(())
    }

    /// Whether other sources have anything within the keys of the untouched block of the source at
    /// `index`.
    fn others_in_block(&self, index: usize) -> Others {
        let Some((.., last)) = self.inputs.get(index).and_then(Input::untouched) else {
            return Others::Something;
        };
        let mut closed = None;
        for (other, input) in self.others(index) {
            if input.position().is_none_or(|(key, _)| last < key) {
                continue;
            }
            if input.at_border().is_none() {
                return Others::Something;
            }
            closed = closed.or(Some(other));
        }
        closed.map_or(Others::Nothing, Others::Closed)
    }

    /// The same as [`could_stay`](Self::could_stay) of a block that is open, regardless of what
    /// other sources contain.
    fn could_stay_open(&self, index: usize) -> bool {
        let Some((fence, first, last)) = self.inputs.get(index).and_then(Input::untouched) else {
            return false;
        };
        let behind = [last, &[0]].concat();
        self.group.key.as_deref().is_none_or(|key| key < first)
            && self.rules.let_stay(fence, KeyRange { begin: first, end: Some(&behind) })
    }

    /// Takes the current entry of a source.
    fn take(&mut self, index: usize, values: &mut Moved) -> Result<()> {
        let Self { inputs, output, rules, group, repeat, .. } = self;
        let Some(input) = inputs.get(index) else { return Ok(()) };
        let (key, seq) = (&input.head.key, input.head.seq);
        let payload = input.payload()?;
        let mut sink = Repeating { inputs, output, repeat, placed: None };
        if group.ends_before(key, seq)? {
            group.close(&mut sink, rules.to_last)?;
            group.begin(key, &rules.removed);
        }
        sink.placed = Some((index, payload));
        let stays = group.place(&mut sink, key, seq, &payload, rules.to_last)?;
        sink.check(index)?;
        if let Payload::Reference(content) = payload {
            values.note(content, stays, false);
        }
        let content = content_bytes(&payload);
        self.inputs.get_mut(index).map_or(Ok(()), |input| input.leave(content))
    }
}

/// Whether one source is before another.
fn is_before(inputs: &[Input<'_>], this: usize, other: usize) -> bool {
    match (inputs.get(this), inputs.get(other)) {
        (Some(this), Some(other)) => this.is_before(other),
        _ => false,
    }
}
