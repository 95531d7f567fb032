//! The thesis's LSM tree by the block: level 0 in memory, levels of blocks below, merged by the
//! policies of the LSM index. It stores nothing but keys, so that a run takes seconds, and counts
//! exactly what the thesis counts: blocks written into levels from 1 on.

use std::collections::BTreeMap;

use esker_index::lsm::policy::learn::Learning;
use esker_index::lsm::policy::{Choice, Fill, Overflow, Params, Policy, blocks, choose};
use esker_workload::{Kind, Request};

use super::block::{Block, Level, Record};
use super::join::{Rules, join};
use super::meter::Meter;
use super::policy::Contender;

/// The sizes of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Records of a block.
    pub slots: usize,
    /// κ0, in blocks.
    pub kappa0: u64,
    /// ω, δ, γ and µ.
    pub params: Params,
}

impl Sizes {
    /// κ of a level, in blocks.
    #[must_use]
    pub fn capacity(&self, level: usize) -> u64 {
        (self.kappa0 as f64 * self.params.gamma.powi(level as i32)) as u64
    }

    /// Records that level 0 may hold.
    #[must_use]
    pub const fn memory_records(&self) -> u64 {
        self.kappa0 * self.slots as u64
    }
}

/// The operations of a tree so far, and its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks written into each level; 0 for level 0.
    pub written: Vec<u64>,
    /// Blocks of a level that merges into it kept.
    pub kept: Vec<u64>,
    /// Blocks that merges took out of each level.
    pub taken: Vec<u64>,
    /// Blocks of the level below that these overlapped.
    pub overlapped: Vec<u64>,
    /// Blocks of each level.
    pub held: Vec<u64>,
}

/// A tree.
#[derive(Debug)]
pub struct Model {
    sizes: Sizes,
    contender: Contender,
    memory: BTreeMap<u32, bool>,
    /// Levels from 1 on, and where the last merge out of each level from 0 on ended.
    levels: Vec<Level>,
    cursors: Vec<Option<Vec<u8>>>,
    meter: Meter,
    counts: Counts,
}

impl Model {
    /// An empty tree.
    #[must_use]
    pub fn new(sizes: Sizes, contender: Contender) -> Self {
        let learning = Learning::new(1, sizes.params.mu, 1);
        let mut model = Self {
            sizes,
            contender,
            memory: BTreeMap::new(),
            levels: Vec::new(),
            cursors: vec![None],
            meter: Meter::new(learning),
            counts: Counts::default(),
        };
        model.add_level();
        model
    }

    fn add_level(&mut self) {
        self.levels.push(Level::default());
        self.cursors.push(None);
        let last = self.levels.len();
        let Counts { written, kept, taken, overlapped, .. } = &mut self.counts;
        for counts in [written, kept, taken, overlapped] {
            counts.resize(last + 1, 0);
        }
        let window_records = self.window_records(last);
        self.meter.set_last(last, window_records);
    }

    /// The number of the last level.
    #[must_use]
    pub const fn last(&self) -> usize {
        self.levels.len()
    }

    /// κ of a level, in blocks.
    #[must_use]
    pub fn capacity(&self, level: usize) -> u64 {
        self.sizes.capacity(level)
    }

    /// Blocks of a level.
    #[must_use]
    pub fn held(&self, level: usize) -> u64 {
        let below = level.checked_sub(1).and_then(|index| self.levels.get(index));
        below.map_or_else(
            || (self.memory.len() as u64).div_ceil(self.sizes.slots as u64),
            |level| level.0.len() as u64,
        )
    }

    /// The key at which the next merge out of a level begins under round robin.
    #[must_use]
    pub fn cursor(&self, level: usize) -> u32 {
        let cursor = self.cursors.get(level).and_then(|cursor| cursor.as_deref());
        cursor.and_then(|key| key.try_into().ok()).map_or(0, u32::from_be_bytes)
    }

