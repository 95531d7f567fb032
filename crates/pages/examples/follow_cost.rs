//! The cost of a process that follows the log of another, and of its reads.
//!
//! `cargo run --release --example follow_cost -p esker-pages -- FOLDER [MiB]` works in FOLDER, with
//! a database of 1 GiB or as many MiB as are said. Both stores are in this process; the file and
//! the meeting file are real.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_device::file::FileDevice;
use esker_device::shared::SharedFile;
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_pages::{Durability, MEETING_BYTES, Options, PageStore, Result};

const PAGE: usize = 4096;
const READS: u32 = 1_000_000;
const COMMITS: u32 = 20_000;

fn file(folder: &Path, open: Open) -> Result<Arc<dyn DeviceFile>> {
    Ok(FileDevice::open(folder)?.open("follow_cost.pages", open, Caching::Buffered)?)
}

fn meeting(folder: &Path) -> Result<Arc<SharedFile>> {
    Ok(Arc::new(SharedFile::open(&folder.join("follow_cost.meeting"), MEETING_BYTES)?))
}

/// Commits that change 8 bytes of a page each, to these numbers.
fn commit(leader: &PageStore, pages: u32, numbers: Range<u32>) -> Result<()> {
    for number in numbers {
        let mut writer = leader.begin(&leader.pin())?;
        let page = number.wrapping_mul(2_654_435_761) % pages;
        writer.write(page, 64, &u64::from(number).to_le_bytes())?;
        writer.commit(Durability::Relaxed)?;
    }
    Ok(())
}

fn nanos_each(time: Duration, count: u32) -> u128 {
    time.as_nanos() / u128::from(count)
}

fn run(folder: &Path, mib: u32) -> Result<()> {
    let pages = mib * 256;
    let options = Options { checkpoint_bytes: 1 << 30, ..Options::new() };
    let options = Options { relaxed_interval: None, delta_bytes: 1 << 30, ..options };
    let leader =
        PageStore::open_leader(file(folder, Open::CreateNew)?, options.clone(), meeting(folder)?)?;
    for first in (0..pages).step_by(1024) {
        let mut writer = leader.begin(&leader.pin())?;
        for page in first..(first + 1024).min(pages) {
            let bytes: Vec<u8> = page.to_le_bytes().into_iter().cycle().take(PAGE).collect();
            writer.write(page, 0, &bytes)?;
        }
        writer.commit(Durability::Relaxed)?;
    }
    leader.checkpoint()?;
    let begun = Instant::now();
    let follower =
        PageStore::open_follower(file(folder, Open::Existing)?, options, meeting(folder)?)?;
    println!("loading {mib} MiB: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    for (who, store) in [("writer", &leader), ("follower", &follower)] {
        let begun = Instant::now();
        for _ in 0..READS {
            drop(store.begin_read()?);
        }
        let each = nanos_each(begun.elapsed(), READS);
        println!("a read that begins and ends, without news, {who}: {each} ns");
    }
    commit(&leader, pages, 1..COMMITS)?;
    let begun = Instant::now();
    drop(follower.begin_read()?);
    let rate = f64::from(COMMITS) / begun.elapsed().as_secs_f64();
    println!("catching up {COMMITS} commits at once: {rate:.0} commits/s");
    let mut behind = Duration::ZERO;
    for number in COMMITS..2 * COMMITS {
        commit(&leader, pages, number..number + 1)?;
        let begun = Instant::now();
        drop(follower.begin_read()?);
        behind += begun.elapsed();
    }
    println!("catching up one commit: {} ns", nanos_each(behind, COMMITS));
    commit(&leader, pages, 0..100)?;
    leader.checkpoint()?;
    let begun = Instant::now();
    drop(follower.begin_read()?);
    println!("catching up a checkpoint: {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);
    for turn in 1..3 {
        commit(&leader, pages, 100 * turn..100 * turn + 100)?;
        leader.checkpoint()?;
    }
    let begun = Instant::now();
    drop(follower.begin_read()?);
    println!("loading again, two checkpoints late: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("say a folder")?;
    let mib = arguments.next().map_or(Ok(1024), |mib| mib.parse())?;
    let folder = Path::new(&folder);
    let outcome = run(folder, mib);
    for name in ["follow_cost.pages", "follow_cost.meeting"] {
        let _gone = std::fs::remove_file(folder.join(name));
    }
    Ok(outcome?)
}
