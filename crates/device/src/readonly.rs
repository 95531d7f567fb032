//! A read-only device: every change is refused before it reaches the inner device.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::wrap::{Change, Hook, Wrapped};
use crate::{Device, DeviceLock, Result};

/// Refuses every change, and takes the shared lock in place of the one-process lock.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

/// Another device, for reading only. Its lock is the shared one.
pub type ReadOnlyDevice = Wrapped<ReadOnly>;

impl ReadOnlyDevice {
    /// Passes only reads to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self::around(inner, ReadOnly)
    }
}

impl Hook for ReadOnly {
    fn permit(&self, change: Change, name: &str) -> Result<()> {
        Err(change.refused(name, ErrorKind::ReadOnlyFilesystem))
    }

    fn try_lock(&self, device: &dyn Device) -> Result<Option<DeviceLock>> {
        device.try_lock_shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;
    use crate::{Caching, Open, Purpose};

    #[test]
    fn reading_is_let_through_and_nothing_else() {
        let inner: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let file = inner.open("a", Open::CreateNew, Caching::Buffered).unwrap();
        file.write_at(0, b"text", Purpose::User).unwrap();
        let device = ReadOnlyDevice::new(Arc::clone(&inner));
        let file = device.open("a", Open::Existing, Caching::Buffered).unwrap();
        let mut found = [0; 4];
        file.read_at(0, &mut found, Purpose::User).unwrap();
        assert_eq!((&found, file.len().unwrap()), (b"text", 4));
        let refused = [
            file.write_at(0, b"x", Purpose::User),
            file.sync(Purpose::User),
            file.preallocate(9, Purpose::User),
            file.allocate(0, 9, Purpose::User),
            file.truncate(0),
            file.discard(0, 4),
            device.remove("a"),
            device.rename("a", "b"),
            device.sync_dir(),
            device.open("b", Open::CreateNew, Caching::Buffered).map(drop),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().source.kind(), ErrorKind::ReadOnlyFilesystem);
        }
        assert_eq!(inner.list().unwrap(), ["a"]);
    }
}
