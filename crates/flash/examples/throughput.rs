//! How many host writes a second are simulated, on a device of 16 GiB, by one thread.
//!
//! `cargo run --release --example throughput -p esker-flash -- [SPARE_PERMILLE [OVERWRITES]]`: the
//! device is filled and overwritten twice at random, first without and then with a clock and a
//! histogram at queue depth 32. The random overwrites are timed.

use std::collections::BinaryHeap;
use std::time::Instant;

use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Latencies, Lpn, Sizes, Timing};
use esker_flash::{Ftl, Geometry, Nand, NandSim};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| text.get(at).map_or(Ok(default), |text| text.parse());
    let options = Options { spare_permille: number(0, 70)?, ..Options::default() };
    let overwrites = number(1, 2)?;
    let geometry = Geometry::new(Sizes {
        channels: 8,
        dies_per_channel: 1,
        planes_per_die: 1,
        blocks_per_plane: 2048,
        pages_per_block: 256,
        page_size: 4096,
    })?;
    let timing = Timing::of_cell(esker_flash::nand::Cell::Mlc, 4096);
    for nand in [NandSim::<()>::new(geometry), NandSim::with_clock(geometry, timing)] {
        let is_timed = nand.clock().is_some();
        let mut ftl = PageMapped::format(nand, &options)?;
        let pages = ftl.logical_pages();
        (0..pages).try_for_each(|lpn| ftl.write(Lpn(lpn), &[]))?;
        let before = *ftl.counters();
        let (start, writes) = (Instant::now(), u64::from(pages) * u64::from(overwrites));
        let latencies = overwrite(&mut ftl, writes, is_timed)?;
        let seconds = start.elapsed().as_secs_f64();
        let programs = ftl.counters().since(&before).total().programs;
        println!(
            "{}: {:.2} M host writes/s, {:.2} M programs/s, amplification {:.2}, {:.2} B a page",
            if is_timed { "clock and histogram" } else { "no clock" },
            writes as f64 / seconds / 1e6,
            programs as f64 / seconds / 1e6,
            programs as f64 / writes as f64,
            ftl.ram_bytes() as f64 / f64::from(geometry.pages()),
        );
        if is_timed {
            println!(
                "simulated {:.1} s: p50 {} us, p99 {} us, p99.9 {} us, max {} us",
                ftl.end_ns() as f64 / 1e9,
                latencies.percentile_ns(50.0) / 1_000,
                latencies.percentile_ns(99.0) / 1_000,
                latencies.percentile_ns(99.9) / 1_000,
                latencies.max_ns() / 1_000,
            );
        }
    }
    Ok(())
}

/// Random overwrites, 32 at a time where there is a clock.
fn overwrite<F: Ftl>(ftl: &mut F, writes: u64, is_timed: bool) -> esker_flash::Result<Latencies> {
    let (mut state, pages) = (88_172_645_463_325_252_u64, u64::from(ftl.logical_pages()));
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Lpn((state % pages) as u32)
    };
    let (mut latencies, mut now) = (Latencies::new(), ftl.end_ns());
    let mut in_flight = BinaryHeap::from(vec![std::cmp::Reverse(0); 32]);
    for _ in 0..writes {
        if !is_timed {
            ftl.write(random(), &[])?;
            continue;
        }
        // The one that ends first makes room for the next one.
        if let Some(mut first) = in_flight.peek_mut() {
            now = now.max(first.0);
            ftl.issue_at(now);
            ftl.write(random(), &[])?;
            first.0 = ftl.end_ns();
            latencies.record(first.0 - now);
        }
    }
    Ok(latencies)
}
