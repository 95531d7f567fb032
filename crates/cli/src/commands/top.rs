//! `top`: what a store holds and how fast it grows, again and again.
//!
//! Reading order: this module (the arguments, and when it looks), `tick` (what is known at a
//! moment), `show` (how it is printed).
//!
//! It reads as a follower: the store can be opened and closed by other processes meanwhile, and no
//! process waits for it. Only what a follower knows is shown. What only the writing process knows
//! (merges under way, waits, device operations, transactions) is not.

mod show;
mod tick;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedU64ValueParser;
use esker::{Db, Error};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::redraw::{self, Redraw};
use esker_terminal::signals::Interrupt;

use super::place::open_to_follow;
use crate::args::Store;
use tick::{Rates, Tick};

/// The description of `top`.
pub(crate) const HELP: &str = r#"Show a store at work while a program has it open, once a second

Operations, keyspaces with their levels and memtables, and the space on the device, with what a
second adds. It ends when it is interrupted, or after N times. The store is read without a lock: a
program can have it open for writing, and open and close it meanwhile.

On a terminal, each view takes the place of the one before. Otherwise a line is printed each time.
With --json, a line is an object; rates are null in the first one, and "operations" of "lag" where
the writing process does not tell them.

Operations are counted by their numbers. In a store with a history, a batch has one number."#;

const INTERVAL_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
/// The time for which an interruption may go unnoticed.
const GLANCE: Duration = Duration::from_millis(20);

/// The arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    store: Store,
    /// Seconds from one view to the next, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// End after N views [default: when interrupted]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    count: Option<u64>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Shows the store until it is interrupted, which is no failure.
pub(super) fn run(args: &Top) -> Result<(), Failure> {
    let interrupt = Interrupt::install()?;
    let mut followed = Followed { path: &args.store.path, db: open_to_follow(&args.store.path)? };
    let mut print = Print::new(args);
    let mut before: Option<Tick> = None;
    for number in 1.. {
        let begun = Instant::now();
        let tick = followed.tick()?;
        let rates = before.as_ref().and_then(|before| Rates::between(before, &tick));
        print.tick(&tick, rates.as_ref())?;
        before = Some(tick);
        if args.count == Some(number) || !waited(&interrupt, begun, args.interval) {
            break;
        }
    }
    Ok(())
}

/// Waits until `interval` after `begun`; false where a signal has come.
fn waited(interrupt: &Interrupt, begun: Instant, interval: Duration) -> bool {
    loop {
        if interrupt.requested() {
            return false;
        }
        match interval.saturating_sub(begun.elapsed()) {
            Duration::ZERO => return true,
            left => thread::sleep(left.min(GLANCE)),
        }
    }
}

/// The store that is looked at.
struct Followed<'a> {
    path: &'a Path,
    db: Db,
}

impl Followed<'_> {
    /// Catches up, as far as possible, and says what is there.
    fn tick(&mut self) -> Result<Tick, Failure> {
        let begun = Instant::now();
        let is_new = match self.db.refresh() {
            Ok(_) => true,
            // Where the writer is faster than reading, the lag grows until it is slower again.
            Err(Error::Overtaken { .. }) => false,
            // The log has become longer than the memory that it was given: it gets more.
            Err(Error::Invalid { .. }) => {
                self.db = open_to_follow(self.path)?;
                true
            }
            Err(error) => return Err(error.into()),
        };
        Tick::take(&self.db, is_new.then(|| begun.elapsed()))
    }
}

/// Where ticks are printed, and how.
struct Print {
    output: Output,
    redraw: Option<Redraw>,
    title: String,
    is_json: bool,
}

impl Print {
    fn new(args: &Top) -> Self {
        Self {
            redraw: (!args.json && redraw::is_possible()).then(Redraw::default),
            output: Output::new(),
            title: args.store.path.display().to_string(),
            is_json: args.json,
        }
    }

    fn tick(&mut self, tick: &Tick, rates: Option<&Rates>) -> Result<(), Failure> {
        match &mut self.redraw {
            Some(redraw) => {
                let frame = redraw.frame(&show::view(&self.title, tick, rates));
                self.output.bytes(frame.as_bytes())?;
            }
            None if self.is_json => self.output.json(&show::as_json(tick, rates))?,
            None => self.output.line(&show::line(tick, rates))?,
        }
        self.output.flush()
    }
}

fn interval(given: &str) -> Result<Duration, String> {
    let seconds: f64 = given.parse().map_err(|_| "it is not a number of seconds".to_owned())?;
    if !INTERVAL_SECONDS.contains(&seconds) {
        let (least, most) = INTERVAL_SECONDS.into_inner();
        return Err(format!("it is not from {least} to {most} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("0.1"), Ok(Duration::from_millis(100)));
        assert_eq!(interval("3600"), Ok(Duration::from_secs(3600)));
        for refused in ["", "x", "0", "-1", "0.09", "3600.5", "NaN", "inf", "1e400"] {
            assert!(interval(refused).is_err(), "{refused}");
        }
    }
}
