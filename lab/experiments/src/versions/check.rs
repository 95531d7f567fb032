//! The watched keys must have, in every version that is checked, the values that the workload
//! wrote.

use esker_peers::versions::{Versioned, View, Way};

use super::workload::{Change, Workload, Written, seen_by};
use crate::{Error, Result};

/// Entries of a scan, at most.
const SCAN_ENTRIES: usize = 100;

/// Compares the present, and the past where there is one, with what was written.
///
/// # Errors
/// Those of the store; [`Error::Invalid`] for a wrong answer.
pub fn check(work: &Workload, way: Way, store: &dyn Versioned, written: &Written) -> Result<()> {
    state(work, written, store.now()?.as_ref(), work.commits())?;
    if !way.has_history() {
        return Ok(());
    }
    for (commit, version) in &written.versions {
        state(work, written, store.at(*version)?.as_ref(), *commit)?;
    }
    for (key, changes) in &written.changes {
        let mut found = Vec::new();
        store.history(key, &mut |version, value| {
            found.push((version, value.and_then(|value| work.put_of(key, value))));
        })?;
        let of = |change: &Change| (change.version, Some(change.put));
        if !found.iter().copied().eq(changes.iter().rev().map(of)) {
            let text = format!("entry {}: its history is not what was written", number(key));
            return Err(Error::Invalid(text));
        }
    }
    Ok(())
}

const fn number(key: &[u8; 16]) -> u64 {
    u128::from_be_bytes(*key) as u64
}

/// Compares a state with what a commit sees.
fn state(work: &Workload, written: &Written, view: &dyn View, commit: u64) -> Result<()> {
    let wrong = |key: &[u8; 16], how: &str| {
        let text = format!("entry {} at commit {commit}: {how}", number(key));
        Err(Error::Invalid(text))
    };
    for (key, changes) in &written.changes {
        let expected = seen_by(changes, commit).map(|change| change.put);
        let found = view.get(key)?;
        if found.as_deref().map(|value| work.put_of(key, value)) != expected.map(Some) {
            return wrong(key, "a lookup does not find what was written");
        }
    }
    for start in Written::starts() {
        let expected = written
            .from(start)
            .filter_map(|(key, changes)| Some((key.to_vec(), Some(seen_by(changes, commit)?.put))));
        let expected: Vec<_> = expected.take(SCAN_ENTRIES).collect();
        let mut found = Vec::new();
        view.scan(&start, expected.len() as u64, &mut |key, value| {
            found.push((key.to_vec(), work.put_of(key, value)));
        })?;
        if found != expected {
            return wrong(&start, "a scan from there does not find what was written");
        }
    }
    Ok(())
}
