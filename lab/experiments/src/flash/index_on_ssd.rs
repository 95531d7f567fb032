//! Both index kinds on a simulated SSD: bytes of the user, of the store, and of the flash.
//!
//! An SSD writes more than it is given, by a factor that grows as spare space shrinks: garbage
//! collection copies what is valid in the blocks that it reclaims. A store that writes and frees
//! large extents leaves blocks with little that is valid. The control overwrites single pages at
//! random, as many of them as the store has in use, on the same device: for it there is a closed
//! form.
//!
//! With placement, the device is told the purpose of each write, and has an open block in each die
//! for each of five streams. Four blocks of each die come on top for that: the logical pages and
//! the spare space stay the same. Two controls have the same blocks. In one, there is one stream,
//! and the four blocks are more spare space. In the other, there are five streams, and each page
//! goes to one of them at random.
//!
//! Merges run to their end in the thread that writes, and time and randomness are simulated, so
//! that what is counted is the same on every machine. The device has a page-mapped layer with
//! greedy collection. Its logical pages are a multiple of the user's bytes.

use std::sync::Arc;

use esker::{Db, IndexKind, KeyspaceOptions, SimRuntime};
use esker_device::Purpose;
use esker_device::memory::MemoryDevice;
use esker_flash::ftl::{Ftl, Options, PageMapped, Stream};
use esker_flash::nand::{Geometry, Lpn, NandSim, Sizes};
use esker_flash::placement::Placement;
use esker_flash::ssd::{SsdDevice, SsdReport};
use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::{Random, entry};
use serde_json::{Value, json};

use crate::experiment::{Experiment, Prediction, Series, Watch, go_on, metric};
use crate::{Error, Result};

const FD_TREE: &str = "FD+tree";
const LSM: &str = "LSM";
/// The control.
const RANDOM: &str = "random pages";
/// The indexes with placement by purpose.
const PLACED: [(&str, IndexKind); 2] =
    [("FD+tree, placed", IndexKind::FdTree), ("LSM, placed", IndexKind::Lsm)];
/// The controls of placement: its blocks as spare space, and streams drawn at random.
const AS_SPARE: [(&str, IndexKind); 2] =
    [("FD+tree, as spare", IndexKind::FdTree), ("LSM, as spare", IndexKind::Lsm)];
const SHUFFLED: [(&str, IndexKind); 2] =
    [("FD+tree, shuffled", IndexKind::FdTree), ("LSM, shuffled", IndexKind::Lsm)];

/// Bytes that the store wrote, over the user's.
const STORE: &str = "store_per_byte";
/// Pages programmed, over pages written by the store.
const AMPLIFICATION: &str = "device_amplification";
/// Bytes programmed, over the user's.
const FLASH: &str = "flash_per_byte";
/// Blocks erased for each MB of the user.
const ERASES: &str = "erases_per_mb";
/// The most pages in use, over logical pages.
const USED: &str = "used_share";
/// Difference of erase counts.
const SPREAD: &str = "wear_spread";

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Dies of the device.
const DIES: u32 = 8;
/// Overwrites of each key before anything is counted, and while it is.
const OVERWRITES: [u64; 2] = [3, 4];
/// Spare space in percent.
const SPARE: [u32; 3] = [7, 14, 28];

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "index-on-ssd",
    figure: "none: index × translation layer",
    about: "bytes that an SSD programs for the store's indexes, by spare space in percent",
    axis: "spare space, %",
    columns: &[STORE, AMPLIFICATION, FLASH, ERASES, USED, SPREAD],
    predictions: &[
        Prediction {
            name: "indexes-are-kind-to-the-device",
            claim: "with 7 % spare space the device programs at most 1.6 pages for each page that \
                    an index writes, and more than 1.6 where pages are overwritten at random",
            judge: indexes_are_kind,
        },
        Prediction {
            name: "spare-space-helps",
            claim: "with 28 % spare space random overwrites program at most 0.6 of the pages that \
                    they do with 7 %",
            judge: spare_space_helps,
        },
        Prediction {
            name: "placement-keeps-lifetimes-apart",
            claim: "with 7 % spare space and placement by purpose the device programs at most 1.1 \
                    pages for each page that an index writes, and fewer than with streams at \
                    random",
            judge: placement_helps,
        },
    ],
    run,
};

/// The sizes of a scale.
#[derive(Clone, Copy, Debug)]
struct Sizing {
    keys: u64,
    memory_bytes: u64,
    /// Pages of a flash block.
    block_pages: u32,
    /// Bytes of logical pages, over bytes of keys and values.
    device: f64,
}

