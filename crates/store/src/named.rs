//! Versions that stay readable under a name, also after the store has been opened again.
//!
//! The manifest has the names. Each name pins its version, from when it is recorded or the store is
//! opened, in all keyspaces whose history it is part of.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::manifest_edit::Edit;
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::Mutex;

use crate::error::{Error, Result};
use crate::read_point::Pin;
use crate::slot::Slot;
use crate::times::{oldest_of, users};

/// Most versions with names.
const NAMES_MAX: usize = 1000;

/// A version with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedVersion {
    /// The name.
    pub name: String,
    /// The version.
    pub version: u64,
}

/// The versions with names.
#[derive(Debug, Default)]
pub(crate) struct Named(Mutex<BTreeMap<String, NamedPin>>);

#[derive(Debug)]
struct NamedPin {
    version: Seq,
    /// One for each keyspace that can read it.
    pins: Vec<Arc<Pin>>,
}

impl NamedPin {
    fn new<'a>(version: Seq, slots: impl IntoIterator<Item = &'a Arc<Slot>>) -> Self {
        let pins = slots.into_iter().filter_map(|slot| Pin::new(slot, version)).collect();
        Self { version, pins }
    }
}

impl Named {
    /// Those of the manifest, in a store that is being opened.
    pub fn open(names: &BTreeMap<String, Seq>, slots: &BTreeMap<String, Arc<Slot>>) -> Self {
        let pin = |(name, version): (&String, &Seq)| {
            let pinned = users(slots.values()).filter(|_| !planted::is(Bug::NamesNotPinned));
            (name.clone(), NamedPin::new(*version, pinned))
        };
        Self(Mutex::new(names.iter().map(pin).collect()))
    }

    /// Those of the manifest now, in a store that another process writes: that one keeps them.
    pub fn replace(&self, names: &BTreeMap<String, Seq>) {
        let pin = |(name, version): (&String, &Seq)| {
            (name.clone(), NamedPin { version: *version, pins: Vec::new() })
        };
        *self.0.lock() = names.iter().map(pin).collect();
    }

    pub fn version(&self, name: &str) -> Result<u64> {
        let named = self.0.lock();
        named.get(name).map(|pin| pin.version.0).ok_or_else(|| unknown(name))
    }

    /// Gives a version up to `newest` a name, which `commit` makes durable.
    pub fn pin(
        &self,
        slots: &[Arc<Slot>],
        name: &str,
        (version, newest): (Seq, Seq),
        commit: impl FnOnce(Edit) -> Result<()>,
    ) -> Result<()> {
        let mut named = self.0.lock();
        if named.contains_key(name) {
            return Err(Error::invalid(format!(
                "a version is kept as {name} already: unpin it first"
            )));
        }
        if named.len() >= NAMES_MAX {
            let what = format!("{NAMES_MAX} versions have names: unpin one first");
            return Err(Error::invalid(what));
        }
        let pin = NamedPin::new(version, users(slots));
        if pin.pins.is_empty() || version > newest {
            return Err(unreadable(slots, version, newest));
        }
        commit(Edit::Pin { name: name.to_owned(), version })?;
        named.insert(name.to_owned(), pin);
        Ok(())
    }

    /// Gives a name up, which `commit` makes durable.
    pub fn unpin(&self, name: &str, commit: impl FnOnce(Edit) -> Result<()>) -> Result<()> {
        let mut named = self.0.lock();
        if !named.contains_key(name) {
            return Err(unknown(name));
        }
        commit(Edit::Unpin { name: name.to_owned() })?;
        named.remove(name);
        Ok(())
    }

    pub fn all(&self) -> Vec<NamedVersion> {
        let named = self.0.lock();
        let version = |(name, pin): (&String, &NamedPin)| NamedVersion {
            name: name.clone(),
            version: pin.version.0,
        };
        named.iter().map(version).collect()
    }
}

fn unknown(name: &str) -> Error {
    Error::invalid(format!("no version is kept as {name}"))
}

/// No keyspace can read the version.
fn unreadable(slots: &[Arc<Slot>], version: Seq, newest: Seq) -> Error {
    Error::invalid(match oldest_of(slots) {
        None => format!("version {version} cannot be kept: no keyspace keeps history"),
        Some(oldest) => {
            format!("version {version} cannot be kept: there are versions {oldest} to {newest}")
        }
    })
}
