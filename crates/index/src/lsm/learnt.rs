//! The thresholds that Mixed has learnt, in the form kept with the index.

use esker_format::meta::{IndexMeta, LearntMeta, LsmMeta, Real};

use super::LsmIndex;
use super::counters::Work;
use super::meter::Event;
use super::policy::learn::{Learning, Phase, Reference};
use super::policy::{Policy, Thresholds};
use crate::lsm::choose::by_policy;
use crate::lsm::choose::slice::{Cause, Slice};

/// The form in which learning is stored.
fn kept(learning: &Learning) -> LearntMeta {
    let (phase, level, step, cost, records) = match learning.phase {
        Phase::Settling { before } => (0, 0, 0, before, 0),
        Phase::Inner { level, step, before } => (1, level, step, before, 0),
        Phase::LastFull => (2, 0, 0, None, 0),
        Phase::LastPartial { full, records } => (3, 0, 0, Some(full), records),
        Phase::Learnt => (4, 0, 0, None, 0),
    };
    let reals = |all: &[f64]| all.iter().copied().map(Real::new).collect();
    LearntMeta {
        last: learning.last as u8,
        mu: Real::new(learning.mu),
        window_records: learning.window_records,
        phase,
        level: level as u8,
        step,
        cost: cost.map(Real::new),
        records,
        found: reals(&learning.found),
        learnt: reals(&learning.learnt.inner),
        is_last_full: learning.learnt.is_last_full,
        reference: learning.reference.map(|known| (Real::new(known.cost), known.records)),
    }
}

/// Learning, from its stored form.
fn learning(kept: &LearntMeta) -> Learning {
    let cost = kept.cost.map(Real::get);
    let phase = match kept.phase {
        1 => Phase::Inner {
            level: usize::from(kept.level).max(2),
            step: kept.step.min(u32::MAX - 1),
            before: cost.filter(|_| kept.step > 0),
        },
        2 => Phase::LastFull,
        3 => Phase::LastPartial { full: cost.unwrap_or_default(), records: kept.records },
        4 => Phase::Learnt,
        _ => Phase::Settling { before: cost },
    };
    let reals = |all: &[Real]| all.iter().copied().map(Real::get).collect();
    let reference = kept.reference.map(|(cost, records)| Reference { cost: cost.get(), records });
    Learning {
        last: usize::from(kept.last),
        mu: kept.mu.get(),
        window_records: kept.window_records.max(1),
        phase,
        found: reals(&kept.found),
        learnt: Thresholds { inner: reals(&kept.learnt), is_last_full: kept.is_last_full },
        reference,
    }
}

/// The results of the learning about an index; `None` before anything was measured.
pub(super) fn of(lsm: &LsmMeta) -> Option<Learning> {
    lsm.learnt.as_ref().map(learning)
}

/// Entries of a window as long as nothing is learnt: those that fill the level above the last.
fn window_records(lsm: &LsmMeta, above_last_bytes: u64) -> Option<u64> {
    let data = lsm.levels.last().and_then(|level| level.tree.levels.last())?;
    let entries = data.counts.data_entries();
    let bytes = data.counts.sectors.saturating_mul(esker_format::ptr::SECTOR_BYTES);
    let each = bytes.checked_div(entries)?.max(1);
    Some((above_last_bytes / each).max(1))
}

fn event_of(lsm: &LsmMeta, slice: &Slice, work: &Work) -> Event {
    let levels = (1..).zip(&lsm.levels);
    Event {
        of: if slice.runs { 0 } else { slice.depth },
        is_first: slice.is_first,
        is_last: slice.is_last,
        entered: work.entered,
        written: work.levels.iter().map(|(at, of)| (at + 1, of.blocks_written)).collect(),
        empty: levels.filter(|(_, level)| level.units == 0).map(|(number, _)| number).collect(),
    }
}

impl LsmIndex<'_> {
    /// The thresholds that Mixed goes by.
    pub(super) fn thresholds(&self, lsm: &LsmMeta) -> Thresholds {
        of(lsm).filter(|_| self.lsm.compaction.policy == Policy::Mixed).map_or_else(
            Thresholds::default,
            |mut learning| {
                self.suit(&mut learning, lsm);
                learning.thresholds()
            },
        )
    }

    /// Adapts what was learnt under other levels, or another µ, to these.
    fn suit(&self, learning: &mut Learning, lsm: &LsmMeta) {
        let (last, mu) = (lsm.levels.len(), self.lsm.compaction.params.mu);
        if learning.last == last && learning.mu == mu {
            return;
        }
        let above_last = last.saturating_sub(1);
        let bytes =
            by_policy::capacity(&self.lsm.compaction.params, above_last, self.kappa0_bytes());
        learning.window_records = window_records(lsm, bytes).unwrap_or(learning.window_records);
        if learning.mu != mu {
            learning.mu = mu;
            learning.phase = Phase::Settling { before: None };
            learning.found.clear();
        }
        learning.set_last(last);
    }

    /// Measures a slice that is about to be recorded, where anything is to be learnt of it.
    pub(super) fn learn(&self, meta: &mut IndexMeta, slice: &Slice, work: &Work) {
        // Packing is not chosen by a policy.
        if self.lsm.compaction.policy != Policy::Mixed || slice.packs() {
            return;
        }
        let Some(lsm) = meta.lsm_mut() else { return };
        let mut meter = self.lsm.meter.lock();
        // What these move and write is not the policy's either, and changes what it finds.
        if slice.is_full() || slice.cause == Cause::Scanned {
            *meter = Default::default();
            return;
        }
        // The levels are unlike any, so that they are taken note of.
        let mut learning = of(lsm).unwrap_or_else(|| Learning::new(0, 0.0, u64::MAX));
        self.suit(&mut learning, lsm);
        meter.note(&mut learning, &event_of(lsm, slice, work));
        lsm.learnt = Some(kept(&learning));
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::learn::Measured;
    use super::*;

    /// The numbers in a file may have any value that decodes.
    #[test]
    fn the_greatest_numbers_overflow_nothing() {
        for phase in 0..5 {
            let (window_records, records) = (u64::MAX, u64::MAX);
            let (level, step, last) = (24, u32::MAX, 24);
            let kept = LearntMeta {
                phase,
                level,
                step,
                last,
                window_records,
                records,
                ..Default::default()
            };
            let mut learning = learning(&kept);
            assert!(learning.window().is_some());
            learning.observe(Measured { block_writes: 1, records: 1 });
            assert!(learning.thresholds().inner.len() <= 24);
        }
    }

    #[test]
    fn what_is_kept_is_what_was_learnt() {
        let phases = [
            Phase::Settling { before: Some(0.5) },
            Phase::Settling { before: None },
            Phase::Inner { level: 3, step: 2, before: Some(0.25) },
            Phase::LastFull,
            Phase::LastPartial { full: 0.125, records: 9 },
            Phase::Learnt,
        ];
        for phase in phases {
            let known = Learning {
                phase,
                found: vec![0.5],
                learnt: Thresholds { inner: vec![0.0, 0.25], is_last_full: true },
                reference: Some(Reference { cost: 1.5, records: 77 }),
                ..Learning::new(4, 0.25, 500)
            };
            assert_eq!(learning(&kept(&known)), known);
        }
    }
}
