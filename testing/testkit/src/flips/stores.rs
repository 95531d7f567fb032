//! Small stores in every state that bytes can rot in.

use std::sync::Arc;

use esker::{Compression, Db, History, IndexKind, Merge, Scheme};
use esker_device::Device;

use super::verdict::Held;
use crate::config::Config;
use crate::history::{KeyOrder, Op, Profile, Weights, generate};
use crate::image::{Image, ImageDevice};
use crate::model::Model;
use crate::recovery::Point;
use crate::session::{Outcome, Session};
use crate::violation::{Oracle, Verdict, Violation};

/// A store's files, and what they hold.
#[derive(Debug)]
pub struct Specimen {
    /// Its name in reports.
    pub name: &'static str,
    /// The options with which it is opened.
    pub config: Config,
    /// Its files.
    pub image: Image,
    /// Its files earlier in its life.
    pub older: Image,
    /// Every version ever written.
    pub model: Model,
    /// The state that it is known to have; `durable` is the least that damage may leave.
    pub point: Point,
}

impl Specimen {
    /// The contents before any damage.
    #[must_use]
    pub const fn held(&self) -> Held<'_> {
        Held { config: &self.config, model: &self.model, point: &self.point }
    }
}

/// All stores.
///
/// # Errors
/// When one cannot be made.
pub fn all() -> Verdict<Vec<Specimen>> {
    Ok(vec![
        clean()?,
        dirty_log()?,
        versions()?,
        levels()?,
        sorted_runs()?,
        compressed()?,
        packed()?,
    ])
}

/// Loaded, merged and closed.
///
/// # Errors
/// When it cannot be made.
pub fn clean() -> Verdict<Specimen> {
    let mut ops = generate(&profile(260), 21);
    ops.push(Op::Compact);
    ops.extend(generate(&profile(20), 22));
    make("clean", &ops, &[], true)
}

/// Killed with its newest commits only in the log: most of them synced, the last ones not.
///
/// # Errors
/// When it cannot be made.
pub fn dirty_log() -> Verdict<Specimen> {
    let mut ops = generate(&profile(120), 23);
    ops.push(Op::Flush);
    ops.extend(generate(&profile(14), 24));
    ops.push(Op::Persist);
    let unsynced = Profile { synced_percent: 0, ..profile(4) };
    make("dirty log", &ops, &generate(&unsynced, 25), false)
}

/// New: some keys, in the log alone.
///
/// # Errors
/// When it cannot be made.
pub fn young() -> Verdict<Specimen> {
    let mut ops = generate(&profile(12), 51);
    ops.push(Op::Persist);
    make("young", &ops, &[], false)
}

/// Merged while snapshots were open, so that it holds many versions of its keys.
///
/// # Errors
/// When it cannot be made.
pub fn versions() -> Verdict<Specimen> {
    let mut ops = Vec::new();
    for seed in 26..29 {
        ops.extend(generate(&Profile { keys: 60, ..profile(80) }, seed));
        ops.push(Op::OpenSnapshot);
        ops.push(Op::Compact);
    }
    make("versions", &ops, &[], false)
}

/// A keyspace with history, of which the live entries have been copied several times.
///
/// # Errors
/// When it cannot be made.
pub fn past_indexes() -> Verdict<Specimen> {
    let profile = Profile { keys: 30, expiring: (0, 100), ..profile(260) };
    let ops = generate(&profile, 53);
    let config =
        Config { history: Some(History::All), memtable_bytes: 1 << 10, ..config("past indexes") };
    make_with("past indexes", config, &ops, &[], false)
}

/// Levels of several depths.
///
/// # Errors
/// When it cannot be made.
pub fn levels() -> Verdict<Specimen> {
    levels_of("levels", 400)
}

/// Levels of which one leads to the next: a block of the first to one of the second, and that to
/// nine of the third.
///
/// # Errors
/// When it cannot be made.
pub fn levels_in_a_row() -> Verdict<Specimen> {
    levels_of("levels in a row", 300)
}

