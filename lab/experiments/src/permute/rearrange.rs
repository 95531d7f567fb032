//! `esker bench permute`: arrays rearranged, next to the copy of the same file and next to the
//! alternatives that people use.
//!
//! Systems take turns, each from a page cache without the array, as far as the system lets one
//! empty it, and each ends with its file synced. The bar is measured by the faster of two copies:
//! `dd` in direct requests of 8 MiB, and the executor with a pattern that changes nothing.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use esker_lab_measure::process::machine;
use esker_lab_result::{Findings, Metrics, Part, Verdict};
use esker_permute::baselines::{Turn, cached, sorted, tiled};
use esker_permute::device_profile;
use esker_permute::file::File;
use esker_permute::job::{Job, Request};
use esker_permute::npy::Header;
use esker_permute::plan::price::Mode;
use serde_json::{Map, Value, json};

use super::cases::Case;
use crate::{Error, Result};

/// The least memory of a copy: a floor is not to suffer from what the case allows.
const COPY_MEMORY: u64 = 64 << 20;

/// Arrays above this number of bytes are worth an empty page cache.
const LARGE: u64 = 64 << 20;

/// The program that makes the result, or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// `dd bs=8M iflag=direct oflag=direct conv=fsync`.
    Dd,
    /// The executor, with a pattern that changes nothing.
    Copy,
    /// The system that is measured.
    Esker,
    /// A loop over the best tiles, sixteen requests in flight.
    Tiled,
    /// An external merge sort.
    Sorted,
    /// Record by record through a cache of blocks.
    Cached,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Dd, Self::Copy, Self::Esker, Self::Tiled, Self::Sorted, Self::Cached];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dd => "dd",
            Self::Copy => "copy",
            Self::Esker => "esker",
            Self::Tiled => "tiled",
            Self::Sorted => "sort",
            Self::Cached => "lru",
        }
    }

    /// The system of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.as_str() == name)
    }
}

/// The cases, systems and rounds that are measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// The systems, in their turns.
    pub systems: Vec<System>,
    /// Rounds of turns.
    pub rounds: u32,
    /// An empty folder; twice the largest array fits there.
    pub folder: PathBuf,
}

/// The metric of every system.
pub const SECONDS: &str = "seconds";
/// Passes of Esker's plan.
pub const PASSES: &str = "passes";
/// Bytes of Esker's buffers, at most.
const PEAK: &str = "peak_buffer_bytes";

/// The median of a system in a case, in seconds.
#[must_use]
pub fn seconds(found: Part<'_>, system: System) -> Option<f64> {
    found.median(system.as_str(), SECONDS)
}

/// The faster copy, in seconds.
#[must_use]
pub fn floor(found: Part<'_>) -> Option<f64> {
    let (dd, copy) = (seconds(found, System::Dd), seconds(found, System::Copy));
    dd.into_iter().chain(copy).min_by(f64::total_cmp)
}

/// The time that Esker took, over that of the faster copy.
fn ratio(found: Part<'_>) -> Option<f64> {
    Some(seconds(found, System::Esker)? / floor(found)?)
}

/// Measures; `tell` hears what is done, and says whether to go on. Each case is a part of what is
/// found.
///
/// # Errors
/// Those of the system; [`Error::Interrupted`].
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&str) -> bool) -> Result<Findings> {
    let mut found = Findings::of("permute", "arrays rearranged, compared with copies");
    found.machine = machine();
    found.set("rounds", plan.rounds);
    found.set("cases", plan.cases.iter().map(settings).collect::<Map<_, _>>());
    let mut made: Option<(&'static [u64], PathBuf)> = None;
    for case in &plan.cases {
        let source = plan.folder.join("array.npy");
        if made.as_ref().is_none_or(|(sizes, _)| *sizes != case.sizes) {
            go_on(tell(&format!("making {} MiB for {}", case.bytes() >> 20, case.name)))?;
            make(&source, case.sizes)?;
            made = Some((case.sizes, source.clone()));
        }
        measure(plan, *case, &source, &mut found, tell)?;
        let ratio = ratio(found.part(case.name));
        let bar = Verdict::at_most("seconds over the faster copy's", ratio, case.must);
        found.verdicts.push(Verdict { part: Some(case.name.to_owned()), ..bar });
    }
    if let Some((_, source)) = made {
        let _gone = fs::remove_file(source);
    }
    Ok(found)
}

/// The name of a case, and what it asks for.
fn settings(case: &Case) -> (String, Value) {
    let settings = json!({
        "pattern": case.pattern,
        "sizes": case.sizes,
        "memory_bytes": case.memory_bytes(),
        "aim": case.aim,
    });
    (case.name.to_owned(), settings)
}

fn go_on(answer: bool) -> Result<()> {
    if answer { Ok(()) } else { Err(Error::Interrupted) }
}

fn failed(error: esker_permute::error::Error) -> Error {
    Error::Run(error.to_string())
}

/// An array of float64 that no device can compress.
fn make(path: &Path, sizes: &[u64]) -> Result<()> {
    let header =
        Header { descr: "<f8".to_owned(), item_bytes: 8, is_fortran: false, shape: sizes.to_vec() };
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(&header.encode())?;
        let mut state = 1_u64;
        let mut buffer = vec![0; 1 << 20];
        let mut left = sizes.iter().product::<u64>() * 8;
        while left > 0 {
            for chunk in buffer.chunks_exact_mut(8) {
                state =
                    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                chunk.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
            }
            let now = usize::try_from(left.min(1 << 20)).unwrap_or(buffer.len());
            file.write_all(&buffer[..now])?;
            left -= now as u64;
        }
        file.sync_all()
    };
    write().map_err(Error::system(format!("make {}", path.display())))
}

