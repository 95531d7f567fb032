//! `bench --live`: random load, then overwrites and lookups while merges run, to look at.
//!
//! One thread writes as fast as the store takes it, another looks up what was written. Nothing
//! here is a measurement: drawing takes its share of the processors. The folder is temporary.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::signals::Interrupt;
use esker_terminal::table::Table;
use indicatif::{HumanBytes, HumanCount};

use super::{Board, Meter, Ruler, Screen, Watched, is_possible, watch};

const KEYSPACE: &str = "live";
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// The whole run, where loading leaves room in it.
const RUN: Duration = Duration::from_secs(30);
/// At least this much after loading.
const OVERWRITING_MIN: Duration = Duration::from_secs(10);

/// The parameters of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) entries: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) index: IndexKind,
}

/// The lengths of the run and of the phase after loading.
#[derive(Clone, Copy, Debug)]
struct Length {
    run: Duration,
    overwriting_min: Duration,
}

/// The operations that were done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    puts: u64,
    gets: u64,
}

/// Runs it, and says in a few lines what was done.
///
/// # Errors
/// [`Failure::Input`] without a terminal; those of the store; [`Failure::Damaged`] for a wrong
/// answer; [`Failure::Interrupted`].
pub(crate) fn run(plan: Plan) -> Result<(), Failure> {
    if !is_possible() {
        let text = "--live draws on a terminal that is not dumb (TERM): run it in one, or leave \
                    `--live` out";
        return Err(Failure::Input(text.to_owned()));
    }
    let refused = |source| Failure::System { what: "make a temporary folder", source };
    let folder = tempfile::Builder::new().prefix("esker-live-").tempdir().map_err(refused)?;
    let interrupt = Interrupt::install()?;
    let db = Db::builder(folder.path()).memory_budget(plan.memory_bytes).open()?;
    let keyspace = db.keyspace(KEYSPACE, KeyspaceOptions::default().index(plan.index))?;
    let (meter, board) = (Meter::default(), Board::default());
    let work = Work {
        keyspace: &keyspace,
        meter: &meter,
        board: &board,
        interrupt: &interrupt,
        entries: plan.entries,
        length: Length { run: RUN, overwriting_min: OVERWRITING_MIN },
        puts: AtomicU64::new(0),
        gets: AtomicU64::new(0),
        loaded: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    };
    let names = ["puts", "gets"];
    let watched = Watched { db: &db, meter: &meter, board: &board, interrupt: &interrupt, names };
    let screen = Screen::open(&interrupt)
        .map_err(|source| Failure::System { what: "draw on the terminal", source })?;
    let begun = Instant::now();
    match watch(screen, &watched, Ruler::Even, || work.run()) {
        Err(Failure::Interrupted) if board.has_quit() => {}
        ended => ended?,
    }
    let text = summary(&db, work.counts(), meter.live_bytes(), begun.elapsed())?;
    let mut output = Output::new();
    output.line(&text)?;
    output.flush()
}

/// The threads that work, and what they share.
struct Work<'a> {
    keyspace: &'a Keyspace,
    meter: &'a Meter,
    board: &'a Board,
    interrupt: &'a Interrupt,
    entries: u64,
    length: Length,
    puts: AtomicU64,
    gets: AtomicU64,
    /// Every number below it was put.
    loaded: AtomicU64,
    ended: AtomicBool,
}

