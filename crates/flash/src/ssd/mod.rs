//! A store on a simulated SSD, or recorded for one: a device around a device.
//!
//! [`SsdDevice`] passes every operation to an inner device, which keeps the bytes, and lets a
//! translation layer do the same to flash that keeps none. So any store runs on it unchanged, and
//! its write amplification, erases and wear are counted. [`RecordingDevice`] writes what it would
//! ask an SSD for to a [trace](crate::trace), with the purpose of each operation. Both lay files
//! out in extents of 64 KiB (`layout`); discarding, truncating and removing trims.
//!
//! Reading order: `blocks` (what both do with pages), `layout` (where files are), `files` (names,
//! handles and the page cache), `device` (the trait [`Device`](esker_device::Device)), `simulated`
//! and `report`, `recorder`.
//!
//! **The page cache.** Writes to a [`Buffered`](esker_device::Caching::Buffered) file, and values
//! to a [`Selective`](esker_device::Caching::Selective) one, make pages dirty, and reach the flash
//! at the next sync of the file, or when more than 16 MiB are dirty. All other writes reach it at
//! once, whole pages: a write of a part of a page that was written before reads it first. Every
//! read is one of the flash, also where the page cache of a real system would have it.
//!
//! **Removed files.** A removed file that is open is trimmed when its last handle is closed, as
//! the file system and the device in memory free it.
//!
//! **Time.** Requests follow each other: each begins when the one before has ended, and all pages
//! of a request are in flight together. What the file system itself writes is not modelled.

mod blocks;
mod device;
mod files;
mod layout;
mod recorder;
mod report;
mod simulated;
#[cfg(test)]
mod tests;

pub use self::device::OnBlocks;
pub use self::recorder::{RecordError, RecordOptions, Recorded, Recorder, RecordingDevice};
pub use self::report::SsdReport;
pub use self::simulated::{Ssd, SsdDevice};
