//! Settings with which a store is opened the next time: nothing on the device may depend on them.

use esker::{Compression, Scheme};

/// The compression of the next blocks of a store, other than that of the last ones.
pub(crate) const fn compression(of: Compression) -> Compression {
    match of {
        Compression::Lz4 => Compression::Zstd,
        Compression::Zstd => Compression::Lz4,
        other => other,
    }
}

/// The scheme with which a store of another scheme than the first is opened next: another of these.
pub(crate) fn scheme(of: Scheme) -> Scheme {
    if !of.tightens() {
        // The others' checks ask for more than it keeps.
        return of;
    }
    let others = Scheme::TIGHT.get(1..).unwrap_or_default();
    let next = others.iter().position(|other| *other == of).map(|at| (at + 1) % others.len());
    next.and_then(|next| others.get(next)).copied().unwrap_or(of)
}
