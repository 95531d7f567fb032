//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `_planted` the question [`is`] is a constant `false` and the compiler
//! removes every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that rearranging must not have. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Sizes that do not divide their dimension are changed until they do.
    SizesMadeToFit,
    /// Of keys that repeat in a header the first counts.
    FirstKeyCounts,
    /// A file has a name before it is complete.
    NamedWhileWritten,
    /// Files that killed processes left are never removed.
    LeftOversStay,
    /// A symbolic link is replaced by the result.
    LinkReplaced,
    /// Consolidated metadata is left as it was.
    GroupsNotTold,
    /// The planner charges each record of a row for a line of memory, although few rows are
    /// interleaved and their records share lines.
    InterleavedCharged,
}

impl Bug {
    /// Those that break promises; the planner's tests look for the other one.
    pub const ALL: [Self; 6] = [
        Self::SizesMadeToFit,
        Self::FirstKeyCounts,
        Self::NamedWhileWritten,
        Self::LeftOversStay,
        Self::LinkReplaced,
        Self::GroupsNotTold,
    ];
}

esker_device::planting!(super::Bug, "_planted");
