//! How long a writer waits while a merge runs, as a pure function.
//!
//! The room that writes may fill until the merge is done (free memtable and free spill room),
//! divided by the time that the merge still needs, is the rate at which writes may come. A
//! write that comes faster is delayed by the difference, from the merge's first byte on: so the
//! room shrinks in a straight line towards the merge's end and no writer ever meets a cliff.

use std::time::Duration;

/// The longest single delay. The situation is looked at again after it.
pub const DELAY_MAX: Duration = Duration::from_millis(100);
/// The rate that a merge is given credit for before its own is known, in bytes per second.
pub const MERGE_RATE_MIN: u64 = 1 << 20;

/// What the delay depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What still fits the memtable, in bytes.
    pub memtable_free_bytes: u64,
    /// What may still be spilled, in bytes.
    pub spill_free_bytes: u64,
    /// What the running merge still has to read and write, in bytes; 0 without a merge.
    pub merge_remaining_bytes: u64,
    /// How fast the merge goes, in bytes per second; below [`MERGE_RATE_MIN`] that.
    pub merge_bytes_per_second: u64,
}

impl Room {
    fn free_bytes(&self) -> f64 {
        self.memtable_free_bytes as f64 + self.spill_free_bytes as f64
    }

    /// How long the merge will still take, in seconds.
    fn remaining_seconds(&self) -> f64 {
        let rate = self.merge_bytes_per_second.max(MERGE_RATE_MIN);
        self.merge_remaining_bytes as f64 / rate as f64
    }
}

/// The rate at which writes may come, in bytes per second; infinite without a merge.
#[must_use]
pub fn allowed_bytes_per_second(room: &Room) -> f64 {
    let seconds = room.remaining_seconds();
    if seconds > 0.0 { room.free_bytes() / seconds } else { f64::INFINITY }
}

/// How long a write of `write_bytes` waits when the one before it was `since_last` ago. At most
/// [`DELAY_MAX`].
#[must_use]
pub fn delay(room: &Room, write_bytes: u64, since_last: Duration) -> Duration {
    let rate = allowed_bytes_per_second(room);
    if rate.is_infinite() || write_bytes == 0 {
        return Duration::ZERO;
    }
    // Without any room the quotient is infinite, which the bound turns into the longest delay.
    let due_seconds = write_bytes as f64 / rate - since_last.as_secs_f64();
    Duration::from_secs_f64(due_seconds.clamp(0.0, DELAY_MAX.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn room()(
            memtable_free_bytes in 0u64..1 << 40,
            spill_free_bytes in 0u64..1 << 40,
            merge_remaining_bytes in 0u64..1 << 50,
            merge_bytes_per_second in 0u64..1 << 36,
        ) -> Room {
            Room {
                memtable_free_bytes,
                spill_free_bytes,
                merge_remaining_bytes,
                merge_bytes_per_second,
            }
        }
    }

    proptest! {
        #[test]
        fn no_merge_no_delay(room in room(), bytes: u64) {
            let idle = Room { merge_remaining_bytes: 0, ..room };
            prop_assert_eq!(delay(&idle, bytes, Duration::ZERO), Duration::ZERO);
        }

        #[test]
        fn less_room_never_means_less_delay(room in room(), less in 0u64..1 << 40, bytes: u32) {
            let tighter = Room {
                memtable_free_bytes: room.memtable_free_bytes.saturating_sub(less),
                ..room
            };
            let (now, then) = (
                delay(&room, bytes.into(), Duration::ZERO),
                delay(&tighter, bytes.into(), Duration::ZERO),
            );
            prop_assert!(now <= then && then <= DELAY_MAX);
        }

        #[test]
        fn more_merge_left_never_means_less_delay(
            room in room(),
            more in 0u64..1 << 50,
            bytes: u32,
        ) {
            let longer =
                Room { merge_remaining_bytes: room.merge_remaining_bytes + more, ..room };
            prop_assert!(
                delay(&room, bytes.into(), Duration::ZERO)
                    <= delay(&longer, bytes.into(), Duration::ZERO)
            );
        }

        #[test]
        fn there_is_no_cliff(room in room(), bytes: u32) {
            // A thousandth less room makes at most about a thousandth more delay.
            prop_assume!(room.free_bytes() > 1e6);
            let tighter = Room {
                memtable_free_bytes: room.memtable_free_bytes - room.memtable_free_bytes / 1000,
                spill_free_bytes: room.spill_free_bytes - room.spill_free_bytes / 1000,
                ..room
            };
            let now = delay(&room, bytes.into(), Duration::ZERO).as_secs_f64();
            let then = delay(&tighter, bytes.into(), Duration::ZERO).as_secs_f64();
            prop_assert!(then <= now * 1.0011 + 1e-8, "{now} to {then}");
        }

        #[test]
        fn a_paced_writer_does_not_run_out_of_room_before_the_merge_ends(
            free in 1u64 << 20..1 << 26,
            merge in 1u64 << 20..1 << 28,
            merge_rate in MERGE_RATE_MIN..1 << 28,
            write in 100u64..10_000,
        ) {
            let mut room = Room {
                memtable_free_bytes: free,
                spill_free_bytes: 0,
                merge_remaining_bytes: merge,
                merge_bytes_per_second: merge_rate,
            };
            while room.merge_remaining_bytes > 0 && room.memtable_free_bytes > write {
                let mut waited = Duration::ZERO;
                loop {
                    let more = delay(&room, write, waited);
                    waited += more;
                    let done = (more.as_secs_f64() * merge_rate as f64).round() as u64;
                    room.merge_remaining_bytes = room.merge_remaining_bytes.saturating_sub(done);
                    if more < DELAY_MAX {
                        break;
                    }
                }
                room.memtable_free_bytes -= write;
            }
            // All but the last few writes' worth of the merge is over when the room is.
            let left = room.merge_remaining_bytes as f64 / merge as f64;
            prop_assert!(left < 0.02 + 8.0 * write as f64 / free as f64, "{left} of it is left");
        }
    }

    #[test]
    fn the_rate_is_the_room_over_the_time() {
        let room = Room {
            memtable_free_bytes: 3 << 20,
            spill_free_bytes: 1 << 20,
            merge_remaining_bytes: 64 << 20,
            merge_bytes_per_second: 32 << 20,
        };
        assert!((allowed_bytes_per_second(&room) - f64::from(2 << 20)).abs() < 1.0);
        let full = Room { memtable_free_bytes: 0, spill_free_bytes: 0, ..room };
        assert_eq!(delay(&full, 1, Duration::ZERO), DELAY_MAX);
        // 1 KiB at 2 MiB/s is a 2048th of a second, of which part has passed.
        let wait = delay(&room, 1024, Duration::from_micros(100)).as_micros();
        assert!((387..=389).contains(&wait), "{wait}");
    }
}
