//! Merge operands: counters, lists, their bases, and operators that fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::common::{
    assert_sound, back_up, contents, copy, options, required_features, restored, small, threaded,
    tiny,
};
use esker::{BoxError, Compression, Db, Error, Keyspace, Merge, MergeOperator, SimRuntime};
use esker_device::memory::MemoryDevice;

fn with(db: &Db, name: &str, merge: Merge) -> Keyspace {
    let options = options().memtable_bytes(Some(4 << 10)).merge(merge);
    db.keyspace(name, options).unwrap()
}

fn count(keyspace: &Keyspace, key: &str) -> Option<u64> {
    let value = keyspace.get(key).unwrap()?;
    Some(u64::from_le_bytes(value.try_into().unwrap()))
}

fn text(keyspace: &Keyspace, key: &str) -> Option<String> {
    keyspace.get(key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

fn entries(db: &Db) -> u64 {
    let stats = db.stats().unwrap();
    let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    levels.map(|level| level.puts + level.tombstones).sum()
}

/// Appends, and says so; fails, or panics, where the test sets it.
#[derive(Clone, Default)]
struct Moody(Arc<Mood>);

#[derive(Default)]
struct Mood {
    fails: AtomicBool,
    panics: AtomicBool,
    calls: AtomicUsize,
}

impl MergeOperator for Moody {
    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Result<Vec<u8>, BoxError> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0.panics.load(Ordering::Relaxed), "not today");
        if self.0.fails.load(Ordering::Relaxed) {
            return Err("I would rather\nnot".into());
        }
        Ok([older, newer].concat())
    }
}

fn moody(db: &Db, name: &str, operator: &Moody) -> Keyspace {
    let options = options().memtable_bytes(Some(4 << 10));
    db.keyspace(name, options.merge_operator("moody", operator.clone())).unwrap()
}

#[test]
fn a_counter_counts_through_merges_kills_and_backups() {
    let device = MemoryDevice::new();
    let db = threaded(&device).inline_merges(1).open().unwrap();
    let (counters, folder) = (with(&db, "counters", Merge::Add), MemoryDevice::new());
    let key = |number: u64| format!("counter {}", number % 50);
    for number in 0..3000 {
        counters.merge(key(number), 1_u64.to_le_bytes()).unwrap();
    }
    counters.insert("counter 7", 1000_u64.to_le_bytes()).unwrap();
    counters.remove("counter 8").unwrap();
    for number in 3000..4000 {
        counters.merge(key(number), 2_u64.to_le_bytes()).unwrap();
    }
    back_up(&db, &folder).unwrap();
    for device in [copy(&device), restored(&folder)] {
        let db = small(&device).create(false).open().unwrap();
        // Operators that every store has need not be given.
        let counters = db.open_keyspace("counters").unwrap().unwrap();
        for _ in 0..2 {
            assert_eq!(count(&counters, "counter 0"), Some(60 + 40));
            assert_eq!(count(&counters, "counter 7"), Some(1000 + 40));
            assert_eq!(count(&counters, "counter 8"), Some(40));
            assert_eq!(contents(&counters).len(), 50);
            assert_sound(&db);
            db.compact().unwrap();
        }
        assert_eq!(entries(&db), 50);
    }
}

#[test]
fn a_list_is_appended_to_and_read_by_every_way() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let lists = with(&db, "lists", Merge::Append);
    lists.insert("a", "1,").unwrap();
    lists.merge("a", "2,").unwrap();
    lists.merge("b", "x,").unwrap();
    lists.flush().unwrap();
    lists.merge("a", "3,").unwrap();
    for _ in 0..2 {
        assert_eq!(text(&lists, "a").unwrap(), "1,2,3,");
        assert_eq!(text(&lists, "b").unwrap(), "x,");
        assert!(lists.contains("a").unwrap() && !lists.contains("c").unwrap());
        let many = lists.multi_get(["b", "a", "c"]).unwrap();
        assert_eq!(many, [Some(b"x,".to_vec()), Some(b"1,2,3,".to_vec()), None]);
        let reversed: Vec<_> = lists.iter().unwrap().rev().map(|entry| entry.unwrap().1).collect();
        assert_eq!(reversed, [b"x,".to_vec(), b"1,2,3,".to_vec()]);
        assert_eq!(lists.first().unwrap().unwrap().1, b"1,2,3,");
        assert_eq!(lists.reader("a").unwrap().unwrap().len(), 6);
        db.compact().unwrap();
    }
}

