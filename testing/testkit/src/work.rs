//! Work in proportion to the input: what opening, checking and changing a store costs grows with
//! the length of what is read, and not with its square.
//!
//! A [`Shape`] makes inputs of any size. [`judge`] runs one at a size and at [`FACTOR`] times that
//! size and compares the processor time of the thread. What grows in proportion takes about
//! [`FACTOR`] times as long (with the logarithm, and with caches that do not hold it any more, up
//! to twice that); what grows with the square [`FACTOR`] times that. The limit is between the two,
//! so that a slow or busy machine makes no difference.
//!
//! [`Deadline`] bounds single inputs, for the fuzz targets.

mod shapes;

pub use shapes::SHAPES;

use std::time::Duration;

use rustix::time::ClockId;

use crate::counts::Counts;
use crate::violation::{Oracle, Verdict, Violation};

/// The factor by which the large input is larger than the small one.
pub const FACTOR: u32 = 8;
/// The large input may take this many times as long as the small one.
pub const RATIO_MAX: u32 = 28;
/// Less is not measured: the clock and the allocator would be.
const MEASURABLE: Duration = Duration::from_millis(2);
/// The best of this number of runs counts.
const RUNS: u32 = 3;

/// The work that is measured, made before the measurement begins.
pub type Task = Box<dyn FnOnce()>;

/// Inputs of one kind, of any size.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The property that grows.
    pub name: &'static str,
    /// The small size.
    pub size: u32,
    /// Makes the input of a size, and answers what reads it.
    pub prepare: fn(u32) -> esker::Result<Task>,
}

/// The processor time that this thread has used. What `/proc` says of it is older by a tick of the
/// scheduler, up to four milliseconds: longer than a small input takes.
#[must_use]
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Runs a shape at both sizes.
///
/// # Errors
/// When the larger input takes longer than in proportion.
pub fn judge(shape: &Shape, counts: &mut Counts) -> Verdict {
    let large_size = shape.size.saturating_mul(FACTOR);
    let (small, large) = (measure(shape, shape.size)?, measure(shape, large_size)?);
    counts.add("inputs", 2);
    let limit = small.max(MEASURABLE).saturating_mul(RATIO_MAX);
    if large <= limit {
        return Ok(());
    }
    let detail = format!(
        "{} of {} take {large:?}, of {large_size} no more than {limit:?} are allowed: \
         {small:?} for {}",
        shape.name, large_size, shape.size
    );
    Err(Violation::new(Oracle::WorkIsBounded, detail).at(shape.name))
}

fn measure(shape: &Shape, size: u32) -> Verdict<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let prepared = (shape.prepare)(size);
        let task = prepared
            .map_err(|error| Violation::new(Oracle::Harness, error.to_string()).at(shape.name))?;
        let before = thread_time();
        task();
        best = best.min(thread_time().saturating_sub(before));
    }
    Ok(best)
}

/// The time that an input of some length may take: generous, because a slow machine is no bug, and
/// far below what an input takes that is read again for each of its parts.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    begun: Duration,
    allowed: Duration,
}

/// The time that every input may take, regardless of its length.
const ALLOWED: Duration = Duration::from_secs(2);
/// And for each of its bytes.
const ALLOWED_PER_BYTE: Duration = Duration::from_micros(200);

impl Deadline {
    /// For an input of `bytes` bytes, from now on.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let allowed = ALLOWED.saturating_add(ALLOWED_PER_BYTE.saturating_mul(bytes));
        Self { begun: thread_time(), allowed }
    }

    /// Fails when it is over.
    ///
    /// # Errors
    /// With what was used and what was allowed.
    pub fn check(&self) -> Verdict {
        let used = thread_time().saturating_sub(self.begun);
        if used <= self.allowed {
            return Ok(());
        }
        let detail = format!("{used:?} of processor time, {:?} are allowed", self.allowed);
        Err(Violation::new(Oracle::WorkIsBounded, detail))
    }
}
