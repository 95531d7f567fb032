use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, Open, Purpose};

use super::*;
use crate::ftl::{Ftl, HostCounters, Options, PageMapped};
use crate::nand::{Geometry, NandSim, Sizes};
use crate::placement::Placement;
use crate::random::Random;
use crate::run::{Pace, RunOptions, WarmUp, run};
use crate::trace::{Format, OpKind, Trace, TraceOp, TraceWriter};

type Layer = PageMapped<NandSim<()>>;

fn layer(placement: Placement) -> Layer {
    let sizes = Sizes {
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 40,
        pages_per_block: 64,
        page_size: 4096,
    };
    let nand = NandSim::<()>::new(Geometry::new(sizes).unwrap());
    let options = Options { streams: placement.streams(), ..Options::default() };
    PageMapped::format(nand, &options).unwrap()
}

fn ssd(inner: &MemoryDevice) -> SsdDevice {
    SsdDevice::new(Arc::new(inner.clone()), Box::new(layer(Placement::None))).unwrap()
}

/// A stream whose bytes stay readable.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn operations(&self) -> Vec<TraceOp> {
        let bytes = Box::new(Cursor::new(self.0.lock().unwrap().clone()));
        let trace = Trace::from_stream(Format::Esker, Path::new("t"), bytes).unwrap();
        trace.map(Result::unwrap).collect()
    }
}

fn recording(device_bytes: u64) -> (RecordingDevice, Shared) {
    let shared = Shared::default();
    let writer = TraceWriter::new(Path::new("t"), Box::new(shared.clone())).unwrap();
    let options = RecordOptions { device_bytes, ..RecordOptions::default() };
    let inner = Arc::new(MemoryDevice::new());
    (RecordingDevice::new(inner, writer, options).unwrap(), shared)
}

#[test]
fn a_store_cannot_tell_the_difference() {
    let device = ssd(&MemoryDevice::new());
    esker_device::conformance::all(&device).unwrap();
    device.check().unwrap();
    let host = device.report().host;
    assert!(host.writes > 100 && host.trims > 10, "{host:?}");
    let (device, _) = recording(16 << 20);
    esker_device::conformance::all(&device).unwrap();
    device.finish().unwrap();
}

/// By hand: pages of 4 KiB.
#[test]
fn what_reaches_the_flash() {
    let device = ssd(&MemoryDevice::new());
    let count = || {
        let host = device.report().host;
        (host.writes, host.reads, host.trims)
    };
    let direct = device.open("direct", Open::CreateNew, Caching::Direct).unwrap();
    direct.write_at(0, &[1; 8192], Purpose::Merge).unwrap();
    assert_eq!(count(), (2, 0, 0));
    direct.write_at(4000, &[2; 100], Purpose::Merge).unwrap();
    assert_eq!(count(), (4, 2, 0), "two parts of pages");
    let buffered = device.open("buffered", Open::CreateNew, Caching::Buffered).unwrap();
    for at in 0..10 {
        buffered.write_at(at * 100, &[3; 100], Purpose::Log).unwrap();
    }
    assert_eq!(count(), (4, 2, 0));
    buffered.sync(Purpose::Log).unwrap();
    buffered.sync(Purpose::Log).unwrap();
    assert_eq!(count(), (5, 2, 0));
    direct.truncate(4096).unwrap();
    assert_eq!(count(), (5, 2, 1));
    direct.discard(100, 3000).unwrap();
    assert_eq!(count(), (5, 2, 1), "a part of a page stays");
    drop(buffered);
    device.rename("direct", "buffered").unwrap();
    assert_eq!(count(), (5, 2, 2));
    drop(direct);
    device.remove("buffered").unwrap();
    assert_eq!(count(), (5, 2, 3));
    let report = device.report();
    assert_eq!((report.written_for(Purpose::Log), report.written_for(Purpose::Merge)), (1, 4));
    assert!((report.write_amplification() - 1.0).abs() < 0.3, "{report:?}");
    assert_eq!(report.since(&report).host, HostCounters::default());
    device.check().unwrap();
}

