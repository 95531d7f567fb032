//! A simulated SSD below Esker's files: what the flash does for a row.
//!
//! The files stay in their folder, and a translation layer does beside what an SSD would. It
//! begins empty, writes what is in the folder, and counts from when the store is open until it is
//! closed. Rates and latencies include the simulation and say nothing.

use std::path::Path;
use std::sync::Arc;

use esker_device::file::FileDevice;
use esker_flash::run::spec::Spec;
use esker_flash::simulate::layer;
use esker_flash::ssd::{SsdDevice, SsdReport};
use esker_lab_result::Metrics;
use serde_json::{Value, json};

use crate::{Error, Result};

/// What a name begins with.
const PREFIX: &str = "nand:";
/// Bytes of a device beside those for its data: the log and the manifest.
const BESIDE_BYTES: u64 = 32 << 20;

/// A kind of simulated SSD, as it was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// Settings of [`Spec::set`].
    settings: Vec<(String, String)>,
}

impl Media {
    /// The SSD `nand:PRESET` with other settings of [`Spec::set`].
    ///
    /// # Errors
    /// [`Error::Input`] for a name, a setting or a value that there is not.
    pub fn of(name: &str, others: &[(&str, &str)]) -> Result<Self> {
        let preset = name.strip_prefix(PREFIX).ok_or_else(|| {
            Error::Input(format!("a simulated SSD is nand:PRESET, such as nand:femu, not '{name}'"))
        })?;
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let settings = [("preset", preset)].iter().chain(others).map(owned).collect();
        let media = Self { settings };
        media.spec()?;
        Ok(media)
    }

    fn spec(&self) -> Result<Spec> {
        let mut spec = Spec::default();
        for (name, value) in &self.settings {
            spec.set(name, value).map_err(|error| Error::Input(error.to_string()))?;
        }
        Ok(spec)
    }

    /// As JSON, for a task and for findings.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!(self.settings)
    }

    /// What [`to_json`](Self::to_json) made; none for anything else.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |of: &Value, at: usize| Some(of.get(at)?.as_str()?.to_owned());
        let settings = value.as_array()?.iter().map(|of| Some((text(of, 0)?, text(of, 1)?)));
        let media = Self { settings: settings.collect::<Option<_>>()? };
        media.spec().is_ok().then_some(media)
    }

    /// The SSD below the files of a folder, which is created if there is none. Without a size of
    /// its own it holds `times` times the user's bytes, and the log.
    ///
    /// # Errors
    /// Sizes that no device can have, one that is too small for what is in the folder, and those
    /// of the folder.
    pub fn device(&self, folder: &Path, user_bytes: u64, times: u64) -> Result<Arc<SsdDevice>> {
        let mut spec = self.spec()?;
        let fitting = user_bytes.saturating_mul(times).saturating_add(BESIDE_BYTES);
        spec.capacity_bytes.get_or_insert(fitting);
        let layer = layer(&spec).map_err(|error| Error::Input(error.to_string()))?;
        let files = match folder.is_dir() {
            true => FileDevice::open(folder),
            false => FileDevice::create(folder),
        };
        let files = Arc::new(files.map_err(esker::Error::from)?);
        let device = SsdDevice::placed(files, layer, spec.placement);
        Ok(Arc::new(device.map_err(esker::Error::from)?))
    }
}

/// What the SSD did between two reports.
pub(super) fn metrics(before: &SsdReport, after: &SsdReport, device: &SsdDevice) -> Metrics {
    let (made, page) = (after.since(before), after.page_bytes as f64);
    let total = made.flash.total();
    let used = device.used_pages() as f64 / f64::from(device.logical_pages().max(1));
    let named = [
        ("device_written_bytes", made.host.writes as f64 * page),
        ("device_amplification", made.write_amplification()),
        ("device_programmed_bytes", total.programs as f64 * page),
        ("device_erases", total.erases as f64),
        ("device_erases_of_block_mean", made.wear.mean),
        ("device_erases_of_block_max", f64::from(made.wear.max)),
        ("device_wear_spread", f64::from(made.wear.spread)),
        ("device_used_share", used),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use esker_device::memory::MemoryDevice;
    use esker_peers::{Arrangement, Durability, Name, system};

    use super::*;

    #[test]
    fn media_are_read_back() {
        let others = [("op", "14"), ("placement", "purpose"), ("capacity", "64")];
        let media = Media::of("nand:femu", &others).unwrap();
        assert_eq!(Media::from_json(&media.to_json()), Some(media));
        for (name, words) in [("femu", "nand:PRESET"), ("nand:optane", "mqsim, femu")] {
            let error = Media::of(name, &[]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(Media::of("nand:femu", &[("op", "0")]).is_err());
        assert_eq!(Media::from_json(&json!([["preset", "?"]])), None);
        assert_eq!(Media::from_json(&Value::Null), None);
    }

    #[test]
    fn a_peer_on_a_simulated_device_is_refused() {
        let device = || Arc::new(MemoryDevice::new());
        let arranged = Arrangement::default();
        for name in Name::ALL.into_iter().filter(|name| *name != Name::Esker) {
            let error = system::open_on(name, device(), 1 << 20, arranged).err().unwrap();
            let error = error.to_string();
            assert!(error.contains("through the kernel") && !error.contains('\n'), "{error}");
        }
        let store = system::open_on(Name::Esker, device(), 4 << 20, arranged).unwrap();
        store.put(b"a", b"b", Durability::Buffered).unwrap();
        store.close().unwrap();
    }
}
