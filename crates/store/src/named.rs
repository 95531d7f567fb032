//! Versions that stay readable under a name, also after the store has been opened again.
//!
//! The manifest has the names. Each name pins its version, from when it is recorded or the store is
//! opened, in all keyspaces whose history it is part of.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::KEYSPACE_NAME_BYTES_MAX;
use esker_format::ids::Seq;
use esker_format::manifest_edit::{Edit, keyspace_name_is_valid};
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::Mutex;

use crate::db::Db;
use crate::error::{Error, Result};
use crate::past::at;
use crate::read_point::Pin;
use crate::shared::Core;
use crate::slot::Slot;

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
    _pins: Vec<Arc<Pin>>,
}

impl NamedPin {
    fn new<'a>(version: Seq, slots: impl IntoIterator<Item = &'a Arc<Slot>>) -> Self {
        let pins = slots.into_iter().filter_map(|slot| Pin::new(slot, at(version))).collect();
        Self { version, _pins: pins }
    }
}

impl Named {
    /// Those of the manifest, in a store that is being opened.
    pub fn open(names: &BTreeMap<String, Seq>, slots: &BTreeMap<String, Arc<Slot>>) -> Self {
        let pin = |(name, version): (&String, &Seq)| {
            let pinned = slots.values().filter(|_| !planted::is(Bug::NamesNotPinned));
            (name.clone(), NamedPin::new(*version, pinned))
        };
        Self(Mutex::new(names.iter().map(pin).collect()))
    }

    pub fn version(&self, name: &str) -> Result<u64> {
        let named = self.0.lock();
        named.get(name).map(|pin| pin.version.0).ok_or_else(|| unknown(name))
    }

    fn pin(&self, shared: &Core, name: &str, version: Seq) -> Result<()> {
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
        let slots = shared.slots();
        let pin = NamedPin::new(version, users(&slots));
        let newest = shared.snapshots().visible();
        if pin._pins.is_empty() || version > newest {
            return Err(unreadable(&slots, version, newest));
        }
        shared.poison.check()?;
        // Or a power cut could take the version back.
        shared.log.sync_to(version)?;
        shared.commit_edits(&[Edit::Pin { name: name.to_owned(), version }])?;
        named.insert(name.to_owned(), pin);
        Ok(())
    }

    fn unpin(&self, shared: &Core, name: &str) -> Result<()> {
        let mut named = self.0.lock();
        if !named.contains_key(name) {
            return Err(unknown(name));
        }
        shared.poison.check()?;
        shared.commit_edits(&[Edit::Unpin { name: name.to_owned() }])?;
        named.remove(name);
        Ok(())
    }

    fn all(&self) -> Vec<NamedVersion> {
        let named = self.0.lock();
        let version = |(name, pin): (&String, &NamedPin)| NamedVersion {
            name: name.clone(),
            version: pin.version.0,
        };
        named.iter().map(version).collect()
    }
}

impl Db {
    /// Keeps `version` readable under a name until [`unpin`](Self::unpin) is called with it, also
    /// after the store has been opened again: in all keyspaces whose
    /// [history](crate::KeyspaceOptions::history) it is part of now. What past indexes they keep
    /// for it takes space. Two syncs.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-pin-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// use esker::{History, KeyspaceOptions};
    /// let options = KeyspaceOptions::default().history(History::Newest(1000));
    /// let prices = db.keyspace("prices", options)?;
    /// prices.insert("tea", "3.20")?;
    /// db.pin("audited", db.version())?;
    /// prices.insert("tea", "3.60")?;
    /// assert_eq!(prices.at_named("audited")?.get("tea")?, Some(b"3.20".to_vec()));
    /// db.unpin("audited")?;
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for a name that is in use, empty, longer than 255 bytes or with
    /// control characters, when 1000 versions have names, and for a version that no keyspace can
    /// read; those of a write.
    pub fn pin(&self, name: &str, version: u64) -> Result<()> {
        if !keyspace_name_is_valid(name) {
            let most = KEYSPACE_NAME_BYTES_MAX;
            return Err(Error::invalid(format!(
                "the name of a version is 1 to {most} bytes without control characters"
            )));
        }
        let _open = self.shared.enter()?;
        self.shared.named.pin(&self.shared, name, Seq(version))
    }

    /// Gives up the name of a version. What only it has kept is freed as the keyspace's history
    /// says. One sync.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) when no version has this name; those of a write.
    pub fn unpin(&self, name: &str) -> Result<()> {
        let _open = self.shared.enter()?;
        self.shared.named.unpin(&self.shared, name)
    }

    /// The versions with names, in the order of the names. No I/O.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed).
    pub fn named_versions(&self) -> Result<Vec<NamedVersion>> {
        let _open = self.shared.enter()?;
        Ok(self.shared.named.all())
    }
}

/// The keyspaces of users.
fn users(slots: &[Arc<Slot>]) -> impl Iterator<Item = &Arc<Slot>> {
    slots.iter().filter(|slot| !crate::times::is_of_times(slot))
}

fn unknown(name: &str) -> Error {
    Error::invalid(format!("no version is kept as {name}"))
}

/// No keyspace can read the version.
fn unreadable(slots: &[Arc<Slot>], version: Seq, newest: Seq) -> Error {
    let trees = users(slots).filter_map(|slot| slot.tree().ok());
    let oldest = trees.filter_map(|tree| tree.oldest_version()).min();
    Error::invalid(match oldest {
        None => format!("version {version} cannot be kept: no keyspace keeps history"),
        Some(oldest) => {
            format!("version {version} cannot be kept: there are versions {oldest} to {newest}")
        }
    })
}
