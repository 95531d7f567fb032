use super::*;
use crate::patch::block::{Packer, decode, weight};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Blocks by number, and the fences over them.
#[derive(Default)]
struct Model {
    blocks: Vec<Vec<Record>>,
    fences: Fences,
}

impl Model {
    /// Patches, and says which records died.
    fn patch(&mut self, changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, per_block: usize) -> u64 {
        let fresh = self.blocks.len() as u32;
        let puts: Vec<Record> = changes
            .iter()
            .filter(|(_, value)| value.is_some())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let new: Vec<Vec<Record>> = puts.chunks(per_block).map(<[Record]>::to_vec).collect();
        let mut placed = BTreeMap::new();
        for (block, records) in (fresh..).zip(&new) {
            placed.extend(records.iter().map(|record| (record.0.clone(), block)));
        }
        let dirty: Vec<_> = changes
            .keys()
            .map(|key| Dirty { key, block: placed.get(key).copied().unwrap_or(NOWHERE) })
            .collect();
        let read = |block: u32| Ok(Arc::new(self.blocks[block as usize].clone()));
        let patched = self.fences.patched(&dirty, fresh, read).unwrap();
        self.fences = patched.fences;
        self.blocks.extend(new);
        patched.died.iter().map(|(_, weight)| weight).sum()
    }

    fn contents(&self) -> Map {
        let mut all = Map::new();
        for at in 0..self.fences.len() {
            let block = self.fences.block(at);
            if block == NOWHERE {
                continue;
            }
            let records = &self.blocks[block as usize];
            for (key, value) in between(records, self.fences.key(at), self.fences.end(at)) {
                let is_new = all.insert(key.clone(), value.clone().unwrap()).is_none();
                assert!(is_new, "two fences show {key:?}");
            }
        }
        all
    }

    fn invariants(&self) {
        let count = self.fences.len();
        for at in 1..count {
            assert!(self.fences.key(at - 1) < self.fences.key(at));
            assert_ne!(self.fences.block(at - 1), self.fences.block(at));
        }
        assert!(count == 0 || self.fences.block(0) != NOWHERE);
    }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few keys, some of them the least behind another.
    (0u8..40, 0usize..3).prop_map(|(first, zeros)| [vec![first], vec![0; zeros]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256 * budget()))]
    #[test]
    fn patches_show_what_a_map_has(
        patches in prop::collection::vec(
            prop::collection::btree_map(key(), prop::option::of(any::<u8>()), 1..12),
            1..12,
        ),
        per_block in 1usize..6,
    ) {
        let (mut model, mut map) = (Model::default(), Map::new());
        for patch in patches {
            let patch: BTreeMap<_, _> =
                patch.into_iter().map(|(key, value)| (key, value.map(|byte| vec![byte]))).collect();
            let before: u64 = map.iter().map(|(k, v)| weight(k, Some(v))).sum();
            let mut added = 0;
            for (key, value) in &patch {
                match value {
                    Some(value) => {
                        added += weight(key, Some(value));
                        map.insert(key.clone(), value.clone());
                    }
                    None => {
                        map.remove(key);
                    }
                }
            }
            let died = model.patch(&patch, per_block);
            let after: u64 = map.iter().map(|(k, v)| weight(k, Some(v))).sum();
            prop_assert_eq!(model.contents(), map.clone());
            prop_assert_eq!(before + added - died, after);
            model.invariants();
            for at in 0..model.fences.len() {
                prop_assert_eq!(model.fences.find(model.fences.key(at)), Some(at));
            }
            let mut bytes = Vec::new();
            model.fences.encode(&mut bytes);
            let decoded = Fences::decode(&mut Reader::new(&bytes)).unwrap();
            prop_assert_eq!(decoded, model.fences.clone());
        }
    }

    #[test]
    fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Fences::decode(&mut Reader::new(&bytes));
    }
}

fn budget() -> u32 {
    std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// One changed record among others costs two fences, of which the second takes a byte.
#[test]
fn a_patched_record_costs_two_fences() {
    let mut model = Model::default();
    let all: BTreeMap<_, _> =
        (0..100u8).map(|n| (vec![b'k', b'e', b'y', n], Some(vec![n]))).collect();
    model.patch(&all, 100);
    let mut before = Vec::new();
    model.fences.encode(&mut before);
    model.patch(&BTreeMap::from([(vec![b'k', b'e', b'y', 50], Some(vec![0]))]), 100);
    assert_eq!(model.fences.len(), 3);
    let mut after = Vec::new();
    model.fences.encode(&mut after);
    assert_eq!(after.len() - before.len(), 5);
    // Neighbours share the fences.
    let three = (70..73u8).map(|n| (vec![b'k', b'e', b'y', n], Some(vec![0])));
    model.patch(&three.collect(), 100);
    assert_eq!(model.fences.len(), 5);
    let blocks: BTreeSet<_> = model.fences.blocks().iter().copied().collect();
    assert_eq!(blocks.len(), 3);
}

#[test]
fn a_block_is_decoded_as_it_is_packed() {
    let mut packer = Packer::new(4096);
    assert_eq!(packer.push(b"a", Some(b"1")), None);
    assert_eq!(packer.push(b"b", None), None);
    let packed = packer.finish().unwrap();
    let records = decode(&packed.bytes).unwrap();
    assert_eq!(*records, vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None)]);
}
