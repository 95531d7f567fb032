//! The options of a simulated SSD below Esker's files.

use clap::Args as ClapArgs;
use esker_experiments::Name;
use esker_experiments::stores::media::Media;
use esker_terminal::exit::Failure;

use crate::measuring::failure;

/// The SSD, if one is asked for.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Simulated SSD below Esker's files: nand:PRESET, with a preset of `esker flash sim`
    #[arg(long, value_name = "nand:PRESET", conflicts_with = "peers")]
    media: Option<String>,
    /// With `--media`: spare blocks in percent of the usable ones [default: 7]
    #[arg(long, value_name = "PERCENT", requires = "media")]
    op: Option<String>,
    /// With `--media`: blocks of a plane, with the preset's channels and dies [default: what holds
    /// three times the data, on as many dies as have 64 blocks]
    #[arg(long, value_name = "N", requires = "media", conflicts_with = "capacity")]
    blocks: Option<u32>,
    /// With `--media`: MiB that the host can use, instead of three times the data
    #[arg(long, value_name = "MIB", requires = "media")]
    capacity: Option<u32>,
    /// With `--media`: streams of writes with blocks of their own, none or purpose [default: none]
    #[arg(long, value_name = "HOW", requires = "media")]
    placement: Option<String>,
}

impl Args {
    /// What was asked for, for these systems.
    pub(super) fn media(&self, systems: &[Name]) -> Result<Option<Media>, Failure> {
        let Some(name) = &self.media else { return Ok(None) };
        if let Some(peer) = systems.iter().find(|system| **system != Name::Esker) {
            let what = "writes through the kernel: --media is for esker alone";
            return Err(Failure::Input(format!("{peer} {what}")));
        }
        let text = |number: Option<u32>| number.map(|number| number.to_string());
        let (blocks, capacity) = (text(self.blocks), text(self.capacity));
        let sizes = [("blocks", &blocks), ("capacity", &capacity)];
        let others = [("op", &self.op), ("placement", &self.placement)].into_iter().chain(sizes);
        let given = others.filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let others: Vec<_> = given.collect();
        Media::of(name, &others).map(Some).map_err(failure)
    }
}
