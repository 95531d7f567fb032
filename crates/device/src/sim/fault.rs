//! Faults: which operation fails, and how. The decision is pure; the device carries it out.

use std::io;

use rustix::io::Errno;

/// The kinds of device operations that are counted and can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpKind {
    /// Opening an existing file.
    Open,
    /// Creating a file.
    Create,
    /// One read; each request of a parallel read counts.
    Read,
    /// One write.
    Write,
    /// Syncing a file.
    Sync,
    /// Reserving space.
    Preallocate,
    /// Truncating a file.
    Truncate,
    /// Discarding a range.
    Discard,
    /// Removing a file.
    Remove,
    /// Renaming a file.
    Rename,
    /// Syncing the folder.
    SyncDir,
    /// Listing the folder.
    List,
}

impl OpKind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Open,
        Self::Create,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Preallocate,
        Self::Truncate,
        Self::Discard,
        Self::Remove,
        Self::Rename,
        Self::SyncDir,
        Self::List,
    ];
}

/// An error that the system would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
    /// EDQUOT.
    Quota,
    /// EFBIG.
    TooLarge,
    /// EROFS.
    ReadOnly,
    /// EINTR, as a device that does not retry would pass it on.
    Interrupted,
}

impl Failure {
    /// All failures.
    pub const ALL: [Self; 6] =
        [Self::Io, Self::NoSpace, Self::Quota, Self::TooLarge, Self::ReadOnly, Self::Interrupted];

    pub(super) fn error(self) -> io::Error {
        let errno = match self {
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::Quota => Errno::DQUOT,
            Self::TooLarge => Errno::FBIG,
            Self::ReadOnly => Errno::ROFS,
            Self::Interrupted => Errno::INTR,
        };
        errno.into()
    }
}

/// The effect of a failed sync on unsynced changes. They are never pending afterwards: a later sync
/// that succeeds says nothing about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncLoss {
    /// They are durable in spite of the error.
    Landed,
    /// Reads still show them, a crash loses them: pages marked clean and kept (ext4, XFS).
    Cached,
    /// They are lost immediately: pages dropped from the cache.
    Dropped,
}

impl SyncLoss {
    /// All losses.
    pub const ALL: [Self; 3] = [Self::Landed, Self::Cached, Self::Dropped];
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails and changes nothing.
    Fail(Failure),
    /// The first `bytes` of a write land, then it fails.
    ShortWrite {
        /// The number of bytes that are written; at most the length of the write.
        bytes: u64,
        /// The error.
        failure: Failure,
    },
    /// A sync of a file or of the folder fails with EIO.
    FailSync(SyncLoss),
    /// A read succeeds with wrong bits; the medium is right.
    FlipRead {
        /// The index of the changed byte of the read, modulo its length.
        byte: u64,
        /// The bits that are flipped.
        mask: u8,
    },
    /// A read succeeds with the contents before the last sync.
    StaleRead,
    /// A write succeeds, but at a wrong place in the file (and not past its end).
    MisdirectWrite {
        /// The distance from the right place, in bytes.
        by_bytes: i64,
    },
    /// A write succeeds and changes nothing but the file's length.
    LoseWrite,
    /// This operation and all later ones fail with EIO, as after a power failure.
    PowerOff,
}

impl Effect {
    fn fits(self, kind: OpKind) -> bool {
        match self {
            Self::Fail(_) | Self::PowerOff => true,
            Self::ShortWrite { .. } | Self::MisdirectWrite { .. } | Self::LoseWrite => {
                kind == OpKind::Write
            }
            Self::FailSync(_) => matches!(kind, OpKind::Sync | OpKind::SyncDir),
            Self::FlipRead { .. } | Self::StaleRead => kind == OpKind::Read,
        }
    }
}

/// An effect and the operation that it happens to: the first one that matches, unless
/// [`Fault::nth`] says another; once, unless it is [`Fault::sticky`].
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    kind: Option<OpKind>,
    file_prefix: Option<String>,
    nth: u64,
    sticky: bool,
    seen: u64,
}

