//! Appending, waiting, switching, retiring, opening again.

use esker_device::count::CountingDevice;
use esker_device::memory::MemoryDevice;
use proptest::prelude::*;

use super::*;
use crate::fault;

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new())
}

#[test]
fn what_is_appended_is_replayed() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    let mut last = Seq(0);
    for n in 0..300 {
        last = rig.put(n % 4 + 1, n as usize % 600, n % 3 == 0).unwrap();
        assert_eq!(rig.log.verify(), []);
    }
    assert!(rig.manifest.state().segments.len() > 3);
    let again = open_rig(&device).unwrap();
    assert_eq!(again.log.last_seq(), last);
    assert_eq!(again.replay_and_check().unwrap(), last);
    assert_eq!(again.log.live_bytes(), rig.log.live_bytes());
    again.put(1, 10, true).unwrap();
    assert_eq!(again.log.verify(), []);
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last.next());
}

#[test]
fn a_synced_put_costs_one_write_and_one_sync() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.put(1, 10, true).unwrap();
    sim.set_faults(FaultPlan::new());
    rig.put(1, 10, true).unwrap();
    assert_eq!(sim.op_count(), 2);
    rig.put(1, 10, false).unwrap();
    assert_eq!(sim.op_count(), 3);
    rig.log.sync_to(rig.log.last_seq()).unwrap();
    rig.log.sync_to(rig.log.last_seq()).unwrap();
    assert_eq!(sim.op_count(), 4);
}

#[test]
fn one_write_carries_all_that_is_pending() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.log.prepare().unwrap();
    sim.set_faults(FaultPlan::new());
    let tickets: Vec<_> = (0..20).map(|_| rig.append(1, 50).unwrap()).collect();
    assert_eq!(sim.op_count(), 0);
    for ticket in tickets {
        rig.log.wait_synced(ticket).unwrap();
    }
    assert_eq!(sim.op_count(), 2);
    assert_eq!(rig.log.durable_seq(), Seq(20));
}

#[test]
fn opening_writes_nothing() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.put(3, 10, false).unwrap();
    sim.record();
    let again = open_rig(&device).unwrap();
    assert_eq!(again.replay_and_check().unwrap(), Seq(3));
    assert_eq!(again.log.verify(), []);
    assert!(sim.take_trace().unwrap().is_empty());
}

#[test]
fn segments_are_retired_out_of_order_and_reused() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    let files = || device.list().unwrap().iter().filter(|name| name.starts_with("log-")).count();
    for _ in 0..40 {
        for _ in 0..20 {
            rig.put(2, 300, false).unwrap();
        }
        rig.flush(1).unwrap();
        rig.flush(2).unwrap();
        assert_eq!(rig.manifest.state().segments.len(), 1);
        assert!(files() <= 3, "{}", files());
        assert_eq!(rig.log.verify(), []);
    }
    assert!(rig.log.space_bytes() <= 3 * SEGMENT_BYTES);
    let again = open_rig(&device).unwrap();
    assert_eq!(again.replay_and_check().unwrap(), Seq(40 * 40));
}

#[test]
fn one_keyspace_pins_what_the_other_has_flushed() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    let only = |keyspace: u32| {
        let op = (keyspace, b"k".to_vec(), Some(vec![7; 3000]));
        let (_, ticket) = rig.log.append(&encode(&[op]), Claim::Values).unwrap();
        rig.log.wait_written(ticket).unwrap();
        ticket.last_seq
    };
    let mut last = Seq(0);
    for n in 0..19 {
        last = only(n / 9 % 2 + 1);
    }
    for _ in 0..9 {
        last = only(2);
    }
    let before = rig.manifest.state().segments.len();
    let flushed = |one, two| move |id: KeyspaceId| if id.0 == 1 { one } else { two };
    let none = rig.log.retire(&flushed(Some(Seq(0)), Some(Seq(0))));
    assert!(none.is_empty());
    let pin = rig.log.oldest_pin(&flushed(Some(Seq(0)), Some(last)));
    assert_eq!(pin, Some(KeyspaceId(1)));
    // The newer segments go first, because only keyspace 2 is in them.
    let retired = rig.log.retire(&flushed(Some(Seq(0)), Some(last)));
    assert!(!retired.is_empty() && retired.edits().len() < before - 1);
    assert_ne!(retired.edits()[0], Edit::SegmentRemove { id: SegmentId(1) });
    rig.manifest.commit(retired.edits(), Seq(0), Generation(0)).unwrap();
    rig.log.recycle(retired.clone()).unwrap();
    rig.log.recycle(retired).unwrap();
    assert!(open_rig(&device).is_ok());
    // A dropped keyspace pins nothing.
    let retired = rig.log.retire(&flushed(None, Some(last)));
    rig.manifest.commit(retired.edits(), Seq(0), Generation(0)).unwrap();
    rig.log.recycle(retired).unwrap();
    assert_eq!(rig.manifest.state().segments.len(), 1);
    assert_eq!(rig.log.oldest_pin(&flushed(None, Some(last))), None);
}

