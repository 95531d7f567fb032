//! A recorded history of a simulated disk.

use std::fmt;
use std::sync::Arc;

use super::disk::{Change, Disk, Subject};
use super::fault::SyncLoss;
use super::image::{Fill, InodeId, Unit, flipped};

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Event {
    /// A change is pending.
    Change(Arc<Change>),
    /// The subject's changes are durable.
    Sync(Subject),
    /// The subject's changes are no longer pending, as a failed sync left them.
    FailedSync(Subject, SyncLoss),
    /// The medium was damaged.
    Flip { inode: InodeId, offset: u64, mask: u8 },
    /// A test noted something.
    Mark(u64),
}

/// The events on a simulated disk from [`super::SimDevice::record`] on, in order, with the disk as
/// it was before. Two traces are equal when the same events happened with the same bytes.
#[derive(Clone)]
pub struct Trace {
    pub(super) start: Disk,
    pub(super) events: Vec<Event>,
}

impl Trace {
    /// The number of events. Position `n` is after the first `n` events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The marks before a position, in order.
    #[must_use]
    pub fn marks_before(&self, position: usize) -> Vec<u64> {
        let marks = self.events.iter().take(position).filter_map(|event| match event {
            Event::Mark(mark) => Some(*mark),
            _ => None,
        });
        marks.collect()
    }

    /// Describes the event at `index`.
    #[must_use]
    pub fn describe(&self, index: usize) -> String {
        match self.events.get(index) {
            None => "the end".to_owned(),
            Some(event) => self.describe_event(event),
        }
    }

    fn describe_event(&self, event: &Event) -> String {
        match event {
            Event::Change(change) => {
                let sectors: Vec<_> = change.units.iter().filter_map(Unit::sector).collect();
                let mut text = format!("{:?} {}", change.kind, self.subject(change.subject));
                if let (Some(first), Some(last)) = (sectors.first(), sectors.last()) {
                    text += &format!(" sectors {first}..={last}");
                }
                for unit in change.units.iter().filter(|unit| unit.sector().is_none()) {
                    text += &format!(" {unit}");
                }
                text
            }
            Event::Sync(subject) => format!("Sync {}", self.subject(*subject)),
            Event::FailedSync(subject, loss) => {
                format!("Sync {} failed ({loss:?})", self.subject(*subject))
            }
            Event::Flip { inode, offset, mask } => {
                format!("Flip {} byte {offset} ^ {mask:#04x}", self.subject(Subject::File(*inode)))
            }
            Event::Mark(mark) => format!("Mark {mark}"),
        }
    }

    /// A name for what was changed: the last name that a file had.
    fn subject(&self, subject: Subject) -> String {
        let Subject::File(inode) = subject else {
            return "the folder".to_owned();
        };
        let given = |event: &Event| match event {
            Event::Change(change) => change.units.iter().find_map(|unit| match unit {
                Unit::Link { name, inode: id } | Unit::Move { to: name, inode: id }
                    if *id == inode =>
                {
                    Some(name.to_string())
                }
                _ => None,
            }),
            _ => None,
        };
        let first = self.start.live.names.iter().find(|(_, id)| **id == inode);
        let first = first.map(|(name, _)| name.to_string());
        self.events.iter().rev().find_map(given).or(first).unwrap_or_else(|| format!("#{inode}"))
    }

    fn same_contents(&self, left: &Unit, other: &Self, right: &Unit) -> bool {
        let bytes = |trace: &Self, id| trace.start.store.get(id).to_vec();
        match (left, right) {
            (
                Unit::Sector { inode: i, sector: s, id: a },
                Unit::Sector { inode: j, sector: t, id: b },
            ) => i == j && s == t && bytes(self, *a) == bytes(other, *b),
            (Unit::Cut { inode: i, len: m, tail: a }, Unit::Cut { inode: j, len: n, tail: b }) => {
                let tails = (a.map(|id| bytes(self, id)), b.map(|id| bytes(other, id)));
                i == j && m == n && tails.0 == tails.1
            }
            (left, right) => left == right,
        }
    }
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        let same_change = |a: &Change, b: &Change| {
            (a.kind, a.subject, a.units.len()) == (b.kind, b.subject, b.units.len())
                && a.units.iter().zip(&b.units).all(|(x, y)| self.same_contents(x, other, y))
        };
        let same_event = |a: &Event, b: &Event| match (a, b) {
            (Event::Change(a), Event::Change(b)) => same_change(a, b),
            (a, b) => a == b,
        };
        self.events.len() == other.events.len()
            && self.start.live.digest() == other.start.live.digest()
            && self.start.durable.digest() == other.start.durable.digest()
            && self.events.iter().zip(&other.events).all(|(a, b)| same_event(a, b))
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, event) in self.events.iter().enumerate() {
            writeln!(f, "{index:6} {}", self.describe_event(event))?;
        }
        Ok(())
    }
}

impl Unit {
    /// The sector that this changes, if that is all it does.
    pub(super) fn sector(&self) -> Option<usize> {
        match self {
            Self::Sector { sector, .. } => Some(*sector),
            _ => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sector { sector, .. } => write!(f, "sector {sector}"),
            Self::Extend { len, .. } => write!(f, "extend to {len}"),
            Self::Cut { len, .. } => write!(f, "cut to {len}"),
            Self::Link { name, .. } => write!(f, "link {name}"),
            Self::Unlink { name, .. } => write!(f, "unlink {name}"),
            Self::Move { to, .. } => write!(f, "move to {to}"),
        }
    }
}

/// The durable and the pending changes while a trace is walked. There is no live image, because
/// crashes do not see it.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) disk: Disk,
}

impl Replay {
    pub(super) fn new(trace: &Trace) -> Self {
        Self { disk: trace.start.clone() }
    }

    /// Moves past one event. Where `honours_syncs` is false, syncs do nothing.
    pub(super) fn step(&mut self, event: &Event, honours_syncs: bool) {
        match event {
            Event::Change(change) => self.disk.pending.push(Arc::clone(change)),
            Event::Sync(subject) | Event::FailedSync(subject, SyncLoss::Landed) => {
                if honours_syncs {
                    self.disk.sync(*subject);
                }
            }
            Event::FailedSync(subject, SyncLoss::Cached | SyncLoss::Dropped) => {
                self.disk.pending.retain(|change| change.subject != *subject);
            }
            Event::Flip { inode, offset, mask } => {
                let Disk { durable, store, .. } = &mut self.disk;
                if let Some(unit) = flipped(durable, *inode, *offset, *mask, store) {
                    durable.apply(&unit, &Fill::Zeros, store, None);
                    store.freeze();
                }
            }
            Event::Mark(_) => {}
        }
    }
}
