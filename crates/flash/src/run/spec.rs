//! A simulation described by names and numbers, as a command line or a program gives them.
//!
//! Every setting can be given as text by [`Spec::set`], which is how sweeps vary them and how other
//! languages pass them; an error names the setting and its choices.

use super::fit::Content;
use super::registry::{Layer, layer};
use super::{Pace, WarmUp};
use crate::ftl::{Options, Policy};
use crate::nand::{Geometry, PRESETS, Preset, preset};
use crate::placement::Placement;
use crate::trace::TraceSource;
use crate::workload::Workload;

pub use super::fit::SizesGiven;
pub use super::registry::ftl_names;

/// The names of all presets.
#[must_use]
pub fn preset_names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Where the operations come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A file.
    Trace(TraceSource),
    /// A synthetic workload.
    Workload(Workload),
    /// Requests of the caller.
    Requests,
}

/// A simulation. [`Spec::default`] is random writes to the first preset, with 7 % of spare blocks,
/// after two overwrites, without a clock.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The preset whose sizes and times hold where no others are given.
    pub preset: &'static Preset,
    /// Sizes that replace those of the preset.
    pub sizes: SizesGiven,
    /// Bytes that the host can use, about, where no number of blocks is given.
    pub capacity_bytes: Option<u64>,
    /// The translation layer.
    pub layer: &'static Layer,
    /// How garbage collection chooses its victims.
    pub policy: Policy,
    /// Spare pages for each 1,000 logical ones: 70 is 7 %.
    pub op_permille: u32,
    /// Which streams writes are in, by the numbers of a trace.
    pub placement: Placement,
    /// Where the operations come from.
    pub input: Input,
    /// Pages of a request of a workload, at least 1.
    pub request_pages: u32,
    /// The most requests that are run.
    pub requests_max: Option<u64>,
    /// When requests are issued.
    pub pace: Pace,
    /// What happens before.
    pub warm_up: WarmUp,
    /// Whether addresses behind the end begin again at the start.
    pub wraps: bool,
    /// The seed of everything random.
    pub seed: u64,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no setting of this name.
    #[error("there is no setting {name}: the settings are {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// Every name, with commas.
        known: String,
    },
    /// Its value is not one of those it takes.
    #[error("{name} is {expected}, not '{given}'")]
    Value {
        /// The setting.
        name: &'static str,
        /// What it takes.
        expected: String,
        /// What was given.
        given: String,
    },
    /// The text names a preset, a layer, a workload or a trace that there is not.
    #[error("{0}")]
    Name(String),
    /// Two settings, or a setting and a device, do not fit.
    #[error("{0}")]
    Fit(String),
}

/// The settings of [`Spec::set`].
const SETTINGS: [&str; 22] = [
    "preset",
    "channels",
    "dies",
    "planes",
    "blocks",
    "pages",
    "page-size",
    "capacity",
    "ftl",
    "gc",
    "op",
    "placement",
    "trace",
    "workload",
    "ops",
    "request-pages",
    "qd",
    "timed",
    "warm-up",
    "fresh",
    "wrap",
    "seed",
];

impl Default for Spec {
    fn default() -> Self {
        let [preset, ..] = &PRESETS;
        Self {
            preset,
            sizes: SizesGiven::default(),
            capacity_bytes: None,
            layer: super::registry::default_layer(),
            policy: Options::default().policy,
            op_permille: 70,
            placement: Placement::None,
            input: Input::Workload(Workload::RandWrite),
            request_pages: 1,
            requests_max: None,
            pace: Pace::Untimed,
            warm_up: WarmUp::Overwritten(2.0),
            wraps: false,
            seed: 0,
        }
    }
}

impl Spec {
    /// Changes a setting. `blocks`, `channels` and the other sizes hold for whatever preset is set
    /// before or after them. `capacity` is in MiB.
    ///
    /// # Errors
    /// An unknown setting, or a value that it does not take.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SpecError> {
        match name {
            "preset" => self.preset = preset(value).map_err(named)?,
            "channels" => self.sizes.channels = Some(count("channels", value)?),
            "dies" => self.sizes.dies = Some(count("dies", value)?),
            "planes" => self.sizes.planes = Some(count("planes", value)?),
            "blocks" => self.sizes.blocks = Some(count("blocks", value)?),
            "pages" => self.sizes.pages = Some(count("pages", value)?),
            "page-size" => self.sizes.page_size = Some(count("page-size", value)?),
            "capacity" => self.capacity_bytes = Some(u64::from(count("capacity", value)?) << 20),
            "ftl" => self.layer = layer(value).map_err(SpecError::Name)?,
            "gc" => self.policy = value.parse().map_err(named)?,
            "op" => self.op_permille = permille(value)?,
            "placement" => self.placement = value.parse().map_err(SpecError::Name)?,
            "trace" => self.input = Input::Trace(value.parse().map_err(named)?),
            "workload" => self.input = Input::Workload(value.parse().map_err(named)?),
            "ops" => self.requests_max = Some(number("ops", value)?),
            "request-pages" => self.request_pages = count("request-pages", value)?,
            "qd" => self.pace = Pace::QueueDepth(count("qd", value)?),
            "timed" => {
                if flag("timed", value)? {
                    self.pace = Pace::Recorded;
                } else if self.pace == Pace::Recorded {
                    self.pace = Pace::Untimed;
                }
            }
            "warm-up" => self.warm_up = WarmUp::Overwritten(times(value)?),
            "fresh" => {
                if flag("fresh", value)? {
                    self.warm_up = WarmUp::Fresh;
                } else if self.warm_up == WarmUp::Fresh {
                    self.warm_up = Self::default().warm_up;
                }
            }
            "wrap" => self.wraps = flag("wrap", value)?,
            "seed" => self.seed = number("seed", value)?,
            _ => {
                let (name, known) = (name.to_owned(), SETTINGS.join(", "));
                return Err(SpecError::Unknown { name, known });
            }
        }
        Ok(())
    }

    /// The sizes of the device.
    ///
    /// # Errors
    /// Sizes that no device can have.
    pub fn geometry(&self) -> Result<Geometry, SpecError> {
        let content = self.capacity_bytes.map(|logical_bytes| Content {
            logical_bytes,
            spare_permille: self.op_permille,
            // An open block of each stream, that of garbage collection, one that is being emptied,
            // and the reserve.
            set_aside: self.placement.streams() + 2 + Options::default().reserve_blocks,
        });
        let sizes = self.sizes.over(&self.preset.sizes, content);
        Geometry::new(sizes).map_err(|error| SpecError::Fit(error.to_string()))
    }
}