fn levels_of(name: &'static str, loaded: usize) -> Verdict<Specimen> {
    let profile = Profile { keys: 400, order: KeyOrder::Ascending, ..profile(loaded) };
    let mut ops = generate(&profile, 29);
    ops.extend(generate(&Profile { ops: 60, order: KeyOrder::Random, ..profile }, 30));
    make(name, &ops, &[], true)
}

/// An LSM index of several hundred keys, some of them deleted, with runs that have lost keys.
///
/// # Errors
/// When it cannot be made.
pub fn slices() -> Verdict<Specimen> {
    let profile = Profile { keys: 300, ..profile(400) };
    let mut ops = generate(&profile, 49);
    ops.push(Op::OpenSnapshot);
    ops.extend(generate(&Profile { ops: 120, ..profile }, 50));
    let config = Config { index: IndexKind::Lsm, ..config("slices") };
    make_with("slices", config, &ops, &[], true)
}

/// Sorted runs above the levels, and tombstones.
///
/// # Errors
/// When it cannot be made.
pub fn sorted_runs() -> Verdict<Specimen> {
    let mut ops = generate(&profile(150), 31);
    ops.push(Op::Compact);
    for seed in 32..36 {
        ops.extend(generate(&profile(16), seed));
        ops.push(Op::Flush);
    }
    make("sorted_runs", &ops, &[], true)
}

/// Loaded and merged with LZ4, closed.
///
/// # Errors
/// When it cannot be made.
pub fn compressed() -> Verdict<Specimen> {
    with_codec("compressed", Compression::Lz4)
}

/// The same with Zstandard.
///
/// # Errors
/// When it cannot be made.
pub fn packed() -> Verdict<Specimen> {
    with_codec("packed", Compression::Zstd)
}

/// Blobs, some of them in the log alone.
///
/// # Errors
/// When it cannot be made.
pub fn blobs() -> Verdict<Specimen> {
    let profile = Profile { value_bytes: 8..=3000, keys: 20, ..profile(30) };
    let mut ops = generate(&profile, 43);
    ops.extend([Op::Compact, Op::Persist]);
    ops.extend(generate(&Profile { ops: 10, ..profile }, 44));
    let config = Config { inline_bytes_max: Some(60), ..config("blobs") };
    make_with("blobs", config, &ops, &[], true)
}

/// Values so long that blocks are whole sectors and share their units with others.
///
/// # Errors
/// When it cannot be made.
pub fn long_values() -> Verdict<Specimen> {
    let profile = Profile { value_bytes: 300..=5_000, keys: 20, ..profile(30) };
    let mut ops = generate(&profile, 55);
    ops.extend([Op::Compact, Op::Persist]);
    ops.extend(generate(&Profile { ops: 10, ..profile }, 56));
    make("long values", &ops, &[], true)
}

/// Operands in the log, in sorted runs, and under snapshots in the level below.
///
/// # Errors
/// When it cannot be made.
pub fn operands() -> Verdict<Specimen> {
    let profile = Profile { keys: 40, appending_percent: 70, ..profile(60) };
    let mut ops = generate(&profile, 45);
    ops.extend([Op::OpenSnapshot, Op::Flush]);
    ops.extend(generate(&profile, 46));
    ops.push(Op::Compact);
    ops.extend(generate(&Profile { ops: 20, ..profile.clone() }, 47));
    ops.extend([Op::Flush, Op::Persist]);
    ops.extend(generate(&Profile { ops: 10, ..profile }, 48));
    let config = Config { merge: Some(Merge::Append), ..config("operands") };
    make_with("operands", config, &ops, &[], false)
}

fn with_codec(name: &'static str, compression: Compression) -> Verdict<Specimen> {
    let profile = Profile { value_bytes: 8..=240, ..profile(150) };
    let mut ops = generate(&profile, 41);
    ops.push(Op::Compact);
    ops.extend(generate(&Profile { ops: 20, ..profile }, 42));
    let config = Config { compression, ..config(name) };
    make_with(name, config, &ops, &[], true)
}

