//! The places of blocks in extents.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::block::BlockBuilder;
use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::generations::OneGeneration;

use super::{ID, Subject};
use crate::build::writer::ExtentWriter;
use crate::run::tree::BlockReader;

/// A block of whole sectors does not move those behind it off the beginnings of units.
#[test]
fn blocks_of_short_entries_begin_units_among_long_ones() {
    let subject = Subject::new(16 * 1024, 1 << 20);
    let (blocks, budget) = (Arc::clone(&subject.env.blocks), Arc::clone(&subject.env.budget));
    let reader = BlockReader { blocks, keyspace: ID, budget, pot: None };
    let generation = OneGeneration::default();
    let mut writer = ExtentWriter::new(&reader, Purpose::Merge, &generation, 1 << 20, Vec::new());
    let mut builder = BlockBuilder::new(UNIT_BYTES as usize);
    let (mut whole, mut odd) = (0, 0);
    for number in 0..3_000_u64 {
        let value = vec![7; if number % 37 == 0 { 2_100 } else { 100 }];
        let (key, seq) = (number.to_be_bytes(), Seq(number + 1));
        if builder.try_push(&key, seq, &Payload::Put(&value)) {
            continue;
        }
        let (ptr, _) = writer.append(&mut builder).unwrap();
        assert!(builder.try_push(&key, seq, &Payload::Put(&value)));
        if ptr.sectors.is_multiple_of(8) {
            assert!(ptr.sector.is_multiple_of(8), "{ptr:?}");
            whole += 1;
        } else {
            odd += 1;
        }
    }
    assert!(whole > 20 && odd > 20, "{whole} of whole units, {odd} of sectors");
}
