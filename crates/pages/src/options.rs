//! Options of a store.

use std::time::Duration;

use crate::error::{Result, invalid};

/// The smallest page, in bytes.
pub const PAGE_BYTES_MIN: u32 = 512;
/// The largest page, in bytes.
pub const PAGE_BYTES_MAX: u32 = 65_536;
/// The smallest segment, in bytes: the superblocks fill one.
pub const SEGMENT_BYTES_MIN: u32 = 16 * 1024;
/// The largest segment, in bytes.
pub const SEGMENT_BYTES_MAX: u32 = 4 * 1024 * 1024;

/// The point at which a commit may return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After one sync: what was committed survives a power cut.
    #[default]
    Full,
    /// Before the sync. Commits become durable in their order, within [`Options::relaxed_interval`]
    /// or [`Options::relaxed_bytes`], whichever comes first. A power cut may lose the last ones.
    Relaxed,
}

/// The place to which changed pages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// To free single slots at any place: every page is written once. For devices with a
    /// translation layer of their own.
    #[default]
    Slot,
    /// To segments that are filled in order, records and pages together; the live pages of a
    /// segment are moved before it is reused. For flash without a translation layer, and for
    /// devices where one longer write is better than several short ones.
    Segment,
}

impl Allocation {
    /// The allocation of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Slot, Self::Segment].into_iter().find(|is| is.name() == name)
    }

    /// `slot` or `segment`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Segment => "segment",
        }
    }
}

/// The number of processes that may have a store open at the same time.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processes {
    /// One, or several that only read.
    #[default]
    One,
    /// Several, which take turns at writing while all read. With [`Allocation::Slot`] only.
    Many,
}

/// The options for opening a store. The page size, the allocation and the segment size matter for a
/// new store only.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a page in a new store: a power of two from 512 to 65,536.
    pub page_size: u32,
    /// The durability that callers without a choice of their own should ask for.
    pub durability: Durability,
    /// Bytes of a segment in a new store: a power of two from 16 KiB to 4 MiB, at least a page. A
    /// small file grows by segments, a large one by up to 4 MiB each time.
    pub segment_bytes: u32,
    /// The number of bytes of pages that a transaction keeps in memory before it writes them out
    /// early.
    pub spill_bytes: u64,
    /// After how many bytes of commit records a checkpoint is taken.
    pub checkpoint_bytes: u64,
    /// The number of bytes of page deltas (differences between pages and their contents in the
    /// file) that are kept in memory; 0 writes every changed page whole.
    pub delta_bytes: u64,
    /// After how long a relaxed commit is made durable by a thread of the store, which also takes
    /// checkpoints. With `None` there is no thread: the next sync makes it durable, and a commit
    /// takes a checkpoint that is due.
    pub relaxed_interval: Option<Duration>,
    /// After how many bytes relaxed commits are made durable.
    pub relaxed_bytes: u64,
    /// The place to which changed pages of a new store are written.
    pub allocation: Allocation,
    /// With [`Allocation::Segment`]: how much longer than its live contents the file may be before
    /// garbage is collected, in percent, at least 5. More space means fewer moves.
    pub spare_percent: u32,
    /// The number of processes that may have a store at a path open.
    #[doc(hidden)]
    pub processes: Processes,
    /// With [`Processes::Many`]: how long a change waits for other processes that write.
    #[doc(hidden)]
    pub busy_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_size: 4096,
            durability: Durability::Full,
            segment_bytes: 256 << 10,
            spill_bytes: 8 << 20,
            checkpoint_bytes: 4 << 20,
            delta_bytes: 8 << 20,
            relaxed_interval: Some(Duration::from_millis(100)),
            relaxed_bytes: 8 << 20,
            allocation: Allocation::Slot,
            spare_percent: 25,
            processes: Processes::One,
            busy_timeout: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the page size of a new store, in bytes.
    #[must_use]
    pub fn page_size(mut self, bytes: u32) -> Self {
        self.page_size = bytes;
        self
    }

    /// Sets the durability that callers without a choice of their own should ask for.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets by how many bytes a new store's file grows.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u32) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets where a new store's changed pages are written.
    #[must_use]
    pub fn allocation(mut self, allocation: Allocation) -> Self {
        self.allocation = allocation;
        self
    }

    /// Sets the number of processes that may have the store open.
    #[doc(hidden)]
    #[must_use]
    pub fn processes(mut self, processes: Processes) -> Self {
        self.processes = processes;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_page_size(self.page_size)?;
        let bounds = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
        if !self.segment_bytes.is_power_of_two() || !bounds.contains(&self.segment_bytes) {
            return invalid(format!(
                "{} bytes are no segment: use a power of two from 16 KiB to 4 MiB",
                self.segment_bytes
            ));
        }
        if !(5..=1000).contains(&self.spare_percent) {
            return invalid(format!(
                "{} percent are no spare space: use 5 to 1000",
                self.spare_percent
            ));
        }
        if self.page_size > self.segment_bytes {
            return invalid("a page must fit a segment: use larger segments");
        }
        Ok(())
    }
}

/// Fails unless `bytes` is a page size.
pub(crate) fn check_page_size(bytes: u32) -> Result<()> {
    if bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&bytes) {
        return Ok(());
    }
    invalid(format!("{bytes} bytes are no page: use a power of two from 512 to 65536"))
}