/// Dirty pages do not pile up, and a device that is full says so.
#[test]
fn a_full_device_is_an_error() {
    let inner = MemoryDevice::new();
    inner.open("there", Open::CreateNew, Caching::Direct).unwrap();
    let device = ssd(&inner);
    let file = device.open("there", Open::Existing, Caching::Buffered).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write_at(written, &[7; 1 << 20], Purpose::User) {
            Ok(()) => written += 1 << 20,
            Err(error) => break error,
        }
        assert!(written < 64 << 20);
    };
    assert!(error.is_full(), "{error}");
    device.check().unwrap();
    file.truncate(0).unwrap();
    file.write_at(0, &[8; 1 << 20], Purpose::User).unwrap();
    file.sync(Purpose::User).unwrap();
    device.check().unwrap();
}

/// A file of 40 MiB with two pages of content does not fill a device of 20 MiB.
#[test]
fn holes_of_files_that_are_there_are_not_written() {
    let inner = MemoryDevice::new();
    let file = inner.open("sparse", Open::CreateNew, Caching::Direct).unwrap();
    file.preallocate(40 << 20, Purpose::Log).unwrap();
    file.write_at(5_000, &[1; 100], Purpose::Log).unwrap();
    file.write_at((40 << 20) + 4096, &[1; 10], Purpose::Log).unwrap();
    let device = ssd(&inner);
    assert_eq!((device.report().host.writes, device.used_pages()), (2, 2));
    let file = device.open("sparse", Open::Existing, Caching::Direct).unwrap();
    let reads = || device.report().host.reads;
    let before = reads();
    file.read_at(0, &mut [0; 8192], Purpose::User).unwrap();
    assert_eq!(reads(), before + 1, "the other page is a hole");
}

#[test]
fn a_removed_file_is_trimmed_with_its_last_handle() {
    let device = ssd(&MemoryDevice::new());
    let open = |how| device.open("a", how, Caching::Buffered).unwrap();
    let (first, second) = (open(Open::CreateNew), open(Open::Existing));
    first.write_at(0, &[1; 8192], Purpose::Log).unwrap();
    first.sync(Purpose::Log).unwrap();
    device.remove("a").unwrap();
    assert_eq!(device.used_pages(), 2);
    // The file goes on without its name, and another one has it.
    second.write_at(8192, &[1; 4096], Purpose::Log).unwrap();
    second.sync(Purpose::Log).unwrap();
    let other = open(Open::CreateNew);
    other.write_at(0, &[1; 4096], Purpose::Log).unwrap();
    other.sync(Purpose::Log).unwrap();
    drop(first);
    assert_eq!(device.used_pages(), 4);
    second.write_at(0, &[2; 4096], Purpose::Log).unwrap();
    drop(second);
    assert_eq!((device.used_pages(), device.report().host.trims), (1, 3));
    drop(other);
    assert_eq!(device.used_pages(), 1);
    device.remove("a").unwrap();
    assert_eq!(device.used_pages(), 0);
    device.check().unwrap();
}

/// Threads that create, write, rename and remove the same names leave nothing behind.
#[test]
fn names_and_pages_agree_when_threads_race() {
    let device = ssd(&MemoryDevice::new());
    thread::scope(|scope| {
        for seed in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..2_000 {
                    let name = ["a", "b", "c"][(random.bits() % 3) as usize];
                    let how = [Open::CreateNew, Open::Existing][(random.bits() % 2) as usize];
                    let Ok(file) = device.open(name, how, Caching::Direct) else { continue };
                    file.write_at(random.bits() % 65_536, &[1; 5000], Purpose::Merge).unwrap();
                    match random.bits() % 4 {
                        0 => drop(device.remove(name)),
                        1 => drop(device.rename(name, "c")),
                        _ => {}
                    }
                    file.write_at(0, &[2; 4096], Purpose::Merge).unwrap();
                }
            });
        }
    });
    device.check().unwrap();
    for name in device.list().unwrap() {
        device.remove(&name).unwrap();
    }
    assert_eq!(device.used_pages(), 0);
}

