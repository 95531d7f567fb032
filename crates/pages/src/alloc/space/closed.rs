//! Segments that are emptied so that the end of the file can be cut off.

use std::collections::BTreeSet;

use super::{Space, Use};
use crate::place::CLASSES;

/// The slots that would have to find room in front of a place in the file.
#[derive(Default)]
struct Evicted {
    /// Slots, by class.
    slots: [u64; CLASSES],
    /// Slots of rows, by class, which go to rows of their own.
    row_slots: [u64; CLASSES],
}

impl Space {
    /// The smallest number of segments that holds all slots in use. The log is left out: each
    /// checkpoint takes new segments for it.
    pub(crate) fn fitting(&self) -> u32 {
        let mut free_segments = u64::from(self.free_segments());
        let mut free_slots = self.free_slots;
        let mut evicted = Evicted::default();
        let mut count = self.segment_count();
        while let Some(last) = count.checked_sub(1).and_then(|at| self.segments.get(at as usize)) {
            match last {
                Use::Fixed => break,
                Use::Free => free_segments = free_segments.saturating_sub(1),
                Use::Log => {}
                Use::Slots { class, free_count, .. } => {
                    let at = usize::from(class.0);
                    free_slots[at] = free_slots[at].saturating_sub((*free_count).into());
                    evicted.slots[at] += u64::from(self.slots_of(*class) - free_count);
                }
                Use::Row(row) => {
                    evicted.row_slots[usize::from(row.class.0)] += u64::from(row.page_count());
                }
            }
            if self.segments_for(&evicted, &free_slots) > free_segments {
                break;
            }
            count -= 1;
        }
        count
    }

    /// The number of free segments that it takes, in addition to these free slots.
    fn segments_for(&self, evicted: &Evicted, free_slots: &[u64; CLASSES]) -> u64 {
        let classes = evicted.slots.iter().zip(free_slots).zip(&evicted.row_slots).enumerate();
        let needed = classes.map(|(class, ((slots, free), row_slots))| {
            let per_segment = u64::from(self.segment_sectors >> class).max(1);
            slots.saturating_sub(*free).div_ceil(per_segment) + row_slots.div_ceil(per_segment)
        });
        needed.sum()
    }

    /// The segments that are to be emptied so that the file may have `count` segments, as
    /// [`Space::fitting`] says: those behind, and of each size of slots those in front that are
    /// more than it needs. Other sizes use these then, and so does the log.
    pub(crate) fn surplus(&self, count: u32) -> BTreeSet<u32> {
        let mut needed = [0; CLASSES];
        for is in &self.segments {
            if let Use::Slots { class, free_count, .. } = is {
                needed[usize::from(class.0)] += u64::from(self.slots_of(*class) - free_count);
            }
        }
        let mut surplus = BTreeSet::from_iter(count..self.segment_count());
        for (segment, is) in (0..count).zip(&self.segments) {
            let Use::Slots { class, .. } = is else { continue };
            let needed = &mut needed[usize::from(class.0)];
            if *needed == 0 {
                surplus.insert(segment);
            }
            *needed = needed.saturating_sub(self.slots_of(*class).into());
        }
        surplus
    }

    /// Takes nothing from these until [`Space::open_all`]; what becomes free there stays free.
    pub(crate) fn close_all(&mut self, segments: &BTreeSet<u32>) {
        for segment in segments.iter().copied() {
            self.free_segments.remove(&segment);
            if let Some(Use::Slots { class, free_count, .. }) = self.segments.get(segment as usize)
                && self.open[usize::from(class.0)].remove(&(*free_count, segment))
            {
                self.free_slots[usize::from(class.0)] -= u64::from(*free_count);
            }
            self.closed.insert(segment);
        }
        for next in self.next.iter_mut().filter(|(segment, _)| segments.contains(segment)) {
            *next = (0, 0);
        }
        let rows: Vec<u32> =
            self.rows.values().copied().filter(|segment| segments.contains(segment)).collect();
        self.rows.retain(|_, segment| !segments.contains(segment));
        for segment in rows {
            self.close(segment);
        }
    }

    /// Whether segments are closed.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Lets `count` segments that are closed and free be taken after all, those in front first, and
    /// says how many there were.
    pub(crate) fn open_some(&mut self, count: u32) -> u32 {
        let is_free = |segment: &u32| self.segments.get(*segment as usize) == Some(&Use::Free);
        let some = self.closed.range(self.unknown..).copied().filter(is_free).take(count as usize);
        let some: Vec<u32> = some.collect();
        for segment in &some {
            self.closed.remove(segment);
            self.free_segments.insert(*segment);
        }
        some.len() as u32
    }

    /// Lets everything be taken again.
    pub(crate) fn open_all(&mut self) {
        for segment in self.closed.split_off(&self.unknown) {
            match self.segments.get(segment as usize) {
                Some(Use::Free) => {
                    self.free_segments.insert(segment);
                }
                Some(Use::Slots { class, free_count, .. }) if *free_count > 0 => {
                    self.open[usize::from(class.0)].insert((*free_count, segment));
                    self.free_slots[usize::from(class.0)] += u64::from(*free_count);
                }
                _ => {}
            }
        }
    }

    /// Takes nothing from the first `count` segments until [`Space::open_first`], whatever room is
    /// needed.
    pub(crate) fn close_first(&mut self, count: u32) {
        self.unknown = count.min(self.segment_count());
        self.close_all(&(0..self.unknown).collect());
    }

    /// All slots that are in use are known.
    pub(crate) fn open_first(&mut self) {
        if self.unknown > 0 {
            self.unknown = 0;
            self.open_all();
        }
    }

    /// The number of segments that are left when the free ones at the end are cut off.
    pub(crate) fn count_without_end(&self) -> u32 {
        let last = self.segments.iter().rposition(|is| *is != Use::Free);
        last.map_or(0, |last| last as u32 + 1)
    }

    /// The file has `count` segments now; those behind were free.
    pub(crate) fn cut_to(&mut self, count: u32) {
        self.segments.truncate(count as usize);
        let _cut = self.free_segments.split_off(&count);
        let _cut = self.closed.split_off(&count);
    }
}
