//! A store that is killed, or whose power is cut, again and again, and whose backups all go to one
//! folder: each of them, restored, is the store as it was, and so is a full backup of that moment.
//! A restored store has the same done to it.
//!
//! Values that lie outside blocks are removed and written over between two ends, so that new ones
//! come to the places of older ones, with which no backup may mix them.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, Durability, Error, IndexKind};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, SimDevice, SimImage, Survivors};

use super::{Held, Source, judge_backup};
use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::generations;
use crate::history::{self, By, Op, keyspace_name};
use crate::model::{Change, Model, Write};
use crate::random::Random;
use crate::recovery::{Depth, Expectation, Point, judge};
use crate::violation::{Oracle, Verdict, Violation};

/// Histories at budget 1.
const HISTORIES: u64 = 40;
/// The number of times that the store of a history is opened.
const LIVES: u64 = 4;
/// Operations before a backup, during it and after it.
const OPS: usize = 10;
const KEYS: u64 = 9;
/// Bytes of values: few lengths, so that one fits where another was; some of one piece, some of
/// several.
const VALUE_BYTES: [usize; 4] = [3_000, 30_000, 130_000, 200_000];

/// [`of_one_store`] of some seeds.
///
/// # Errors
/// The first difference.
pub fn histories(counts: &mut Counts) -> Verdict {
    for seed in 0..HISTORIES * budget() {
        for index in IndexKind::ALL {
            of_one_store(seed, index, counts)
                .map_err(|v| v.at(format!("seed {seed}, {index:?}")))?;
        }
    }
    Ok(())
}

/// One store from its creation on.
///
/// # Errors
/// The first difference.
pub fn of_one_store(seed: u64, index: IndexKind, counts: &mut Counts) -> Verdict {
    let random = Random::new(seed);
    let inline_bytes_max = Some(2_000);
    let config = Config {
        seed,
        index,
        inline_bytes_max,
        // Values are written long before a record of the manifest is.
        memtable_bytes: 16 << 10,
        ..Config::default()
    };
    let mut folder: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let (mut image, mut model) = (SimDevice::new().image(), Model::default());
    for life in 0..LIVES {
        let ended = one_life(&config, &image, model, (&random, &folder), counts)
            .map_err(|v| v.at(format!("life {life}")))?;
        let held;
        (image, model, held) = ended;
        if random.percent(25) {
            image = restored(&folder, counts)?;
            model = recover(&config, &image, &held, true)?;
            // Both would go on with the same numbers.
            folder = Arc::new(MemoryDevice::new());
        }
    }
    Ok(())
}

/// Opens the store, uses it and makes backups of it, and answers what a bad end leaves, and what
/// the last backup holds.
fn one_life(
    config: &Config,
    image: &SimImage,
    model: Model,
    (random, folder): (&Random, &Arc<dyn Device>),
    counts: &mut Counts,
) -> Verdict<(SimImage, Model, Held)> {
    let device = Arc::new(SimDevice::from_image(image));
    let mut source = Source::with(config, Arc::clone(&device) as _, model)?;
    source.apply(&[Op::Create(keyspace_name(0))])?;
    let mut last = Held::default();
    for _ in 0..2 {
        source.apply(&operations(random))?;
        let (held, _) = source.must_backup(folder, &operations(random))?;
        judge_backup(config, folder, &held, Depth::Once).map_err(|v| v.at("a later backup"))?;
        let full: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (held, _) = source.must_backup(&full, &[])?;
        judge_backup(config, &full, &held, Depth::Once).map_err(|v| v.at("a full backup"))?;
        let (held, _) = source.must_backup(folder, &[])?;
        judge_backup(config, folder, &held, Depth::Once).map_err(|v| v.at("of that moment"))?;
        last = held;
        counts.add("backups", 3);
    }
    source.apply(&operations(random))?;
    let held = source.held();
    let is_killed = random.percent(50);
    counts.add(if is_killed { "killed" } else { "power cuts" }, 1);
    let left = match is_killed {
        true => device.image(),
        false => device.crash(&Survivors::Random(random.bits()), &CrashModel::default()),
    };
    let model = recover(config, &left, &held, is_killed)?;
    Ok((left, model, last))
}

/// The contents of a store that is opened on a copy of `image`.
fn recover(config: &Config, image: &SimImage, held: &Held, is_killed: bool) -> Verdict<Model> {
    let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(image));
    generations::are_used_once(&device)?;
    let Held { model, point } = held;
    let durable = if is_killed { point.visible } else { point.durable };
    let now = Point { durable, ..point.clone() };
    let expectation = Expectation { model, now: &now, next: None, doubt: None };
    judge(config, &device, &expectation, Depth::Once).map(|recovered| recovered.model)
}

fn restored(folder: &Arc<dyn Device>, counts: &mut Counts) -> Verdict<SimImage> {
    let broken = |error: Error| Violation::new(Oracle::Opens, error.to_string());
    let device = Arc::new(SimDevice::new());
    let backup = Backup::open_on(Arc::clone(folder)).map_err(broken)?;
    let to: Arc<dyn Device> = Arc::clone(&device) as _;
    backup.restore_on(to, &mut |_| ControlFlow::Continue(())).map_err(broken)?;
    counts.add("restored", 1);
    Ok(device.image())
}

/// Values come, go and are written over; now and then merges drop them.
fn operations(random: &Random) -> Vec<Op> {
    let mut ops: Vec<_> = (0..OPS).map(|_| operation(random)).collect();
    if random.percent(40) {
        ops.insert(random.index(ops.len()), Op::Compact);
    }
    ops
}

fn operation(random: &Random) -> Op {
    let bytes = random.pick(&VALUE_BYTES).copied().unwrap_or_default();
    let write = match random.percent(35) {
        true => Write::Delete,
        false => Write::Put(random.bytes(bytes).into()),
    };
    let key = history::key(random.below(KEYS));
    let changes = vec![Change { keyspace: keyspace_name(0), key, write }];
    let durability = random.percent(15).then_some(Durability::Synced);
    Op::Commit { changes, durability, by: By::Single }
}
