//! Operations on flash, by cause.

/// Why an operation on flash is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The host reads or writes this page.
    Host = 0,
    /// Garbage collection.
    Gc = 1,
    /// The layer's map, its trims included.
    Map = 2,
    /// Commits of transactions.
    Commit = 3,
    /// Static wear levelling.
    Wear = 4,
    /// A recovery.
    Recovery = 5,
}

impl Cause {
    /// All causes, in numerical order.
    pub const ALL: [Self; 6] =
        [Self::Host, Self::Gc, Self::Map, Self::Commit, Self::Wear, Self::Recovery];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gc => "gc",
            Self::Map => "map",
            Self::Commit => "commit",
            Self::Wear => "wear",
            Self::Recovery => "recovery",
        }
    }
}

/// Counts of operations of one cause. A copy is a read and a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// Counts of operations of every cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    by_cause: [Operations; Cause::ALL.len()],
}

impl Counters {
    /// The operations of one cause.
    #[must_use]
    pub const fn of(&self, cause: Cause) -> Operations {
        self.by_cause[cause as usize]
    }

    /// The operations of all causes.
    #[must_use]
    pub fn total(&self) -> Operations {
        self.by_cause.iter().fold(Operations::default(), |sum, one| Operations {
            reads: sum.reads + one.reads,
            programs: sum.programs + one.programs,
            erases: sum.erases + one.erases,
        })
    }

    /// What was counted after `earlier`, counts of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        for (now, then) in since.by_cause.iter_mut().zip(&earlier.by_cause) {
            now.reads = now.reads.saturating_sub(then.reads);
            now.programs = now.programs.saturating_sub(then.programs);
            now.erases = now.erases.saturating_sub(then.erases);
        }
        since
    }

    pub(super) const fn of_mut(&mut self, cause: Cause) -> &mut Operations {
        &mut self.by_cause[cause as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_subtract() {
        let mut counters = Counters::default();
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            counters.of_mut(cause).reads = at as u64;
            counters.of_mut(cause).programs = 1;
        }
        let earlier = counters;
        counters.of_mut(Cause::Gc).erases += 2;
        assert_eq!(counters.total(), Operations { reads: 15, programs: 6, erases: 2 });
        let since = counters.since(&earlier);
        assert_eq!(since.of(Cause::Gc), Operations { reads: 0, programs: 0, erases: 2 });
        assert_eq!(since.of(Cause::Host), Operations::default());
    }
}
