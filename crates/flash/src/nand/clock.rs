//! When dies and channels are free: how long requests take, without an event queue.
//!
//! A read waits for its die, reads into the die's register, waits for the channel and transfers; a
//! program waits for the channel, transfers, waits for the die and programs; an erase waits for the
//! die. A copy inside of a die, and an erase, do not use the channel.
//!
//! C1: a die serves operations in the order in which they are issued. C2: transfers of a channel do
//! not overlap. One that must wait for its die long from now leaves the channel to others until
//! then: a transfer takes the first gap that is long enough, so that a die that collects garbage
//! does not stop the other dies of its channel.

use std::collections::VecDeque;

use super::geometry::Geometry;
use super::timing::Timing;

/// Simulated time in nanoseconds, and how long each die and channel is busy.
#[derive(Clone, Debug)]
pub struct Clock {
    timing: Timing,
    /// When the current request was issued.
    request_ns: u64,
    /// When the operation that comes next is issued.
    issue_ns: u64,
    /// When the last operation ends.
    last_ns: u64,
    /// When the slowest operation of the request ends.
    end_ns: u64,
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
            issue_ns: 0,
            last_ns: 0,
            end_ns: 0,
            dies: vec![0; geometry.dies() as usize],
            channels: vec![Channel::default(); geometry.channels() as usize],
        }
    }

    /// The times of operations.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    pub(super) fn issue_at(&mut self, ns: u64) {
        self.request_ns = self.request_ns.max(ns);
        self.issue_ns = self.request_ns;
        self.last_ns = self.request_ns;
        self.end_ns = self.request_ns;
    }

    pub(super) fn chain(&mut self) {
        self.issue_ns = self.issue_ns.max(self.last_ns);
    }

    pub(super) const fn end_ns(&self) -> u64 {
        self.end_ns
    }

    pub(super) fn read(&mut self, die: u32, channel: u32, counts: bool) {
        let (read, transfer) = (self.timing.read_ns, self.timing.transfer_ns_per_page);
        let in_register = self.occupy(die, self.issue_ns, read);
        let end = self.transfer(channel, in_register, transfer);
        self.ended(end, counts);
    }

    pub(super) fn program(&mut self, die: u32, channel: u32, counts: bool) {
        let (program, transfer) = (self.timing.program_ns, self.timing.transfer_ns_per_page);
        let in_register = self.transfer(channel, self.issue_ns, transfer);
        let end = self.occupy(die, in_register, program);
        self.ended(end, counts);
    }

    pub(super) fn copy(&mut self, die: u32, counts: bool) {
        let timing = &self.timing;
        let transfers = if timing.copy_back { 0 } else { 2 * timing.transfer_ns_per_page };
        let busy = timing.read_ns + transfers + timing.program_ns;
        let end = self.occupy(die, self.issue_ns, busy);
        self.ended(end, counts);
    }

    pub(super) fn erase(&mut self, die: u32, counts: bool) {
        let end = self.occupy(die, self.issue_ns, self.timing.erase_ns);
        self.ended(end, counts);
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

    fn ended(&mut self, end: u64, counts: bool) {
        self.last_ns = end;
        if counts {
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
