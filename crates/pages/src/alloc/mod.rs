//! Space: which part of the file is used for what, and where changed pages are written.
//!
//! Reading order: [`space`] (the use of every segment), [`growth`] (room, and a longer file),
//! [`runs`] (writes of places that follow each other); [`allocation`] (a way to allocate, as a
//! trait), [`slots`] and [`segments`] (the two that there are); [`mover`] and [`moves`] (pages that
//! get another place), [`compact`] (making the file shorter).

pub(crate) mod allocation;
pub(crate) mod compact;
pub(crate) mod growth;
pub(crate) mod mover;
pub(crate) mod moves;
pub(crate) mod runs;
pub(crate) mod segments;
pub(crate) mod slots;
pub(crate) mod space;
