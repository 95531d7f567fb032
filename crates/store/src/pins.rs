//! Naming versions.

use esker_format::KEYSPACE_NAME_BYTES_MAX;
use esker_format::ids::Seq;
use esker_format::manifest_edit::keyspace_name_is_valid;

use crate::db::Db;
use crate::error::{Error, Result};
use crate::named::NamedVersion;

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
        let (shared, version) = (&self.shared, Seq(version));
        let versions = (version, shared.snapshots().visible());
        shared.named.pin(&shared.slots(), name, versions, |edit| {
            shared.poison.check()?;
            // Or a power cut could take the version back.
            shared.log.sync_to(version)?;
            Ok(shared.commit_edits(&[edit])?)
        })
    }

    /// Gives up the name of a version. What only it has kept is freed as the keyspace's history
    /// says. One sync.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) when no version has this name; those of a write.
    pub fn unpin(&self, name: &str) -> Result<()> {
        let _open = self.shared.enter()?;
        self.shared.named.unpin(name, |edit| {
            self.shared.poison.check()?;
            Ok(self.shared.commit_edits(&[edit])?)
        })
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
