//! Algorithms 1 to 3: merges from the head down, fences, and the sequential version split.

use super::super::pages::PageId;
use super::group::merge;
use super::run::{self, Contents, Entry, Run};
use super::{Bulk, Former, Head, Overwrite};
use crate::Result;

/// The pages between two places of a level, and between two levels: more than any level has.
const PLACE: PageId = 1 << 32;
/// The pages between two roots.
const REGION: PageId = 1 << 41;

impl Bulk {
    /// Merges the head into level 1, and every level that has outgrown its size into the next.
    pub(super) fn merge_head(&mut self) -> Result<()> {
        let mut upper = self.head.entries()?;
        self.head = Head::new(&self.options, self.active)?;
        let mut level = 1;
        let fences = loop {
            let fences = self.merge_into(level, &upper)?;
            let run = self.run(level);
            if run.pages <= self.options.level_pages(level) {
                break fences;
            }
            upper = run.read(&mut self.pool)?.entries;
            level += 1;
        };
        self.lead_to(level, fences)?;
        self.log.append(run::ENTRY_BYTES * (level + 1));
        self.log.force();
        if self.is_dead_enough() { self.split() } else { Ok(()) }
    }

    /// Merges entries into a level; the answer leads to its pages.
    fn merge_into(&mut self, level: usize, upper: &[Entry]) -> Result<Vec<Entry>> {
        let lower = self.run(level).read(&mut self.pool)?;
        let is_last = self.levels.iter().skip(level).all(|run| run.entries == 0);
        let entries = merge(upper, &lower.entries, is_last);
        self.work.merges += 1;
        let fences = self.replace(level, &Contents { entries, fences: lower.fences })?;
        self.work.merged_pages += self.run(level).pages;
        Ok(fences)
    }

    /// Leaves fences alone in the levels above one, and in the pages above level 1.
    fn lead_to(&mut self, level: usize, mut fences: Vec<Entry>) -> Result<()> {
        for above in (1..level).rev() {
            fences = self.replace(above, &Contents { entries: Vec::new(), fences })?;
            self.work.fence_pages += self.run(above).pages;
        }
        let olds = std::mem::take(&mut self.tops);
        let mut place = self.place_beside(0, olds.first().copied());
        self.top = None;
        while self.top.is_none() && !fences.is_empty() {
            let contents = Contents { entries: Vec::new(), fences };
            let (run, next) = Run::write(&mut self.pool, place, &contents)?;
            self.work.fence_pages += run.pages;
            self.tops.push(run);
            place += run.pages;
            self.top = (run.pages == 1).then_some(run.first);
            fences = next;
        }
        self.free_beside(&olds, &self.tops.clone());
        Ok(())
    }

    /// The run of a level, empty if there is none.
    fn run(&self, level: usize) -> Run {
        level.checked_sub(1).and_then(|at| self.levels.get(at)).copied().unwrap_or_default()
    }

    /// Writes a level anew; the answer leads to its pages.
    fn replace(&mut self, level: usize, contents: &Contents) -> Result<Vec<Entry>> {
        let old = self.run(level);
        let place = self.place_beside(level, (old.pages > 0).then_some(old));
        let (new, fences) = Run::write(&mut self.pool, place, contents)?;
        if self.levels.len() < level {
            self.levels.resize(level, Run::default());
        }
        if let Some(run) = level.checked_sub(1).and_then(|at| self.levels.get_mut(at)) {
            *run = new;
        }
        self.free_beside(&[old], &[new]);
        Ok(fences)
    }

    /// The first place of a level of the current root.
    pub(super) fn place(&self, level: usize) -> PageId {
        REGION * self.former.len() as u64 + 2 * PLACE * level as u64
    }

    /// Where a level is written next.
    fn place_beside(&self, level: usize, old: Option<Run>) -> PageId {
        let first = self.place(level);
        let is_at_first = old.is_some_and(|old| old.first == first);
        match self.options.overwrite {
            Overwrite::Alternate if is_at_first => first + PLACE,
            _ => first,
        }
    }

    /// Gives pages of old runs back that no new run has.
    fn free_beside(&mut self, olds: &[Run], news: &[Run]) {
        let is_new = |id| news.iter().any(|run| (run.first..run.first + run.pages).contains(&id));
        for old in olds {
            let gone = (old.first..old.first + old.pages).filter(|id| !is_new(*id));
            gone.for_each(|id| self.pool.free(id));
        }
    }

    /// Whether the dead entries are enough for a version split.
    fn is_dead_enough(&self) -> bool {
        let sum = |of: fn(&Run) -> u64| self.levels.iter().map(of).sum::<u64>();
        let (dead, all) = (sum(|run| run.dead), sum(|run| run.entries));
        let page = run::capacity(self.options.page_bytes) as u64;
        let least = self.options.level_pages(1).saturating_mul(page);
        dead >= least && dead as f64 >= self.options.dead_share * all as f64
    }

    /// Begins a new root with what lives; what there is stays, for readers of its versions.
    fn split(&mut self) -> Result<()> {
        let mut all: Vec<Entry> = Vec::new();
        for run in self.levels.clone() {
            let below = run.read(&mut self.pool)?.entries;
            all = if all.is_empty() { below } else { merge(&all, &below, false) };
        }
        all.retain(Entry::is_open);
        let levels = std::mem::take(&mut self.levels);
        self.former.push(Former { from: self.from, top: self.top.take(), levels });
        self.tops.clear();
        self.from = self.active + 1;
        self.work.splits += 1;
        let pages = all.len().div_ceil(run::capacity(self.options.page_bytes)) as u64;
        let mut level = 1;
        while self.options.level_pages(level) < pages {
            level += 1;
        }
        if all.is_empty() {
            return Ok(());
        }
        let fences = self.replace(level, &Contents { entries: all, fences: Vec::new() })?;
        self.work.merged_pages += self.run(level).pages;
        self.lead_to(level, fences)
    }
}
