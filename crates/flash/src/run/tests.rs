use std::convert::Infallible;

use super::*;
use crate::ftl::{HostCounters, Wear};
use crate::nand::{Cause, Cell, Geometry, NandSim, PageKind, Ppn, Sizes, Spare, Timing};
use crate::{Error, Nand};

/// A layer that writes around the device and forgets: enough to count and to time.
struct Ring {
    nand: NandSim<()>,
    next: u32,
    mapped: Vec<bool>,
    order: Vec<u32>,
    fails_after: u32,
}

const SIZES: Sizes = Sizes {
    channels: 1,
    dies_per_channel: 2,
    planes_per_die: 1,
    blocks_per_plane: 4,
    pages_per_block: 4,
    page_size: 4096,
};
const TIMING: Timing = Timing { transfer_ns_per_page: 0, ..Timing::of_cell(Cell::Slc, 4096) };

impl Ring {
    fn new(has_clock: bool) -> Self {
        let geometry = Geometry::new(SIZES).unwrap();
        let nand = match has_clock {
            true => NandSim::with_clock(geometry, TIMING),
            false => NandSim::new(geometry),
        };
        Self { nand, next: 0, mapped: vec![false; 16], order: Vec::new(), fails_after: u32::MAX }
    }
}

impl Ftl for Ring {
    fn logical_pages(&self) -> u32 {
        16
    }

    fn dyn_nand(&self) -> &dyn Nand {
        &self.nand
    }

    fn dyn_nand_mut(&mut self) -> &mut dyn Nand {
        &mut self.nand
    }

    fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> crate::Result<bool> {
        let is_mapped = self.mapped[lpn.0 as usize];
        if is_mapped {
            self.nand.read(Ppn(0), data, Cause::Host)?;
        }
        Ok(is_mapped)
    }

    fn write(&mut self, lpn: Lpn, data: &[u8]) -> crate::Result<()> {
        if self.order.len() as u32 >= self.fails_after {
            return Err(Error::Full("the test says so".to_owned()));
        }
        let page = Ppn(self.next % self.nand.geometry().pages());
        let block = self.nand.geometry().block_of(page);
        if self.nand.geometry().index_of(page) == 0 && self.nand.next_page(block) > 0 {
            self.nand.erase(block, Cause::Gc)?;
        }
        self.next += 1;
        self.mapped[lpn.0 as usize] = true;
        self.order.push(lpn.0);
        let spare = Spare { lpn, kind: PageKind::Data, seq: 0 };
        self.nand.program(page, data, spare, Cause::Host)
    }

    fn trim(&mut self, lpn: Lpn) -> crate::Result<()> {
        self.mapped[lpn.0 as usize] = false;
        Ok(())
    }

    fn flush(&mut self) -> crate::Result<()> {
        Ok(())
    }

    fn host(&self) -> HostCounters {
        HostCounters::default()
    }

    fn wear(&self) -> Wear {
        Wear::default()
    }

    fn ram_bytes(&self) -> u64 {
        self.nand.ram_bytes()
    }

    fn check(&self) -> crate::Result<()> {
        Ok(())
    }
}

fn op(kind: OpKind, page: u64, pages: u64) -> TraceOp {
    TraceOp { at_ns: 0, offset: page * 4096, length: pages * 4096, kind, stream: 0 }
}

const FRESH: RunOptions = RunOptions {
    pace: Pace::Untimed,
    warm_up: WarmUp::Fresh,
    wraps: false,
    placement: Placement::None,
    requests_max: None,
    seed: 1,
};

fn go(
    ring: &mut Ring,
    ops: &[TraceOp],
    options: &RunOptions,
) -> Result<Outcome, RunError<Infallible>> {
    run(ring, ops.iter().copied().map(Ok), options, &mut |_| true)
}

