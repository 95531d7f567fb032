//! The reads that scans do because runs are not merged yet, by range of keys.
//!
//! ADAPT (D. Agrawal, D. Ganesan, R. Sitaraman, Y. Diao, S. Singh: Lazy-Adaptive Tree, PVLDB 2(1),
//! 2009): a range is merged as soon as an earlier merge of it would have paid for itself. Scan i
//! reads s blocks that it would not read after a merge, and such a merge costs e. Had there been
//! one after scan i, the scans from then on to scan j would have saved (j - i) s. So scan i comes
//! due at number i + ⌈e / s⌉, and the least of these numbers is all that has to be kept.
//!
//! That takes later scans to read as much. With a cache they may read less, so what they have read
//! too many in all is counted as well, and has to be as much as the merge costs.
//!
//! What was counted before a run came is forgotten: a range is merged only if scans pay for it
//! between two runs. Else it would be merged for scans, and again for the next run.
//!
//! Invariant: the begins of ranges ascend, and the first is the empty key.

use std::sync::Arc;

use esker_format::ptr::UNIT_BYTES;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, Swap};

/// What a scan tells of its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess {
    /// The blocks that it has read and would not read after a merge.
    pub blocks: u64,
    /// The bytes of all runs and levels that such a merge takes keys of.
    pub bytes: u64,
}

/// A range of keys that is merged when scans have paid for it.
#[derive(Debug)]
pub(crate) struct Range {
    /// Its first key.
    begin: Vec<u8>,
    /// The number of runs that had come when the rest began to be counted.
    runs: AtomicU64,
    scans: AtomicU64,
    /// The number of the scan at which a merge would have paid.
    deadline: AtomicU64,
    /// The blocks that scans have read too many.
    paid: AtomicU64,
    /// The number of these blocks at which a merge would have paid.
    paid_due: AtomicU64,
}

impl Range {
    fn new(begin: Vec<u8>) -> Self {
        let [runs, scans, paid] = [0, 0, 0].map(AtomicU64::new);
        let [deadline, paid_due] = [u64::MAX, u64::MAX].map(AtomicU64::new);
        Self { begin, runs, scans, deadline, paid, paid_due }
    }

    /// A scan has read `excess` blocks too many, and a merge costs as much as `cost` reads of a
    /// block; whether the range is to be merged.
    fn note(&self, excess: u64, cost: u64) -> bool {
        let scan = self.scans.fetch_add(1, Ordering::Relaxed) + 1;
        let paid = self.paid.fetch_add(excess, Ordering::Relaxed) + excess;
        let cost = cost.max(1);
        let (pays_at, pays_with) = match excess {
            0 => (u64::MAX, u64::MAX),
            _ => (scan.saturating_add(cost.div_ceil(excess)), paid.saturating_add(cost)),
        };
        let is_late = scan >= self.deadline.fetch_min(pays_at, Ordering::Relaxed);
        let is_paid = paid >= self.paid_due.fetch_min(pays_with, Ordering::Relaxed);
        is_late && is_paid
    }

    /// So many runs have come.
    fn note_runs(&self, runs: u64) {
        // Most scans only look.
        let is_new = self.runs.load(Ordering::Relaxed) != runs;
        if is_new && self.runs.swap(runs, Ordering::Relaxed) != runs {
            self.reset();
        }
    }

    /// It is merged, or has a run more.
    fn reset(&self) {
        self.scans.store(0, Ordering::Relaxed);
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        self.paid.store(0, Ordering::Relaxed);
        self.paid_due.store(u64::MAX, Ordering::Relaxed);
    }
}

/// All ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    all: Vec<Range>,
    /// Bytes of the level that they divide.
    pub bytes: u64,
    /// The bytes of writes that a read of a block is worth; more than 0.
    read_worth_bytes: u64,
    /// The number of last parts of a view that merges for scans leave as they are.
    pub staying: usize,
}

impl Ranges {
    /// Ranges that begin at `begins`, of equal parts of a level of `bytes`. A read of a block is
    /// worth writing `read_worth_bytes`; merges leave the last `staying` parts of a view.
    pub fn new(begins: Vec<Vec<u8>>, bytes: u64, read_worth_bytes: u64, staying: usize) -> Self {
        let all = begins.into_iter().map(Range::new).collect();
        Self { all, bytes, read_worth_bytes: read_worth_bytes.max(1), staying }
    }

