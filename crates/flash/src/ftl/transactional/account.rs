//! The invariants between the parts of a layer: every valid page has one owner, every meta block
//! one use.

use std::collections::{HashMap, HashSet};

use super::space::Space;
use crate::error::{Error, Result, broken};
use crate::nand::{BlockId, Lpn, Ppn};

/// Compares valid pages with all that owners refer to.
pub(crate) fn check_pages(space: &Space, owned: impl Iterator<Item = (Lpn, Ppn)>) -> Result<()> {
    space.check().map_err(Error::Invariant)?;
    let mut seen: HashMap<Ppn, Lpn> = HashMap::new();
    for (lpn, ppn) in owned {
        if let Some(other) = seen.insert(ppn, lpn) {
            return broken(format!("{ppn} is referred to for {other} and for {lpn}"));
        }
        if space.lpn(ppn) != Some(lpn) {
            return broken(format!("{ppn} of {lpn} is valid as {:?}", space.lpn(ppn)));
        }
    }
    let valid = space.valid_pages();
    if valid != seen.len() as u64 {
        return broken(format!("{valid} pages are valid, {} are referred to", seen.len()));
    }
    Ok(())
}

/// Compares the blocks that are no data blocks with those that the map and the log have.
pub(crate) fn check_meta(space: &Space, meta: impl Iterator<Item = BlockId>) -> Result<()> {
    let mut seen = HashSet::new();
    for block in meta {
        if !space.is_meta(block) {
            return broken(format!("{block} is a meta block and a data block"));
        }
        if !seen.insert(block) {
            return broken(format!("{block} is used twice for the map or for commits"));
        }
    }
    let marked = space.meta_blocks();
    if marked != seen.len() {
        return broken(format!("{marked} meta blocks, the map and commits have {}", seen.len()));
    }
    Ok(())
}