#[test]
fn a_snapshot_sees_what_was_merged_before_it() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let lists = with(&db, "lists", Merge::Append);
    let mut snapshots = Vec::new();
    for number in 0..6 {
        lists.merge("k", format!("{number}")).unwrap();
        lists.merge("k", "+").unwrap();
        snapshots.push(db.snapshot().unwrap());
        if number % 2 == 0 {
            lists.flush().unwrap();
        }
    }
    for _ in 0..2 {
        for (number, snapshot) in snapshots.iter().enumerate() {
            let expected: String = (0..=number).map(|number| format!("{number}+")).collect();
            assert_eq!(snapshot.get(&lists, "k").unwrap().unwrap(), expected.as_bytes());
        }
        db.compact().unwrap();
    }
    assert_eq!(entries(&db), 6, "each snapshot has its own");
    drop(snapshots);
    db.compact().unwrap();
    assert_eq!((entries(&db), text(&lists, "k").unwrap()), (1, "0+1+2+3+4+5+".into()));
}

#[test]
fn what_is_merged_onto_a_value_outlasts_it() {
    let runtime = Arc::new(SimRuntime::new(1));
    let device = MemoryDevice::new();
    let db = small(&device).runtime(Arc::clone(&runtime) as _).open().unwrap();
    let lists = with(&db, "lists", Merge::Append);
    lists.insert_with_ttl("k", "until then ", Duration::from_millis(50)).unwrap();
    lists.merge("k", "and ").unwrap();
    let snapshot = db.snapshot().unwrap();
    lists.merge("k", "after").unwrap();
    for _ in 0..2 {
        assert_eq!(text(&lists, "k").unwrap(), "until then and after");
        db.compact().unwrap();
    }
    runtime.advance(Duration::from_millis(60));
    for _ in 0..2 {
        assert_eq!(text(&lists, "k").unwrap(), "and after");
        assert_eq!(snapshot.get(&lists, "k").unwrap().unwrap(), b"until then and ");
        db.compact().unwrap();
    }
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!((entries(&db), text(&lists, "k").unwrap()), (1, "and after".into()));
    let mut tx = db.transaction().unwrap();
    tx.insert_with_ttl(&lists, "k", "new ", Duration::from_millis(50)).unwrap();
    tx.merge(&lists, "k", "and ").unwrap();
    tx.merge(&lists, "k", "old").unwrap();
    assert_eq!(tx.get(&lists, "k").unwrap().unwrap(), b"new and old");
    tx.commit().unwrap();
    assert_eq!(text(&lists, "k").unwrap(), "new and old");
    runtime.advance(Duration::from_millis(60));
    assert_eq!(text(&lists, "k").unwrap(), "and old");
}

#[test]
fn an_operand_over_a_removed_range_is_the_value() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let lists = with(&db, "lists", Merge::Append);
    for key in ["a", "b", "c"] {
        lists.insert(key, "old").unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    lists.remove_range("a".."c").unwrap();
    lists.merge("b", "new").unwrap();
    lists.merge("c", "er").unwrap();
    for _ in 0..3 {
        assert_eq!([text(&lists, "a"), text(&lists, "b")], [None, Some("new".into())]);
        assert_eq!(text(&lists, "c").unwrap(), "older");
        assert_eq!(snapshot.get(&lists, "b").unwrap().unwrap(), b"old");
        db.compact().unwrap();
    }
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!((entries(&db), text(&lists, "b").unwrap()), (2, "new".into()));
}

