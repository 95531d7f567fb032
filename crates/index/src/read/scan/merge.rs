//! The sources of a scan, merged: which version comes next, and what to do about damage.
//!
//! Invariant: `order` knows the position of every source, except that of a source that
//! [`Merge::step`] has moved, until [`Merge::moved`].

use super::jump::Jump;
use super::sources::Source;
use super::{DamagedRange, ScanRequest, out_of_order};
use crate::run::data_cursor::{CursorResult, Unreadable};
use crate::run::tournament::Tournament;
use esker_format::ids::Seq;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};

/// Sources in the order of their keys; of equal keys, the newest first.
pub(super) struct Merge<'r, 's> {
    request: &'r ScanRequest<'r>,
    /// In order from the newest run to the oldest.
    pub sources: Vec<Source<'s>>,
    order: Tournament,
    /// Of each source, a number that is less for earlier keys: most comparisons need no more.
    ranks: Vec<u64>,
    /// The damaged ranges that were passed over.
    pub damaged: Vec<DamagedRange>,
}

/// Whether one source is before another, of which these are the ranks.
#[inline]
fn is_before(
    ranks: &[u64],
    sources: &[Source<'_>],
    reverse: bool,
    this: usize,
    other: usize,
) -> bool {
    match (ranks.get(this), ranks.get(other)) {
        (Some(this), Some(other)) if this != other => return this < other,
        _ if planted::is(Bug::HeadsCompared) => return false,
        _ => {}
    }
    match (sources.get(this), sources.get(other)) {
        (Some(this), Some(other)) => this.compare(other, reverse).is_lt(),
        _ => false,
    }
}

impl<'r, 's> Merge<'r, 's> {
    /// Sources that have no position yet.
    pub fn new(request: &'r ScanRequest<'r>, sources: Vec<Source<'s>>) -> Self {
        let (order, ranks) = (Tournament::new(0, |_, _| false), Vec::new());
        Self { request, sources, order, ranks, damaged: Vec::new() }
    }

    /// Moves all sources to where the scan begins.
    ///
    /// # Errors
    /// The first unreadable block, unless damage is to be skipped.
    pub fn start(&mut self) -> Result<()> {
        for index in 0..self.sources.len() {
            self.attempt(index, |source, request| {
                let entry = source.entry.take();
                let target = entry.as_ref().map_or_else(|| Some(request.target()), Jump::target);
                source.move_to(target)
            })?;
        }
        let Self { sources, ranks, request, .. } = self;
        *ranks = sources.iter().map(|source| source.rank(request.reverse)).collect();
        let before = |a, b| is_before(ranks, sources, request.reverse, a, b);
        self.order = Tournament::new(sources.len(), before);
        Ok(())
    }

    /// The source whose current key is the next in the direction of the scan.
    #[inline]
    pub fn first(&self) -> Option<(usize, &Source<'s>)> {
        let index = self.order.first()?;
        let source = self.sources.get(index).filter(|source| source.has_key)?;
        Some((index, source))
    }

    /// The source that is first, if it is on this key.
    #[inline]
    pub fn first_on(&self, head: u64, key: &[u8]) -> Option<usize> {
        let (index, source) = self.first()?;
        source.is_on(head, key).then_some(index)
    }

    /// Whether a source is on this key.
    #[inline]
    pub fn is_on(&self, index: usize, head: u64, key: &[u8]) -> bool {
        self.sources.get(index).is_some_and(|source| source.is_on(head, key))
    }

    /// Enters the first source at its bound.
    ///
    /// # Errors
    /// Those of [`Merge::start`].
    pub fn enter(&mut self, index: usize) -> Result<()> {
        self.attempt(index, |source, _| source.enter())?;
        self.moved(index);
        Ok(())
    }

    /// Moves a source over versions that are hidden.
    ///
    /// # Errors
    /// Those of [`Merge::start`]; `Corrupt` if the source does not come as far as that.
    pub fn jump(&mut self, index: usize, jump: &Jump) -> Result<()> {
        self.attempt(index, |source, _| source.move_to(jump.target()))?;
        let key = self.sources.get(index).and_then(Source::key);
        if key.is_some_and(|key| !jump.allows(key)) {
            return Err(out_of_order());
        }
        self.moved(index);
        Ok(())
    }

    /// Moves a source by one version.
    ///
    /// # Errors
    /// Those of [`Merge::start`].
    #[inline]
    pub fn step(&mut self, index: usize) -> Result<()> {
        self.attempt(index, |source, request| source.step(request.reverse))
    }

    /// Gives a source that was moved its place in the order.
    #[inline]
    pub fn moved(&mut self, index: usize) {
        let Self { sources, order, ranks, request, .. } = self;
        if let (Some(source), Some(rank)) = (sources.get(index), ranks.get_mut(index))
            && !(source.has_key && planted::is(Bug::RankNotRenewed))
        {
            *rank = source.rank(request.reverse);
        }
        order.moved(index, |a, b| is_before(ranks, sources, request.reverse, a, b));
    }

    /// Whether a key is in a range where damage was passed over.
    pub fn is_out_of_reach(&self, key: &[u8]) -> bool {
        let reaches = |range: &DamagedRange| {
            range.from.as_slice() <= key && range.to.as_ref().is_none_or(|to| key < to.as_slice())
        };
        self.damaged.iter().any(reaches)
    }

    #[inline]
    fn attempt(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Source<'s>, &ScanRequest<'_>) -> CursorResult<()>,
    ) -> Result<()> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        match action(source, self.request) {
            Ok(()) => Ok(()),
            Err(unreadable) => self.pass_damage(index, unreadable),
        }
    }

    /// A source has met damage: if the request allows it, notes the damage and moves the source
    /// past it.
    ///
    /// # Errors
    /// The damage, unless it is to be skipped.
    #[cold]
    pub fn pass_damage(&mut self, index: usize, met_first: Unreadable) -> Result<()> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        let mut met: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut outcome = Err(met_first);
        while let Err(Unreadable { from, to, error }) = outcome {
            let skippable = self.request.skip_damaged && matches!(error, Error::Corrupt { .. });
            if !skippable {
                return Err(error);
            }
            let was = source.key().map(<[u8]>::to_vec);
            source.has_key = false;
            // Each step past damage must make progress, regardless of the fences; if it does not,
            // nothing more of this run can be reached.
            let (from, to) = match met.contains(&(from.clone(), to.clone())) {
                false => (from, to),
                true if self.request.reverse => (Vec::new(), to),
                true => (from, None),
            };
            met.push((from.clone(), to.clone()));
            // A duplicate fence (I2) may have led over the damage already: entries returned beyond
            // it are not returned again.
            outcome = match (&to, self.request.reverse) {
                (Some(to), false) => match &was {
                    Some(was) if was >= to => source.seek(was, Seq(0)),
                    _ => source.seek(to, Seq::MAX),
                },
                (None, false) => Ok(()),
                (_, true) if from.is_empty() => Ok(()),
                (_, true) => {
                    let before = was.filter(|was| *was < from).unwrap_or_else(|| from.clone());
                    source.seek_back(Some((&before, Seq::MAX)))
                }
            };
            // Two runs may lose the same keys, as when one leads to the other.
            if !self.damaged.iter().any(|known| known.from == from && known.to == to) {
                self.damaged.push(DamagedRange { from, to, error });
            }
        }
        Ok(())
    }
}
