//! The translation layers by name.
//!
//! A new layer is one line of [`LAYERS`].

use super::memory;
use crate::ftl::mvftl::{self, MvFtl};
use crate::ftl::xftl::{self, XFtl};
use crate::ftl::{Dftl, Ftl, Options, PageMapped};
use crate::nand::{Geometry, NandSim, Timing};
use crate::{Error, Result};

/// A translation layer that can be asked for by name.
#[derive(Debug)]
pub struct Layer {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    make: fn(&Build) -> Result<Box<dyn Ftl + Send>>,
}

/// What a layer is made of.
#[derive(Clone, Debug)]
pub struct Build {
    /// The sizes of the device.
    pub geometry: Geometry,
    /// The times of its operations, where there is a clock.
    pub timing: Option<Timing>,
    /// What all layers can be told.
    pub options: Options,
}

/// Entries of the map that DFTL caches, of 1,000; its paper has 5 to 30.
const DFTL_CACHE_PERMILLE: u32 = 10;

/// Every layer; the first is the default.
pub const LAYERS: [Layer; 4] = [
    Layer {
        name: "page",
        about: "the whole map in memory",
        make: |build| Ok(Box::new(PageMapped::format(build.nand(), &build.options)?)),
    },
    Layer {
        name: "dftl",
        about: "DFTL: the map on flash, 1 % of its entries cached",
        make: |build| {
            let made = Dftl::format(build.nand(), &build.options, DFTL_CACHE_PERMILLE)?;
            Ok(Box::new(made))
        },
    },
    Layer {
        name: "xftl",
        about: "X-FTL: a table of the pages of transactions; plain writes go to the map",
        make: |build| {
            let options = xftl::Options::new(&build.geometry, &build.options)?;
            Ok(Box::new(XFtl::format(build.nand(), options)?))
        },
    },
    Layer {
        name: "mv",
        about: "MV-FTL: versions of pages for readers; plain writes are a transaction",
        make: |build| {
            let options = mvftl::Options::new(&build.geometry, &build.options)?;
            Ok(Box::new(MvFtl::format(build.nand(), options)?))
        },
    },
];

impl Layer {
    /// An empty device with this layer, without pages' contents.
    ///
    /// # Errors
    /// Options that the layer cannot have.
    pub fn format(&self, build: &Build) -> Result<Box<dyn Ftl + Send>> {
        (self.make)(build)
    }

    /// A bound of the memory that a device with this layer takes, in bytes.
    pub(super) fn needed_bytes(&self, build: &Build) -> u64 {
        let cached = u64::from(build.geometry.pages()) * u64::from(DFTL_CACHE_PERMILLE) / 1_000;
        memory::needed_bytes(&build.geometry, if self.name == "dftl" { cached } else { 0 })
    }

    /// Refuses a device for which the machine has too little memory; where the system does not say
    /// how much it has, none.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn require_memory(&self, build: &Build) -> Result<()> {
        let needed_bytes = self.needed_bytes(build);
        match memory::available_bytes() {
            Some(available_bytes) if available_bytes < needed_bytes => {
                Err(Error::Memory { needed_bytes, available_bytes })
            }
            _ => Ok(()),
        }
    }
}

impl Build {
    fn nand(&self) -> NandSim<()> {
        match self.timing {
            Some(timing) => NandSim::with_clock(self.geometry, timing),
            None => NandSim::new(self.geometry),
        }
    }
}

/// The names of all layers.
#[must_use]
pub fn ftl_names() -> Vec<&'static str> {
    LAYERS.iter().map(|layer| layer.name).collect()
}

pub(super) fn default_layer() -> &'static Layer {
    let [first, ..] = &LAYERS;
    first
}

/// The layer of this name; the error lists those that there are.
pub(super) fn layer(name: &str) -> std::result::Result<&'static Layer, String> {
    LAYERS.iter().find(|layer| layer.name == name).ok_or_else(|| {
        format!("there is no translation layer {name}: the layers are {}", ftl_names().join(", "))
    })
}