    /// What a merge of one range costs, in reads of a block: it reads and writes its part of
    /// `bytes`.
    fn cost(&self, bytes: u64) -> u64 {
        let each = bytes / (self.all.len() as u64).max(1);
        each / UNIT_BYTES + each / self.read_worth_bytes
    }

    /// The range of a key, and where the next one begins.
    fn of(&self, key: &[u8]) -> Option<(&Range, Option<&[u8]>)> {
        let behind = self.all.partition_point(|range| range.begin.as_slice() <= key);
        let range = self.all.get(behind.checked_sub(1)?)?;
        Some((range, self.all.get(behind).map(|next| next.begin.as_slice())))
    }
}

/// The range in which a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub begin: Vec<u8>,
    /// `None`: it has no end.
    pub end: Option<Vec<u8>>,
    /// Where the scan began that has made it due.
    pub at: Vec<u8>,
}

/// The ranges of an index whose kind merges by what scans read, and the one that is due.
#[derive(Debug)]
pub(crate) struct Heat {
    /// None where the kind does not merge by it.
    ranges: Swap<Ranges>,
    /// The number of runs that have come since the index was opened.
    runs: AtomicU64,
    is_due: AtomicBool,
    due: Mutex<Option<Due>>,
}

impl Default for Heat {
    fn default() -> Self {
        let (ranges, runs) = (Swap::new(Arc::default()), AtomicU64::new(0));
        Self { ranges, runs, is_due: AtomicBool::new(false), due: Mutex::new(None) }
    }
}

