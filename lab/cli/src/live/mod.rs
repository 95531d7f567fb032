//! The live view: a store at work, drawn ten times a second.
//!
//! ```text
//!   meter    what working threads count, in atomics          (working threads)
//!     │ windows of 100 ms     `Db::stats`
//!     ▼                            ▼
//!   model    series, ratios, which levels a merge replaces
//!     ▼                                                       (the drawing thread)
//!   view     model → characters, pure        board: a title and lines of the command
//!     ▼
//!   screen   the terminal, taken and given back
//! ```
//!
//! The order above is the reading order; `bench` is `esker bench --live`. The drawing thread is
//! one of its own: working threads never wait for it, but share the processors with it.

pub(crate) mod bench;
mod board;
mod meter;
mod model;
mod screen;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::board::Board;
pub(crate) use self::meter::{Gauge, Meter};
pub(crate) use self::model::Ruler;
pub(crate) use self::screen::{Screen, is_possible, is_roomy};

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::Db;
use esker_terminal::exit::Failure;
use esker_terminal::signals::Interrupt;
use signal_hook::consts::SIGINT;
use signal_hook::low_level::raise;

use self::model::{Model, Sample};
use self::screen::Typed;

/// A window of the series, and a frame.
const FRAME: Duration = Duration::from_millis(100);
/// The time for which a signal or the end may go unseen.
const GLANCE: Duration = Duration::from_millis(20);

/// The store that is watched, and its instruments.
pub(crate) struct Watched<'a> {
    pub(crate) db: &'a Db,
    pub(crate) meter: &'a Meter,
    pub(crate) board: &'a Board,
    pub(crate) interrupt: &'a Interrupt,
    /// The names of writes and of reads.
    pub(crate) names: [&'static str; 2],
}

/// Shows the store while `work` runs on this thread. The terminal is given back as soon as the
/// work is done or an interrupt is asked for; `q` asks for one, and is remembered on the board.
///
/// # Errors
/// Those of `work`; then [`Failure::Store`] and [`Failure::System`] of the drawing thread, which
/// ends at once and leaves a request to quit on the board, for work that is nothing without it.
pub(crate) fn watch<T>(
    screen: Screen,
    watched: &Watched<'_>,
    ruler: Ruler,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let drawing = thread::Builder::new()
            .name("live view".to_owned())
            .spawn_scoped(scope, || {
                or_quit(watched.board, || draw_until(&done, screen, watched, ruler))
            })
            .map_err(|source| Failure::System { what: "start a thread", source })?;
        let answer = {
            let _ended = Ended(&done);
            work()
        };
        let drawn = drawing.join().unwrap_or_else(|_| {
            let source = io::Error::other("the drawing thread panicked");
            Err(Failure::System { what: "draw", source })
        });
        let answer = answer?;
        drawn.map(|()| answer)
    })
}

/// Ends the drawing even where the work panics.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Leaves a request to quit on the board when drawing fails or panics.
fn or_quit(board: &Board, draw: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    struct Unless<'a>(&'a Board, bool);
    impl Drop for Unless<'_> {
        fn drop(&mut self) {
            if !self.1 {
                self.0.quit();
            }
        }
    }
    let mut unless = Unless(board, false);
    let drawn = draw();
    unless.1 = drawn.is_ok();
    drawn
}

fn draw_until(
    done: &AtomicBool,
    mut screen: Screen,
    watched: &Watched<'_>,
    ruler: Ruler,
) -> Result<(), Failure> {
    let refused = |source| Failure::System { what: "draw on the terminal", source };
    let mut model = Model::new(ruler);
    let begun = Instant::now();
    let mut last = begun;
    loop {
        let now = Instant::now();
        model.observe(&sample(watched, now - last, now - begun)?);
        last = now;
        let shown = watched.board.shown(watched.names);
        screen
            .draw(|frame| view::render(&model, &shown, frame.area(), frame.buffer_mut()))
            .map_err(refused)?;
        while last.elapsed() < FRAME {
            if done.load(Ordering::Acquire) || watched.interrupt.requested() {
                return Ok(());
            }
            let typed = screen.typed(GLANCE).map_err(refused)?;
            if typed == Some(Typed::Quit) {
                watched.board.quit();
            }
            if typed.is_some() {
                // As if the terminal had sent it: the running command checks for signals anyway.
                raise(SIGINT).map_err(refused)?;
            }
        }
    }
}

fn sample(watched: &Watched<'_>, window: Duration, elapsed: Duration) -> Result<Sample, Failure> {
    let meter = watched.meter;
    Ok(Sample {
        stats: watched.db.stats()?,
        writes: meter.writes.take(window),
        reads: meter.reads.take(window),
        live_bytes: meter.live_bytes(),
        elapsed,
    })
}
