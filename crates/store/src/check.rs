//! Reading everything and comparing it with what it should be.

/// What [`Db::check`](crate::Db::check) read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// Puts and tombstones in them, all versions.
    pub entries: u64,
    /// Everything that is wrong, in the order of discovery.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// File name or path.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// What was expected and what was found.
    pub what: String,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}
