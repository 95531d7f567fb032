//! Alternated systems: each run has a fresh copy of the loaded index, and what the machine does
//! meanwhile hits all systems.
//!
//! At each place first all throughputs are measured, then all latencies: with requests that come
//! at four fifths of the rate that the slowest system reached. (The papers measured at saturation;
//! the spare memory of DS lasts through its merges where updates are few.) Throughput counts to the
//! end of the merges, latencies until a merge has been seen to its end: see [`run`](super::run).

use std::path::Path;
use std::time::Instant;

use esker::Scheme;
use esker_lab_result::Metrics;
use serde_json::{Value, json};

use crate::experiment::{Series, Watch, go_on};
use crate::fdtree::run::{ANSWERED, Asked, WRITTEN, run};
use crate::fdtree::subject::{Setting, Subject, copy, load, name};
use crate::{Error, Result};

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Entries of the loaded index.
    pub preload: u64,
    /// Updates before the requests that count: nearly enough to fill the memtable. The first
    /// merge of a loaded index is a full one, so that each run has one soon.
    pub warm_up: u64,
    /// Requests of a run.
    pub requests: u64,
    /// γ.
    pub growth: u16,
    /// Memory of the memtable, in bytes; κ0 is what it holds.
    pub memtable_bytes: u64,
    /// Memory for blocks, fences and filters, in bytes.
    pub buffer_bytes: u64,
    /// Runs of each system at each place.
    pub repeats: u32,
}

/// A place on the axis.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its number on the axis.
    pub at: f64,
    /// W_l in percent.
    pub lookup_percent: u32,
    /// The sizes of a run there.
    pub sizes: Sizes,
}

const THROUGHPUT: &str = "throughput";
const LATENCIES: &str = "latencies";
const RATE: &str = "requests_per_second";
/// The share of the slowest system's throughput at which requests come where latencies count.
const LOAD: f64 = 0.8;

impl Place {
    fn asked(&self, seed: u64, rate: Option<f64>) -> Asked {
        Asked {
            seed,
            preload: self.sizes.preload,
            warm_up: self.sizes.warm_up,
            requests: self.sizes.requests,
            lookup_percent: self.lookup_percent,
            rate,
        }
    }
}

impl Sizes {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "preload": self.preload,
            "warm_up": self.warm_up,
            "requests": self.requests,
            "growth": self.growth,
            "memtable_bytes": self.memtable_bytes,
            "buffer_bytes": self.buffer_bytes,
            "repeats": self.repeats,
            "arrivals_over_slowest_throughput": LOAD,
        })
    }
}

/// Runs every system at every place, alternated.
///
/// # Errors
/// Those of the store and the system; [`Error::Interrupted`].
pub fn alternate(
    what: &str,
    schemes: &[Scheme],
    places: &[Place],
    watch: &mut dyn Watch,
) -> Result<Series> {
    let folder = temporary()?;
    let mut series = Series::default();
    for place in places {
        let sizes = &place.sizes;
        let loaded = folder.path().join(format!("loaded-{}", sizes.preload));
        if !loaded.exists() {
            load(&loaded, sizes.preload, sizes.growth, watch)?;
            watch.says(&format!("{what}: loaded {} entries", sizes.preload));
        }
        let mut rate = None;
        for what_counts in [THROUGHPUT, LATENCIES] {
            for run in 1..=sizes.repeats {
                for scheme in schemes {
                    go_on(watch)?;
                    let begun = Instant::now();
                    let seed = u64::from(run);
                    let asked = place.asked(seed, rate);
                    let metrics = one(folder.path(), &loaded, *scheme, sizes, &asked, watch)?;
                    let wanted = |name: &String| rate.is_none() == of_throughput(name);
                    let kept = metrics.into_iter().filter(|(name, _)| wanted(name)).collect();
                    series.add(name(*scheme), place.at, kept);
                    let (seconds, at) = (begun.elapsed().as_secs_f64(), place.at);
                    let (of, system) = (sizes.repeats, name(*scheme));
                    let line = format!("{system} at {at}, {what_counts}, run {run} of {of}");
                    watch.says(&format!("{what}: {line}: {seconds:.1} s"));
                }
            }
            rate = Some(LOAD * slowest(&series, place.at));
        }
    }
    Ok(series)
}

/// Whether a metric is taken from the runs whose requests come as fast as they can.
fn of_throughput(name: &str) -> bool {
    [RATE, ANSWERED, "cpu_seconds", "syncs", WRITTEN].contains(&name)
}

fn slowest(series: &Series, at: f64) -> f64 {
    let here = series.points.iter().filter(|point| point.at == at);
    here.filter_map(|point| point.value(RATE).ok()).fold(f64::INFINITY, f64::min)
}

fn one(
    folder: &Path,
    loaded: &Path,
    scheme: Scheme,
    sizes: &Sizes,
    asked: &Asked,
    watch: &dyn Watch,
) -> Result<Metrics> {
    let at = folder.join("run");
    copy(loaded, &at)?;
    let setting = Setting {
        scheme,
        growth: sizes.growth,
        memtable_bytes: sizes.memtable_bytes,
        buffer_bytes: sizes.buffer_bytes,
    };
    let subject = Subject::open(&at, &setting)?;
    let metrics = run(&subject, asked, watch)?;
    subject.close()?;
    std::fs::remove_dir_all(&at).map_err(Error::system("remove the index of a run"))?;
    Ok(metrics)
}

/// A folder that is removed when it is dropped.
///
/// # Errors
/// Those of the file system.
pub fn temporary() -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("esker-lab-").tempdir();
    made.map_err(Error::system("make a folder for the indexes"))
}