#[test]
fn requests_are_counted_in_pages() {
    let mut ring = Ring::new(false);
    let ops = [
        op(OpKind::Write, 0, 3),
        TraceOp { offset: 4096 * 3 + 100, length: 4096, ..op(OpKind::Write, 0, 0) },
        op(OpKind::Read, 2, 4),
        op(OpKind::Trim, 0, 2),
        op(OpKind::Read, 0, 1),
        TraceOp::flush(0),
    ];
    let outcome = go(&mut ring, &ops, &FRESH).unwrap();
    let host = outcome.host;
    assert_eq!((host.pages_written, host.partial_pages_written), (5, 2));
    assert_eq!((host.pages_read, host.unmapped_pages_read, host.pages_trimmed), (5, 2, 2));
    assert_eq!((host.requests(), host.flushes, host.bytes_written), (6, 1, 4 * 4096));
    assert_eq!(outcome.nand.of(Cause::Host).programs, 5);
    // Of the pages of which a part was written, none was there.
    assert_eq!(outcome.nand.of(Cause::Host).reads, 3);
    assert!(outcome.latencies.is_none());
}

#[test]
fn the_warm_up_is_not_counted() {
    let mut ring = Ring::new(false);
    let options = RunOptions { warm_up: WarmUp::Overwritten(1.5), ..FRESH };
    let outcome = go(&mut ring, &[op(OpKind::Write, 0, 1)], &options).unwrap();
    assert_eq!(outcome.nand.total().programs, 1);
    assert_eq!(ring.order.len(), 16 + 24 + 1);
    assert!(ring.order[..16].iter().copied().eq(0..16));
    assert!(ring.order[16..40].iter().any(|lpn| *lpn != ring.order[16]));
}

#[test]
fn two_dies_serve_a_deep_queue_in_half_the_time() {
    let ops = vec![op(OpKind::Write, 0, 1); 8];
    let time = |depth| {
        let options = RunOptions { pace: Pace::QueueDepth(depth), ..FRESH };
        // Blocks of 4 pages: the pages of one die, then of the next.
        let mut ring = Ring::new(true);
        ring.nand = NandSim::with_clock(
            Geometry::new(Sizes { blocks_per_plane: 1, ..SIZES }).unwrap(),
            TIMING,
        );
        go(&mut ring, &ops, &options).unwrap().simulated_ns
    };
    assert_eq!(time(1), 8 * TIMING.program_ns);
    assert_eq!(time(8), 4 * TIMING.program_ns);
}

/// The read is on the first die, the program on the second one; two pages overlap.
#[test]
fn a_page_that_is_written_in_part_is_read_before() {
    let time = |part: TraceOp| {
        let mut ring = Ring::new(true);
        let geometry = Geometry::new(Sizes { blocks_per_plane: 1, ..SIZES }).unwrap();
        ring.nand = NandSim::with_clock(geometry, TIMING);
        let options = RunOptions { pace: Pace::QueueDepth(1), ..FRESH };
        let whole = [op(OpKind::Write, 0, 4)];
        let before = go(&mut ring, &whole, &options).unwrap().simulated_ns;
        assert_eq!(before, 4 * TIMING.program_ns);
        go(&mut ring, &[part], &options).unwrap().simulated_ns
    };
    let part = TraceOp { length: 512, ..op(OpKind::Write, 0, 1) };
    assert_eq!(time(part), TIMING.read_ns + TIMING.program_ns);
    let two = TraceOp { offset: 512, length: 4096, ..part };
    assert_eq!(time(two), TIMING.read_ns + 2 * TIMING.program_ns);
}

#[test]
fn recorded_times_are_kept() {
    let mut ring = Ring::new(true);
    let at = |at_ns| TraceOp { at_ns, ..op(OpKind::Write, 0, 1) };
    let options = RunOptions { pace: Pace::Recorded, warm_up: WarmUp::Overwritten(0.5), ..FRESH };
    let outcome = go(&mut ring, &[at(0), at(10_000_000), at(20_000_000)], &options).unwrap();
    assert_eq!(outcome.simulated_ns, 20_000_000 + TIMING.program_ns);
    let write = outcome.latencies.unwrap().write;
    let (longest, program) = (write.max_ns() as f64, TIMING.program_ns as f64);
    assert!(write.count() == 3 && (longest / program - 1.0).abs() < 0.01, "{longest}");
}

