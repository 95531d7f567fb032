//! What a map on flash costs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Random, sizes};
use esker_flash::ftl::{Dftl, Options, PageMapped};
use esker_flash::nand::{Cause, Cell, Lpn, Sizes, Timing};
use esker_flash::{Ftl, Geometry, NandSim};

type Flash = NandSim<()>;

/// Pages of 512 bytes: a translation page has 128 entries.
fn geometry(channels: u32, blocks: u32) -> Geometry {
    Geometry::new(Sizes { page_size: 512, ..sizes(channels, blocks, 64) }).unwrap()
}

fn layer(channels: u32, cache_permille: u32) -> Dftl<Flash> {
    let options = Options { spare_permille: 280, ..Options::default() };
    Dftl::format(Flash::new(geometry(channels, 64)), &options, cache_permille).unwrap()
}

fn fill(ftl: &mut impl Ftl) {
    (0..ftl.logical_pages()).for_each(|lpn| ftl.write(Lpn(lpn), &[]).unwrap());
}

fn overwrite(ftl: &mut impl Ftl, times: u32) {
    let (random, pages) = (Random::new(1), ftl.logical_pages());
    for _ in 0..pages * times {
        ftl.write(Lpn(random.below(pages.into()) as u32), &[]).unwrap();
    }
}

/// With the whole map cached only the entries of moved pages are written, many at once.
#[test]
fn a_cache_of_the_whole_map_is_as_good_as_a_map_in_memory() {
    let options = Options { spare_permille: 280, ..Options::default() };
    let mut ideal = PageMapped::format(Flash::new(geometry(1, 64)), &options).unwrap();
    let mut cached = layer(1, 1_000);
    for ftl in [&mut ideal as &mut dyn Ftl, &mut cached] {
        let (random, pages) = (Random::new(1), ftl.logical_pages());
        (0..pages).for_each(|lpn| ftl.write(Lpn(lpn), &[]).unwrap());
        for _ in 0..pages * 8 {
            ftl.write(Lpn(random.below(pages.into()) as u32), &[]).unwrap();
        }
    }
    let per_write =
        |ftl: &dyn Ftl| ftl.counters().total().programs as f64 / ftl.host().writes as f64;
    let (ideal, cached_rate) = (per_write(&ideal), per_write(&cached));
    assert!((cached_rate / ideal - 1.0).abs() < 0.08, "{cached_rate}, with a map {ideal}");
    assert_eq!(cached.counters().of(Cause::Map).programs, 0, "no entry ever leaves the cache");
}

/// Random writes with a small cache: nearly each reads a translation page and writes one.
#[test]
fn misses_cost_translation_reads_and_writes() {
    let mut ftl = layer(2, 10);
    fill(&mut ftl);
    let (before, lookups) = (*ftl.counters(), ftl.lookups());
    overwrite(&mut ftl, 2);
    let writes = f64::from(ftl.logical_pages() * 2);
    let map = ftl.counters().since(&before).of(Cause::Map);
    let misses = (ftl.lookups().misses - lookups.misses) as f64;
    assert!(misses > writes * 0.97, "{misses} misses of {writes}");
    assert!(map.reads as f64 >= misses, "{map:?}");
    let programs = map.programs as f64 / writes;
    assert!((0.5..2.0).contains(&programs), "{programs} translation pages a write");
    ftl.check().unwrap();
}

#[test]
fn sequential_writes_share_translation_pages() {
    let mut ftl = layer(2, 50);
    fill(&mut ftl);
    fill(&mut ftl);
    let map = ftl.counters().of(Cause::Map);
    let pages = u64::from(ftl.logical_pages());
    assert!(map.programs < pages * 2 / 20, "{map:?} for {pages} pages twice");
    ftl.check().unwrap();
}

/// A read of an entry that is not cached takes a read of its translation page longer.
#[test]
fn a_miss_delays_the_read_that_needs_it() {
    let timing = Timing::of_cell(Cell::Slc, 512);
    let nand = Flash::with_clock(geometry(1, 64), timing);
    let mut ftl = Dftl::format(nand, &Options::default(), 10).unwrap();
    fill(&mut ftl);
    ftl.flush().unwrap();
    let mut latency = |lpn| {
        let now = ftl.end_ns() + 1_000_000_000;
        ftl.issue_at(now);
        ftl.read(Lpn(lpn), &mut []).unwrap();
        ftl.end_ns() - now
    };
    let read = timing.read_ns + timing.transfer_ns_per_page;
    // Entries that this evicts are written first; then they are clean.
    (1_000..1_200).for_each(|lpn| _ = latency(lpn));
    assert_eq!(latency(7), 2 * read);
    assert_eq!(latency(7), read);
}

