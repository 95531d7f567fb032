//! When dies and channels are free: how long requests take, without an event queue.
//!
//! A read waits for its die, reads into the die's register, waits for the channel and transfers; a
//! program waits for the channel, transfers, waits for the die and programs; an erase waits for the
//! die. A copy inside of a die, and an erase, do not use the channel.
//!
//! C1: a die serves operations in the order in which they are issued, and is kept for one that
//! waits for an operation elsewhere. C2: transfers of a channel do not overlap. One that must wait
//! for its die long from now leaves the channel to others until then: a transfer takes the first
//! gap that is long enough, so that a die that collects garbage does not stop the other dies of its
//! channel.
//!
//! **What waits for what.** C3: the operations of a request are issued at its time, and overlap as
//! far as dies and channels allow. A *scope* is a part of a request whose steps follow each other:
//! after [`Clock::wait`], operations of the scope are issued when all operations of the scope
//! before it have ended. What follows after the scope, such as the next page of the request, is
//! issued as if the scope had not been. C4: the request ends with its slowest operation. In a
//! [`Urgency::Background`] scope operations keep dies and channels busy, and neither the request
//! nor the scope around waits for them.
//!
//! ```text
//! open_scope(Foreground)   issued at the request's time ┐ overlap
//!   read                   ├── translation page ──┤     │
//!   wait                                          │     │
//!   read                                          ├── data page ──┤
//! close_scope                                           │
//! open_scope(Foreground)   the next page of the request ┘
//!   read                   ├── data page ──┤
//! ```

use std::collections::VecDeque;

use super::geometry::Geometry;
use super::timing::Timing;

/// Whether a request waits for the operations of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It does.
    Foreground,
    /// It does not: garbage collection, wear levelling, erases of what was replaced.
    Background,
}

/// The scope around one that was opened: see [`Clock::open_scope`].
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// When the operation that comes next is issued.
    issue_ns: u64,
    /// When the slowest operation of the scope ends; at least `issue_ns`.
    until_ns: u64,
    urgency: Urgency,
}

/// Simulated time in nanoseconds, and how long each die and channel is busy.
#[derive(Clone, Debug)]
pub struct Clock {
    timing: Timing,
    /// When the current request was issued.
    request_ns: u64,
    /// When the slowest operation of the request ends.
    end_ns: u64,
    scope: Scope,
    dies: Vec<u64>,
    channels: Vec<Channel>,
}

impl Clock {
    /// Everything is free at time 0.
    #[must_use]
    pub fn new(geometry: &Geometry, timing: Timing) -> Self {
        Self {
            timing,
            request_ns: 0,
            end_ns: 0,
            scope: Scope { issue_ns: 0, until_ns: 0, urgency: Urgency::Foreground },
            dies: vec![0; geometry.dies() as usize],
            channels: vec![Channel::default(); geometry.channels() as usize],
        }
    }

    /// The times of operations.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Begins a request: operations are issued at `ns`, or at the time of the last request if that
    /// is later. Scopes that an error left open are closed.
    pub fn issue_at(&mut self, ns: u64) {
        let ns = self.request_ns.max(ns);
        (self.request_ns, self.end_ns) = (ns, ns);
        self.scope = Scope { issue_ns: ns, until_ns: ns, urgency: Urgency::Foreground };
    }

    /// When the slowest operation of the request ends.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Opens a scope, whose operations are issued when those of the scope around would be. What it
    /// answers closes it. Inside of a background scope every scope is one.
    pub const fn open_scope(&mut self, urgency: Urgency) -> Scope {
        let outer = self.scope;
        self.scope.until_ns = outer.issue_ns;
        if let Urgency::Background = urgency {
            self.scope.urgency = urgency;
        }
        outer
    }

    /// Closes the scope inside of `outer`.
    pub fn close_scope(&mut self, outer: Scope) {
        let inner = std::mem::replace(&mut self.scope, outer);
        if inner.urgency == outer.urgency {
            self.scope.until_ns = outer.until_ns.max(inner.until_ns);
        }
    }

    /// What follows in the scope is issued when all of it so far has ended.
    pub const fn wait(&mut self) {
        self.scope.issue_ns = self.scope.until_ns;
    }

    /// What follows in the scope is issued at `ns` or later.
    pub fn wait_until(&mut self, ns: u64) {
        self.scope.issue_ns = self.scope.issue_ns.max(ns);
        self.scope.until_ns = self.scope.until_ns.max(ns);
    }