impl Sizing {
    const fn of(scale: Scale) -> Self {
        match scale {
            Scale::Tiny => {
                Self { keys: 50_000, memory_bytes: 512 << 10, block_pages: 16, device: 4.0 }
            }
            Scale::Small => {
                Self { keys: 1_000_000, memory_bytes: 8 << 20, block_pages: 128, device: 2.1 }
            }
            Scale::Full => {
                Self { keys: 10_000_000, memory_bytes: 64 << 20, block_pages: 256, device: 2.1 }
            }
        }
    }

    /// Blocks of a die that hold so many pages of data at most, and have so much spare space.
    fn blocks(self, spare: u32) -> u32 {
        let pages = (self.keys * entry::ENTRY_BYTES) as f64 * self.device / PAGE_BYTES as f64;
        let of_die = pages / f64::from(DIES) * (1.0 + f64::from(spare) / 100.0);
        (of_die / f64::from(self.block_pages)).ceil() as u32
    }

    /// An empty device with so much spare space, in percent, and so many streams.
    fn layer(self, spare: u32, streams: u32) -> Result<Layer> {
        self.layer_of(
            self.blocks(spare),
            Options { spare_permille: 10 * spare, streams, ..Options::default() },
        )
    }

    /// The same with one stream, where the open blocks of the others are spare.
    fn layer_with_more_spare(self, spare: u32, streams: u32) -> Result<Layer> {
        let (blocks, more) = (self.blocks(spare), streams - 1);
        let factor = f64::from(blocks + more) / f64::from(blocks);
        let spare_permille = ((1_000.0 + 10.0 * f64::from(spare)) * factor).round() as u32 - 1_000;
        self.layer_of(blocks + more, Options { spare_permille, ..Options::default() })
    }

    fn layer_of(self, blocks: u32, options: Options) -> Result<Layer> {
        let geometry = Geometry::new(Sizes {
            channels: DIES,
            dies_per_channel: 1,
            planes_per_die: 1,
            // The open blocks, one of them garbage collection's, the one that is being emptied, and
            // the reserve come on top.
            blocks_per_plane: blocks + options.streams + 2 + options.reserve_blocks,
            pages_per_block: self.block_pages,
            page_size: PAGE_BYTES as u32,
        });
        PageMapped::format(NandSim::new(geometry.map_err(flash)?), &options).map_err(flash)
    }
}

fn run(scale: Scale, watch: &mut dyn Watch) -> Result<(Series, Value)> {
    let sizing = Sizing::of(scale);
    let mut series = Series::default();
    // The tiny scale shows that it runs.
    let spares = if scale == Scale::Tiny { &SPARE[..1] } else { &SPARE[..] };
    for spare in spares {
        let mut used = 0.0_f64;
        for (name, kind) in [(FD_TREE, IndexKind::FdTree), (LSM, IndexKind::Lsm)] {
            let metrics = on_ssd(kind, sizing, one_stream(sizing.layer(*spare, 1)?), watch)?;
            used = used.max(metrics.get(USED).copied().unwrap_or(0.0));
            add(&mut series, (name, *spare), metrics, watch);
        }
        let metrics = random_pages(sizing.layer(*spare, 1)?, used, watch)?;
        add(&mut series, (RANDOM, *spare), metrics, watch);
        let streams = Placement::Purpose.streams();
        for (name, kind) in PLACED {
            let stream_of = Box::new(|purpose: Purpose| Placement::Purpose.of_purpose(purpose));
            let ssd = (sizing.layer(*spare, streams)?, stream_of as _);
            add(&mut series, (name, *spare), on_ssd(kind, sizing, ssd, watch)?, watch);
        }
        // What explains the effect of placement is shown where spare space is scarce.
        for (name, kind) in AS_SPARE.into_iter().filter(|_| *spare == SPARE[0]) {
            let ssd = one_stream(sizing.layer_with_more_spare(*spare, streams)?);
            add(&mut series, (name, *spare), on_ssd(kind, sizing, ssd, watch)?, watch);
        }
        for (name, kind) in SHUFFLED.into_iter().filter(|_| *spare == SPARE[0]) {
            let mut random = Random::new(11);
            let stream_of = Box::new(move |_: Purpose| Stream(random.below(streams.into()) as u32));
            let ssd = (sizing.layer(*spare, streams)?, stream_of as _);
            add(&mut series, (name, *spare), on_ssd(kind, sizing, ssd, watch)?, watch);
        }
    }
    let settings = json!({
        "keys": sizing.keys,
        "memory_bytes": sizing.memory_bytes,
        "page_bytes": PAGE_BYTES,
        "block_pages": sizing.block_pages,
        "dies": DIES,
        "device_over_user_bytes": sizing.device,
        "overwrites": OVERWRITES,
    });
    Ok((series, settings))
}

