//! A run of G_U or G_N: build, reach a steady state, learn, and count over whole periods.
//!
//! A period ends when the level above the last becomes empty, as it does under full merges. Where
//! it does not, any number of requests is as good as any other.

use esker_index::lsm::policy::Params;
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::law::Law;
use esker_workload::steady::Steady;
use serde_json::{Value, json};

use super::model::{Counts, Model, Sizes};
use super::policy::{Contender, Keys, name};
use crate::Result;
use crate::experiment::{Watch, go_on, metric};

/// Blocks written into levels, for each MB of requests.
pub const WRITES: &str = "writes_per_mb";
/// The same into one level, from 1 on.
pub const INTO: [&str; 4] = ["into_1_per_mb", "into_2_per_mb", "into_3_per_mb", "into_4_per_mb"];
/// Blocks that merges kept, for each MB of requests.
pub const KEPT: &str = "kept_per_mb";
/// The share of its capacity that the last level holds.
pub const OCCUPANCY: &str = "occupancy";
/// Levels, that of memory included.
pub const LEVELS: &str = "levels";
/// The share of its capacity that level 1 holds, on average.
pub const FILL: &str = "level_1_fill";
/// Blocks of level 1 that each block out of memory overlapped.
pub const OVERLAP: &str = "level_1_overlap";
/// Whether merges into the last level are full: 1 or 0.
pub const LAST_FULL: &str = "last_is_full";
/// Unused slots, as a share.
pub const UNUSED: &str = "unused";

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// σ of G_N: one on each side of the mean is a hundredth of the domain.
const SIGMA: f64 = 0.005;
/// Bytes of a block without its header.
const BLOCK_BYTES: usize = 4092;
/// Bytes of a key, and of the marks of a record.
const KEY_BYTES: usize = 4;
const MARK_BYTES: usize = 1;
/// Requests between two checks for a requested stop.
const LOOK: u64 = 1 << 12;
/// Records that Mixed may take to learn, over those that the level above the last holds.
const LEARNING_MOST: u64 = 80;

/// The tree and the requests that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The tree.
    pub sizes: Sizes,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Live entries, over those that memory holds.
    pub ratio: f64,
    /// σ of G_N, as a share of the domain.
    pub sigma: f64,
    /// Requests that count, at least, over those that fill the level above the last.
    pub periods: u64,
}

/// Records of a block with values of `value_bytes` bytes.
#[must_use]
pub const fn slots(value_bytes: usize) -> usize {
    BLOCK_BYTES / (KEY_BYTES + value_bytes + MARK_BYTES)
}

impl Plan {
    /// Live entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        (self.ratio * self.sizes.memory_records() as f64) as u64
    }

    /// MB of `requests` requests.
    #[must_use]
    pub fn megabytes(&self, requests: u64) -> f64 {
        (requests * (KEY_BYTES + self.value_bytes) as u64) as f64 / 1e6
    }

    /// G_U or G_N.
    #[must_use]
    pub fn law(&self, keys: Keys) -> Law {
        self.law_of(keys, self.sizes.memory_records())
    }

    /// The same where memory holds `records` records: the mean of G_N moves once for each sixteenth
    /// of them.
    #[must_use]
    pub fn law_of(&self, keys: Keys, records: u64) -> Law {
        match keys {
            Keys::Uniform => Law::Uniform,
            Keys::Normal => Law::Normal { sigma: self.sigma, group: (records / 16).max(1) },
        }
    }
}

/// A tree in its steady state, and the requests that keep it there.
#[derive(Debug)]
pub struct Run {
    /// The tree.
    pub model: Model,
    requests: Steady,
    plan: Plan,
    /// The share of its capacity that level 1 held at each request, summed up.
    fills: f64,
}

impl Run {
    /// An empty tree.
    #[must_use]
    pub fn new(plan: Plan, keys: Keys, contender: Contender, entries: u64) -> Self {
        let requests = Steady::new(1, plan.law(keys), entries);
        Self { model: Model::new(plan.sizes, contender), requests, plan, fills: 0.0 }
    }