    /// When the slowest operation of the scope ends.
    #[must_use]
    pub const fn until_ns(&self) -> u64 {
        self.scope.until_ns
    }

    pub(super) fn read(&mut self, die: u32, channel: u32) {
        let (read, transfer) = (self.timing.read_ns, self.timing.transfer_ns_per_page);
        let in_register = self.occupy(die, self.scope.issue_ns, read);
        let end = self.transfer(channel, in_register, transfer);
        self.ended(end);
    }

    pub(super) fn program(&mut self, die: u32, channel: u32) {
        let (program, transfer) = (self.timing.program_ns, self.timing.transfer_ns_per_page);
        let in_register = self.transfer(channel, self.scope.issue_ns, transfer);
        let end = self.occupy(die, in_register, program);
        self.ended(end);
    }

    pub(super) fn copy(&mut self, die: u32) {
        let timing = &self.timing;
        let transfers = if timing.copy_back { 0 } else { 2 * timing.transfer_ns_per_page };
        let busy = timing.read_ns + transfers + timing.program_ns;
        let end = self.occupy(die, self.scope.issue_ns, busy);
        self.ended(end);
    }

    pub(super) fn erase(&mut self, die: u32) {
        let end = self.occupy(die, self.scope.issue_ns, self.timing.erase_ns);
        self.ended(end);
    }

    pub(super) fn ram_bytes(&self) -> u64 {
        let transfers: usize = self.channels.iter().map(|channel| channel.busy.capacity()).sum();
        8 * self.dies.len() as u64 + 16 * transfers as u64
    }

    fn occupy(&mut self, die: u32, from: u64, busy: u64) -> u64 {
        let Some(free) = self.dies.get_mut(die as usize) else { return from };
        *free = from.max(*free).saturating_add(busy);
        *free
    }

    fn transfer(&mut self, channel: u32, from: u64, busy: u64) -> u64 {
        let request_ns = self.request_ns;
        let Some(channel) = self.channels.get_mut(channel as usize) else { return from };
        channel.reserve(request_ns, from, busy)
    }

    fn ended(&mut self, end: u64) {
        self.scope.until_ns = self.scope.until_ns.max(end);
        if self.scope.urgency == Urgency::Foreground {
            self.end_ns = self.end_ns.max(end);
        }
    }
}

/// The transfers of a channel that have not ended, as intervals in ascending order that neither
/// overlap nor touch.
#[derive(Clone, Debug, Default)]
struct Channel {
    busy: VecDeque<(u64, u64)>,
}

impl Channel {
    /// Reserves the first gap of length `busy` that begins at `from` or later, and answers its end.
    /// Everything before `now` is over. Cost: the intervals between `from` and the gap.
    fn reserve(&mut self, now: u64, from: u64, busy: u64) -> u64 {
        while self.busy.front().is_some_and(|(_, end)| *end <= now) {
            self.busy.pop_front();
        }
        if busy == 0 {
            return from;
        }
        let mut at = self.busy.partition_point(|(_, end)| *end < from);
        let mut start = from;
        while let Some((begin, end)) = self.busy.get(at) {
            if start.saturating_add(busy) <= *begin {
                break;
            }
            start = start.max(*end);
            at += 1;
        }
        let end = start.saturating_add(busy);
        self.insert(at, start, end);
        end
    }

    /// Inserts an interval before the one at `at`, and joins it with those that it touches.
    fn insert(&mut self, at: usize, start: u64, end: u64) {
        let touches_next = self.busy.get(at).is_some_and(|(begin, _)| *begin == end);
        let before = at.checked_sub(1);
        let touches_last =
            before.and_then(|last| self.busy.get(last)).is_some_and(|(_, over)| *over == start);
        match (before.filter(|_| touches_last), touches_next) {
            (Some(last), true) => {
                let joined = self.busy.remove(at).map_or(end, |(_, over)| over);
                if let Some(interval) = self.busy.get_mut(last) {
                    interval.1 = joined;
                }
            }
            (Some(last), false) => {
                if let Some(interval) = self.busy.get_mut(last) {
                    interval.1 = end;
                }
            }
            (None, true) => {
                if let Some(interval) = self.busy.get_mut(at) {
                    interval.0 = start;
                }
            }
            (None, false) => self.busy.insert(at, (start, end)),
        }
    }
}

#[cfg(test)]
mod tests;