/// What a store of several purposes does, at random.
fn work(device: &dyn Device, steps: u64) {
    let mut random = Random::new(1);
    let mut below = move |limit: u64| random.bits() % limit;
    let purposes = [Purpose::Log, Purpose::Flush, Purpose::Merge, Purpose::Value];
    for step in 0..steps {
        let at = below(4) as usize;
        let (name, purpose) = (["log", "runs", "levels", "values"][at], purposes[at]);
        let caching = [Caching::Buffered, Caching::Direct, Caching::Selective][at % 3];
        let there = device.list().unwrap().contains(&name.to_owned());
        let how = if there { Open::Existing } else { Open::CreateNew };
        let file = device.open(name, how, caching).unwrap();
        let bytes = vec![step as u8 | 1; 1 + below(30_000) as usize];
        file.write_at(below(3 << 20), &bytes, purpose).unwrap();
        match below(12) {
            0 => file.sync(purpose).unwrap(),
            1 => file.discard(below(3 << 20), 1 << 18).unwrap(),
            2 => {
                file.read_at(0, &mut vec![0; below(file.len().unwrap()) as usize], purpose).unwrap()
            }
            3 if at == 0 => device.remove(name).unwrap(),
            _ => {}
        }
    }
}

/// The trace of what a store does asks an SSD for the same as the store itself.
#[test]
fn a_replay_of_a_recording_is_the_recorded_run() {
    for placement in [Placement::None, Placement::Purpose] {
        let layer_of = || Box::new(layer(placement));
        let logical_bytes = u64::from(layer_of().logical_pages()) * 4096;
        let (recorder, trace) = recording(logical_bytes);
        let recorder = Arc::new(recorder);
        let inner = Arc::clone(&recorder) as Arc<dyn Device>;
        let device = SsdDevice::placed(inner, layer_of(), placement).unwrap();
        work(&device, 3_000);
        let (report, recorded) = (device.report(), recorder.finish().unwrap());
        let options = RunOptions {
            pace: Pace::Untimed,
            warm_up: WarmUp::Fresh,
            wraps: false,
            placement,
            requests_max: None,
            seed: 0,
        };
        let ops = trace.operations();
        assert_eq!(ops.len() as u64, recorded.operations);
        let mut layer = layer_of();
        run(layer.as_mut(), ops.into_iter().map(Ok::<_, ()>), &options, &mut |_| true).unwrap();
        assert_eq!((layer.host(), *layer.counters()), (report.host, report.flash));
        assert_eq!(layer.wear(), report.wear);
        assert!(report.flash.total().erases > 100 && report.host.trims > 100, "{report:?}");
        let written: u64 = recorded.bytes_written.iter().sum();
        assert_eq!(written, 4096 * report.host.writes);
        assert!(recorded.end_bytes <= logical_bytes);
    }
}

/// By hand: pages of a request that follow each other are one operation.
#[test]
fn a_recording_has_purposes_and_an_end() {
    let (device, trace) = recording(1 << 20);
    let file = device.open("a", Open::CreateNew, Caching::Direct).unwrap();
    file.write_at(0, &[1; 12_288], Purpose::Merge).unwrap();
    file.write_at(4096, &[1; 100], Purpose::Value).unwrap();
    file.sync(Purpose::Merge).unwrap();
    file.discard(0, 8192).unwrap();
    drop(file);
    device.remove("a").unwrap();
    let recorded = device.finish().unwrap();
    let op = |kind, offset, length, purpose: Purpose| TraceOp {
        at_ns: 0,
        offset,
        length,
        kind,
        stream: purpose as u8,
    };
    let (read, write, trim) = (OpKind::Read, OpKind::Write, OpKind::Trim);
    let expected = [
        op(write, 0, 12_288, Purpose::Merge),
        op(read, 4096, 4096, Purpose::Value),
        op(write, 4096, 4096, Purpose::Value),
        TraceOp::flush(0),
        op(trim, 0, 8192, Purpose::User),
        op(trim, 8192, 4096, Purpose::User),
    ];
    assert_eq!(trace.operations(), expected);
    assert_eq!((recorded.operations, recorded.end_bytes, recorded.flushes), (6, 12_288, 1));
    assert!(device.finish().is_err(), "finished twice");
    device.open("b", Open::CreateNew, Caching::Direct).unwrap();
}

#[test]
fn a_recording_of_impossible_sizes_is_refused() {
    for (page_bytes, device_bytes) in [(0, 1 << 20), (3000, 1 << 20), (1 << 17, 1), (512, 1 << 41)]
    {
        let writer = TraceWriter::new(Path::new("t"), Box::new(std::io::sink())).unwrap();
        let options = RecordOptions { page_bytes, device_bytes, is_timed: false };
        let inner = Arc::new(MemoryDevice::new());
        let error = RecordingDevice::new(inner, writer, options).unwrap_err().to_string();
        assert!(error.contains("page"), "{error}");
    }
}
