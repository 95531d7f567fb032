//! Pages that transactional layers program for each transaction and each plain write, and how fast
//! they are simulated, without data.
//!
//! `cargo run --release --example transactions -p esker-flash -- [BLOCKS [PAGES [SPARE]]]`: a
//! device of so many blocks of 128 pages of 8 KiB, by default 2048; transactions of so many pages,
//! by default 13; so many spare pages for each 1,000, by default 70. The device is filled, then
//! overwritten three times at random; the last time counts.

use std::time::Instant;

use esker_flash::ftl::{Options, mvftl, xftl};
use esker_flash::nand::{Cause, Lpn, Sizes};
use esker_flash::{Geometry, NandSim, Result, Transactional};

struct Random(u64);

impl Random {
    fn page(&mut self, pages: u32) -> Lpn {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Lpn((self.0 % u64::from(pages)) as u32)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let text: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| text.get(at).map_or(Ok(default), |text| text.parse());
    let (blocks, pages, spare) = (number(0, 2048)?, number(1, 13)?, number(2, 70)?);
    let geometry = Geometry::new(Sizes {
        channels: 4,
        dies_per_channel: 2,
        planes_per_die: 1,
        blocks_per_plane: blocks.div_ceil(8),
        pages_per_block: 128,
        page_size: 8192,
    })?;
    let common = Options { spare_permille: spare, ..Options::default() };
    println!(
        "{} blocks x 128 pages, {} permille spare, transactions of {pages} pages",
        geometry.blocks(),
        spare
    );
    println!("layer   writes   readers   host     gc    map  commit   all/host   bytes/page   M/s");
    for (name, whole_dumps) in [("mv", true), ("mv-part", false)] {
        let options = mvftl::Options { whole_dumps, ..mvftl::Options::new(&geometry, &common)? };
        for readers in [0, 1, 8] {
            let layer = mvftl::MvFtl::format(NandSim::<()>::new(geometry), options)?;
            measure(name, layer, pages, readers)?;
        }
    }
    let options = xftl::Options::new(&geometry, &common)?;
    measure("x", xftl::XFtl::format(NandSim::<()>::new(geometry), options)?, pages, 0)?;
    let options = mvftl::Options::new(&geometry, &common)?;
    measure("mv", mvftl::MvFtl::format(NandSim::<()>::new(geometry), options)?, 0, 0)?;
    let options = xftl::Options::new(&geometry, &common)?;
    measure("x", xftl::XFtl::format(NandSim::<()>::new(geometry), options)?, 0, 0)?;
    Ok(())
}

/// Transactions of `pages` pages, or plain writes if that is 0, with so many readers. A reader
/// holds its version for as many transactions as there are readers.
fn measure<L: Transactional>(name: &str, mut layer: L, pages: u32, readers: usize) -> Result<()> {
    let logical = layer.logical_pages();
    for lpn in 0..logical {
        layer.write(Lpn(lpn), &[])?;
    }
    layer.flush()?;
    let mut random = Random(88_172_645_463_325_252);
    let each = u64::from(pages.max(1));
    let transactions = u64::from(logical) / each;
    let mut open = std::collections::VecDeque::new();
    let mut run = |layer: &mut L, transactions: u64| -> Result<()> {
        for _ in 0..transactions {
            if pages == 0 {
                layer.write(random.page(logical), &[])?;
                continue;
            }
            if readers > 0 {
                open.push_back(layer.begin()?);
            }
            if open.len() > readers
                && let Some(reader) = open.pop_front()
            {
                layer.end(reader)?;
            }
            let tx = layer.begin()?;
            for _ in 0..pages {
                layer.write_in(tx, random.page(logical), &[])?;
            }
            layer.commit(tx)?;
        }
        Ok(())
    };
    run(&mut layer, transactions * 2)?;
    let (before, start) = (*layer.counters(), Instant::now());
    run(&mut layer, transactions)?;
    let seconds = start.elapsed().as_secs_f64();
    layer.check()?;
    let counts = layer.counters().since(&before);
    let per = |cause: Cause| counts.of(cause).programs as f64 / transactions as f64;
    let writes = (transactions * each) as f64;
    println!(
        "{name:<7} {:<8} {readers:>7} {:>6.2} {:>6.2} {:>6.3} {:>7.3} {:>10.3} {:>12.2} {:>5.2}",
        if pages == 0 { "plain" } else { "in tx" },
        per(Cause::Host),
        per(Cause::Gc) + per(Cause::Wear),
        per(Cause::Map),
        per(Cause::Commit),
        counts.total().programs as f64 / writes,
        layer.ram_bytes() as f64 / f64::from(layer.geometry().pages()),
        writes / seconds / 1e6,
    );
    Ok(())
}