#[test]
fn blobs_are_merged_by_their_readers() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let options = options().memtable_bytes(Some(4 << 10)).merge(Merge::Append);
    let lists = db.keyspace("lists", options.inline_bytes_max(100)).unwrap();
    let long = vec![b'x'; 300_000];
    lists.insert("k", &long).unwrap();
    let snapshot = db.snapshot().unwrap();
    lists.merge("k", vec![b'y'; 5000]).unwrap();
    lists.merge("k", "z").unwrap();
    let expected = [long.clone(), vec![b'y'; 5000], b"z".to_vec()].concat();
    for _ in 0..3 {
        assert!(lists.get("k").unwrap().unwrap() == expected);
        assert!(contents(&lists)["k".as_bytes()] == expected);
        assert_eq!(lists.reader("k").unwrap().unwrap().len(), expected.len() as u64);
        assert!(snapshot.get(&lists, "k").unwrap().unwrap() == long);
        assert_sound(&db);
        db.compact().unwrap();
    }
    drop(snapshot);
    // Written whole, it is one value again, and the old one's space comes back.
    lists.insert("k", &expected).unwrap();
    db.compact().unwrap();
    assert_eq!(entries(&db), 1);
    assert_sound(&db);
    let refused = lists.merge("k", vec![0; (256 << 10) + 1]).unwrap_err().to_string();
    assert!(refused.contains("at most 262144 bytes"), "{refused}");
}

#[test]
fn an_operator_that_fails_or_panics_is_an_error_of_that_key() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let operator = Moody::default();
    let lists = moody(&db, "lists", &operator);
    for number in 0..300 {
        lists.insert(format!("key {number:03}"), "v").unwrap();
    }
    lists.merge("key 200", "w").unwrap();
    lists.merge("key 200", "w").unwrap();
    lists.merge("key 100", "alone is a put without what it stands on").unwrap();
    let mood = &operator.0;
    for (fails, panics) in [(true, false), (false, true)] {
        mood.fails.store(fails, Ordering::Relaxed);
        mood.panics.store(panics, Ordering::Relaxed);
        for _ in 0..2 {
            let error = lists.get("key 200").unwrap_err();
            let said = error.to_string();
            let why = if fails { "I would rather\u{fffd}not" } else { "it panicked (not today)" };
            assert!(matches!(error, Error::Operator { .. }), "{said}");
            let wanted = format!(
                "merge operator moody of keyspace lists: {why} (key of 7 bytes, CRC-32C {:08x})",
                esker_format::backup::checksum(b"key 200")
            );
            assert_eq!(said, wanted);
            assert_eq!(text(&lists, "key 199").unwrap(), "v");
            assert!(lists.contains("key 200").unwrap());
            assert!(lists.multi_get(["key 199", "key 200"]).is_err());
            // A scan hands out what comes before, says so, and can go on behind.
            let mut range = lists.range("key 150"..).unwrap();
            assert_eq!(range.by_ref().take_while(Result::is_ok).count(), 50);
            assert_eq!(range.count(), 0);
            let mut back = lists.range("key 150"..).unwrap().rev();
            assert_eq!(back.by_ref().take_while(Result::is_ok).count(), 99);
            assert_eq!(lists.range("key 201"..).unwrap().filter(Result::is_ok).count(), 99);
            // Merges carry what they cannot join.
            db.compact().unwrap();
        }
        assert_eq!(db.stats().unwrap().poisoned, None);
        assert_sound(&db);
    }
    mood.panics.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(text(&lists, "key 200").unwrap(), "vww");
        db.compact().unwrap();
    }
    assert_eq!(entries(&db), 300);
    let calls = mood.calls.load(Ordering::Relaxed);
    assert_eq!(text(&lists, "key 200").unwrap(), "vww");
    assert_eq!(mood.calls.load(Ordering::Relaxed), calls, "nothing is left to merge");
}