#[test]
fn a_batch_longer_than_a_segment_gets_its_own() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    // The first segment is still empty, and leaves without having been used.
    rig.log.prepare().unwrap();
    rig.put(30, 2000, true).unwrap();
    rig.put(1, 10, true).unwrap();
    rig.put(40, 2000, false).unwrap();
    rig.put(5, 2000, true).unwrap();
    let again = open_rig(&device).unwrap();
    assert_eq!(again.replay_and_check().unwrap(), Seq(76));
    again.flush(1).unwrap();
    again.flush(2).unwrap();
    assert_eq!(again.manifest.state().segments.len(), 1);
    assert_eq!(again.log.space_bytes(), SEGMENT_BYTES);
}

#[test]
fn replay_may_flush_and_retire() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    for _ in 0..100 {
        rig.put(2, 300, false).unwrap();
    }
    let again = open_rig(&device).unwrap();
    let before = again.manifest.state().segments.len();
    let mut seen = Seq(0);
    let log = &again.log;
    log.replay(&mut |Place { seq, .. }, _, _| {
        assert_eq!(seq, seen.next());
        seen = seq;
        if seq.0 % 50 == 0 {
            log.sync_to(seq)?;
            let index = Arc::new(IndexMeta { flushed_seq: seq, ..IndexMeta::default() });
            let mut edits: Vec<_> = [1, 2]
                .map(|id| Edit::Index { id: KeyspaceId(id), index: Arc::clone(&index) })
                .into();
            let retired = log.retire(&|_| Some(seq));
            edits.extend_from_slice(retired.edits());
            again.manifest.commit(&edits, log.durable_seq(), Generation(0))?;
            log.recycle(retired)?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, Seq(200));
    assert!(again.manifest.state().segments.len() < before);
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), Seq(200));
}

#[test]
fn a_full_device_refuses_the_append_and_recycling_makes_room() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.log.prepare().unwrap();
    let used: usize = sim.files().values().map(Vec::len).sum();
    sim.set_capacity_bytes(used as u64 + 2 * SEGMENT_BYTES + 8192);
    let error = loop {
        if let Err(error) = rig.put(1, 500, true) {
            break error;
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(rig.poison.reason(), None);
    let last = rig.log.last_seq();
    assert!(rig.append(1, 500).is_err());
    assert_eq!(rig.log.last_seq(), last);
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last);
    rig.flush(1).unwrap();
    rig.flush(2).unwrap();
    assert_eq!(rig.put(1, 500, true).unwrap(), last.next());
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last.next());
}

/// Fills a log of values on a full device. Returns how many segments it has then.
fn fill_with_values(sim: &SimDevice, rig: &Rig) -> usize {
    rig.put(1, 500, true).unwrap();
    rig.log.work_ahead().unwrap();
    sim.set_capacity_bytes(sim.used_bytes());
    while rig.put(1, 500, true).is_ok() {}
    rig.manifest.state().segments.len()
}

#[test]
fn the_last_segment_is_for_deletes() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    assert_eq!(fill_with_values(&sim, &rig), 2);
    assert!(!rig.log.has_spares());
    rig.log.remove_spares().unwrap();
    let batch = encode(&batch_of(1, 1, 500));
    while rig.manifest.state().segments.len() == 2 {
        let (_, ticket) = rig.log.append(&batch, Claim::Deletes).unwrap();
        rig.log.wait_synced(ticket).unwrap();
    }
    while rig.log.append(&batch, Claim::Deletes).is_ok() {}
    assert_eq!(rig.poison.reason(), None);
    sim.set_capacity_bytes(sim.used_bytes() + rig.manifest.bytes());
    rig.flush(1).unwrap();
    rig.flush(2).unwrap();
    rig.log.append(&batch, Claim::Deletes).unwrap();
}

#[cfg(feature = "_planted")]
#[test]
fn a_last_segment_that_values_take_is_found() {
    use crate::planted::{self, Bug};
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    assert_eq!(planted::with(Bug::LastSegmentTaken, || fill_with_values(&sim, &rig)), 3);
}

#[test]
fn a_failed_sync_ends_all_waits_and_is_not_repeated() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.put(1, 10, true).unwrap();
    rig.faults.arm(fault::LOG_SYNC, 1, fault::Fault::Io, false);
    let ticket = rig.append(1, 10).unwrap();
    assert!(matches!(rig.log.wait_synced(ticket), Err(Error::Device(_))));
    for _ in 0..2 {
        assert!(matches!(rig.log.wait_synced(ticket), Err(Error::Poisoned { .. })));
        assert!(matches!(rig.append(1, 10), Err(Error::Poisoned { .. })));
    }
    assert!(matches!(rig.manifest.retry_last_record(), Err(Error::Poisoned { .. })));
    rig.log.sync_to(Seq(1)).unwrap();
}

