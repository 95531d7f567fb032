//! The log: bytes that commits force to the device, a page at least each time.

/// Counts a log. Its bytes are read by nothing here, so that only their number is kept.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    page_bytes: u64,
    pending: u64,
    bytes: u64,
    pages: u64,
}

impl Log {
    /// The bytes of a record besides what it describes.
    pub const RECORD: u64 = 24;

    /// An empty log.
    #[must_use]
    pub const fn new(page_bytes: usize) -> Self {
        Self { page_bytes: page_bytes as u64, pending: 0, bytes: 0, pages: 0 }
    }

    /// Appends a record that describes this many bytes.
    pub const fn append(&mut self, bytes: usize) {
        self.pending += Self::RECORD + bytes as u64;
    }

    /// Forces what was appended. Nothing is written if that is nothing.
    pub const fn force(&mut self) {
        self.pages += self.pending.div_ceil(self.page_bytes);
        self.bytes += self.pending;
        self.pending = 0;
    }

    /// Pages written.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes forced.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_writes_whole_pages() {
        let mut log = Log::new(100);
        log.force();
        assert_eq!(log.pages(), 0);
        (0..3).for_each(|_| log.append(10));
        log.force();
        log.append(0);
        log.force();
        assert_eq!((log.pages(), log.bytes()), (3, 126));
    }
}
