//! Write amplification of greedy garbage collection beside the closed form, at full size.
//!
//! `cargo run --release --example closed_form -p esker-flash -- [BLOCKS [PAGES [DIES [POLICY]]]]`:
//! so many blocks of so many pages on each die, by default 1024 of 256 on one.
//! The device is filled, then overwritten 12 times at random; the last quarter counts.

use std::time::Instant;

use esker_flash::closed_form::greedy;
use esker_flash::ftl::{Options, PageMapped, Policy};
use esker_flash::nand::{Lpn, Sizes};
use esker_flash::{Ftl, Geometry, NandSim};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| text.get(at).map_or(Ok(default), |text| text.parse());
    let (blocks, pages, dies) = (number(0, 1024)?, number(1, 256)?, number(2, 1)?);
    let policy: Policy = text.get(3).map_or(Ok(Policy::Greedy), |text| text.parse())?;
    println!("{dies} dies x {blocks} blocks x {pages} pages, {policy}");
    println!("spare   simulated  closed form  difference  host writes/s");
    for spare_permille in [70, 140, 280, 500] {
        let geometry = Geometry::new(Sizes {
            channels: dies,
            dies_per_channel: 1,
            planes_per_die: 1,
            blocks_per_plane: blocks,
            pages_per_block: pages,
            page_size: 4096,
        })?;
        let options = Options { spare_permille, policy, ..Options::default() };
        let mut ftl = PageMapped::format(NandSim::<()>::new(geometry), &options)?;
        let start = Instant::now();
        let found = measure(&mut ftl)?;
        let seconds = start.elapsed().as_secs_f64();
        let rate = ftl.host().writes as f64 / seconds / 1e6;
        let expected = greedy(f64::from(spare_permille) / 1e3).write_amplification;
        println!(
            "{:>4.0} %  {found:>9.3}  {expected:>11.3}  {:>8.2} %  {rate:>10.2} M",
            f64::from(spare_permille) / 10.0,
            (found / expected - 1.0) * 100.0,
        );
    }
    Ok(())
}

/// Fills the device, overwrites it 12 times, and answers the amplification of the last quarter.
fn measure<F: Ftl>(ftl: &mut F) -> esker_flash::Result<f64> {
    let pages = ftl.logical_pages();
    for lpn in 0..pages {
        ftl.write(Lpn(lpn), &[])?;
    }
    let mut state = 88_172_645_463_325_252_u64;
    let mut overwrite = |ftl: &mut F, writes: u64| {
        for _ in 0..writes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ftl.write(Lpn((state % u64::from(pages)) as u32), &[])?;
        }
        Ok(())
    };
    overwrite(ftl, u64::from(pages) * 9)?;
    let before = *ftl.counters();
    overwrite(ftl, u64::from(pages) * 3)?;
    let programs = ftl.counters().since(&before).total().programs;
    Ok(programs as f64 / (f64::from(pages) * 3.0))
}
