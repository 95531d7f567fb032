//! Planted mistakes: a crate's tests plant them to prove that they would find them.

/// Defines `is(mistake)` and, with the calling crate's feature `$feature`, `with(mistake, work)`.
///
/// Without the feature `is` is a constant `false` and the compiler removes every planted branch.
/// With it, a mistake of the type `$mistake` is active inside `with` on that thread only.
#[macro_export]
macro_rules! planting {
    ($mistake:ty, $feature:literal) => {
        #[cfg(not(feature = $feature))]
        mod active {
            /// Whether `mistake` is active here: never, in a build without its feature.
            #[must_use]
            #[inline(always)]
            pub fn is(_mistake: impl Into<$mistake>) -> bool {
                false
            }
        }

        #[cfg(feature = $feature)]
        mod active {
            use ::std::cell::Cell;

            ::std::thread_local! {
                static ACTIVE: Cell<Option<$mistake>> = const { Cell::new(None) };
            }

            struct Restore(Option<$mistake>);

            impl Drop for Restore {
                fn drop(&mut self) {
                    ACTIVE.set(self.0);
                }
            }

            /// Whether `mistake` is active on this thread.
            #[must_use]
            pub fn is(mistake: impl Into<$mistake>) -> bool {
                ACTIVE.get() == Some(mistake.into())
            }

            /// Runs `work` with `mistake` active on this thread; it is inactive again afterwards,
            /// also after a panic.
            pub fn with<T>(mistake: impl Into<$mistake>, work: impl FnOnce() -> T) -> T {
                let _restore = Restore(ACTIVE.replace(Some(mistake.into())));
                work()
            }
        }

        pub use active::is;
        #[cfg(feature = $feature)]
        pub use active::with;
    };
}