impl Fault {
    /// `effect`, at the first operation that it can happen to.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        Self { effect, kind: None, file_prefix: None, nth: 0, sticky: false, seen: 0 }
    }

    /// Only operations of this kind count.
    #[must_use]
    pub fn on(mut self, kind: OpKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only operations on files whose name starts with this count.
    #[must_use]
    pub fn file(mut self, prefix: impl Into<String>) -> Self {
        self.file_prefix = Some(prefix.into());
        self
    }

    /// Passes over `nth` operations that match.
    #[must_use]
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    /// All later operations that match fail too.
    #[must_use]
    pub fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    /// Counts an operation; whether the effect happens to it.
    fn strikes(&mut self, kind: OpKind, file: &str) -> bool {
        let matches = self.effect.fits(kind)
            && self.kind.is_none_or(|wanted| wanted == kind)
            && self.file_prefix.as_ref().is_none_or(|prefix| file.starts_with(prefix));
        if !matches {
            return false;
        }
        let at = self.seen;
        self.seen += 1;
        let lasts = self.sticky || self.effect == Effect::PowerOff;
        at == self.nth || (lasts && at > self.nth)
    }
}

/// The faults of one run. The first fault in the list that strikes an operation has its effect.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// Nothing goes wrong.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Operation `nth` of any kind (from 0) fails; all later ones too where `sticky`.
    #[must_use]
    pub fn fail_nth(nth: u64, failure: Failure, sticky: bool) -> Self {
        let fault = Fault::new(Effect::Fail(failure)).nth(nth);
        Self::new().with(if sticky { fault.sticky() } else { fault })
    }

    /// Whether any fault needs the contents before the last sync.
    pub(super) fn needs_previous(&self) -> bool {
        self.faults.iter().any(|fault| fault.effect == Effect::StaleRead)
    }

    /// Counts an operation and returns the effect on it.
    pub(super) fn decide(&mut self, kind: OpKind, file: &str) -> Option<Effect> {
        let mut effect = None;
        for fault in &mut self.faults {
            if fault.strikes(kind, file) {
                effect = effect.or(Some(fault.effect));
            }
        }
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(plan: &mut FaultPlan, ops: &[(OpKind, &str)]) -> Vec<usize> {
        let hits =
            ops.iter().enumerate().filter(|(_, (kind, file))| plan.decide(*kind, file).is_some());
        hits.map(|(at, _)| at).collect()
    }

    #[test]
    fn counts_only_what_matches() {
        let ops = [
            (OpKind::Read, "a"),
            (OpKind::Write, "a"),
            (OpKind::Write, "log-1"),
            (OpKind::Sync, "log-1"),
            (OpKind::Write, "log-2"),
            (OpKind::Write, "log-2"),
        ];
        let fail = || Fault::new(Effect::Fail(Failure::Io));
        let cases = [
            (fail(), vec![0]),
            (fail().nth(3), vec![3]),
            (fail().nth(3).sticky(), vec![3, 4, 5]),
            (fail().on(OpKind::Write).nth(1), vec![2]),
            (fail().on(OpKind::Write).file("log-").nth(1), vec![4]),
            (Fault::new(Effect::LoseWrite).nth(2), vec![4]),
            (Fault::new(Effect::FailSync(SyncLoss::Cached)), vec![3]),
            (Fault::new(Effect::PowerOff).nth(4), vec![4, 5]),
            (fail().nth(6), vec![]),
        ];
        for (fault, expected) in cases {
            let mut plan = FaultPlan::new().with(fault.clone());
            assert_eq!(struck(&mut plan, &ops), expected, "{fault:?}");
        }
    }

    #[test]
    fn the_first_fault_wins_and_all_count() {
        let mut plan = FaultPlan::new()
            .with(Fault::new(Effect::Fail(Failure::Io)).nth(1))
            .with(Fault::new(Effect::LoseWrite).nth(1))
            .with(Fault::new(Effect::LoseWrite).nth(2));
        let effects: Vec<_> = (0..3).map(|_| plan.decide(OpKind::Write, "a")).collect();
        assert_eq!(effects, [None, Some(Effect::Fail(Failure::Io)), Some(Effect::LoseWrite)]);
    }

    #[test]
    fn failures_have_their_kinds() {
        for failure in Failure::ALL {
            let full = matches!(failure, Failure::NoSpace | Failure::Quota | Failure::TooLarge);
            let error = crate::DeviceError::new(crate::Operation::Write, "a", 0, failure.error());
            assert_eq!(error.is_full(), full, "{failure:?}");
        }
    }
}