    /// The operations so far, and the contents.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let held = (0..=self.last()).map(|level| self.held(level)).collect();
        Counts { held, ..self.counts.clone() }
    }

    /// Forgets what was learnt while the tree grew: that the state is steady now, the policy could
    /// only guess.
    pub fn learn_anew(&mut self) {
        let (last, mu) = (self.last(), self.sizes.params.mu);
        self.meter = Meter::new(Learning::new(last, mu, self.window_records(last)));
    }

    /// Records that the level above the last holds.
    fn window_records(&self, last: usize) -> u64 {
        self.sizes.capacity(last.saturating_sub(1)) * self.sizes.slots as u64
    }

    /// Whether the policy has learnt what it learns.
    #[must_use]
    pub fn is_learnt(&self) -> bool {
        self.contender.policy != Policy::Mixed || self.meter.is_learnt()
    }

    /// Whether merges into the last level are full.
    #[must_use]
    pub fn is_last_full(&self) -> bool {
        let policy = self.contender.policy;
        matches!(policy, Policy::Full | Policy::Test)
            || policy == Policy::Mixed && self.meter.thresholds().is_last_full
    }

    /// The share of slots of levels from 1 on that are unused.
    #[must_use]
    pub fn unused(&self) -> f64 {
        let records: u64 = self.levels.iter().map(Level::records).sum();
        let blocks: usize = self.levels.iter().map(|level| level.0.len()).sum();
        1.0 - records as f64 / (blocks * self.sizes.slots).max(1) as f64
    }

    /// The number of records of a level in each of `bins` equal parts of the domain.
    #[must_use]
    pub fn distribution(&self, level: usize, bins: usize) -> Vec<u64> {
        let mut counts = vec![0; bins];
        let mut count = |key: u32| {
            let bin = (u64::from(key) * bins as u64) >> 32;
            counts.get_mut(bin as usize).into_iter().for_each(|count| *count += 1);
        };
        match level.checked_sub(1).and_then(|index| self.levels.get(index)) {
            None => self.memory.keys().for_each(|key| count(*key)),
            Some(level) => {
                let records = level.0.iter().flat_map(Block::records);
                records.for_each(|record| count(record.key()));
            }
        }
        counts
    }

    /// Does an insertion or deletion, and the merges that it makes due.
    pub fn apply(&mut self, request: &Request) {
        let is_tombstone = request.kind == Kind::Delete;
        self.memory.insert(request.number as u32, is_tombstone);
        while self.memory.len() as u64 > self.sizes.memory_records() {
            self.merge(0);
            for level in 1.. {
                while self.held(level) > self.capacity(level) {
                    self.merge(level);
                }
                if level >= self.last() {
                    break;
                }
            }
        }
    }

    /// Merges a part of a level into the next one.
    fn merge(&mut self, level: usize) {
        if level == self.last() {
            self.add_level();
        }
        self.meter.overflows(level);
        let mut upper = match level.checked_sub(1) {
            None => Level(self.memory_blocks()),
            Some(index) => self.levels.get_mut(index).map(std::mem::take).unwrap_or_default(),
        };
        let Some(choice) = self.choose(level, &upper) else { return };
        let taken: Vec<_> = upper.0.drain(choice.blocks.clone()).collect();
        match level.checked_sub(1) {
            None => self.forget(&taken),
            Some(index) => {
                if let Some(level) = self.levels.get_mut(index) {
                    *level = upper;
                }
            }
        }
        self.cursors.get_mut(level).into_iter().for_each(|cursor| cursor.clone_from(&choice.to));
        self.put_below(level, taken, &choice);
        self.meter.merged(level, self.held(level) == 0);
    }

    /// Memory as blocks. They are cut where the last merge ended: its gap lies in front of that,
    /// and a block across it would overlap far more than its records are worth.
    fn memory_blocks(&self) -> Vec<Block> {
        let cut = self.cursor(0);
        let parts = [self.memory.range(..cut), self.memory.range(cut..)];
        let blocks = parts.into_iter().flat_map(|part| {
            let records: Vec<_> = part.map(|(key, gone)| Record::new(*key, *gone)).collect();
            let chunks = records.chunks(self.sizes.slots);
            chunks.filter_map(|records| Block::new(records.to_vec())).collect::<Vec<_>>()
        });
        blocks.collect()
    }

    fn forget(&mut self, taken: &[Block]) {
        let records: u64 = taken.iter().map(|block| block.records().len() as u64).sum();
        for record in taken.iter().flat_map(Block::records) {
            self.memory.remove(&record.key());
        }
        self.meter.entered(records);
    }

    fn choose(&self, level: usize, upper: &Level) -> Option<Choice> {
        let below = Fill { bytes: self.held(level + 1), capacity_bytes: self.capacity(level + 1) };
        let overflow = Overflow {
            level,
            last: self.last(),
            upper,
            capacity_bytes: self.capacity(level),
            lower: self.levels.get(level)?,
            below,
            cursor: self.cursors.get(level)?.as_deref(),
        };
        let thresholds = self.meter.thresholds();
        choose(self.contender.policy, &self.sizes.params, &thresholds, &overflow)
    }

    /// Merges what was taken out of a level into the one below.
    fn put_below(&mut self, level: usize, taken: Vec<Block>, choice: &Choice) {
        let (is_last, count) = (level + 1 == self.last(), taken.len() as u64);
        let slots = self.sizes.slots;
        let Some(lower) = self.levels.get_mut(level) else { return };
        let last_key = taken.last().map_or(0, Block::last);
        let mut range = blocks::overlapping(lower, &choice.from, None);
        range.end = lower.0.partition_point(|block| block.first() <= last_key).max(range.start);
        // What lies before the taken keys as a whole takes no part.
        let is_before = |block: &Block| block.last().to_be_bytes().as_slice() < &choice.from[..];
        if lower.0.get(range.start).is_some_and(is_before) && range.start < range.end {
            range.start += 1;
        }
        let overlapped: Vec<_> = lower.0.drain(range.clone()).collect();
        let rest = (lower.0.len(), lower.0.len() * slots - lower.records() as usize);
        let rules = Rules {
            slots,
            preserves: self.contender.preserves,
            is_from_memory: level == 0,
            is_last,
            omega: self.sizes.params.omega,
            rest,
        };
        let below = overlapped.len() as u64;
        let joined = join(taken, overlapped, rules);
        lower.0.splice(range.start..range.start, joined.blocks);
        for (counts, at, more) in [
            (&mut self.counts.written, level + 1, joined.written),
            (&mut self.counts.kept, level + 1, joined.kept),
            (&mut self.counts.taken, level, count),
            (&mut self.counts.overlapped, level, below),
        ] {
            counts.get_mut(at).into_iter().for_each(|sum| *sum += more);
        }
        self.meter.wrote(level + 1, joined.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::policy::{SEVEN, TEST};
    use esker_workload::law::Law;
    use esker_workload::steady::Steady;

    const SIZES: Sizes = Sizes {
        slots: 8,
        kappa0: 8,
        params: Params { omega: 0.2, delta: 0.25, gamma: 4.0, mu: 0.25 },
    };

    /// The newest record of every key.
    fn content(model: &Model) -> BTreeMap<u32, bool> {
        let mut content = BTreeMap::new();
        for level in model.levels.iter().rev() {
            let records = level.0.iter().flat_map(Block::records);
            content.extend(records.map(|record| (record.key(), record.is_tombstone())));
        }
        content.extend(&model.memory);
        content.retain(|_, gone| !*gone);
        content
    }

    #[test]
    fn every_policy_keeps_every_key() {
        for contender in SEVEN.into_iter().chain([TEST]) {
            let mut model = Model::new(SIZES, contender);
            let mut steady = Steady::new(1, Law::Normal { sigma: 0.01, group: 50 }, 3000);
            for request in steady.by_ref().take(20_000) {
                model.apply(&request);
            }
            let content = content(&model);
            assert_eq!(content.len() as u64, steady.live(), "{contender:?}");
            assert!(content.keys().all(|key| steady.is_live(u64::from(*key))));
            let counts = model.counts();
            for level in 0..model.last() {
                assert!(counts.held[level] <= model.capacity(level), "{contender:?} {counts:?}");
            }
            for level in &model.levels {
                let blocks = &level.0;
                assert!(blocks.windows(2).all(|pair| pair[0].last() < pair[1].first()));
            }
            assert_eq!(counts.written[0], 0);
            assert!(model.unused() < 0.35, "{contender:?}: {}", model.unused());
        }
    }

    #[test]
    fn the_distribution_counts_every_record() {
        let mut model = Model::new(SIZES, SEVEN[0]);
        Steady::new(1, Law::Uniform, 500).take(500).for_each(|request| model.apply(&request));
        for level in 0..=model.last() {
            let records: u64 = model.distribution(level, 10).iter().sum();
            let expected = match level {
                0 => model.memory.len() as u64,
                level => model.levels[level - 1].records(),
            };
            assert_eq!(records, expected);
        }
    }
}