impl Work<'_> {
    fn run(&self) -> Result<(), Failure> {
        thread::scope(|scope| {
            let reader = thread::Builder::new()
                .name("lookups".to_owned())
                .spawn_scoped(scope, || self.ending(|| self.look_up()))
                .map_err(|source| Failure::System { what: "start a thread", source })?;
            let written = self.ending(|| self.write());
            let read = reader.join().unwrap_or_else(|_| {
                let source = std::io::Error::other("the reading thread panicked");
                Err(Failure::System { what: "look up", source })
            });
            written.and(read)
        })
    }

    /// When one thread ends, for any reason, it ends the other.
    fn ending(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _end = End(&self.ended);
        work()
    }

    fn write(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.board.set_title(format!("loading {} entries", HumanCount(self.entries)));
        for number in 0..self.entries {
            self.put(number, 0)?;
            self.meter.grew(KEY_BYTES + VALUE_BYTES);
            self.loaded.store(number + 1, Ordering::Release);
            if self.has_ended() {
                return Ok(());
            }
        }
        let entries = HumanCount(self.entries);
        self.board.set_title(format!("overwriting and looking up {entries} entries"));
        let overwriting = self.length.run.saturating_sub(begun.elapsed());
        let overwriting = overwriting.max(self.length.overwriting_min);
        let begun = Instant::now();
        let mut random = Random(1);
        let mut version = 0;
        while begun.elapsed() < overwriting && !self.has_ended() {
            version += 1;
            self.put(random.below(self.entries), version)?;
        }
        Ok(())
    }

    fn put(&self, number: u64, version: u64) -> Result<(), Failure> {
        self.interrupt.check()?;
        let (key, value) = (key(number), value(number, version));
        let begun = Instant::now();
        self.keyspace.insert(key, value)?;
        self.meter.writes.record(begun.elapsed());
        self.puts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn look_up(&self) -> Result<(), Failure> {
        let mut random = Random(2);
        while !self.has_ended() {
            let loaded = self.loaded.load(Ordering::Acquire);
            if loaded == 0 {
                thread::yield_now();
                continue;
            }
            let number = random.below(loaded);
            let key = key(number);
            let begun = Instant::now();
            let found = self.keyspace.get(key)?;
            self.meter.reads.record(begun.elapsed());
            self.gets.fetch_add(1, Ordering::Relaxed);
            if !found.is_some_and(|found| is_value_of(&found, number)) {
                let text = format!("the store's answer for entry {number} is wrong");
                return Err(Failure::Damaged(text));
            }
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.board.has_quit()
    }

    fn counts(&self) -> Counts {
        let (puts, gets) = (&self.puts, &self.gets);
        Counts { puts: puts.load(Ordering::Relaxed), gets: gets.load(Ordering::Relaxed) }
    }
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The finalizer of SplitMix64: one number for each number.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Eight bytes that spread the keys evenly, then the number, so that no two are equal.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let spread = mixed(number.wrapping_add(0x9e37_79b9_7f4a_7c15));
    (u128::from(spread) << 64 | u128::from(number)).to_be_bytes()
}

/// The number, the version, and bytes that follow from both.
fn value(number: u64, version: u64) -> [u8; VALUE_BYTES] {
    let mut random = Random(mixed(number) ^ mixed(!version).rotate_left(17));
    let mut bytes = [0; VALUE_BYTES];
    for (place, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = match place {
            0 => number,
            1 => version,
            _ => random.next(),
        };
        chunk.iter_mut().zip(word.to_be_bytes()).for_each(|(to, from)| *to = from);
    }
    bytes
}

/// Whether these bytes were put for this number, at any version.
fn is_value_of(bytes: &[u8], number: u64) -> bool {
    let version = bytes.get(8..16).and_then(|version| version.try_into().ok());
    version.is_some_and(|version| value(number, u64::from_be_bytes(version)) == bytes)
}

fn summary(db: &Db, counts: Counts, live_bytes: u64, took: Duration) -> Result<String, Failure> {
    let stats = db.stats()?;
    let written: u64 = stats.io.iter().map(|io| io.bytes_written).sum();
    let space = &stats.space;
    let occupied = space.data_file_bytes + space.log_bytes + space.manifest_bytes;
    let ratio = |part: u64, whole: u64| format!("{:.2}", part as f64 / whole.max(1) as f64);
    let merges: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.merges).sum();
    let mut table = Table::new(&["seen live, not measured", ""]);
    for (name, value) in [
        ("seconds", format!("{:.1}", took.as_secs_f64())),
        ("puts", HumanCount(counts.puts).to_string()),
        ("gets, all answers right", HumanCount(counts.gets).to_string()),
        ("merges finished", HumanCount(merges).to_string()),
        ("written", HumanBytes(written).to_string()),
        ("written per user byte", ratio(written, stats.user_bytes_written)),
        ("space over live data", ratio(occupied, live_bytes)),
    ] {
        table.row([name.to_owned(), value]);
    }
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_names_its_number(number: u64, other: u64, version: u64, at in 0..VALUE_BYTES) {
            let mut bytes = value(number, version);
            prop_assert!(is_value_of(&bytes, number));
            prop_assert_eq!(is_value_of(&bytes, other), number == other);
            bytes[at] ^= 1;
            prop_assert!(!is_value_of(&bytes, number));
        }

        #[test]
        fn a_draw_is_below_its_bound(seed: u64, bound in 1u64..) {
            prop_assert!(Random(seed).below(bound) < bound);
        }
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut buckets = [0u32; 16];
        (0..16_000).for_each(|number| buckets[usize::from(key(number)[0] >> 4)] += 1);
        assert!(buckets.iter().all(|count| (800..=1200).contains(count)), "{buckets:?}");
    }

    #[test]
    fn the_work_loads_overwrites_looks_up_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::builder(folder.path()).memory_budget(1 << 20).open().unwrap();
        let keyspace = db.keyspace(KEYSPACE, KeyspaceOptions::default()).unwrap();
        let (meter, board) = (Meter::default(), Board::default());
        let work = Work {
            keyspace: &keyspace,
            meter: &meter,
            board: &board,
            interrupt: &Interrupt::install().unwrap(),
            entries: 5000,
            length: Length { run: Duration::ZERO, overwriting_min: Duration::from_millis(300) },
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        };
        work.run().unwrap();
        let counts = work.counts();
        assert!(counts.puts > 5000 && counts.gets > 0, "{counts:?}");
        assert_eq!(meter.live_bytes(), 5000 * 116);
        assert_eq!(keyspace.iter().unwrap().count(), 5000);
        let text = summary(&db, counts, meter.live_bytes(), Duration::from_secs(1)).unwrap();
        assert!(text.contains("written per user byte"), "{text}");
    }
}
