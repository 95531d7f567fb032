//! What a follower knows at a moment, and what has happened between two moments.

use std::time::{Duration, Instant};

use esker::{Db, Lag, Stats};
use esker_terminal::exit::Failure;

/// What is known at a moment.
#[derive(Clone, Debug)]
pub(super) struct Tick {
    at: Instant,
    /// The number of the newest operation that is visible.
    pub(super) version: u64,
    /// `None` only for a store that is not followed.
    pub(super) lag: Option<Lag>,
    /// How long it took to catch up; `None` where it did not succeed.
    pub(super) caught_up_in: Option<Duration>,
    pub(super) stats: Stats,
}

/// What a second has added. Bytes become less, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// The time between the two moments.
    pub(super) seconds: f64,
    pub(super) operations: f64,
    pub(super) data_bytes: f64,
    pub(super) log_bytes: f64,
}

impl Tick {
    /// Asks a store after it was to catch up.
    pub(super) fn take(db: &Db, caught_up_in: Option<Duration>) -> Result<Self, Failure> {
        let at = Instant::now();
        let (version, lag) = (db.version(), db.lag()?);
        Ok(Self { at, version, lag, caught_up_in, stats: db.stats()? })
    }
}

impl Rates {
    /// `None` where no time has passed.
    pub(super) fn between(before: &Tick, now: &Tick) -> Option<Self> {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
        let of = |before: u64, now: u64| (now as f64 - before as f64) / seconds;
        let (then, space) = (&before.stats.space, &now.stats.space);
        (seconds > 0.0).then(|| Self {
            seconds,
            operations: of(before.version, now.version),
            data_bytes: of(then.data_file_bytes, space.data_file_bytes),
            log_bytes: of(then.log_bytes, space.log_bytes),
        })
    }
}

#[cfg(test)]
impl Tick {
    /// A tick so long after `since`.
    pub(super) fn sample(since: Instant, millis: u64, version: u64) -> Self {
        let mut stats = Stats::default();
        stats.space.data_file_bytes = 1 << 20;
        stats.space.log_bytes = version * 1024;
        let at = since + Duration::from_millis(millis);
        Self { at, version, lag: None, caught_up_in: Some(Duration::from_micros(1500)), stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_time_that_has_passed() {
        let now = Instant::now();
        let (first, second) = (Tick::sample(now, 0, 100), Tick::sample(now, 500, 40));
        let rates = Rates::between(&second, &Tick::sample(now, 2500, 60)).unwrap();
        let expected =
            Rates { seconds: 2.0, operations: 10.0, data_bytes: 0.0, log_bytes: 10240.0 };
        assert_eq!(rates, expected);
        let less = Rates::between(&first, &second).unwrap();
        assert_eq!((less.operations, less.log_bytes), (-120.0, -122_880.0));
        assert_eq!(Rates::between(&first, &first), None);
    }
}