/// Killed within a full merge, behind a record of its progress.
///
/// # Errors
/// When it cannot be made: by a scheme that records none.
pub fn mid_merge(scheme: Scheme) -> Verdict<Specimen> {
    let name = match scheme {
        Scheme::Fc => "merging",
        Scheme::FcUnshared => "merging, unshared",
        Scheme::FcTuple => "merging by tuples",
        _ => "merging otherwise",
    };
    let mut ops = generate(&Profile { keys: 400, ..profile(900) }, 37);
    ops.push(Op::Persist);
    let config = Config { scheme, ..config(name) };
    make_until(name, &config, &ops, |session, image| {
        let merges = |db: &Db| {
            let stats = db.stats().unwrap_or_default();
            stats.keyspaces.iter().any(|k| k.merge.as_ref().is_some_and(|merge| merge.full))
        };
        let device: Arc<dyn Device> = Arc::new(ImageDevice::new(&image()));
        let recovered = || config.open(&device).is_ok_and(|db| merges(&db));
        session.db().is_some_and(merges) && recovered()
    })
}

fn profile(ops: usize) -> Profile {
    let weights = Weights { insert: 10, remove: 2, batch: 1, ..Weights::default() };
    Profile {
        ops,
        keys: 120,
        value_bytes: 8..=60,
        expiring: (10, 1000),
        synced_percent: 5,
        weights,
        ..Profile::default()
    }
}

/// Runs `ops`, then `tail`, of which nothing need survive, and takes the files.
fn make(name: &'static str, ops: &[Op], tail: &[Op], close: bool) -> Verdict<Specimen> {
    make_with(name, config(name), ops, tail, close)
}

fn make_with(
    name: &'static str,
    config: Config,
    ops: &[Op],
    tail: &[Op],
    close: bool,
) -> Verdict<Specimen> {
    let device = ImageDevice::new(&Image::default());
    let harness = |error: esker::Error| Violation::new(Oracle::Harness, error.to_string()).at(name);
    let session = Session::open(&config, Arc::new(device.clone()), Model::default());
    let mut session = session.map_err(harness)?;
    let mut older = Image::default();
    let ops_in_all = ops.len() + tail.len();
    for (at, op) in ops.iter().chain(tail).enumerate() {
        if at == ops_in_all * 3 / 4 {
            older = device.image();
        }
        if let Outcome::Failed(error) = session.apply(op)? {
            return Err(harness(error));
        }
    }
    let mut point = session.point();
    if close {
        session.close().map_err(harness)?;
        let model = session.into_model();
        point.durable = point.visible;
        let image = device.image();
        return Ok(Specimen { name, config, image, older, model, point });
    }
    // The files as a killed process leaves them.
    let image = device.image();
    let model = session.model().clone();
    Ok(Specimen { name, config, image, older, model, point })
}

/// Every store has an identity of its own.
fn config(name: &str) -> Config {
    Config { seed: name.bytes().map(u64::from).sum(), ..Config::default() }
}

/// Runs `ops` until `enough`, which is asked from the middle on, and takes the files as a killed
/// process leaves them.
fn make_until(
    name: &'static str,
    config: &Config,
    ops: &[Op],
    enough: impl Fn(&Session, &dyn Fn() -> Image) -> bool,
) -> Verdict<Specimen> {
    let device = ImageDevice::new(&Image::default());
    let harness = |what: String| Violation::new(Oracle::Harness, what).at(name);
    let session = Session::open(config, Arc::new(device.clone()), Model::default());
    let mut session = session.map_err(|error| harness(error.to_string()))?;
    let mut older = Image::default();
    for (at, op) in ops.iter().enumerate() {
        if let Outcome::Failed(error) = session.apply(op)? {
            return Err(harness(error.to_string()));
        }
        if at == ops.len() / 3 {
            older = device.image();
        }
        if at > ops.len() / 2 && enough(&session, &|| device.image()) {
            let (point, model) = (session.point(), session.model().clone());
            let (config, image) = (config.clone(), device.image());
            return Ok(Specimen { name, config, image, older, model, point });
        }
    }
    Err(harness("the state was never reached".into()))
}