#[test]
fn many_threads_share_writes_and_lose_nothing() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    let order = Mutex::new(());
    std::thread::scope(|scope| {
        for synced in [true, false, true, false] {
            let (rig, order) = (&rig, &order);
            scope.spawn(move || {
                for n in 0..200 {
                    let ticket = {
                        let _order = order.lock();
                        rig.append(n % 3 + 1, 100).unwrap()
                    };
                    if synced {
                        rig.log.wait_synced(ticket).unwrap();
                        assert!(rig.log.durable_seq() >= ticket.last_seq);
                    } else {
                        rig.log.wait_written(ticket).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(rig.log.verify(), []);
    let last = rig.log.last_seq();
    rig.log.sync_to(last).unwrap();
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last);
}

#[test]
fn work_ahead_leaves_a_switch_no_file_to_make() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    rig.put(1, 10, false).unwrap();
    assert!(rig.log.wants_work_ahead() && !rig.log.wants_work_ahead());
    rig.log.work_ahead().unwrap();
    rig.log.work_ahead().unwrap();
    assert_eq!(rig.log.space_bytes(), 3 * SEGMENT_BYTES, "the last one is for deletes");
    rig.faults.arm(fault::LOG_CREATE, 1, fault::Fault::Io, false);
    while rig.manifest.state().segments.len() == 1 {
        rig.put(1, 500, false).unwrap();
    }
    assert!(rig.log.wants_work_ahead(), "in the next segment there is work again");
    assert!(matches!(rig.log.work_ahead(), Err(Error::Device(_))), "the file was not made before");
    assert!(matches!(rig.append(1, 10), Err(Error::Poisoned { .. })));
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), rig.log.last_seq());
}

/// The number of syncs in a store's first segment is not known in advance.
#[test]
fn later_files_are_written_through_where_syncs_are_many() {
    let log_bytes = |synced| {
        let counting = Arc::new(CountingDevice::new(memory()));
        let device: Arc<dyn Device> = counting.clone();
        let rig = create_rig(&device).unwrap();
        while rig.manifest.state().segments.len() < 4 {
            rig.put(1, 500, synced).unwrap();
        }
        assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), rig.log.last_seq());
        let counts = counting.counts();
        let mut of_log = counts.iter().filter(|(purpose, _)| *purpose == Purpose::Log);
        of_log.next().map(|(_, counts)| counts.bytes_written)
    };
    // With the second file the third one was made, which is for deletes.
    let zeros = 2 * SEGMENT_BYTES;
    assert_eq!(log_bytes(true), log_bytes(false).map(|bytes| bytes + zeros));
}

#[test]
fn without_room_for_a_spare_nothing_has_changed() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let rig = create_rig(&device).unwrap();
    rig.log.prepare().unwrap();
    let used: usize = sim.files().values().map(Vec::len).sum();
    sim.set_capacity_bytes(used as u64 + SEGMENT_BYTES / 2);
    for _ in 0..3 {
        assert!(matches!(rig.log.work_ahead(), Err(Error::Full { .. })));
        assert_eq!(rig.log.space_bytes(), SEGMENT_BYTES);
    }
    assert_eq!(sim.files().values().map(Vec::len).sum::<usize>(), used);
    let last = rig.put(1, 500, true).unwrap();
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last);
}

#[test]
fn a_sync_ahead_that_fails_poisons_and_one_that_succeeds_promises_nothing() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = Arc::clone(&create_rig(&device).unwrap().manifest);
    let (poison, faults) = Default::default();
    let options = LogOptions { segment_bytes: 1 << 20, spares_max: 1 };
    let log = Log::open(&device, &manifest, Arc::new(Nothing), options, &poison, &faults).unwrap();
    log.prepare().unwrap();
    let ticket = log.append(&encode(&batch_of(1, 3, 400)), Claim::Values).unwrap().1;
    log.wait_written(ticket).unwrap();
    let durable = log.durable_seq();
    log.work_ahead().unwrap();
    assert_eq!(log.durable_seq(), durable);
    sim.set_faults(FaultPlan::new().with(Fault::new(Effect::FailSync(SyncLoss::ALL[0]))));
    assert!(matches!(log.work_ahead(), Err(Error::Device(_))));
    assert!(matches!(log.wait_synced(ticket), Err(Error::Poisoned { .. })));
}