#[test]
fn what_goes_wrong_says_at_which_request() {
    let mut ring = Ring::new(false);
    let ops = [op(OpKind::Write, 0, 1), op(OpKind::Write, 15, 2)];
    let error = go(&mut ring, &ops, &FRESH).unwrap_err().to_string();
    assert!(error.starts_with("request 2: ") && error.contains("65536"), "{error}");
    let options = RunOptions { wraps: true, ..FRESH };
    assert_eq!(go(&mut ring, &ops, &options).unwrap().host.pages_written, 3);
    ring.fails_after = 0;
    let error = go(&mut ring, &ops, &FRESH).unwrap_err().to_string();
    assert!(error.starts_with("request 1: ") && error.contains("full"), "{error}");
    let source = || [Ok(op(OpKind::Trim, 0, 1)), Err("line 2")].into_iter();
    let found = run(&mut Ring::new(false), source(), &FRESH, &mut |_| true);
    assert!(matches!(found, Err(RunError::Source("line 2"))));
    // What lies behind the limit is not looked at.
    let limited = RunOptions { requests_max: Some(1), ..FRESH };
    assert!(run(&mut Ring::new(false), source(), &limited, &mut |_| true).is_ok());
}

#[test]
fn a_run_ends_where_the_caller_says() {
    let options = RunOptions { warm_up: WarmUp::Overwritten(4000.0), ..FRESH };
    let endless = std::iter::repeat_with(|| Ok::<_, Infallible>(op(OpKind::Write, 0, 1)));
    let mut phases = Vec::new();
    let ended = run(&mut Ring::new(false), endless, &options, &mut |progress| {
        phases.push((progress.phase, progress.done));
        progress.phase != Phase::Measured || progress.done < ASK_EVERY
    });
    assert!(matches!(ended, Err(RunError::Interrupted)));
    let expected = [
        (Phase::Fill, 0),
        (Phase::WarmUp, 0),
        (Phase::WarmUp, ASK_EVERY),
        (Phase::WarmUp, 2 * ASK_EVERY),
        (Phase::WarmUp, 3 * ASK_EVERY),
        (Phase::Measured, 0),
        (Phase::Measured, ASK_EVERY),
    ];
    assert_eq!(phases, expected);
}

#[test]
fn the_number_of_overwrites_is_bounded_by_its_range() {
    assert_eq!(overwrites(100, 1.5), 150);
    assert_eq!(overwrites(100, -1.0), 0);
    assert_eq!(overwrites(100, f64::NAN), 0);
    assert_eq!(overwrites(u64::MAX, 1e300), u64::MAX);
}

/// A device of a capacity holds it, without much more, on dies that are not too small.
#[test]
fn a_device_fits_its_content() {
    for preset in spec::preset_names() {
        for (mib, op, placement) in [(1, "7", "none"), (20, "7", "purpose"), (3_000, "28", "none")]
        {
            let mut spec = spec::Spec::default();
            let capacity = mib.to_string();
            let settings = [
                ("capacity", &*capacity),
                ("preset", preset),
                ("op", op),
                ("placement", placement),
            ];
            settings.into_iter().for_each(|(name, value)| spec.set(name, value).unwrap());
            let layer = crate::simulate::layer(&spec).unwrap();
            let (geometry, own) = (layer.geometry(), spec.preset.sizes);
            let page = u64::from(geometry.page_size());
            let found = u64::from(layer.logical_pages()) * page;
            let block = page * u64::from(geometry.pages_per_block());
            let (bytes, dies) = (mib << 20, u64::from(geometry.dies()));
            // Pages that record trims take a part in thousands.
            let least = bytes - bytes / 500 - page;
            let most = bytes + u64::from(own.planes_per_die) * block * dies;
            assert!((least..=most).contains(&found), "{preset}: {found} for {bytes}");
            assert!(dies == 1 || geometry.blocks_per_die() >= 64, "{preset}: {dies} dies");
            assert!(dies <= u64::from(own.channels * own.dies_per_channel), "{preset}");
        }
    }
    let mut spec = spec::Spec::default();
    let set = |spec: &mut spec::Spec, name: &str| spec.set(name, "7").unwrap();
    ["capacity", "channels"].into_iter().for_each(|name| set(&mut spec, name));
    assert_eq!(spec.geometry().unwrap().channels(), 7);
    set(&mut spec, "blocks");
    assert_eq!(spec.geometry().unwrap().sizes().dies_per_channel, 8);
    spec.set("capacity", "4294967295").unwrap();
    spec.sizes.blocks = None;
    assert!(spec.geometry().is_err());
}
