//! Index kinds.
