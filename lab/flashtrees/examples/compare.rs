//! All trees on one chip and one workload: `compare UPDATES LTU% MEMORY_KIB [PRESET [BLOCKS]]`.
//!
//! `compare 300000 10 128` is the paper's chip of 128 MiB with the synthetic workload. A preset
//! with several dies is a device with a translation layer inside. `sequential-storage` is left
//! out: it reads its whole log for a key that is not there.

use std::error::Error;

use esker_flash::NandSim;
use esker_flash::ftl::{Options, PageMapped};
use esker_flash::nand::{Bytes, preset};
use esker_flashtrees::FlashTree;
use esker_flashtrees::rivals::{DEVICE_UNIT_PAGES, Rival};
use esker_flashtrees::run::run;
use esker_flashtrees::workload::Workload;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let updates: u64 = next("300000").parse()?;
    let ltu: f64 = next("10").parse::<f64>()? / 100.0;
    let memory = next("128").parse::<usize>()? << 10;
    let preset = preset(&next("slc512"))?;
    let blocks: u32 = next("8192").parse()?;
    let geometry = preset.geometry(Some(blocks))?;
    println!("{updates} updates, LTU {} %, {memory} bytes, {}", ltu * 100.0, preset.about);
    for rival in Rival::ALL {
        let is_device = geometry.dies() > 1;
        if rival == Rival::Sequential || (rival == Rival::InPlace && is_device) {
            continue;
        }
        let nand = NandSim::<Bytes>::with_clock(geometry, preset.timing);
        let options = Options::default();
        let made: esker_flashtrees::Result<Box<dyn FlashTree>> = if is_device {
            rival.on_device(PageMapped::format(nand, &options)?, DEVICE_UNIT_PAGES, memory)
        } else {
            rival.on_chip(nand, &options, memory)
        };
        let workload = Workload::synthetic(3, ltu);
        match made.and_then(|mut tree| run(tree.as_mut(), workload, updates / 3, updates)) {
            Ok(report) => println!("{:<12} {}", rival.name(), report.line()),
            Err(error) => println!("{:<12} {error}", rival.name()),
        }
    }
    Ok(())
}