fn measure(
    plan: &Plan,
    case: Case,
    source: &Path,
    found: &mut Findings,
    tell: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    for round in 1..=plan.rounds {
        for system in &plan.systems {
            let is_turn = matches!(system, System::Tiled | System::Sorted | System::Cached);
            if is_turn && case.order.is_none() {
                continue;
            }
            forget(source)?;
            let target = plan.folder.join("made.raw");
            let begun = Instant::now();
            let mut run = one(*system, source, &target, case)?;
            let seconds = begun.elapsed().as_secs_f64();
            fs::remove_file(&target).map_err(Error::system("remove what was made"))?;
            let line = format!("{} {round}: {} {seconds:.2} s", case.name, system.as_str());
            run.insert(SECONDS.to_owned(), seconds);
            found.add(Some(case.name), system.as_str(), None, run);
            go_on(tell(&line))?;
        }
    }
    Ok(())
}

/// Has the page cache forget the array; and everything, where the system allows that and the array
/// is large enough to be worth it.
fn forget(source: &Path) -> Result<()> {
    let file = File::open(source).map_err(failed)?;
    file.forget();
    if file.len() > LARGE {
        let _needs_root = fs::write("/proc/sys/vm/drop_caches", "3");
    }
    Ok(())
}

/// Makes one file, and answers its counts, without the time.
fn one(system: System, source: &Path, target: &Path, case: Case) -> Result<Metrics> {
    let turn = || Turn {
        source: source.to_owned(),
        start: 128,
        sizes: case.sizes.to_vec(),
        order: case.order.unwrap_or_default().to_vec(),
        record: 8,
        target: target.to_owned(),
        memory: case.memory_bytes(),
    };
    match system {
        System::Dd => dd(source, target)?,
        System::Copy => rearrange(&case.copy_pattern(), source, target, case).map(drop)?,
        System::Esker => {
            let (passes, peak_bytes) = rearrange(case.pattern, source, target, case)?;
            let counts = [(PASSES, passes as f64), (PEAK, peak_bytes as f64)];
            return Ok(counts.map(|(name, value)| (name.to_owned(), value)).into());
        }
        System::Tiled => tiled::run(&turn()).map_err(failed)?,
        System::Sorted => sorted::run(&turn()).map_err(failed)?,
        System::Cached => cached::run(&turn()).map_err(failed)?,
    }
    Ok(Metrics::new())
}

fn dd(source: &Path, target: &Path) -> Result<()> {
    let named = |name: &str, path: &Path| format!("{name}={}", path.display());
    let status = Command::new("dd")
        .args([named("if", source), named("of", target)])
        .args(["bs=8M", "iflag=direct", "oflag=direct", "conv=fsync"])
        .stderr(Stdio::null())
        .status()
        .map_err(Error::system("start dd"))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Run("dd failed: is there direct I/O in this folder? --dir names another".to_owned()))
}

/// Answers the number of passes and the most bytes of buffers.
fn rearrange(pattern: &str, source: &Path, target: &Path, case: Case) -> Result<(usize, u64)> {
    let mut request = Request::new(source, pattern, target);
    if let Some(profile) = device_profile::load() {
        request.mode = Mode::Seconds(profile);
    }
    request.memory = case.memory_bytes();
    if pattern == case.pattern {
        request.sizes = case.names.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
    } else {
        request.memory = request.memory.max(COPY_MEMORY);
    }
    let report = Job::new(request).and_then(|job| job.run(&mut |_| true)).map_err(failed)?;
    Ok((report.passes.len(), report.peak_buffer_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permute::cases;

    #[test]
    fn every_case_runs_small_and_every_system_makes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            cases: cases::ALL.iter().map(|case| case.shrunk()).collect(),
            systems: System::ALL.into_iter().filter(|system| *system != System::Dd).collect(),
            rounds: 1,
            folder: folder.path().to_owned(),
        };
        let mut lines = 0;
        let found = run(&plan, &mut |_| {
            lines += 1;
            true
        });
        let found = found.unwrap();
        assert_eq!(found.verdicts.len(), 6);
        let passes = |case: &Case| found.part(case.name).median("esker", PASSES);
        assert!(plan.cases.iter().all(|case| passes(case) >= Some(1.0)));
        assert!(found.verdicts.iter().all(|verdict| verdict.value.is_some()));
        let tiles = found.part(plan.cases[4].name).measured().count();
        assert_eq!(tiles, 2, "no other system makes short tiles");
        assert!(lines > 25 && fs::read_dir(folder.path()).unwrap().next().is_none());
        assert!(matches!(run(&plan, &mut |_| false), Err(Error::Interrupted)));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let mut found = Findings::default();
        for (system, seconds) in
            [("dd", 3.0), ("dd", 1.0), ("dd", 2.0), ("esker", 3.0), ("esker", 4.0)]
        {
            found.add(Some("a1"), system, None, Metrics::from([(SECONDS.to_owned(), seconds)]));
        }
        let part = found.part("a1");
        assert_eq!((seconds(part, System::Dd), ratio(part)), (Some(2.0), Some(1.75)));
        assert_eq!(seconds(part, System::Tiled), None);
    }
}
