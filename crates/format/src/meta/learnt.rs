//! The state of the compaction policy Mixed in an LSM index: what it has learnt, and its progress.

use crate::bytes::{Reader, put_varint};
use crate::error::Result;

use super::LEVELS_MAX;

/// Most phases.
const PHASES: u8 = 5;

/// A number that is not negative, by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Real(u64);

impl Real {
    /// Anything that is not a number from 0 up to infinity becomes 0.
    #[must_use]
    pub fn new(value: f64) -> Self {
        if value > 0.0 { Self(value.to_bits()) } else { Self(0) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let real = Self(reader.u64()?);
        if real.0 == 0 || (real.get().is_finite() && real.get() > 0.0) {
            Ok(real)
        } else {
            Err(at.error("what a policy has learnt is no finite number from 0 up"))
        }
    }
}

/// The learnt state of Mixed, and its progress: `esker_index::lsm::policy::learn` defines the
/// meaning of each number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearntMeta {
    /// The number of the last level.
    pub last: u8,
    /// The step between the thresholds that are tried.
    pub mu: Real,
    /// Records of a window as long as nothing is learnt.
    pub window_records: u64,
    /// 0 while a steady state is waited for, 1 while a threshold is tried, 2 and 3 while full and
    /// partial merges into the last level are measured, 4 when everything is learnt.
    pub phase: u8,
    /// In phase 1, of this level.
    pub level: u8,
    /// In phase 1, the number of steps.
    pub step: u32,
    /// The cost of the last window.
    pub cost: Option<Real>,
    /// In phase 3, the records that it was measured over.
    pub records: u64,
    /// The thresholds found in this round.
    pub found: Vec<Real>,
    /// Those of the last finished round.
    pub learnt: Vec<Real>,
    /// Whether merges into the last level are full.
    pub is_last_full: bool,
    /// The cost of those settings, and the number of records over which it was measured.
    pub reference: Option<(Real, u64)>,
}

impl LearntMeta {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.last, self.phase, self.level]);
        put_varint(out, u64::from(self.step));
        put_varint(out, self.window_records);
        put_varint(out, self.records);
        self.mu.encode(out);
        let flags = u8::from(self.cost.is_some())
            + 2 * u8::from(self.reference.is_some())
            + 4 * u8::from(self.is_last_full);
        out.push(flags);
        if let Some(cost) = self.cost {
            cost.encode(out);
        }
        if let Some((cost, records)) = self.reference {
            cost.encode(out);
            put_varint(out, records);
        }
        for thresholds in [&self.found, &self.learnt] {
            put_varint(out, thresholds.len() as u64);
            thresholds.iter().for_each(|threshold| threshold.encode(out));
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let (last, phase, level) = (reader.u8()?, reader.u8()?, reader.u8()?);
        let is_known = [last, level].iter().all(|level| usize::from(*level) <= LEVELS_MAX);
        if phase >= PHASES || !is_known {
            return Err(at.error("a policy learns something unknown"));
        }
        let step = reader.varint_u32()?;
        let (window_records, records) = (reader.varint()?, reader.varint()?);
        let mu = Real::decode(reader)?;
        let at = reader.clone();
        let flags = reader.u8()?;
        if flags > 7 {
            return Err(at.error("a policy has learnt something unknown"));
        }
        let cost = if flags & 1 != 0 { Some(Real::decode(reader)?) } else { None };
        let reference =
            if flags & 2 != 0 { Some((Real::decode(reader)?, reader.varint()?)) } else { None };
        let (found, learnt) = (thresholds(reader)?, thresholds(reader)?);
        let is_last_full = flags & 4 != 0;
        Ok(Self {
            last,
            mu,
            window_records,
            phase,
            level,
            step,
            cost,
            records,
            found,
            learnt,
            is_last_full,
            reference,
        })
    }
}

fn thresholds(reader: &mut Reader<'_>) -> Result<Vec<Real>> {
    let mut all = Vec::new();
    for _ in 0..reader.length(LEVELS_MAX)? {
        all.push(Real::decode(reader)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(meta: &LearntMeta) -> Result<LearntMeta> {
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        let decoded = LearntMeta::decode(&mut reader)?;
        reader.finish().map(|()| decoded)
    }

    #[test]
    fn what_is_learnt_round_trips() {
        let meta = LearntMeta {
            last: 3,
            mu: Real::new(0.1),
            window_records: 500,
            phase: 3,
            level: 2,
            step: 4,
            cost: Some(Real::new(0.25)),
            records: 300,
            found: vec![Real::new(0.3)],
            learnt: vec![Real::new(0.0), Real::new(1.0)],
            is_last_full: true,
            reference: Some((Real::new(1.5), 7)),
        };
        assert_eq!(decoded(&meta).unwrap(), meta);
        assert_eq!(decoded(&LearntMeta::default()).unwrap(), LearntMeta::default());
    }

    #[test]
    fn what_no_policy_learns_is_refused() {
        assert!(decoded(&LearntMeta { phase: 5, ..LearntMeta::default() }).is_err());
        assert!(decoded(&LearntMeta { last: 33, ..LearntMeta::default() }).is_err());
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let mu = Real(bad.to_bits());
            assert!(decoded(&LearntMeta { mu, ..LearntMeta::default() }).is_err(), "{bad}");
        }
        assert_eq!([-1.0, f64::NAN].map(Real::new), [Real(0); 2]);
    }
}
