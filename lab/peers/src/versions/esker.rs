//! Esker: the memory budget as it is, everything else at its default but the history.

use std::path::Path;
use std::time::Duration;

use esker::{Db, Durability, History, Keyspace, KeyspaceOptions, Past, Range};

use super::{Put, SeeChange, SeeEntry, Versioned, View, Way};
use crate::esker::{failed, figures, wait_idle};
use crate::system::{Error, Figures, Result};

struct Esker {
    way: Way,
    db: Db,
    keyspace: Keyspace,
}

pub(super) fn open(
    way: Way,
    folder: &Path,
    budget_bytes: u64,
    share: Option<f64>,
) -> Result<Box<dyn Versioned>> {
    let mut options = KeyspaceOptions::default();
    if way.has_history() {
        options = options.history(History::All);
    }
    let share = if way == Way::NeverSplit { Some(1.0) } else { share };
    if let Some(share) = share.filter(|_| way.has_history()) {
        options = options.history_share(share);
    }
    let db = Db::builder(folder).memory_budget(budget_bytes).open().map_err(failed)?;
    let keyspace = db.keyspace("default", options).map_err(failed)?;
    Ok(Box::new(Esker { way, db, keyspace }))
}

impl Esker {
    fn unable<T>(&self) -> Result<T> {
        Err(Error::Unable { system: self.way.as_str(), what: "read earlier versions" })
    }
}

fn see_all(range: Range, entries: u64, see: &mut SeeEntry<'_>) -> Result<()> {
    for entry in range.take(usize::try_from(entries).unwrap_or(usize::MAX)) {
        let (key, value) = entry.map_err(failed)?;
        see(&key, &value);
    }
    Ok(())
}

impl View for &Keyspace {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Keyspace::get(self, key).map_err(failed)
    }

    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> Result<()> {
        see_all(self.range(from.to_vec()..).map_err(failed)?, entries, see)
    }
}

impl View for Past {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Self::get(self, key).map_err(failed)
    }

    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> Result<()> {
        see_all(self.range(from.to_vec()..).map_err(failed)?, entries, see)
    }
}

impl Versioned for Esker {
    fn commit(&self, _: u64, puts: &[Put]) -> Result<u64> {
        if let [(key, value)] = puts {
            self.keyspace.insert_with(key, value, Durability::Buffered).map_err(failed)?;
            return Ok(self.db.version());
        }
        let mut batch = self.db.batch();
        for (key, value) in puts {
            batch.insert(&self.keyspace, key, value);
        }
        batch.commit_with(Durability::Buffered).map_err(failed)
    }

    fn now(&self) -> Result<Box<dyn View + '_>> {
        Ok(Box::new(&self.keyspace))
    }

    fn at(&self, version: u64) -> Result<Box<dyn View + '_>> {
        if !self.way.has_history() {
            return self.unable();
        }
        Ok(Box::new(self.keyspace.at(version).map_err(failed)?))
    }

    fn history(&self, key: &[u8], see: &mut SeeChange<'_>) -> Result<()> {
        if !self.way.has_history() {
            return self.unable();
        }
        for change in self.keyspace.history(key).map_err(failed)? {
            let change = change.map_err(failed)?;
            see(change.version, change.value.as_deref());
        }
        Ok(())
    }

    fn persist(&self) -> Result<()> {
        self.db.persist().map_err(failed)
    }

    fn wait_idle(&self) -> Result<Duration> {
        wait_idle(&self.db)
    }

    fn figures(&self) -> Result<Figures> {
        let stats = self.db.stats().map_err(failed)?;
        let mut figures = figures(&stats);
        let mut put = |name: &str, value: u64| {
            figures.insert(name.to_owned(), value as f64);
        };
        for of in stats.keyspaces.iter().filter(|of| of.name == "default") {
            let past: u64 = of.past_indexes.iter().map(|past| past.entries).sum();
            // Nothing is removed, so that no tombstone is missing in the estimate.
            put("entries", past + of.entries_estimate);
            put("past_indexes", of.past_indexes.len() as u64);
            put("sorted_runs", of.sorted_runs);
            put("levels", of.levels.len() as u64);
        }
        Ok(figures)
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.keyspace);
        self.db.close().map_err(failed)
    }
}
