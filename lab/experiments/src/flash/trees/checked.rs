//! A tree whose answers are compared with a map.

use std::collections::HashMap;

use esker_flashtrees::{Chip, Error, FlashTree, KeyRange, Memory, Result, Visit};

/// A tree, and what it must answer.
pub(super) struct Checked {
    tree: Box<dyn FlashTree>,
    map: HashMap<u64, u64>,
}

impl Checked {
    /// An empty tree.
    pub(super) fn new(tree: Box<dyn FlashTree>) -> Self {
        Self { tree, map: HashMap::new() }
    }

    /// Checks all of it, and looks up every key.
    ///
    /// # Errors
    /// [`Error::Invariant`] for a wrong answer; those of the tree.
    pub(super) fn finish(mut self) -> Result<()> {
        let (found, expected) = (self.tree.check()?, self.map.len() as u64);
        if found != expected {
            let name = self.tree.name();
            return Err(Error::Invariant(format!("{name} has {found} entries, not {expected}")));
        }
        let keys: Vec<u64> = self.map.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.get(key).map(drop))
    }

    /// Compares all entries in one pass: lookups of all keys may take too long.
    ///
    /// # Errors
    /// Those of [`Checked::finish`].
    pub(super) fn finish_in_one_pass(mut self) -> Result<()> {
        let (name, map) = (self.tree.name(), &self.map);
        let (mut found, mut wrong) = (0, None);
        self.tree.range(KeyRange::ALL, &mut |key, value| {
            found += 1;
            if map.get(&key) != Some(&value) {
                wrong = Some(key);
            }
            wrong.is_none()
        })?;
        if let Some(key) = wrong {
            return Err(Error::Invariant(format!("{name} has a wrong entry for {key}")));
        }
        if found == map.len() {
            return Ok(());
        }
        Err(Error::Invariant(format!("{name} has {found} entries, not {}", map.len())))
    }
}

impl FlashTree for Checked {
    fn name(&self) -> &'static str {
        self.tree.name()
    }

    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.map.insert(key, value);
        self.tree.put(key, value)
    }

    fn remove(&mut self, key: u64) -> Result<()> {
        self.map.remove(&key);
        self.tree.remove(key)
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let (found, expected) = (self.tree.get(key)?, self.map.get(&key).copied());
        if found == expected {
            return Ok(found);
        }
        let name = self.tree.name();
        Err(Error::Invariant(format!("{name} has {found:?} for {key}, not {expected:?}")))
    }

    fn range(&mut self, range: KeyRange, visit: &mut Visit<'_>) -> Result<()> {
        self.tree.range(range, visit)
    }

    fn flush(&mut self) -> Result<()> {
        self.tree.flush()
    }

    fn check(&mut self) -> Result<u64> {
        self.tree.check()
    }

    fn memory(&self) -> Memory {
        self.tree.memory()
    }

    fn chip(&self) -> Chip {
        self.tree.chip()
    }

    fn moved_pages(&self) -> u64 {
        self.tree.moved_pages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::trees::chips::Device;
    use crate::flash::trees::measure::System;
    use esker_flashtrees::rivals::Rival;

    #[test]
    fn a_wrong_answer_is_found() {
        let system = System::Rival(Rival::BTree);
        let made = Device::SmallBlocks.make(system, 64, 128 << 10);
        let mut tree = Checked::new(made.unwrap());
        tree.put(1, 1).unwrap();
        assert_eq!(tree.get(1).unwrap(), Some(1));
        tree.map.insert(1, 2);
        assert!(tree.get(1).is_err());
        tree.map.insert(2, 2);
        assert!(tree.finish().is_err());
    }

    #[test]
    fn a_pass_finds_wrong_and_missing_entries() {
        let with = |key: u64, value: u64| {
            let made = Device::SmallBlocks.make(System::Rival(Rival::BTree), 64, 128 << 10);
            let mut tree = Checked::new(made.unwrap());
            (0..100).for_each(|key| tree.put(key, 10 * key).unwrap());
            tree.map.insert(key, value);
            tree.finish_in_one_pass().is_ok()
        };
        assert!(with(7, 70));
        assert!(!with(7, 71));
        assert!(!with(100, 0));
    }
}