#[test]
fn without_its_operator_a_keyspace_keeps_its_operands() {
    let device = MemoryDevice::new();
    let operator = Moody::default();
    {
        let db = small(&device).open().unwrap();
        let lists = moody(&db, "lists", &operator);
        lists.insert("k", "1").unwrap();
        lists.insert("other", "1").unwrap();
        lists.flush().unwrap();
        lists.merge("k", "2").unwrap();
        lists.merge("k", "3").unwrap();
        lists.merge("alone", "4").unwrap();
        db.close().unwrap();
    }
    let db = small(&device).open().unwrap();
    let lists = db.open_keyspace("lists").unwrap().unwrap();
    for _ in 0..2 {
        let error = lists.get("k").unwrap_err();
        assert!(matches!(error, Error::Operator { .. }));
        assert!(error.to_string().contains("operator moody of keyspace lists"), "{error}");
        assert_eq!(text(&lists, "other").unwrap(), "1");
        assert_eq!(text(&lists, "alone").unwrap(), "4", "there is nothing to merge");
        let refused = lists.merge("k", "5").unwrap_err();
        assert!(refused.to_string().contains("open it with that to merge"), "{refused}");
        db.compact().unwrap();
    }
    assert_eq!(entries(&db), 5);
    let other = options().merge_operator("other", operator.clone());
    let refused = db.keyspace("lists", other).unwrap_err().to_string();
    assert_eq!(refused, "keyspace lists has the merge operator moody, and not other");
    let lists = moody(&db, "lists", &operator);
    for _ in 0..2 {
        assert_eq!(text(&lists, "k").unwrap(), "123");
        db.compact().unwrap();
    }
    assert_eq!(entries(&db), 3);
}

#[test]
fn names_of_operators_have_bounds_and_none_is_needed() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    for bad in ["", "a\nb", "esker.add", "esker."] {
        let options = options().merge_operator(bad, Moody::default());
        assert!(matches!(db.keyspace("k", options), Err(Error::Invalid { .. })), "{bad}");
    }
    let plain = tiny(&db, "plain");
    let refused = plain.merge("k", "v").unwrap_err().to_string();
    assert!(refused.contains("keyspace plain has no merge operator"), "{refused}");
    let mut batch = db.batch();
    batch.merge(&plain, "k", "v");
    assert!(batch.commit().is_err());
    // A keyspace that has been there without may get one.
    plain.insert("k", "v").unwrap();
    let lists = with(&db, "plain", Merge::Append);
    lists.merge("k", "w").unwrap();
    assert_eq!(text(&plain, "k").unwrap(), "vw");
    db.drop_keyspace("plain").unwrap();
    with(&db, "plain", Merge::Add);
}

#[test]
fn everything_that_a_batch_says_of_a_key_counts() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (left, right) = (with(&db, "left", Merge::Append), with(&db, "right", Merge::Append));
    left.insert("a", "old").unwrap();
    let before = db.visible_seq();
    let mut batch = db.batch();
    batch.merge(&left, "a", "1");
    batch.merge(&right, "a", "x");
    batch.insert(&left, "a", "new");
    batch.merge(&left, "a", "2");
    batch.merge(&left, "b", "gone");
    batch.remove_range(&left, "b"..);
    batch.merge(&left, "b", "3");
    batch.merge(&left, "a", "4");
    batch.merge(&right, "a", "y");
    assert_eq!(batch.commit().unwrap(), before + 7);
    assert_eq!(text(&left, "a").unwrap(), "new24");
    assert_eq!(text(&left, "b").unwrap(), "3");
    assert_eq!(text(&right, "a").unwrap(), "xy");
}

