//! Changes of nodes as units of fixed size, several of them in a page.
//!
//! ```text
//! page: magic u8 | unused u8 | units u16 | unused u32 | unit …
//! unit: node u32 | operation u8 | unused 3 bytes | key u64 | value u64 | unused
//! ```

use crate::error::{Error, Result};
use crate::page::Change;

const MAGIC: u8 = 0x55;
const HEADER: usize = 8;
/// Bytes of a unit without anything unused.
pub const UNIT_BYTES: usize = 24;

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The node.
    pub node: u32,
    /// What is changed.
    pub change: Change,
}

/// How many units of `unit_bytes` a page has.
#[must_use]
pub const fn units_of_page(page_bytes: usize, unit_bytes: usize) -> usize {
    page_bytes.saturating_sub(HEADER) / unit_bytes
}

/// Makes `page` a page of these units, as many as fit.
pub fn encode<'a>(units: impl Iterator<Item = &'a Unit>, unit_bytes: usize, page: &mut [u8]) {
    page.fill(0);
    let mut count: u16 = 0;
    let places = page.get_mut(HEADER..).unwrap_or_default().chunks_exact_mut(unit_bytes);
    for (unit, place) in units.zip(places) {
        let (operation, key, value) = match unit.change {
            Change::Put { key, value } => (1, key, value),
            Change::Remove { key } => (2, key, 0),
            Change::Cut { key } => (3, key, 0),
        };
        let mut bytes = [0; UNIT_BYTES];
        bytes[..4].copy_from_slice(&unit.node.to_le_bytes());
        bytes[4] = operation;
        bytes[8..16].copy_from_slice(&key.to_le_bytes());
        bytes[16..].copy_from_slice(&value.to_le_bytes());
        if let Some(place) = place.get_mut(..UNIT_BYTES) {
            place.copy_from_slice(&bytes);
            count += 1;
        }
    }
    if let Some(head) = page.get_mut(..4) {
        let [low, high] = count.to_le_bytes();
        head.copy_from_slice(&[MAGIC, 0, low, high]);
    }
}

/// Hands the changes of `node` in a page to `visit`, oldest first.
///
/// # Errors
/// [`Error::Damaged`] for a page that [`encode`] did not make; those of `visit`.
pub fn decode(
    page: &[u8],
    unit_bytes: usize,
    node: u32,
    mut visit: impl FnMut(&Change) -> Result<()>,
) -> Result<()> {
    let damaged = |what: String| Error::Damaged { node, what };
    let head: [u8; 4] = page.get(..4).and_then(|head| head.try_into().ok()).unwrap_or_default();
    let count = usize::from(u16::from_le_bytes([head[2], head[3]]));
    if head[0] != MAGIC || count > units_of_page(page.len(), unit_bytes) {
        return Err(damaged(format!("a page begins with {head:?} and has no units")));
    }
    let places = page.get(HEADER..).unwrap_or_default().chunks_exact(unit_bytes);
    for place in places.take(count) {
        let Some(bytes) = place.first_chunk::<UNIT_BYTES>() else { break };
        let number = |at: usize| {
            let found = bytes.get(at..at + 8).and_then(|found| found.try_into().ok());
            u64::from_le_bytes(found.unwrap_or_default())
        };
        if number(0) as u32 != node {
            continue;
        }
        let (key, value) = (number(8), number(16));
        let change = match bytes[4] {
            1 => Change::Put { key, value },
            2 => Change::Remove { key },
            3 => Change::Cut { key },
            other => return Err(damaged(format!("a unit has the operation {other}"))),
        };
        visit(&change)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_back_in_order() {
        let changes = [
            Change::Put { key: 1, value: u64::MAX },
            Change::Cut { key: 7 },
            Change::Remove { key: u64::MAX },
        ];
        for unit_bytes in [24, 32] {
            let all: Vec<_> = changes
                .iter()
                .flat_map(|change| [3, 4].map(|node| Unit { node, change: *change }))
                .collect();
            let mut page = [0; 512];
            encode(all.iter(), unit_bytes, &mut page);
            let mut found = Vec::new();
            decode(&page, unit_bytes, 4, |change| {
                found.push(*change);
                Ok(())
            })
            .unwrap();
            assert_eq!(found, changes);
        }
        assert!(decode(&[0; 512], 24, 0, |_| Ok(())).is_err());
        assert_eq!((units_of_page(512, 32), units_of_page(512, 24)), (15, 21));
    }
}