fn named(error: impl std::fmt::Display) -> SpecError {
    SpecError::Name(error.to_string())
}

fn wrong(name: &'static str, expected: &str, given: &str) -> SpecError {
    SpecError::Value { name, expected: expected.to_owned(), given: given.to_owned() }
}

fn number(name: &'static str, text: &str) -> Result<u64, SpecError> {
    text.parse().map_err(|_| wrong(name, "a whole number below 2^64", text))
}

fn count(name: &'static str, text: &str) -> Result<u32, SpecError> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| wrong(name, "a whole number from 1 on, below 2^32", text))
}

fn flag(name: &'static str, text: &str) -> Result<bool, SpecError> {
    text.parse().map_err(|_| wrong(name, "true or false", text))
}

/// A percentage in tenths.
fn permille(text: &str) -> Result<u32, SpecError> {
    let percent: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    percent
        .map(|percent| (percent * 10.0).round())
        .filter(|permille| (1.0..=10_000.0).contains(permille))
        .map(|permille| permille as u32)
        .ok_or_else(|| wrong("op", "a percentage from 0.1 to 1000", text))
}

fn times(text: &str) -> Result<f64, SpecError> {
    let number = text.parse().ok().filter(|times| *times >= 0.0 && *times <= 1e6);
    number.ok_or_else(|| wrong("warm-up", "a number of overwrites from 0 to 1000000", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let mut spec = Spec::default();
        for (name, value) in [
            ("blocks", "16"),
            ("preset", "femu"),
            ("channels", "2"),
            ("gc", "fifo"),
            ("op", "14%"),
            ("placement", "streams:3"),
            ("workload", "zipf:0.9"),
            ("qd", "8"),
            ("timed", "false"),
            ("warm-up", "1.5"),
            ("seed", "9"),
        ] {
            spec.set(name, value).unwrap();
        }
        let geometry = spec.geometry().unwrap();
        assert_eq!((geometry.channels(), geometry.dies(), geometry.page_size()), (2, 16, 4096));
        assert_eq!(geometry.blocks_per_die(), 16);
        assert_eq!((spec.op_permille, spec.pace), (140, Pace::QueueDepth(8)));
        assert_eq!((spec.warm_up, spec.seed), (WarmUp::Overwritten(1.5), 9));
        assert_eq!(spec.placement, Placement::Streams(3));
    }

    #[test]
    fn a_wrong_setting_names_what_there_is() {
        let mut spec = Spec::default();
        for (name, value, words) in [
            ("preset", "optane", "mqsim, femu"),
            ("ftl", "best", "page"),
            ("gc", "lazy", "greedy"),
            ("workload", "burst", "randwrite"),
            ("trace", "x.csv", "msr, blkparse"),
            ("op", "0", "from 0.1"),
            ("placement", "level", "none, purpose"),
            ("op", "nan", "from 0.1"),
            ("op", "-7", "from 0.1"),
            ("qd", "0", "from 1"),
            ("blocks", "4294967296", "2^32"),
            ("seed", "-1", "2^64"),
            ("warm-up", "inf", "0 to"),
            ("wrap", "yes", "true or false"),
            ("speed", "1", "page-size"),
        ] {
            let error = spec.set(name, value).unwrap_err().to_string();
            assert!(error.contains(words), "{name}={value}: {error}");
            assert!(!error.contains('\n'));
        }
        spec.set("blocks", "4294967295").unwrap();
        assert!(spec.geometry().unwrap_err().to_string().contains("at most 2147483647"));
    }

    #[test]
    fn every_setting_is_known() {
        for name in SETTINGS {
            let error = Spec::default().set(name, "?").unwrap_err().to_string();
            assert!(!error.contains("the settings are"), "{name}: {error}");
        }
    }
}
