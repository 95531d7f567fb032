//! Synthetic workloads: endless streams of operations that follow from a seed.
//!
//! A [`Workload`] is what a name such as `zipf:0.99` says; a [`Generator`] draws its operations
//! over a device. The device is cut into slots of one request each, and every request is one
//! aligned slot. The stream depends on the seed, the number of slots and the workload alone; with
//! `zipf` also on the machine's logarithm, whose last bit the language leaves open.

#[cfg(test)]
mod tests;
mod zipf;

use std::fmt;
use std::str::FromStr;

pub use crate::random::Random;
use zipf::Zipf;

use crate::trace::{OpKind, TraceOp};

/// Which slots are written, and how many requests are reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Writes, evenly over all slots.
    RandWrite,
    /// Writes, slot after slot, over and over.
    SeqWrite,
    /// Reads, evenly over all slots.
    RandRead,
    /// Reads and writes, evenly over all slots.
    Mixed {
        /// Reads of a hundred requests, at most 100.
        reads_percent: u8,
    },
    /// Writes by Zipf's law: the slot of rank k is drawn in proportion to k^-θ. Ranks are scattered
    /// over the device.
    Zipf {
        /// θ, above 0 and at most 10.
        theta: f64,
    },
    /// Writes to a hot part at the beginning of the device, and to the cold rest, evenly in each.
    HotCold {
        /// The hot part of a hundred slots, 1 to 99.
        hot_percent: u8,
        /// Its writes of a hundred, at most 100.
        writes_percent: u8,
    },
}

/// The forms that [`Workload::from_str`] reads.
pub const FORMS: &str =
    "randwrite, seqwrite, randread, mixed:READS%, zipf:THETA, hotcold:HOT%/WRITES%";

/// A name is not that of a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{given}' is not a workload: {why}; the workloads are {FORMS}")]
pub struct UnknownWorkload {
    given: String,
    why: &'static str,
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let wrong = |why| UnknownWorkload { given: text.to_owned(), why };
        let percent = |text: &str| {
            let digits = text.strip_suffix('%').unwrap_or(text);
            digits.parse().ok().filter(|percent| *percent <= 100)
        };
        let plain = |workload| match value {
            "" => Ok(workload),
            _ => Err(wrong("it takes no value")),
        };
        match name {
            "randwrite" => plain(Self::RandWrite),
            "seqwrite" => plain(Self::SeqWrite),
            "randread" => plain(Self::RandRead),
            "mixed" => percent(value)
                .map(|reads_percent| Self::Mixed { reads_percent })
                .ok_or_else(|| wrong("the share of reads is 0 to 100, such as mixed:70")),
            "zipf" => {
                let theta = value.parse().ok().filter(|theta| *theta > 0.0 && *theta <= 10.0);
                theta
                    .map(|theta| Self::Zipf { theta })
                    .ok_or_else(|| wrong("theta is above 0 and at most 10, such as zipf:0.99"))
            }
            "hotcold" => {
                let parts = value.split_once('/');
                let parts = parts.and_then(|(hot, writes)| Some((percent(hot)?, percent(writes)?)));
                match parts {
                    Some((hot_percent @ 1..=99, writes_percent)) => {
                        Ok(Self::HotCold { hot_percent, writes_percent })
                    }
                    _ => Err(wrong("the hot part is 1 to 99 %, such as hotcold:20/80")),
                }
            }
            _ => Err(wrong("no workload has this name")),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RandWrite => f.write_str("randwrite"),
            Self::SeqWrite => f.write_str("seqwrite"),
            Self::RandRead => f.write_str("randread"),
            Self::Mixed { reads_percent } => write!(f, "mixed:{reads_percent}"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
            Self::HotCold { hot_percent, writes_percent } => {
                write!(f, "hotcold:{hot_percent}/{writes_percent}")
            }
        }
    }
}

/// The operations of a workload, without end. A device of no slots has none.
#[derive(Clone, Debug)]
pub struct Generator {
    workload: Workload,
    /// Slots of the device, and bytes of one.
    slots: u64,
    slot_bytes: u64,
    random: Random,
    /// Slots below this one are hot.
    hot: u64,
    /// The next slot of a sequence.
    next: u64,
    zipf: Option<Zipf>,
}

impl Generator {
    /// The stream of a seed over a device of `slots` requests of `slot_bytes` bytes.
    #[must_use]
    pub fn new(workload: Workload, slots: u64, slot_bytes: u64, seed: u64) -> Self {
        let zipf = match workload {
            Workload::Zipf { theta } if slots > 0 => Some(Zipf::new(slots, theta)),
            _ => None,
        };
        let hot = match workload {
            Workload::HotCold { hot_percent, .. } => {
                let share = u128::from(slots) * u128::from(hot_percent) / 100;
                u64::try_from(share).unwrap_or(slots).max(1)
            }
            _ => 0,
        };
        Self { workload, slots, slot_bytes, random: Random::new(seed), hot, next: 0, zipf }
    }

    fn draw(&mut self) -> (OpKind, u64) {
        match self.workload {
            Workload::RandWrite => (OpKind::Write, self.random.below(self.slots)),
            Workload::RandRead => (OpKind::Read, self.random.below(self.slots)),
            Workload::SeqWrite => {
                let slot = self.next;
                self.next = if slot + 1 >= self.slots { 0 } else { slot + 1 };
                (OpKind::Write, slot)
            }
            Workload::Mixed { reads_percent } => {
                let is_read = self.random.below(100) < u64::from(reads_percent);
                let kind = if is_read { OpKind::Read } else { OpKind::Write };
                (kind, self.random.below(self.slots))
            }
            Workload::Zipf { .. } => {
                let slot = self.zipf.as_ref().map_or(0, |zipf| zipf.draw(&mut self.random));
                (OpKind::Write, slot)
            }
            Workload::HotCold { writes_percent, .. } => {
                let cold = self.slots - self.hot;
                let is_hot = cold == 0 || self.random.below(100) < u64::from(writes_percent);
                let slot = match is_hot {
                    true => self.random.below(self.hot),
                    false => self.hot + self.random.below(cold),
                };
                (OpKind::Write, slot)
            }
        }
    }
}

impl Iterator for Generator {
    type Item = TraceOp;

    fn next(&mut self) -> Option<TraceOp> {
        if self.slots == 0 {
            return None;
        }
        let (kind, slot) = self.draw();
        let offset = slot.saturating_mul(self.slot_bytes);
        Some(TraceOp { at_ns: 0, offset, length: self.slot_bytes, kind, stream: 0 })
    }
}
