//! A log with its manifest on a simulated disk, against a list of batches.

use std::collections::{BTreeMap, BTreeSet};

use esker_device::sim::{
    CrashModel, CrashOptions, Effect, Failure, Fault, FaultPlan, SimDevice, SimOptions, Survivors,
    SyncLoss, Trace,
};
use esker_format::ids::{Generation, StoreId};
use esker_format::log_record::BatchBuilder;
use esker_format::manifest_edit::Edit;
use esker_format::meta::IndexMeta;

use super::*;
use crate::manifest::ManifestOptions;

mod basics;
mod crash;
mod damage;

const STORE: StoreId = StoreId(0x5eed);
const KEYSPACES: u32 = 2;

/// One operation: keyspace, key, value.
type Op = (u32, Vec<u8>, Option<Vec<u8>>);

const fn keyspace_of(seq: u64) -> u32 {
    (seq % KEYSPACES as u64) as u32 + 1
}

/// The operations of a batch that begins with number `first`: they are derived from the number, so
/// that records read back are distinguishable from all others.
fn batch_of(first: u64, ops: u64, value_bytes: usize) -> Vec<Op> {
    let op = |seq: u64| {
        let value = format!("{seq}:").into_bytes().into_iter().cycle().take(value_bytes).collect();
        let key = format!("key {}", seq % 7).into_bytes();
        (keyspace_of(seq), key, (!seq.is_multiple_of(5)).then_some(value))
    };
    (first..first + ops).map(op).collect()
}

fn encode(ops: &[Op]) -> EncodedBatch {
    let mut builder = BatchBuilder::default();
    for (keyspace, key, value) in ops {
        match value {
            Some(value) => builder.put(KeyspaceId(*keyspace), key, value),
            None => builder.delete(KeyspaceId(*keyspace), key),
        }
    }
    builder.finish().unwrap()
}

/// A store as far as the log is concerned.
struct Rig {
    manifest: Arc<Manifest>,
    log: Log,
    faults: Arc<FaultPoints>,
    poison: Arc<Poison>,
}

const SEGMENT_BYTES: u64 = 16 << 10;

fn rig_options() -> LogOptions {
    LogOptions { segment_bytes: SEGMENT_BYTES, spares_max: 1 }
}

fn create_rig(device: &Arc<dyn Device>) -> Result<Rig> {
    let (poison, faults) = Default::default();
    let options = ManifestOptions { region_bytes_min: 4096 };
    let manifest = Manifest::create(device, STORE, options, &poison, &faults)?;
    for id in 1..=KEYSPACES {
        let create =
            Edit::KeyspaceCreate { id: KeyspaceId(id), name: id.to_string(), memtable_bytes: None };
        manifest.commit(&[create], Seq(0), Generation(0))?;
    }
    let log = Log::open(device, &manifest, Arc::new(Nothing), rig_options(), &poison, &faults)?;
    Ok(Rig { manifest, log, faults, poison })
}

fn open_rig(device: &Arc<dyn Device>) -> Result<Rig> {
    open_rig_over(device, Arc::new(Nothing))
}

fn open_rig_over(device: &Arc<dyn Device>, beneath: Arc<dyn Beneath>) -> Result<Rig> {
    let (poison, faults) = Default::default();
    let options = ManifestOptions { region_bytes_min: 4096 };
    let (manifest, _) = Manifest::open(device, options, &poison, &faults)?;
    let log = Log::open(device, &manifest, beneath, rig_options(), &poison, &faults)?;
    Ok(Rig { manifest, log, faults, poison })
}

impl Rig {
    /// Appends the next batch; returns its last number.
    fn append(&self, ops: u64, value_bytes: usize) -> Result<Ticket> {
        let expected = self.log.last_seq().next();
        let batch = encode(&batch_of(expected.0, ops, value_bytes));
        let (first, ticket) = self.log.append(&batch, Claim::Values)?;
        assert_eq!((first, ticket.last_seq.0), (expected, expected.0 + ops - 1));
        Ok(ticket)
    }

    fn put(&self, ops: u64, value_bytes: usize, synced: bool) -> Result<Seq> {
        let ticket = self.append(ops, value_bytes)?;
        if synced {
            self.log.wait_synced(ticket)?
        } else {
            self.log.wait_written(ticket)?
        }
        Ok(ticket.last_seq)
    }

    /// As if a keyspace's memtable had been written out.
    fn flush(&self, keyspace: u32) -> Result<()> {
        let id = KeyspaceId(keyspace);
        let flushed_seq = self.log.last_seq();
        self.log.sync_to(flushed_seq)?;
        let state = self.manifest.state();
        let flushed = |other: KeyspaceId| {
            let recorded = state.keyspaces.get(&other).map(|k| k.index.flushed_seq);
            if other == id { Some(flushed_seq) } else { recorded }
        };
        let retired = self.log.retire(&flushed);
        let index = Arc::new(IndexMeta { flushed_seq, ..IndexMeta::default() });
        let mut edits = vec![Edit::Index { id, index }];
        edits.extend_from_slice(retired.edits());
        self.manifest.commit(&edits, self.log.durable_seq(), Generation(0))?;
        self.log.recycle(retired)
    }

    fn clean_close(&self) -> Result<()> {
        let seq = self.log.last_seq();
        self.log.sync_to(seq)?;
        self.manifest.commit(&[Edit::CleanClose { seq }], seq, Generation(0))
    }

    /// Replays the log and checks that it is the history up to its last number, without what is
    /// flushed and freed; returns the last number.
    fn replay_and_check(&self) -> Result<Seq> {
        let state = self.manifest.state();
        let mut seen = BTreeSet::new();
        let mut last = Seq(0);
        self.log.replay(&mut |Place { seq, .. }, keyspace, action| {
            let value = action.data().and_then(|data| data.value().map(<[u8]>::to_vec));
            let found = (keyspace.0, action.key().unwrap_or_default().to_vec(), value);
            let len = found.2.as_ref().map_or(0, Vec::len);
            let wanted = batch_of(seq.0, 1, len).remove(0);
            let wrong = |what: &str| Error::Invalid { what: format!("operation {seq}: {what}") };
            if found != wanted {
                return Err(wrong("is another"));
            }
            if seq <= last {
                return Err(wrong("is out of order"));
            }
            last = seq;
            seen.insert(seq.0);
            Ok(())
        })?;
        let last = self.log.last_seq();
        for seq in (1..=last.0).filter(|seq| !seen.contains(seq)) {
            let keyspace = KeyspaceId(keyspace_of(seq));
            let flushed = state.keyspaces.get(&keyspace).map(|k| k.index.flushed_seq);
            if flushed.is_some_and(|flushed| flushed.0 < seq) {
                return Err(Error::Invalid { what: format!("operation {seq} is missing") });
            }
        }
        Ok(last)
    }
}
