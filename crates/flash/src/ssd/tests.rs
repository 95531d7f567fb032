use esker_device::memory::MemoryDevice;

use super::*;
use crate::ftl::{HostCounters, Options, PageMapped};
use crate::nand::{Geometry, NandSim, Sizes};

fn ssd(inner: &MemoryDevice) -> SsdDevice {
    let sizes = Sizes {
        channels: 2,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 40,
        pages_per_block: 64,
        page_size: 4096,
    };
    let nand = NandSim::<()>::new(Geometry::new(sizes).unwrap());
    let layer = PageMapped::format(nand, &Options::default()).unwrap();
    SsdDevice::new(Arc::new(inner.clone()), Box::new(layer)).unwrap()
}

#[test]
fn a_store_cannot_tell_the_difference() {
    let device = ssd(&MemoryDevice::new());
    esker_device::conformance::all(&device).unwrap();
    device.check().unwrap();
    let host = device.report().host;
    assert!(host.writes > 100 && host.trims > 10, "{host:?}");
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
    device.rename("direct", "buffered").unwrap();
    assert_eq!(count(), (5, 2, 2));
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