/// Pages on four dies whose entries are not cached: each reads its translation page and then its
/// data, and none waits for another.
#[test]
fn the_misses_of_a_request_overlap() {
    let timing = Timing::of_cell(Cell::Slc, 512);
    let nand = Flash::with_clock(geometry(4, 64), timing);
    let mut ftl = Dftl::format(nand, &Options::default(), 10).unwrap();
    fill(&mut ftl);
    ftl.flush().unwrap();
    let read = timing.read_ns + timing.transfer_ns_per_page;
    let request = |ftl: &mut Dftl<Flash>, lpns: std::ops::Range<u32>| {
        let now = ftl.end_ns() + 1_000_000_000;
        ftl.issue_at(now);
        lpns.for_each(|lpn| _ = ftl.read(Lpn(lpn), &mut []).unwrap());
        ftl.end_ns() - now
    };
    // Entries that this evicts are written first; then they are clean.
    (1_000..1_800).for_each(|lpn| _ = request(&mut ftl, lpn..lpn + 1));
    let before = ftl.lookups().misses;
    assert_eq!(request(&mut ftl, 0..4), 2 * read);
    assert_eq!(ftl.lookups().misses - before, 4);
    assert_eq!(request(&mut ftl, 0..4), read);
}

/// A miss that evicts a changed entry waits until that entry's translation page is read and
/// programmed.
#[test]
fn a_miss_waits_for_the_entry_that_it_evicts() {
    let timing = Timing::of_cell(Cell::Slc, 512);
    let nand = Flash::with_clock(geometry(2, 64), timing);
    let mut ftl = Dftl::format(nand, &Options::default(), 1).unwrap();
    fill(&mut ftl);
    ftl.flush().unwrap();
    let mut request = |lpn: u32, writes: bool| {
        let now = ftl.end_ns() + 1_000_000_000;
        ftl.issue_at(now);
        let programs = ftl.counters().of(Cause::Map).programs;
        match writes {
            true => ftl.write(Lpn(lpn), &[]).unwrap(),
            false => _ = ftl.read(Lpn(lpn), &mut []).unwrap(),
        }
        (ftl.end_ns() - now, ftl.counters().of(Cause::Map).programs - programs)
    };
    let read = timing.read_ns + timing.transfer_ns_per_page;
    let program = timing.program_ns + timing.transfer_ns_per_page;
    let found: Vec<_> = (0..60).map(|at| request(at * 2, at < 30)).collect();
    let evicting: Vec<_> = found[30..].iter().filter(|(_, programs)| *programs == 1).collect();
    assert!(!evicting.is_empty(), "{found:?}");
    assert!(evicting.iter().all(|(ns, _)| *ns == 3 * read + program), "{evicting:?}");
}

#[test]
fn the_memory_of_a_device_is_small() {
    let options = Options::default();
    let nand = NandSim::<()>::new(
        Geometry::new(Sizes { page_size: 4_096, ..sizes(8, 512, 256) }).unwrap(),
    );
    let mut ftl = Dftl::format(nand, &options, 20).unwrap();
    for lpn in 0..ftl.logical_pages() / 4 {
        ftl.write(Lpn(lpn), &[]).unwrap();
    }
    let map = 4 * u64::from(ftl.logical_pages());
    assert!(ftl.device_ram_bytes() < map / 15, "{} of {map}", ftl.device_ram_bytes());
    let simulated = ftl.ram_bytes() as f64 / f64::from(ftl.geometry().pages());
    assert!(simulated < 12.0, "{simulated} bytes a page");
}

/// What waits to be written takes memory for the pages of the map, however often they change.
#[test]
fn memory_does_not_grow_with_writes() {
    let mut ftl = layer(1, 10);
    fill(&mut ftl);
    overwrite(&mut ftl, 1);
    let hot = ftl.logical_pages() / 8;
    let mut write = |times: u32| {
        let random = Random::new(2);
        for _ in 0..hot * times {
            ftl.write(Lpn(random.below(hot.into()) as u32), &[]).unwrap();
        }
        ftl.ram_bytes()
    };
    let before = write(20);
    assert!(write(200) <= before + 16_384, "{before}");
}
