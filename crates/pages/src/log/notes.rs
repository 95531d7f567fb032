//! The notes of commits for a concurrent checkpoint.

/// The notes of commits for a checkpoint in progress.
#[derive(Debug)]
pub(crate) struct CheckpointNotes {
    /// The transaction that was prepared when it began, and the records appended since.
    pub(crate) records: Vec<Vec<u8>>,
    bytes: u64,
    /// The number of slots that were dead when it began.
    pub(crate) dead: usize,
    /// The number of moves of pages that waited for a checkpoint when it began.
    pub(crate) retired: usize,
}

impl CheckpointNotes {
    pub(crate) fn new(records: Vec<Vec<u8>>, dead: usize, retired: usize) -> Self {
        Self { records, bytes: 0, dead, retired }
    }

    /// Adds a record, which takes a multiple of `unit` bytes in a log. Returns `false`, and adds
    /// nothing, where the records would take more than `bytes_max`.
    pub(crate) fn add(&mut self, record: &[u8], unit: u64, bytes_max: u64) -> bool {
        self.bytes += (record.len() as u64).next_multiple_of(unit);
        let fits = self.bytes <= bytes_max;
        if fits {
            self.records.push(record.to_vec());
        }
        fits
    }
}
