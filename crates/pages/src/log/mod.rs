//! The log: records, checkpoints, and what an opening makes of both.
//!
//! Reading order: [`record`], [`frames`], [`superblock`] (the bytes); [`scan`] (reading a log),
//! [`append`] (appending to it); [`checkpoint`], [`notes`] and [`concurrent_checkpoint`] (one that
//! hardly delays commits), [`due`] (when one is taken); [`creation`] (what a file is), [`loader`]
//! (the maps of a checkpoint), [`apply`] (what a record changes), [`recovery`], [`opening`],
//! [`read_only`] (a store opened for reading, and written later), [`shared`] and [`hold`] (what is
//! different where several processes have a store open), [`follow`] and [`adopt`] (a process that
//! follows the log of another), [`reading`] (readers then), [`joining`]
//! (opening one), [`handover`] (another process writes), [`turns`] (when one does), [`unsaid`]
//! (none has yet), [`alone`] (others are kept out while pages move).

pub(crate) mod adopt;
pub(crate) mod alone;
pub(crate) mod append;
pub(crate) mod apply;
pub(crate) mod checkpoint;
pub(crate) mod concurrent_checkpoint;
pub(crate) mod creation;
pub(crate) mod due;
pub(crate) mod follow;
pub(crate) mod frames;
pub(crate) mod handover;
pub(crate) mod hold;
pub(crate) mod joining;
pub(crate) mod loader;
pub(crate) mod notes;
pub(crate) mod opening;
pub(crate) mod read_only;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod scan;
pub(crate) mod shared;
pub(crate) mod superblock;
pub(crate) mod turns;
pub(crate) mod unsaid;