#[test]
fn a_transaction_reads_what_it_merges_and_merges_never_conflict() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let lists = with(&db, "lists", Merge::Append);
    for key in ["a", "b", "d"] {
        lists.insert(key, key).unwrap();
    }
    let mut blind = db.transaction().unwrap();
    let mut reads = db.transaction().unwrap();
    for tx in [&mut blind, &mut reads] {
        tx.merge(&lists, "a", "1").unwrap();
        tx.merge(&lists, "a", "2").unwrap();
        tx.merge(&lists, "c", "3").unwrap();
        tx.remove(&lists, "b").unwrap();
        tx.merge(&lists, "b", "4").unwrap();
        assert!(tx.contains(&lists, "a").unwrap());
    }
    assert_eq!(reads.get(&lists, "a").unwrap().unwrap(), b"a12");
    let all = reads.multi_get(&lists, ["c", "b", "x", "a"]).unwrap();
    assert_eq!(all, [Some(b"3".to_vec()), Some(b"4".to_vec()), None, Some(b"a12".to_vec())]);
    let found: Vec<_> = reads.iter(&lists).unwrap().map(|entry| entry.unwrap().1).collect();
    assert_eq!(found, [&b"a12"[..], b"4", b"3", b"d"]);
    let found: Vec<_> = reads.iter(&lists).unwrap().rev().map(|entry| entry.unwrap().1).collect();
    assert_eq!(found, [&b"d"[..], b"3", b"4", b"a12"]);
    lists.merge("a", "+").unwrap();
    blind.commit().unwrap();
    assert!(reads.commit().unwrap_err().is_conflict());
    assert_eq!([text(&lists, "a").unwrap(), text(&lists, "b").unwrap()], ["a+12", "4"]);

    // What was merged blindly, then scanned, then written over, has been read.
    let mut tx = db.transaction().unwrap();
    tx.merge(&lists, "a", "!").unwrap();
    assert_eq!(tx.range(&lists, "a".."b").unwrap().count(), 1);
    tx.insert(&lists, "a", "over").unwrap();
    lists.insert("a", "meanwhile").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    // What was written over before it was scanned has not.
    let mut tx = db.transaction().unwrap();
    tx.insert(&lists, "a", "over").unwrap();
    tx.merge(&lists, "a", "!").unwrap();
    assert_eq!(tx.range(&lists, "a".."b").unwrap().count(), 1);
    lists.insert("a", "meanwhile").unwrap();
    tx.commit().unwrap();
    assert_eq!(text(&lists, "a").unwrap(), "over!");
}

#[test]
fn a_writer_puts_the_value_in_the_place_of_many_operands() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    let operator = Moody::default();
    let options = options().merge_operator("moody", operator.clone());
    let lists = db.keyspace("lists", options).unwrap();
    let calls = || operator.0.calls.load(Ordering::Relaxed);
    lists.insert("k", "value").unwrap();
    let (seq, snapshot) = (db.visible_seq(), db.snapshot().unwrap());
    (0..64).for_each(|_| lists.merge("k", "+").unwrap());
    assert_eq!(db.visible_seq(), seq + 65, "64 operands, and what they come to");
    let before = calls();
    assert_eq!(lists.get("k").unwrap().unwrap().len(), 5 + 64);
    assert_eq!(calls(), before);
    assert_eq!(snapshot.get(&lists, "k").unwrap().unwrap(), b"value");
    // What is much longer than its operands is left, and what expires.
    lists.insert("long", vec![b'x'; 50_000]).unwrap();
    lists.insert_with_ttl("expires", "v", Duration::from_secs(1000)).unwrap();
    let seq = db.visible_seq();
    for _ in 0..64 {
        lists.merge("long", "+").unwrap();
        lists.merge("expires", "+").unwrap();
    }
    assert_eq!(db.visible_seq(), seq + 128);
    assert_eq!(lists.get("long").unwrap().unwrap().len(), 50_064);
    // An operator that fails does not block writers.
    operator.0.fails.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| lists.merge("failing", "+").unwrap());
    assert!(lists.get("failing").is_err());
    operator.0.fails.store(false, Ordering::Relaxed);
    assert_eq!(lists.get("failing").unwrap().unwrap().len(), 200);
    let db = small(&copy(&device)).create(false).open().unwrap();
    let lists = moody(&db, "lists", &operator);
    assert_eq!(lists.get("k").unwrap().unwrap().len(), 5 + 64);
    assert_sound(&db);
}

