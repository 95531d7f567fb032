//! A simulated disk: faults during a run, and all states that a power failure may leave.
//!
//! Reading order: `sectors` (contents by number), `image` (the contents of a disk, as tables of
//! sector numbers), `disk` (the live and the durable image and the changes between them), `compact`
//! (dropping unreferenced contents), `fault` (which operation fails and how), `device` (the
//! [`crate::Device`] on top), `trace` (a recorded history), `survivors` (which pending changes a
//! crash keeps), `crash` (all crash images of a trace).
//!
//! The model: a write, a change of length and a change of a folder entry are *pending* until the
//! file (for entries: the folder) is synced. A crash keeps any subset of the pending changes,
//! sector by sector; a later write of a sector supersedes an earlier one, and the earlier one may
//! survive alone. Syncing a file makes its contents and length durable, but not its name.
//!
//! Nothing else is modelled: there is no page cache, no queue and no time.
//!
//! ```
//! use esker_device::sim::{CrashOptions, SimDevice};
//! use esker_device::{Caching, Device, Open, Purpose, Result};
//!
//! # fn main() -> Result<()> {
//! let disk = SimDevice::new();
//! disk.record();
//! let file = disk.open("log", Open::CreateNew, Caching::Buffered)?;
//! disk.sync_dir()?;
//! file.write_at(0, b"first", Purpose::Log)?;
//! file.sync(Purpose::Log)?;
//! disk.mark(1); // The first write was acknowledged.
//! if let Some(trace) = disk.take_trace() {
//!     trace.for_each_crash(&CrashOptions::default(), |state, left| -> Result<()> {
//!         if state.acknowledged() == Some(1) {
//!             assert_eq!(left.files()["log"], b"first", "{state}");
//!         }
//!         Ok(())
//!     })?;
//! }
//! # Ok(())
//! # }
//! ```

mod compact;
mod crash;
mod device;
mod disk;
mod fault;
mod holes;
mod image;
mod sectors;
mod shared;
mod survivors;
mod trace;

pub use crash::{CrashCounts, CrashOptions, CrashState};
pub use device::{SimDevice, SimOptions};
pub use fault::{Effect, Failure, Fault, FaultPlan, OpKind, SyncLoss};
pub use image::SimImage;
pub use shared::SimShared;
pub use survivors::{CrashModel, Survivors, Unwritten};
pub use trace::Trace;

#[cfg(test)]
mod tests;
