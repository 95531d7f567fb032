//! Bugs on purpose, so that the tests of this module can prove that they would find them. In all
//! other builds [`is`] is a constant `false`, and the compiler removes every planted branch.

/// A bug that handles must not have. With neither of them is memory read that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A freed handle is as good as the one that has its place now.
    GenerationIgnored,
    /// A handle of one kind is as good as one of another.
    KindIgnored,
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is(_bug: Bug) -> bool {
    false
}

#[cfg(test)]
std::thread_local! {
    static ACTIVE: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn is(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Whether `work` panics with `bug` active on this thread.
#[cfg(test)]
pub(super) fn is_found(bug: Bug, work: fn()) -> bool {
    ACTIVE.set(Some(bug));
    let done = std::panic::catch_unwind(work);
    ACTIVE.set(None);
    done.is_err()
}
