//! When to look for room in memory again.

use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::atomic::{AtomicU64, Ordering};

/// The part of the limit by which memtables over it grow before room is looked for again.
const GROWTH_SHARE: u64 = 64;

/// The state of the last search for room in memory.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Bytes of the memtables; below this, looking again is useless.
    again_bytes: AtomicU64,
}

impl Looked {
    /// Whether to look for room where the memtables hold `used_bytes`.
    pub fn is_due(&self, used_bytes: u64, limit_bytes: u64) -> bool {
        let again_bytes = self.again_bytes.load(Ordering::Relaxed);
        let (is_due, again_bytes) = look(again_bytes, used_bytes, limit_bytes);
        self.again_bytes.store(again_bytes, Ordering::Relaxed);
        is_due
    }
}

/// Whether to look for room, and how much the memtables hold when to look again.
fn look(again_bytes: u64, used_bytes: u64, limit_bytes: u64) -> (bool, u64) {
    if used_bytes <= limit_bytes {
        return (false, 0);
    }
    let is_due = used_bytes >= again_bytes || planted::is(Bug::MemoryLookedAtEachTime);
    let grown_bytes = used_bytes.saturating_add(limit_bytes / GROWTH_SHARE);
    // Memory that was freed since is not waited for again.
    (is_due, if is_due { grown_bytes } else { again_bytes.min(grown_bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_looked_for_again_when_memtables_have_grown() {
        // A part of the limit is ten bytes.
        let look = |again, used| look(again, used, 640);
        assert_eq!(look(0, 640), (false, 0));
        assert_eq!(look(0, 641), (true, 651));
        assert_eq!(look(651, 650), (false, 651));
        assert_eq!(look(651, 651), (true, 661));
        // Some was given back: ten bytes from there, and not from where it was before.
        assert_eq!(look(900, 700), (false, 710));
        assert_eq!(look(710, 710), (true, 720));
        assert_eq!(look(720, 600), (false, 0));
    }
}
