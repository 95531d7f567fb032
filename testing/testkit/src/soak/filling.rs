//! A device that is full for a while: what is there can be written over, nothing grows.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_device::wrap::{Change, Hook};
use esker_device::{DeviceFile, Result};

/// Whether a device is full, and how often it has said so.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub is_full: AtomicBool,
    pub refusals: AtomicU64,
}

/// Refuses what grows while the device is full.
#[derive(Debug)]
pub(super) struct Filling(pub Arc<Filled>);

impl Hook for Filling {
    fn permit_in(&self, change: Change, file: &dyn DeviceFile) -> Result<()> {
        if !self.0.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let grows = match change {
            Change::Write { offset, len } => offset.saturating_add(len) > file.len()?,
            Change::Preallocate { len } => len > file.len()?,
            // What was discarded takes room too.
            Change::Allocate { .. } => true,
            _ => false,
        };
        if !grows {
            return Ok(());
        }
        self.0.refusals.fetch_add(1, Ordering::Relaxed);
        Err(change.refused(file.name(), ErrorKind::StorageFull))
    }
}
