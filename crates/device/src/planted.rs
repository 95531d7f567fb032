//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `testing` the question [`is`] is a constant `false` and the compiler removes
//! every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that locks and forks must not meet. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A lock ends with the last descriptor of its opening, those of children by `fork` included.
    LockInherited,
    /// A later arrival takes a lock before the openings that already wait.
    QueueJumped,
    /// A child by `fork` takes itself for its parent.
    ForkNotSeen,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LockInherited, Self::QueueJumped, Self::ForkNotSeen];
}

crate::planting!(super::Bug, "testing");