/// Segments are retired, made ahead and taken into use at the same time, each file for one thing.
#[test]
fn work_ahead_runs_concurrently() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    rig.put(1, 10, false).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rig, ended) = (&rig, &ended);
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                rig.log.work_ahead().unwrap();
                rig.log.remove_spares().unwrap();
            }
        });
        for n in 0..600 {
            rig.put(2, 400, false).unwrap();
            if n % 50 == 49 {
                rig.flush(1).unwrap();
                rig.flush(2).unwrap();
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(rig.log.verify(), []);
    assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), rig.log.last_seq());
}

/// The next operation of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put { ops: u64, value_bytes: usize, synced: bool },
    Flush(u32),
    Prepare,
    Ahead,
    Close,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1u64..9, 0usize..1500, any::<bool>())
            .prop_map(|(ops, value_bytes, synced)| Step::Put { ops, value_bytes, synced }),
        1 => (40u64..60, 300usize..500)
            .prop_map(|(ops, value_bytes)| Step::Put { ops, value_bytes, synced: false }),
        3 => (1..=KEYSPACES).prop_map(Step::Flush),
        1 => Just(Step::Prepare),
        2 => Just(Step::Ahead),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_replayed(steps in proptest::collection::vec(step(), 1..80)) {
        let device = memory();
        let mut rig = create_rig(&device).unwrap();
        let mut last = Seq(0);
        for step in steps {
            match step {
                Step::Put { ops, value_bytes, synced } => {
                    last = rig.put(ops, value_bytes, synced).unwrap();
                }
                Step::Flush(keyspace) => rig.flush(keyspace).unwrap(),
                Step::Prepare => rig.log.prepare().unwrap(),
                Step::Ahead => rig.log.work_ahead().unwrap(),
                Step::Close | Step::Kill => {
                    if matches!(step, Step::Close) {
                        rig.clean_close().unwrap();
                    }
                    rig = open_rig(&device).unwrap();
                    prop_assert_eq!(rig.replay_and_check().unwrap(), last);
                }
            }
            prop_assert_eq!(rig.log.verify(), []);
        }
        let live: u64 = rig.manifest.state().segments.values().map(|s| s.bytes).sum();
        prop_assert!(rig.log.live_bytes() <= live && live <= rig.log.space_bytes());
    }
}

/// Data outside the log that lacks what values beginning with one of these refer to.
#[derive(Debug)]
struct Lacks(Vec<&'static [u8]>);

impl Beneath for Lacks {
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn has(&self, action: &WriteOp<'_>) -> Result<bool> {
        let value = action.data().and_then(|data| data.value()).unwrap_or_default();
        Ok(!self.0.iter().any(|missing| value.starts_with(missing)))
    }
}

#[test]
fn the_log_ends_before_a_record_that_refers_to_what_is_not_there() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim;
    let rig = create_rig(&device).unwrap();
    for n in 0..6 {
        rig.put(2, 30, n == 0).unwrap();
    }
    drop(rig);
    // The second batch is 3 and 4, durable by the mark of none; the first one is.
    let lacking = || Arc::new(Lacks(vec![b"6:", b"11:"]));
    for _again in 0..2 {
        let rig = open_rig_over(&device, lacking()).unwrap();
        assert_eq!(rig.replay_and_check().unwrap(), Seq(4), "the batch of 6 is out as a whole");
    }
    // The replacement has the same length, so that old records would fit behind it.
    let rig = open_rig_over(&device, lacking()).unwrap();
    rig.put(2, 30, false).unwrap();
    drop(rig);
    let rig = open_rig(&device).unwrap();
    assert_eq!(rig.replay_and_check().unwrap(), Seq(6), "the old records behind are gone");
}

#[test]
fn what_a_durable_record_refers_to_is_not_asked_for() {
    let device: Arc<dyn Device> = Arc::new(SimDevice::new());
    let rig = create_rig(&device).unwrap();
    for n in 0..4 {
        rig.put(2, 30, n == 1).unwrap();
    }
    drop(rig);
    // The mark of a later record shows that 4 was durable: its loss is damage, to be reported when
    // read.
    let rig = open_rig_over(&device, Arc::new(Lacks(vec![b"3:", b"4:"]))).unwrap();
    assert_eq!(rig.replay_and_check().unwrap(), Seq(8));
    assert_eq!(rig.log.durable_seq(), Seq(4));
}

/// Batches of one operation, of three and of two.
#[test]
fn the_last_operation_of_each_batch_is_known() {
    let device = memory();
    let rig = create_rig(&device).unwrap();
    for ops in [1, 3, 2] {
        rig.put(ops, 10, true).unwrap();
    }
    drop(rig);
    let mut places = Vec::new();
    let again = open_rig(&device).unwrap();
    again
        .log
        .replay(&mut |place, _, _| {
            places.push((place.seq.0, place.is_last()));
            Ok(())
        })
        .unwrap();
    let ends = [(1, true), (2, false), (3, false), (4, true), (5, false), (6, true)];
    assert_eq!(places, ends);
}
