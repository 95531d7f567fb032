//! What it costs that processes share a store: commits of one process, of one that could share, and
//! of several that take turns.
//!
//! `cargo run --release --example share_cost -p esker-pages -- FOLDER`

#![expect(clippy::unwrap_used, reason = "a measurement ends where it fails")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_pages::{Durability, Error, Missing, Options, Processes, StoreFile};

/// For how long each process commits.
const TIME: Duration = Duration::from_secs(3);
/// Pages that each transaction changes.
const PAGES: u32 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, folder] => compare(Path::new(folder)),
        [_, path, kind, durability] => work(Path::new(path), kind, durability),
        _ => println!("give a folder"),
    }
}

fn compare(folder: &Path) {
    for durability in ["full", "relaxed"] {
        for (kind, count) in [("one", 1), ("many", 1), ("many", 2), ("many", 4)] {
            let path = folder.join("share_cost");
            let _absent = std::fs::remove_file(&path);
            let children: Vec<_> = (0..count).map(|_| start(&path, kind, durability)).collect();
            println!("{durability}, {count} of {kind}:");
            for child in children {
                let said = child.wait_with_output().unwrap();
                print!("    {}", String::from_utf8_lossy(&said.stdout));
            }
        }
    }
}

fn start(path: &Path, kind: &str, durability: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(path).args([kind, durability]).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Commits for a while, and says how often and how long the slowest took.
fn work(path: &Path, kind: &str, durability: &str) {
    let processes = if kind == "many" { Processes::Many } else { Processes::One };
    let options = Options::default().processes(processes);
    let file = StoreFile::open(path, Missing::Create, options).unwrap();
    let durability = if durability == "full" { Durability::Full } else { Durability::Relaxed };
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < TIME {
        let began = Instant::now();
        while !commit(&file, times.len() as u32, durability) {}
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let of = |part: usize| times.get(times.len().saturating_sub(1) * part / 1000).copied();
    let (half, slow, slowest) = (of(500), of(990), of(1000));
    println!("{} commits, {half:?} half, {slow:?} 99 %, {slowest:?} the slowest", times.len());
    file.close().unwrap();
}

/// One transaction; `false` where another process has committed since it began.
fn commit(file: &StoreFile, number: u32, durability: Durability) -> bool {
    let mut writer = match file.store.begin(&file.store.pin()) {
        Err(Error::Stale { .. }) => return false,
        writer => writer.unwrap(),
    };
    for page in 0..PAGES {
        let bytes = [number as u8; 4096];
        writer.write(number.wrapping_mul(977 + page) % 10_000, 0, &bytes).unwrap();
    }
    writer.commit(durability).unwrap();
    true
}
