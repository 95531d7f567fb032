//! Writes through the page cache, which return without waiting, and are dropped from it once the
//! device has them: a load of values must not evict what users read, and the system reuses recently
//! freed memory without a search.

use std::collections::VecDeque;
use std::ops::Range;

/// The number of bytes of the last writes that stay in memory: more than a device has in flight.
const KEPT_BYTES: u64 = 32 << 20;

/// The last writes of a file, oldest first.
#[derive(Debug, Default)]
pub(super) struct Behind {
    writes: VecDeque<Range<u64>>,
    bytes: u64,
}

impl Behind {
    /// Notes a write. Returns the writes that are due to be dropped from the page cache.
    pub(super) fn note(&mut self, write: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        self.bytes += write.end - write.start;
        self.writes.push_back(write);
        let mut passed = Vec::new();
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.writes.pop_front()
        {
            self.bytes -= oldest.end - oldest.start;
            passed.push(oldest);
        }
        passed.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_writes_stay_and_the_others_go_in_order() {
        let mut behind = Behind::default();
        let mut gone = 0;
        for at in 0..100_u64 {
            let mib = |at: u64| at << 20..(at + 1) << 20;
            for passed in behind.note(mib(at)) {
                assert_eq!(passed, mib(gone));
                gone += 1;
            }
            assert_eq!(at + 1 - gone, (at + 1).min(32));
        }
        let huge = 1 << 40..(1 << 40) + 2 * KEPT_BYTES;
        assert_eq!(behind.note(huge.clone()).last(), Some(huge));
        assert_eq!(behind.bytes, 0);
    }
}