fn add(series: &mut Series, at: (&str, u32), metrics: Metrics, watch: &mut dyn Watch) {
    let (name, spare) = at;
    let amplification = metrics.get(AMPLIFICATION).copied().unwrap_or(0.0);
    watch.says(&format!("{name}, {spare} % spare: {amplification:.3} pages for each"));
    series.add(name, f64::from(spare), metrics);
}

type Layer = PageMapped<NandSim<()>>;
/// A device, and the stream of each write to it.
type Placed = (Layer, Box<dyn FnMut(Purpose) -> Stream + Send>);

fn one_stream(layer: Layer) -> Placed {
    (layer, Box::new(|_| Stream(0)))
}

fn flash(error: esker_flash::Error) -> Error {
    Error::Run(error.to_string())
}

/// Loads a store, overwrites it, and counts while it is overwritten more.
fn on_ssd(kind: IndexKind, sizing: Sizing, ssd: Placed, watch: &dyn Watch) -> Result<Metrics> {
    let Sizing { keys, memory_bytes, .. } = sizing;
    let (memory, (layer, stream_of)) = (Arc::new(MemoryDevice::new()), ssd);
    let device = SsdDevice::in_streams(memory, Box::new(layer), stream_of);
    let device = Arc::new(device.map_err(esker::Error::from)?);
    let db = Db::builder_on(Arc::clone(&device) as _)
        .memory_budget(memory_bytes)
        .log_segment_bytes(memory_bytes / 4)
        .runtime(Arc::new(SimRuntime::new(1)))
        .inline_merges(0)
        .open()?;
    let keyspace = db.keyspace("entries", KeyspaceOptions::default().index(kind))?;
    let mut random = Random::new(7);
    let put = |number: u64, version: u64| -> Result<()> {
        Ok(keyspace.insert(entry::key(number), entry::value(1, number, version))?)
    };
    for number in 0..keys {
        go_on_at(number, watch)?;
        put(number, 0)?;
    }
    let mut used = 0;
    let mut before = SsdReport::default();
    for (phase, overwrites) in OVERWRITES.into_iter().enumerate() {
        if phase == 1 {
            before = device.report();
        }
        for at in 0..overwrites * keys {
            go_on_at(at, watch)?;
            put(random.below(keys), 1 + at)?;
            if at % 1_000 == 0 {
                used = used.max(device.used_pages());
            }
        }
    }
    let made = device.report().since(&before);
    device.check().map_err(flash)?;
    let user_bytes = OVERWRITES[1] * keys * entry::ENTRY_BYTES;
    let mut metrics = of_device(&made, user_bytes);
    let logical = device.logical_pages().max(1) as f64;
    metric(&mut metrics, USED, used as f64 / logical);
    db.close()?;
    Ok(metrics)
}

/// Overwrites pages at random, of as large a share of the device as is used.
fn random_pages(mut layer: Layer, used: f64, watch: &dyn Watch) -> Result<Metrics> {
    let pages = (f64::from(layer.logical_pages()) * used).max(1.0) as u64;
    let mut random = Random::new(7);
    for page in 0..pages {
        layer.write(Lpn(page as u32), &[]).map_err(flash)?;
    }
    let mut before = (layer.host(), *layer.counters());
    for (phase, overwrites) in OVERWRITES.into_iter().enumerate() {
        if phase == 1 {
            before = (layer.host(), *layer.counters());
        }
        for at in 0..overwrites * pages {
            go_on_at(at, watch)?;
            layer.write(Lpn(random.below(pages) as u32), &[]).map_err(flash)?;
        }
    }
    let made = SsdReport {
        page_bytes: PAGE_BYTES,
        host: layer.host(),
        flash: *layer.counters(),
        wear: layer.wear(),
        ..SsdReport::default()
    };
    let before = SsdReport { host: before.0, flash: before.1, ..SsdReport::default() };
    let mut metrics = of_device(&made.since(&before), OVERWRITES[1] * pages * PAGE_BYTES);
    metric(&mut metrics, USED, used);
    Ok(metrics)
}

