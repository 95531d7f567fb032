//! How far a follower is behind its writer, and what the writer pays for it.
//!
//! `cargo run --release --example follow_lag -p esker -- FOLDER [PUTS_PER_SECOND] [SECONDS]` makes
//! a store in FOLDER, which must not exist, and writes it at that rate (100,000 a second for 10
//! seconds unless given; 0: as fast as it goes), once alone and once with a follower in a process
//! of its own, which catches up every 10 ms.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions};

type Failure = Box<dyn std::error::Error>;

const KEYS: u64 = 2_000_000;
const VALUE: [u8; 100] = [b'v'; 100];
const INTERVAL: Duration = Duration::from_millis(10);
/// The key whose value is the time of the last group of puts, in microseconds since 1970.
const TIME: &str = "time";
/// Between two looks of a reader at [`TIME`].
const LOOKS: Duration = Duration::from_millis(1);
/// Puts between two looks at the clock.
const GROUP: u64 = 100;

/// Microseconds since 1970.
fn now() -> Result<u64, Failure> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64)
}

/// Numbers of which half, and nine tenths, and 99 of 100 are smaller, and the greatest.
fn spread(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    let at = |share: f64| {
        let place = (numbers.len() as f64 * share) as usize;
        numbers.get(place.min(numbers.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    format!("median {}, 90 % {}, 99 % {}, most {}", at(0.5), at(0.9), at(0.99), at(1.0))
}

/// The age of the newest group of puts that a read sees, every millisecond, until `db` has no other
/// user.
fn look(db: &Arc<Db>, keyspace: &Keyspace) -> Vec<u64> {
    let mut ages = Vec::new();
    while Arc::strong_count(db) > 1 {
        std::thread::sleep(LOOKS);
        let value = keyspace.get(TIME).ok().flatten();
        let time = value.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?)));
        if let (Some(time), Ok(now)) = (time, now()) {
            ages.push(now.saturating_sub(time));
        }
    }
    ages
}

/// The process that follows, until its input ends.
fn follow(folder: &Path) -> Result<(), Failure> {
    let db = Arc::new(Db::builder(folder).follow(true).open()?);
    let keyspace = db.keyspace("all", KeyspaceOptions::default().index(IndexKind::Lsm))?;
    let looking = {
        let db = Arc::clone(&db);
        std::thread::spawn(move || look(&db, &keyspace))
    };
    println!("ready");
    let (mut behind, mut micros) = (Vec::new(), Vec::new());
    let ended = std::thread::spawn(|| std::io::stdin().lines().count());
    let mut begun = Instant::now();
    while !ended.is_finished() {
        std::thread::sleep(INTERVAL.saturating_sub(begun.elapsed()));
        let lag = db.lag()?.and_then(|lag| lag.operations).unwrap_or_default();
        begun = Instant::now();
        db.refresh()?;
        behind.push(lag);
        micros.push(begun.elapsed().as_micros() as u64);
    }
    println!("catching up takes µs: {}", spread(micros));
    println!("operations behind before it: {}", spread(behind));
    println!("memory of memtables: {} bytes", db.stats()?.memory.memtable_bytes);
    drop(db);
    let ages = looking.join().map_err(|_| "a thread has panicked")?;
    println!("age of the newest put that a read sees, µs: {}", spread(ages));
    Ok(())
}

/// Writes for `seconds`; prints the rate and the longest group.
fn write(db: &Db, rate: u64, seconds: u64) -> Result<(), Failure> {
    let options = KeyspaceOptions::default().index(IndexKind::Lsm);
    let keyspace = db.keyspace("all", options)?;
    let (begun, mut puts, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let group = Instant::now();
        for _ in 0..GROUP {
            let key = puts.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS;
            keyspace.insert(key.to_be_bytes(), VALUE)?;
            puts += 1;
        }
        keyspace.insert(TIME, now()?.to_be_bytes())?;
        longest = longest.max(group.elapsed());
        let due = Duration::from_micros((puts * 1_000_000).checked_div(rate).unwrap_or_default());
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let rate = puts as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} puts/s; the longest {GROUP} took {longest:?}");
    Ok(())
}

fn follower(folder: &Path) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let command = command.arg("--follow").arg(folder).stdin(Stdio::piped());
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| {
        arguments.get(place).map_or(Ok(default), |argument| argument.parse())
    };
    match arguments.first().map(String::as_str) {
        None => return Err("which FOLDER?".into()),
        Some("--follow") => return follow(Path::new(arguments.get(1).ok_or("which FOLDER?")?)),
        Some(_) => {}
    }
    let folder = Path::new(arguments.first().ok_or("which FOLDER?")?);
    let (rate, seconds) = (number(1, 100_000)?, number(2, 10)?);
    let db = Db::open(folder)?;
    println!("alone:");
    write(&db, rate, seconds)?;
    let mut child = follower(folder)?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    output.read_line(&mut String::new())?;
    println!("with a follower:");
    write(&db, rate, seconds)?;
    drop(child.stdin.take());
    for line in output.lines() {
        println!("  {}", line?);
    }
    std::io::stdout().flush()?;
    child.wait()?;
    db.close()?;
    Ok(())
}