#[test]
fn a_value_in_the_place_of_its_operands_is_no_news_to_who_has_read_it() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (begins, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let once = Mutex::new(Some((begins, may_go_on)));
    let append = move |_: &[u8], older: &[u8], newer: &[u8]| -> Result<Vec<u8>, BoxError> {
        // The first to ask is the writer of the last operand.
        let first = once.lock().unwrap().take();
        if let Some((begins, may_go_on)) = first {
            begins.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
        Ok([older, newer].concat())
    };
    let lists = db.keyspace("lists", options().merge_operator("one", append));
    let lists = lists.unwrap();
    std::thread::scope(|scope| {
        // No thread waits for one that has failed.
        let go_on = go_on;
        let writer = scope.spawn(|| {
            for _ in 0..64 {
                let mut tx = db.write_transaction().unwrap();
                tx.merge(&lists, "k", "+").unwrap();
                tx.commit().unwrap();
            }
        });
        has_begun.recv().unwrap();
        let mut tx = db.write_transaction().unwrap();
        let seq = db.visible_seq();
        assert_eq!(tx.get(&lists, "k").unwrap().unwrap().len(), 64);
        tx.insert(&lists, "copied", "k").unwrap();
        go_on.send(()).unwrap();
        writer.join().unwrap();
        assert_eq!(db.visible_seq(), seq + 1, "what the operands come to");
        tx.commit().unwrap();
    });
}

#[test]
fn what_transactions_are_checked_against_stays_short_where_operands_are_folded() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let counts = db.keyspace("counts", options().merge(Merge::Max)).unwrap();
    let (_tx, seq) = (db.transaction().unwrap(), db.visible_seq());
    (0..5000).for_each(|_| counts.merge("k", "1").unwrap());
    assert!(db.visible_seq() > seq + 5000 + 70);
    let remembered = db.stats().unwrap().transactions.remembered_bytes;
    assert!(remembered <= (256 << 10) / 16 + (8 << 10), "{remembered}");
}

#[test]
fn a_keyspace_that_is_refused_for_its_operator_is_left_as_it_is() {
    let db = small(&MemoryDevice::new()).open().unwrap();
    with(&db, "lists", Merge::Append);
    let other = options().compression(Compression::Lz4).merge(Merge::Add);
    assert!(matches!(db.keyspace("lists", other), Err(Error::Invalid { .. })));
    assert_eq!(db.stats().unwrap().keyspaces[0].compression, Compression::None);
}

#[test]
fn what_threads_merge_onto_one_key_all_counts() {
    const THREADS: u64 = 4;
    const EACH: u64 = 4000;
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let counters = with(&db, "counters", Merge::Add);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let counters = &counters;
            scope.spawn(move || {
                for number in 0..EACH {
                    counters.merge("hot", 1_u64.to_le_bytes()).unwrap();
                    if number % 7 == thread {
                        counters.merge(format!("{thread}"), 1_u64.to_le_bytes()).unwrap();
                    }
                    if number % 500 == 0 {
                        let seen = count(counters, "hot").unwrap();
                        assert!((number..=THREADS * EACH).contains(&seen), "{seen}");
                    }
                }
            });
        }
    });
    for _ in 0..2 {
        assert_eq!(count(&counters, "hot"), Some(THREADS * EACH));
        db.compact().unwrap();
    }
    let db = small(&copy(&device)).create(false).open().unwrap();
    let counters = db.open_keyspace("counters").unwrap().unwrap();
    assert_eq!(count(&counters, "hot"), Some(THREADS * EACH));
    assert_sound(&db);
}

/// A version that does not know of them finds bit 6 in the superblock.
#[test]
fn the_first_operator_sets_a_required_feature() {
    let device = MemoryDevice::new();
    let db = small(&device).open().unwrap();
    tiny(&db, "plain").insert("k", "v").unwrap();
    assert_eq!(required_features(&device), 0);
    with(&db, "lists", Merge::Append);
    assert_eq!(required_features(&device), 1 << 6);
}