impl Heat {
    /// Bytes of the level that the ranges divide; 0 without ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.load().bytes
    }

    /// Other ranges, of which nothing is known yet.
    pub fn divide(&self, ranges: Ranges) {
        drop(self.ranges.swap(Arc::new(ranges)));
        self.forget();
    }

    /// A run has come, which most likely has keys of all ranges.
    pub fn note_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of last parts of a view that merges for scans leave as they are; `None` where
    /// there are no ranges.
    pub fn staying(&self) -> Option<usize> {
        let ranges = self.ranges.load();
        (!ranges.all.is_empty()).then_some(ranges.staying)
    }

    /// A scan began at `key`; `excess` tells what it did in its range, up to a key, that it would
    /// not have done if that had been merged.
    pub fn note(&self, key: &[u8], excess: impl FnOnce(Option<&[u8]>) -> Excess) {
        let ranges = self.ranges.load();
        let Some((range, end)) = ranges.of(key) else { return };
        let excess = excess(end);
        range.note_runs(self.runs.load(Ordering::Relaxed));
        if range.note(excess.blocks, ranges.cost(excess.bytes)) {
            let (begin, end) = (range.begin.clone(), end.map(<[u8]>::to_vec));
            *self.due.lock() = Some(Due { begin, end, at: key.to_vec() });
            self.is_due.store(true, Ordering::Release);
        }
    }

    /// Whether a range is due.
    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// The range that is due.
    pub fn due(&self) -> Option<Due> {
        self.due.lock().clone()
    }

    /// That range is merged, or will not be: its scans are counted from 0 on.
    pub fn merged(&self, due: &Due) {
        if let Some((range, _)) = self.ranges.load().of(&due.begin) {
            range.reset();
        }
        self.forget();
    }

    fn forget(&self) {
        *self.due.lock() = None;
        self.is_due.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges that begin at these keys. A read is worth the write of a block, so a block costs two
    /// reads.
    fn heat(of: &[&str]) -> Heat {
        let heat = Heat::default();
        let begins = of.iter().map(|begin| begin.as_bytes().to_vec()).collect();
        heat.divide(Ranges::new(begins, 0, UNIT_BYTES, 1));
        heat
    }

    const fn excess(blocks: u64, merged_blocks: u64) -> Excess {
        Excess { blocks, bytes: merged_blocks * UNIT_BYTES }
    }

    /// The numbers of the slides: scans cost 15, 50, 80, 110, 150, a merge 70, 140, 200, 260, 340.
    /// After the fifth a merge at the second would have paid: 3 * 50 - 140 = 10.
    #[test]
    fn the_example_of_the_slides_is_due_at_the_fifth() {
        let scans = [(15, 70), (50, 140), (80, 200), (110, 260), (150, 340)];
        let (range, mut found) = (Range::new(Vec::new()), Vec::new());
        for (scan, cost) in scans {
            found.push(range.note(scan, cost));
        }
        assert_eq!(found, [false, false, false, false, true]);
    }

    #[test]
    fn a_scan_belongs_to_the_range_of_its_first_key() {
        let heat = heat(&["", "g", "p"]);
        // Three blocks are too many in [g, p), which has a third of nine: ⌈6 / 3⌉ scans behind the
        // first.
        for is_due in [false, false, true] {
            heat.note(b"h", |end| excess(if end == Some(b"p") { 3 } else { 0 }, 9));
            assert_eq!(heat.is_due(), is_due);
        }
        let due = heat.due().unwrap();
        assert_eq!(
            (&due.begin[..], due.end.as_deref(), &due.at[..]),
            (&b"g"[..], Some(&b"p"[..]), &b"h"[..])
        );
        heat.merged(&due);
        assert!(!heat.is_due());
        heat.note(b"z", |end| excess(end.map_or(1, |_| 0), 9));
        assert!(!heat.is_due());
    }

    /// The first scan reads four blocks too many, and a merge costs eight reads: due at the third
    /// scan, if they have read as many by then.
    #[test]
    fn scans_whose_blocks_are_cached_do_not_pay() {
        let due_at = |later: u64| {
            let range = Range::new(Vec::new());
            let scans = std::iter::once(4).chain(std::iter::repeat(later)).take(100);
            scans.enumerate().find(|(_, blocks)| range.note(*blocks, 8)).map(|(at, _)| at + 1)
        };
        assert_eq!([4, 2, 1, 0].map(due_at), [Some(3), Some(5), Some(9), None]);
    }

    #[test]
    fn scans_pay_for_a_merge_between_two_runs_or_not_at_all() {
        let heat = heat(&[""]);
        for _ in 0..100 {
            // Two reads a scan, and a merge costs eight: due at the fifth.
            (0..4).for_each(|_| heat.note(b"a", |_| excess(2, 4)));
            assert!(!heat.is_due());
            heat.note_run();
        }
        (0..5).for_each(|_| heat.note(b"a", |_| excess(2, 4)));
        assert!(heat.is_due());
    }

    #[test]
    fn scans_that_pay_nothing_are_never_due() {
        let heat = heat(&[""]);
        (0..100).for_each(|_| heat.note(b"a", |_| excess(0, 1)));
        assert!(!heat.is_due());
        let off = Heat::default();
        off.note(b"a", |_| panic!("heat is off"));
        assert!(off.staying().is_none() && !off.is_due());
    }

    /// The cost of ADAPT is at most twice the cost with all scans known before: a range gets data
    /// before some scans, a scan reads `a` for each byte, and a merge costs b + g for each byte.
    /// The optimum by dynamic programming over the scans after which it merges.
    #[test]
    fn adapt_costs_at_most_twice_the_optimum() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (random >> 33) % bound
        };
        let mut worst: f64 = 0.0;
        for _ in 0..20_000 {
            let (a, b) = ([1, 1, 2, 5][below(4) as usize], [1, 5, 20, 100, 500][below(5) as usize]);
            let g = [0, 1, 3, 8][below(4) as usize];
            let (size, chance) = ([2, 20, 200][below(3) as usize], 1 + below(10));
            let mut come = |_| if below(10) < chance { 1 + below(size) } else { 0 };
            let come: Vec<u64> = (0..30).map(&mut come).collect();
            if come.iter().sum::<u64>() == 0 {
                continue;
            }
            let ours = by_adapt(&come, (a, b, g));
            let best = optimum(&come, (a, b, g));
            worst = worst.max(ours as f64 / best as f64);
        }
        assert!((1.5..=2.0 + 1e-9).contains(&worst), "{worst}");
    }

    fn by_adapt(come: &[u64], (a, b, g): (u64, u64, u64)) -> u64 {
        let range = Range::new(Vec::new());
        let (mut bytes, mut paid) = (0, 0);
        for more in come {
            bytes += more;
            paid += a * bytes;
            let cost = b + g * bytes;
            if range.note(a * bytes, cost) {
                paid += cost;
                bytes = 0;
                range.reset();
            }
        }
        paid + if bytes > 0 { b + g * bytes } else { 0 }
    }

    fn optimum(come: &[u64], (a, b, g): (u64, u64, u64)) -> u64 {
        let mut best = vec![0];
        for until in 1..=come.len() {
            let from = |from: usize| {
                let (mut bytes, mut paid) = (0, 0);
                for more in &come[from..until] {
                    bytes += more;
                    paid += a * bytes;
                }
                best[from] + paid + if bytes > 0 { b + g * bytes } else { 0 }
            };
            let least = (0..until).map(from).min().unwrap();
            best.push(least);
        }
        best[come.len()]
    }
}
