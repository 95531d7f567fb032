//! The cost of a commit on a file system, next to the cost of its parts.
//!
//! `cargo run --release --example commit_cost -p esker-pages -- FOLDER [MiB]` works in FOLDER, with
//! a database of 64 MiB or as many as are said.

use std::time::{Duration, Instant};

use esker_device::file::FileDevice;
use esker_device::{Caching, Device, Open, Purpose};
use esker_pages::{Durability, Options, PageStore, Result, Writer};

const PAGE: usize = 4096;
const ROUNDS: usize = 3000;

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as u32 % bound
    }

    fn page(&mut self) -> Vec<u8> {
        let first = self.below(u32::MAX);
        let words = (0..PAGE as u32 / 4).map(|word| (first ^ word).wrapping_mul(0x9e37_79b9));
        words.flat_map(u32::to_le_bytes).collect()
    }
}

fn report(what: &str, mut times: Vec<Duration>, note: &str) {
    times.sort_unstable();
    let at = |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)];
    let micros = |time: Duration| time.as_micros();
    let (half, most) = (micros(at(500)), micros(at(1000)));
    println!(
        "{what:<44} p50 {half:>6} µs  p99 {:>6}  p99.9 {:>6}  max {most:>6}  {note}",
        micros(at(990)),
        micros(at(999)),
    );
}

fn timed(mut work: impl FnMut(usize) -> Result<()>) -> Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let start = Instant::now();
        work(round)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// What the file system takes for 4 KiB and a sync, where the file grows and where it does not.
fn plain(device: &FileDevice) -> Result<()> {
    let file = device.open("plain", Open::CreateNew, Caching::Buffered)?;
    let mut write = |round: usize| {
        file.write_at((round * PAGE) as u64, &[round as u8; PAGE], Purpose::User)?;
        Ok(file.sync(Purpose::User)?)
    };
    report("4 KiB + sync, the file grows", timed(&mut write)?, "");
    report("4 KiB + sync, written before", timed(&mut write)?, "");
    let mut random = Random(5);
    for places in [2, 4, 8] {
        let mut write = |_| {
            for _ in 0..places {
                let at = u64::from(random.below(ROUNDS as u32)) * PAGE as u64;
                file.write_at(at, &[random.below(256) as u8; PAGE], Purpose::User)?;
            }
            Ok(file.sync(Purpose::User)?)
        };
        report(&format!("{places} × 4 KiB + sync, written before"), timed(&mut write)?, "");
    }
    drop(file);
    Ok(device.remove("plain")?)
}

fn commits(
    store: &PageStore,
    what: &str,
    durability: Durability,
    mut change: impl FnMut(&mut Writer, usize) -> Result<()>,
) -> Result<()> {
    let before = store.stats();
    let times = timed(|round| {
        let mut writer = store.begin(&store.pin())?;
        change(&mut writer, round)?;
        writer.commit(durability).map(drop)
    })?;
    let after = store.stats();
    let each = |after: u64, before: u64| (after - before) as f64 / ROUNDS as f64;
    let note = format!(
        "{:.0} B and {:.2} syncs a commit, {} checkpoints, file {} MiB",
        each(after.written.total(), before.written.total()),
        each(after.syncs, before.syncs),
        after.checkpoints - before.checkpoints,
        after.file_bytes >> 20,
    );
    report(what, times, &note);
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("say which folder to work in")?;
    let pages = arguments.next().map_or(Ok(64), |mib| mib.parse::<u32>())? * 256;
    let device = FileDevice::create(folder)?;
    plain(&device)?;
    let file = device.open("pages", Open::CreateNew, Caching::Buffered)?;
    let store = PageStore::open(file, Options::new())?;
    let mut random = Random(88_172_645_463_325_252);
    let start = Instant::now();
    let mut writer = store.begin(&store.pin())?;
    for page in 0..pages {
        writer.write(page, 0, &random.page())?;
    }
    writer.commit(Durability::Full)?;
    println!("{pages} pages in one transaction: {:?}", start.elapsed());

    let counter = |writer: &mut Writer, round: usize| {
        writer.write(0, 24, &(round as u32).to_be_bytes())?;
        writer.write(0, 92, &(round as u32).to_be_bytes())
    };
    let small = |writer: &mut Writer, random: &mut Random, count: usize| {
        (0..count).try_for_each(|_| {
            let (page, offset) = (random.below(pages), random.below(4000));
            writer.write(page, offset, &random.below(u32::MAX).to_le_bytes().repeat(24))
        })
    };
    let full = Durability::Full;
    commits(&store, "1 page whole, the counter", full, |writer, round| {
        writer.write(random.below(pages), 0, &random.page())?;
        counter(writer, round)
    })?;
    commits(&store, "6 rows of 96 bytes, the counter", full, |writer, round| {
        small(writer, &mut random, 6)?;
        counter(writer, round)
    })?;
    commits(&store, "2 pages whole, 4 rows, the counter", full, |writer, round| {
        for _ in 0..2 {
            writer.write(random.below(pages), 0, &random.page())?;
        }
        small(writer, &mut random, 4)?;
        counter(writer, round)
    })?;
    commits(&store, "the same, relaxed", Durability::Relaxed, |writer, round| {
        for _ in 0..2 {
            writer.write(random.below(pages), 0, &random.page())?;
        }
        small(writer, &mut random, 4)?;
        counter(writer, round)
    })?;
    let start = Instant::now();
    store.close()?;
    println!("closing: {:?}", start.elapsed());
    let file = device.open("pages", Open::Existing, Caching::Buffered)?;
    let start = Instant::now();
    let store = PageStore::open(file, Options::new())?;
    println!("opening: {:?}, {:?}", start.elapsed(), store.check()?);
    drop(store);
    device.remove("pages")?;
    Ok(())
}