    /// Builds the tree, and goes on until it is steady and its policy has learnt.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn steady(plan: Plan, keys: Keys, contender: Contender, watch: &dyn Watch) -> Result<Self> {
        let mut run = Self::new(plan, keys, contender, plan.entries());
        run.perform(plan.entries(), watch)?;
        let period = run.period();
        run.perform(2 * period, watch)?;
        run.model.learn_anew();
        for _ in 0..LEARNING_MOST {
            if run.model.is_learnt() {
                break;
            }
            run.perform(run.period(), watch)?;
        }
        run.until_emptied(2 * run.period(), watch)?;
        Ok(run)
    }

    /// Records that the level above the last holds.
    fn period(&self) -> u64 {
        let above_last = self.model.last().saturating_sub(1);
        self.model.capacity(above_last) * self.plan.sizes.slots as u64
    }

    /// Does `requests` requests.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn perform(&mut self, requests: u64, watch: &dyn Watch) -> Result<()> {
        for done in 0..requests {
            if done % LOOK == 0 {
                go_on(watch)?;
            }
            self.next();
        }
        Ok(())
    }

    fn next(&mut self) {
        let model = &mut self.model;
        self.requests.next().iter().for_each(|request| model.apply(request));
        self.fills += model.held(1) as f64 / model.capacity(1).max(1) as f64;
    }

    /// Goes on until the level above the last becomes empty, for `most` requests at most. Says
    /// how many it did.
    fn until_emptied(&mut self, most: u64, watch: &dyn Watch) -> Result<u64> {
        let above_last = self.model.last().saturating_sub(1);
        let mut before = self.model.held(above_last);
        for done in 0..most {
            if done % LOOK == 0 {
                go_on(watch)?;
            }
            self.next();
            let held = self.model.held(above_last);
            if held < before / 2 {
                return Ok(done + 1);
            }
            before = held;
        }
        Ok(most)
    }

    /// Counts over whole periods.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`].
    pub fn count(&mut self, watch: &dyn Watch) -> Result<Metrics> {
        let before = self.model.counts();
        self.fills = 0.0;
        let mut requests = self.plan.periods * self.period();
        self.perform(requests, watch)?;
        requests += self.until_emptied(2 * self.period(), watch)?;
        Ok(self.metrics(&before, requests))
    }

    /// The metrics since `before`, in `requests` requests.
    #[must_use]
    pub fn metrics(&self, before: &Counts, requests: u64) -> Metrics {
        let (model, now) = (&self.model, self.model.counts());
        let megabytes = self.plan.megabytes(requests);
        let since = |now: &[u64], before: &[u64], level: usize| {
            let count = |counts: &[u64]| counts.get(level).copied().unwrap_or(0);
            count(now).saturating_sub(count(before)) as f64
        };
        let written = |level| since(&now.written, &before.written, level) / megabytes;
        let kept = |level| since(&now.kept, &before.kept, level) / megabytes;
        let last = model.last();
        let mut metrics = Metrics::new();
        metric(&mut metrics, WRITES, (1..=last).map(written).sum());
        metric(&mut metrics, KEPT, (1..=last).map(kept).sum());
        for (level, name) in (1..=last).zip(INTO) {
            metric(&mut metrics, name, written(level));
        }
        let taken = since(&now.taken, &before.taken, 0).max(1.0);
        metric(&mut metrics, OVERLAP, since(&now.overlapped, &before.overlapped, 0) / taken);
        let (held, capacity) = (model.held(last) as f64, model.capacity(last) as f64);
        metric(&mut metrics, OCCUPANCY, held / capacity);
        metric(&mut metrics, LEVELS, (last + 1) as f64);
        metric(&mut metrics, FILL, self.fills / requests.max(1) as f64);
        metric(&mut metrics, LAST_FULL, f64::from(u8::from(model.is_last_full())));
        metric(&mut metrics, UNUSED, model.unused());
        metrics
    }
}

/// The writes of a plan's policy in its steady state.
///
/// # Errors
/// [`crate::Error::Interrupted`].
pub fn measure(
    plan: Plan,
    keys: Keys,
    contender: Contender,
    watch: &mut dyn Watch,
) -> Result<Metrics> {
    let metrics = Run::steady(plan, keys, contender, watch)?.count(watch)?;
    let writes = metrics.get(WRITES).copied().unwrap_or(0.0);
    let (name, ratio) = (name(keys, contender), plan.ratio);
    watch.says(&format!("{name} at {ratio} times memory: {writes:.0} blocks a MB"));
    Ok(metrics)
}

/// The thesis's parameters, at a small κ0.
#[must_use]
pub const fn plan(scale: Scale) -> Plan {
    let kappa0 = match scale {
        Scale::Tiny => 16,
        Scale::Small => 64,
        Scale::Full => 512,
    };
    Plan {
        sizes: Sizes {
            slots: slots(VALUE_BYTES),
            kappa0,
            params: Params { omega: 0.2, delta: 0.07, gamma: 10.0, mu: 0.1 },
        },
        value_bytes: VALUE_BYTES,
        ratio: 20.0,
        sigma: SIGMA,
        periods: if matches!(scale, Scale::Tiny) { 1 } else { 4 },
    }
}

/// The settings of a plan.
#[must_use]
pub fn settings(plan: &Plan) -> Value {
    let Params { omega, delta, gamma, mu } = plan.sizes.params;
    json!({
        "tree": "model",
        "kappa0_blocks": plan.sizes.kappa0,
        "slots": plan.sizes.slots,
        "value_bytes": plan.value_bytes,
        "ratio": plan.ratio,
        "sigma": plan.sigma,
        "periods": plan.periods,
        "omega": omega,
        "delta": delta,
        "gamma": gamma,
        "mu": mu,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use crate::lsm::policy::{FULL, MIXED, PARTIAL};

    /// As the thesis has them: 136 of 25 bytes, one of 4,000.
    #[test]
    fn blocks_have_slots() {
        assert_eq!([25, 100, 4000].map(slots), [136, 38, 1]);
    }

    #[test]
    fn a_run_is_counted_over_whole_periods() {
        let plan = Plan { ratio: 12.0, ..plan(Scale::Tiny) };
        for contender in [FULL, PARTIAL, MIXED] {
            let mut run = Run::steady(plan, Keys::Uniform, contender, &Silent).unwrap();
            let before = run.model.counts();
            let metrics = run.count(&Silent).unwrap();
            let value = |name: &str| metrics.get(name).copied().unwrap();
            assert_eq!(value(LEVELS), 3.0);
            assert!((0.1..0.2).contains(&value(OCCUPANCY)), "{metrics:?}");
            assert!((value(INTO[0]) + value(INTO[1]) - value(WRITES)).abs() < 1e-6);
            assert!(value(WRITES) > 300.0 && value(UNUSED) < 0.2);
            assert!(run.model.counts().written[1] > before.written[1]);
            if contender == FULL {
                assert!(run.model.held(1) < 2 * plan.sizes.kappa0, "a period has ended");
            }
        }
    }
}
