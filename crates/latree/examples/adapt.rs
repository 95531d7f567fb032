//! ADAPT against fixed sizes of buffers, and against a B+tree of the same code, by the clock of the
//! simulated chip: microseconds of the device for each operation.
//!
//! `cargo run --release --example adapt -p esker-latree -- [UPDATES] [PRESET] [BLOCKS]`
//!
//! Updates are two thirds puts and one third removals of 64-bit keys; half of the lookups are of
//! keys that are there. Lookups to updates (LTU) from 0.01 to 1000 %. The first third is not
//! measured.

use esker_flash::nand::{Bytes, NandSim};
use esker_flash::nand::{Nand, preset};
use esker_latree::{Buffering, LaTree, Options, Result, Scan, Simulated};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 29)
    }
}

type Tree = LaTree<Simulated<NandSim<Bytes>>>;

/// Time of the device for each operation, in microseconds, and how often blocks were erased.
fn run(mut tree: Tree, updates: u64, lookups: f64) -> Result<(f64, f64)> {
    let (mut random, mut live) = (Random(3), Vec::new());
    let (mut owed, mut begin, mut operations) = (0.0, 0, 0_u64);
    for update in 0..updates {
        if update == updates / 3 {
            begin = elapsed(&tree);
            operations = 0;
        }
        if random.next() % 3 < 2 || live.is_empty() {
            let key = random.next() >> 24;
            live.push(key);
            tree.put(&key.to_be_bytes(), &update.to_le_bytes())?;
        } else {
            let at = random.next() as usize % live.len();
            tree.remove(&live.swap_remove(at).to_be_bytes())?;
        }
        operations += 1;
        owed += lookups;
        while owed >= 1.0 {
            owed -= 1.0;
            operations += 1;
            let key = match live.get(random.next() as usize % live.len().max(1)) {
                Some(key) if random.next() % 2 == 0 => *key,
                _ => random.next() >> 24,
            };
            tree.get(&key.to_be_bytes())?;
        }
    }
    let chip = &tree.chip().0;
    let erases = chip.counters().total().erases as f64 / f64::from(chip.geometry().blocks());
    Ok(((elapsed(&tree) - begin) as f64 / 1000.0 / operations as f64, erases))
}

fn elapsed(tree: &Tree) -> u64 {
    tree.chip().0.clock().map_or(0, |clock| clock.until_ns())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let updates = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let preset = preset(arguments.next().as_deref().unwrap_or("slc512"))?;
    let blocks = arguments.next().map_or(Ok(512), |text| text.parse())?;
    let sizes = [1, 4, 16, 64, 256].map(|kib| Buffering::Fixed(kib << 10));
    let mut kinds = vec![Buffering::Adaptive];
    kinds.extend(sizes);
    kinds.push(Buffering::Off);
    println!(
        "LTU %     ADAPT    1 KiB    4 KiB   16 KiB   64 KiB  256 KiB   B+tree  ADAPT/best  erases"
    );
    for percent in [0.01, 1.0, 10.0, 50.0, 100.0, 200.0, 1000.0] {
        let (mut times, mut erases) = (Vec::new(), 0.0);
        for buffering in &kinds {
            let chip = NandSim::with_clock(preset.geometry(Some(blocks))?, preset.timing);
            let options =
                Options { scan: Scan::Sorted, buffering: *buffering, ..Options::default() };
            let tree = LaTree::create(Simulated(chip), options)?;
            let found = run(tree, updates, percent / 100.0)?;
            times.push(found.0);
            erases = if *buffering == Buffering::Adaptive { found.1 } else { erases };
        }
        let best = times[1..=sizes.len()].iter().copied().fold(f64::INFINITY, f64::min);
        let row: String = times.iter().map(|time| format!("{time:9.1}")).collect();
        println!("{percent:<7}{row}  {:10.2}  {erases:6.1}", times[0] / best);
    }
    Ok(())
}