fn of_device(made: &SsdReport, user_bytes: u64) -> Metrics {
    let mut metrics = Metrics::new();
    let (user, total) = (user_bytes as f64, made.flash.total());
    metric(&mut metrics, STORE, (made.host.writes * made.page_bytes) as f64 / user);
    metric(&mut metrics, AMPLIFICATION, made.write_amplification());
    metric(&mut metrics, FLASH, (total.programs * made.page_bytes) as f64 / user);
    metric(&mut metrics, ERASES, total.erases as f64 / (user / 1e6));
    metric(&mut metrics, SPREAD, f64::from(made.wear.spread));
    metrics
}

fn go_on_at(step: u64, watch: &dyn Watch) -> Result<()> {
    if step.is_multiple_of(65_536) { go_on(watch) } else { Ok(()) }
}

fn indexes_are_kind(series: &Series) -> std::result::Result<(), String> {
    let at = f64::from(SPARE[0]);
    for system in [FD_TREE, LSM] {
        let found = series.value(system, at, AMPLIFICATION)?;
        if !(1.0..=1.6).contains(&found) {
            return Err(format!("{system}: {found:.3} pages for each"));
        }
    }
    let control = series.value(RANDOM, at, AMPLIFICATION)?;
    if control > 1.6 { Ok(()) } else { Err(format!("{RANDOM}: {control:.3} pages, too")) }
}

fn spare_space_helps(series: &Series) -> std::result::Result<(), String> {
    let of = |at: u32| series.value(RANDOM, f64::from(at), AMPLIFICATION);
    let (least, most) = (of(SPARE[0])?, of(SPARE[2])?);
    if most >= 1.0 && most <= 0.6 * least {
        return Ok(());
    }
    Err(format!("{most:.3} pages for each, and {least:.3} with {} %", SPARE[0]))
}

fn placement_helps(series: &Series) -> std::result::Result<(), String> {
    let at = f64::from(SPARE[0]);
    for ((placed, _), (shuffled, _)) in PLACED.into_iter().zip(SHUFFLED) {
        let found = series.value(placed, at, AMPLIFICATION)?;
        let control = series.value(shuffled, at, AMPLIFICATION)?;
        if !(1.0..=1.1).contains(&found) || found >= control {
            return Err(format!("{placed}: {found:.3} pages for each, {control:.3} at random"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;

    fn series(index: f64, random: [f64; 2]) -> Series {
        placed(index, random, [1.0, 1.2])
    }

    fn placed(index: f64, random: [f64; 2], placed: [f64; 2]) -> Series {
        let mut series = Series::default();
        let mut add = |system: &str, at: u32, found: f64| {
            let mut metrics = Metrics::new();
            metric(&mut metrics, AMPLIFICATION, found);
            series.add(system, f64::from(at), metrics);
        };
        [FD_TREE, LSM].into_iter().for_each(|system| add(system, 7, index));
        PLACED.into_iter().for_each(|(system, _)| add(system, 7, placed[0]));
        SHUFFLED.into_iter().for_each(|(system, _)| add(system, 7, placed[1]));
        add(RANDOM, 7, random[0]);
        add(RANDOM, 28, random[1]);
        series
    }

    #[test]
    fn predictions_can_fail() {
        assert_eq!(indexes_are_kind(&series(1.5, [4.0, 2.0])), Ok(()));
        assert!(indexes_are_kind(&series(1.7, [4.0, 2.0])).is_err());
        assert!(indexes_are_kind(&series(1.5, [1.5, 1.2])).is_err());
        assert_eq!(spare_space_helps(&series(1.5, [4.0, 2.0])), Ok(()));
        assert!(spare_space_helps(&series(1.5, [4.0, 3.0])).is_err());
        assert!(spare_space_helps(&Series::default()).is_err());
        let judge = |of| placement_helps(&placed(1.5, [4.0, 2.0], of));
        assert_eq!(judge([1.1, 1.2]), Ok(()));
        assert!(judge([1.11, 1.2]).is_err() && judge([1.1, 1.1]).is_err());
    }

    #[test]
    fn it_runs() {
        let (found, _) = run(Scale::Tiny, &mut Silent).unwrap();
        assert_eq!(found.points.len(), 9);
        for point in &found.points {
            assert!(point.value(AMPLIFICATION) >= Ok(1.0), "{point:?}");
            let used = point.value(USED).unwrap();
            assert!((0.3..1.0).contains(&used), "{point:?}");
        }
    }
}
