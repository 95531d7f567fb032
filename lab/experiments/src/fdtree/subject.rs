//! A store under one of the paper's schemes.
//!
//! Entries are the paper's: keys of 4 bytes, values of 8. The keys of consecutive numbers are
//! scattered over the key space. (In the paper's generator they ascend, so that every insertion
//! lands behind everything else; a merge then reaches the new entries last, and what memory
//! sharing gives back early is the deletions' alone.)

use std::fs;
use std::path::Path;

use esker::{Db, Keyspace, KeyspaceOptions, Scheme, Stats};
use esker_workload::{Kind, Request, random};

use crate::experiment::{Watch, go_on};
use crate::{Error, Result};

const KEYSPACE: &str = "index";
/// Memory with which an index is loaded, in bytes: not what is measured.
const LOADING_BYTES: u64 = 64 << 20;
/// Entries in a batch of the load.
const BATCH_ENTRIES: u64 = 1000;

/// The options with which a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The scheme by which merges run.
    pub scheme: Scheme,
    /// γ.
    pub growth: u16,
    /// Memory of the memtable, in bytes. What it holds is κ0.
    pub memtable_bytes: u64,
    /// Memory for blocks, fences and filters, in bytes.
    pub buffer_bytes: u64,
}

/// An open store.
#[derive(Debug)]
pub struct Subject {
    db: Db,
    keyspace: Keyspace,
}

/// The key of a number below 2^32: the finisher of MurmurHash3, a bijection of 32 bits. Keys at
/// even distances would be easier to compute, and fill all pieces of a memtable at the same moment.
#[must_use]
pub const fn key(number: u64) -> [u8; 4] {
    let mut bits = number as u32;
    bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
    bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
    (bits ^ (bits >> 16)).to_be_bytes()
}

fn value(request: &Request) -> [u8; 8] {
    random::mixed(request.number ^ request.version.rotate_left(32)).to_be_bytes()
}

/// Makes an index of the numbers 1 to `entries` in an empty folder.
///
/// # Errors
/// Those of the store; [`Error::Interrupted`].
pub fn load(folder: &Path, entries: u64, growth: u16, watch: &dyn Watch) -> Result<()> {
    let db = Db::builder(folder).memory_budget(LOADING_BYTES).fixed_growth(growth).open()?;
    let keyspace = db.keyspace(KEYSPACE, KeyspaceOptions::default())?;
    let mut first = 1;
    while first <= entries {
        let mut batch = db.batch();
        let last = entries.min(first + BATCH_ENTRIES - 1);
        for number in first..=last {
            batch.insert(&keyspace, key(number), value(&Request::put(number, 0)));
        }
        batch.commit()?;
        go_on(watch)?;
        first = last + 1;
    }
    keyspace.compact()?;
    Ok(db.close()?)
}

/// Copies a closed store.
///
/// # Errors
/// Those of the file system.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
        Ok(())
    };
    copied().map_err(Error::system(format!("copy the index in {}", from.display())))
}

impl Subject {
    /// Opens a store, empty or loaded.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(folder: &Path, setting: &Setting) -> Result<Self> {
        Self::open_with(folder, setting, None)
    }

    /// Opens a store whose writes run the merges that they make due to the end.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open_inline(folder: &Path, setting: &Setting) -> Result<Self> {
        Self::open_with(folder, setting, Some(0))
    }

    fn open_with(folder: &Path, setting: &Setting, steps: Option<u32>) -> Result<Self> {
        // Half of a budget is for memtables, which the keyspace's own limit keeps smaller.
        let budget =
            (setting.memtable_bytes + setting.buffer_bytes).max(2 * setting.memtable_bytes);
        let builder = Db::builder(folder).memory_budget(budget);
        let builder = builder.scheme(setting.scheme).fixed_growth(setting.growth);
        let builder = match steps {
            Some(steps) => builder.inline_merges(steps),
            None => builder,
        };
        let db = builder.open()?;
        let options = KeyspaceOptions::default().memtable_bytes(Some(setting.memtable_bytes));
        let keyspace = db.keyspace(KEYSPACE, options)?;
        Ok(Self { db, keyspace })
    }

    /// Does a request. Says whether a lookup found its key; true for the others.
    ///
    /// # Errors
    /// Those of the store.
    pub fn perform(&self, request: &Request) -> Result<bool> {
        let key = key(request.number);
        match request.kind {
            Kind::Lookup => Ok(self.keyspace.get(key)?.is_some()),
            Kind::Put => Ok(self.keyspace.insert(key, value(request)).map(|()| true)?),
            Kind::Delete => Ok(self.keyspace.remove(key).map(|()| true)?),
        }
    }

    /// Figures of the store.
    ///
    /// # Errors
    /// Those of the store.
    pub fn stats(&self) -> Result<Stats> {
        Ok(self.db.stats()?)
    }

    /// Merges finished since the index was created.
    ///
    /// # Errors
    /// Those of the store.
    pub fn merges(&self) -> Result<u64> {
        Ok(self.stats()?.keyspaces.first().map_or(0, |keyspace| keyspace.merges))
    }

    /// Closes the store.
    ///
    /// # Errors
    /// Those of the store.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }
}

/// The name of a scheme in figures.
#[must_use]
pub const fn name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Fc => "FC",
        Scheme::FcUnshared => "FC unshared",
        Scheme::FcTuple => "FC view a key",
        Scheme::Ds => "DS",
        Scheme::Xm => "XM",
        Scheme::FdTree => "FD-tree",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::Silent;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_different_and_spread() {
        let keys: BTreeSet<_> = (1..=10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        let in_first_half = keys.iter().filter(|key| key[0] < 128).count();
        assert!((4_800..=5_200).contains(&in_first_half), "{in_first_half}");
    }

    #[test]
    fn a_copy_of_a_loaded_index_answers_under_every_scheme() {
        let folder = tempfile::tempdir().unwrap();
        let loaded = folder.path().join("loaded");
        load(&loaded, 2_500, 4, &Silent).unwrap();
        for scheme in Scheme::ALL {
            let place = folder.path().join(name(scheme).replace('/', "-"));
            copy(&loaded, &place).unwrap();
            let setting =
                Setting { scheme, growth: 4, memtable_bytes: 1 << 16, buffer_bytes: 1 << 20 };
            let subject = Subject::open(&place, &setting).unwrap();
            assert!((1..=2_500).all(|number| subject.perform(&Request::lookup(number)).unwrap()));
            subject.perform(&Request::delete(7)).unwrap();
            subject.perform(&Request::put(2_501, 1)).unwrap();
            assert!(!subject.perform(&Request::lookup(7)).unwrap());
            assert!(subject.perform(&Request::lookup(2_501)).unwrap());
            subject.close().unwrap();
        }
    }
}
