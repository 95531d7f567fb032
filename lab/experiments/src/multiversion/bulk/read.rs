//! Lookups: the head, then one page a level, by fences.

use std::collections::BTreeMap;

use super::super::pages::PageId;
use super::super::{Key, Value, Version};
use super::Bulk;
use super::run::{Entry, Kind, Run};
use crate::Result;

impl Bulk {
    /// The value of a key in a version.
    pub(super) fn find(&mut self, key: Key, version: Version) -> Result<Option<Value>> {
        let mut page = self.top;
        if version >= self.from {
            if let Some(entry) = self.head.newest(key, version)? {
                return Ok(entry.seen(version));
            }
        } else {
            page = self.former_of(version).and_then(|at| self.former.get(at)?.top);
        }
        while let Some(id) = page {
            let entries = self.pool.read(id)?;
            let known = entries.partition_point(|of| of.order() <= (key, version));
            let known = entries.get(..known).unwrap_or_default();
            let newest = known.iter().rev().find(|of| of.kind != Kind::Fence);
            if let Some(entry) = newest.filter(|of| of.key == key) {
                return Ok(entry.seen(version));
            }
            page = last_fence(known);
        }
        Ok(None)
    }

    /// All keys and values of a version, in order.
    pub(super) fn all_of(&mut self, version: Version) -> Result<Vec<(Key, Value)>> {
        let mut newest: BTreeMap<Key, Entry> = BTreeMap::new();
        let mut add = |entries: Vec<Entry>| {
            for entry in entries.into_iter().filter(|entry| entry.begin <= version) {
                newest.insert(entry.key, entry);
            }
        };
        let levels: Vec<Run> = if version >= self.from {
            self.levels.clone()
        } else {
            let former = self.former_of(version).and_then(|at| self.former.get(at));
            former.map(|former| former.levels.clone()).unwrap_or_default()
        };
        for run in levels.into_iter().rev() {
            add(run.read(&mut self.pool)?.entries);
        }
        if version >= self.from {
            add(self.head.entries()?);
        }
        let seen = |(key, entry): (Key, Entry)| Some((key, entry.seen(version)?));
        Ok(newest.into_iter().filter_map(seen).collect())
    }

    /// The former root of a version.
    fn former_of(&self, version: Version) -> Option<usize> {
        self.former.partition_point(|former| former.from <= version).checked_sub(1)
    }
}

fn last_fence(entries: &[Entry]) -> Option<PageId> {
    entries.iter().rev().find(|entry| entry.kind == Kind::Fence).map(|entry| entry.payload)
}
