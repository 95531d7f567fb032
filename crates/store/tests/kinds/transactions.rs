//! Transactions: what they see, what they exclude, and what they refuse.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::common::{assert_sound, contents, copy, keeps_history, small, threaded, tiny};
use esker::{Db, Durability, Error, Keyspace, Transaction};
use esker_device::memory::MemoryDevice;

fn store() -> (Db, Keyspace, Keyspace) {
    let db = small(&MemoryDevice::new()).open().unwrap();
    let (a, b) = (tiny(&db, "a"), tiny(&db, "b"));
    (db, a, b)
}

fn fill(keyspace: &Keyspace, keys: &[&str]) {
    keys.iter().for_each(|key| keyspace.insert(key, key).unwrap());
}

fn keys(range: impl Iterator<Item = esker::Result<(Vec<u8>, Vec<u8>)>>) -> String {
    let keys: Vec<_> = range.map(|entry| String::from_utf8(entry.unwrap().0).unwrap()).collect();
    keys.join(" ")
}

#[track_caller]
fn assert_conflict(tx: Transaction) {
    let error = tx.commit().unwrap_err();
    assert!(error.is_conflict() && matches!(error, Error::Conflict { .. }), "{error}");
}

/// Whether a transaction that reads and then writes elsewhere conflicts with a write to `key`.
fn conflicts(read: impl Fn(&mut Transaction, &Keyspace), key: &str) -> bool {
    let (db, a, b) = store();
    fill(&a, &["b", "d", "f", "h"]);
    let mut tx = db.transaction().unwrap();
    read(&mut tx, &a);
    tx.insert(&b, "out", "").unwrap();
    a.insert(key, "new").unwrap();
    match tx.commit() {
        Ok(_) => false,
        Err(Error::Conflict { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_transaction_sees_its_moment_and_its_own_writes() {
    let (db, a, _) = store();
    fill(&a, &["b", "d", "f"]);
    let mut tx = db.transaction().unwrap();
    a.insert("b", "late").unwrap();
    a.insert("c", "late").unwrap();
    tx.insert(&a, "e", "mine").unwrap();
    tx.insert(&a, "f", "mine").unwrap();
    tx.remove(&a, "d").unwrap();
    assert_eq!(tx.get(&a, "b").unwrap().unwrap(), b"b");
    assert_eq!(tx.get(&a, "c").unwrap(), None);
    assert!(!tx.contains(&a, "d").unwrap() && tx.contains(&a, "e").unwrap());
    let many = tx.multi_get(&a, ["f", "b", "d", "x", "f"]).unwrap();
    let many: Vec<_> = many.iter().map(Option::as_deref).collect();
    assert_eq!(many, [Some(&b"mine"[..]), Some(b"b"), None, None, Some(b"mine")]);
    assert_eq!(keys(tx.iter(&a).unwrap()), "b e f");
    assert_eq!(keys(tx.iter(&a).unwrap().rev()), "f e b");
    assert_eq!(keys(tx.range(&a, "c".."f").unwrap()), "e");
    assert_eq!(keys(tx.prefix(&a, "e").unwrap()), "e");
    assert_eq!(tx.first(&a).unwrap().unwrap(), (b"b".to_vec(), b"b".to_vec()));
    assert_eq!(tx.last(&a).unwrap().unwrap(), (b"f".to_vec(), b"mine".to_vec()));
    let mut range = tx.iter(&a).unwrap();
    let ends = [range.next_back(), range.next(), range.next(), range.next(), range.next_back()];
    assert_eq!(keys(ends.into_iter().flatten()), "f b e");
    drop(range);
    assert_eq!((tx.len(), tx.is_empty()), (3, false));
    assert!(tx.seq() == 3 || keeps_history());
    assert_eq!(a.get("e").unwrap(), None, "nobody else sees them");
    tx.rollback();
    assert_eq!(keys(a.iter().unwrap()), "b c d f");
}

#[test]
fn a_commit_is_whole_and_answers_its_number() {
    let (db, a, b) = store();
    fill(&a, &["x"]);
    let mut tx = db.transaction().unwrap();
    tx.insert(&b, "one", "1").unwrap();
    tx.insert(&b, "one", "2").unwrap();
    tx.remove(&a, "x").unwrap();
    let seq = tx.commit().unwrap();
    assert_eq!(seq, db.visible_seq());
    assert!(seq == 3 || keeps_history(), "two writes, the last of each key");
    assert_eq!(b.get("one").unwrap().unwrap(), b"2");
    assert!(!a.contains("x").unwrap());
    let tx = db.transaction().unwrap();
    assert_eq!(tx.commit().unwrap(), seq);
}

#[test]
fn write_skew_is_refused() {
    let (db, a, b) = store();
    a.insert("on call", "1").unwrap();
    b.insert("on call", "1").unwrap();
    let (mut one, mut two) = (db.transaction().unwrap(), db.transaction().unwrap());
    assert!(two.contains(&a, "on call").unwrap());
    assert!(one.contains(&b, "on call").unwrap());
    one.remove(&a, "on call").unwrap();
    two.remove(&b, "on call").unwrap();
    one.commit().unwrap();
    assert_conflict(two);
    assert!(b.contains("on call").unwrap());
    assert_eq!(db.stats().unwrap().transactions.conflicts, 1);
}

#[test]
fn lost_updates_are_refused_by_every_way_to_write() {
    let (db, a, _) = store();
    a.insert("n", "1").unwrap();
    let mut tx = db.transaction().unwrap();
    tx.get(&a, "n").unwrap();
    tx.insert(&a, "n", "2").unwrap();
    let mut batch = db.batch();
    batch.insert(&a, "n", "1");
    batch.commit().unwrap();
    assert_conflict(tx);
    let mut tx = db.transaction().unwrap();
    tx.get(&a, "n").unwrap();
    tx.insert(&a, "n", "2").unwrap();
    a.remove("n").unwrap();
    assert_conflict(tx);
    assert!(!a.contains("n").unwrap(), "nothing of it was applied");
}

#[test]
fn points_conflict_with_their_key_alone() {
    for key in ["a", "b", "c"] {
        let reads_b = |tx: &mut Transaction, a: &Keyspace| drop(tx.get(a, "b").unwrap());
        assert_eq!(conflicts(reads_b, key), key == "b");
        let misses_c = |tx: &mut Transaction, a: &Keyspace| assert!(!tx.contains(a, "c").unwrap());
        assert_eq!(conflicts(misses_c, key), key == "c");
        let many = |tx: &mut Transaction, a: &Keyspace| {
            tx.multi_get(a, ["a", "c"]).unwrap();
        };
        assert_eq!(conflicts(many, key), key != "b");
    }
}

/// A scan that is dropped conflicts with what it came past, and with nothing behind that.
#[test]
fn ranges_conflict_with_what_they_came_past() {
    let met = |read: &dyn Fn(&mut Transaction, &Keyspace)| {
        let all = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let met: Vec<_> = all.into_iter().filter(|key| conflicts(read, key)).collect();
        met.concat()
    };
    let take = |count: usize, back: usize| {
        move |tx: &mut Transaction, a: &Keyspace| {
            let mut range = tx.range(a, "b"..="g").unwrap();
            (0..count).for_each(|_| drop(range.next()));
            (0..back).for_each(|_| drop(range.next_back()));
        }
    };
    assert_eq!(met(&take(0, 0)), "");
    assert_eq!(met(&take(1, 0)), "b");
    assert_eq!(met(&take(2, 0)), "bcd");
    assert_eq!(met(&take(3, 0)), "bcdef");
    assert_eq!(met(&take(4, 0)), "bcdefg", "it was seen to end");
    assert_eq!(met(&take(0, 1)), "fg");
    assert_eq!(met(&take(0, 4)), "bcdefg");
    assert_eq!(met(&take(1, 1)), "bfg");
    assert_eq!(met(&take(2, 1)), "bcdfg");
    assert_eq!(met(&|tx, a| drop(tx.first(a).unwrap())), "ab");
    assert_eq!(met(&|tx, a| drop(tx.last(a).unwrap())), "hi");
    assert_eq!(met(&|tx, a| assert_eq!(tx.prefix(a, "c").unwrap().count(), 0)), "c");
    assert_eq!(met(&|tx, a| assert_eq!(tx.iter(a).unwrap().count(), 4)), "abcdefghi");
    assert_eq!(met(&|tx, a| assert_eq!(tx.range(a, "f".."b").unwrap().count(), 0)), "");
    assert_eq!(met(&|tx, a| std::mem::forget(tx.range(a, "c"..="d").unwrap())), "cd");
}

/// Reads of a transaction's own writes are not reads of the snapshot.
#[test]
fn own_writes_are_no_reads() {
    let reads_own = |tx: &mut Transaction, a: &Keyspace| {
        tx.insert(a, "d", "mine").unwrap();
        assert_eq!(tx.get(a, "d").unwrap().unwrap(), b"mine");
        assert_eq!(keys(tx.range(a, "c"..="e").unwrap()), "d");
        tx.remove(a, "d").unwrap();
        assert_eq!(keys(tx.range(a, "c"..="e").unwrap()), "");
    };
    assert!(!conflicts(reads_own, "d"));
    assert!(conflicts(reads_own, "c") && conflicts(reads_own, "e"));
    let reads_first = |tx: &mut Transaction, a: &Keyspace| {
        tx.range(a, "c"..="e").unwrap().for_each(drop);
        tx.insert(a, "d", "mine").unwrap();
        tx.range(a, "c"..="e").unwrap().for_each(drop);
    };
    assert!(conflicts(reads_first, "d"), "it was read before it was written");
}

#[test]
fn phantoms_are_refused_across_keyspaces() {
    let (db, a, b) = store();
    fill(&a, &["1", "2"]);
    let (mut one, mut two) = (db.transaction().unwrap(), db.transaction().unwrap());
    for (tx, from, to, key) in [(&mut one, &a, &b, "x"), (&mut two, &b, &a, "y")] {
        let count = tx.iter(from).unwrap().count();
        tx.insert(to, key, [count as u8]).unwrap();
    }
    two.commit().unwrap();
    assert_conflict(one);
    assert_eq!(keys(a.iter().unwrap()), "1 2 y");
}

#[test]
fn who_only_reads_or_only_writes_never_conflicts() {
    let (db, a, _) = store();
    fill(&a, &["x"]);
    let reader = db.transaction().unwrap();
    reader.get(&a, "x").unwrap();
    assert_eq!(reader.iter(&a).unwrap().count(), 1);
    let writers: Vec<_> = (0..3)
        .map(|number| {
            let mut tx = db.transaction().unwrap();
            tx.insert(&a, "x", [number]).unwrap();
            tx.remove(&a, "y").unwrap();
            tx
        })
        .collect();
    for writer in writers.into_iter().rev() {
        writer.commit().unwrap();
    }
    assert_eq!(a.get("x").unwrap().unwrap(), [0]);
    assert_eq!(reader.get(&a, "x").unwrap().unwrap(), b"x");
    assert_eq!(reader.commit().unwrap(), 1 + u64::from(keeps_history()));
}

/// The oldest of many writes is remembered while a transaction lives; nothing is afterwards.
#[test]
fn the_window_begins_and_ends_with_transactions() {
    let (db, a, b) = store();
    let remembered = || db.stats().unwrap().transactions.remembered_bytes;
    a.insert("before", "").unwrap();
    assert_eq!(remembered(), 0);
    let mut old = db.transaction().unwrap();
    old.get(&a, "k").unwrap();
    old.insert(&b, "x", "").unwrap();
    a.insert("k", "").unwrap();
    for number in 0..300_u32 {
        a.insert(number.to_be_bytes(), "").unwrap();
        let mut young = db.transaction().unwrap();
        assert!(young.contains(&a, number.to_be_bytes()).unwrap());
        young.insert(&b, "y", "").unwrap();
        young.commit().unwrap();
    }
    assert_eq!(db.stats().unwrap().transactions.live, 1);
    assert!(remembered() > 300 * 12);
    assert_conflict(old);
    a.insert("after", "").unwrap();
    let stats = db.stats().unwrap().transactions;
    assert_eq!((stats.live, stats.remembered_bytes, stats.conflicts), (0, 0, 1));
}

/// Memory is bounded: a transaction older than the remembered writes is refused, a younger one is
/// not.
#[test]
fn a_transaction_older_than_the_window_conflicts() {
    let (db, a, b) = store();
    let begin = || {
        let mut tx = db.transaction().unwrap();
        tx.get(&a, "k").unwrap();
        tx.insert(&b, "x", "").unwrap();
        tx
    };
    let (old, mut blind) = (begin(), db.transaction().unwrap());
    blind.insert(&b, "blind", "").unwrap();
    let write = |keys: std::ops::Range<u32>| {
        keys.for_each(|key| a.insert([&key.to_be_bytes()[..], &[7; 200]].concat(), "").unwrap());
    };
    write(0..200);
    let young = begin();
    write(200..230);
    // A sixteenth of the budget, and a segment.
    let most = (256 << 10) / 16 + (8 << 10);
    assert!(db.stats().unwrap().transactions.remembered_bytes <= most);
    let error = old.commit().unwrap_err();
    assert!(error.is_conflict() && error.to_string().contains("16384 bytes"), "{error}");
    young.commit().unwrap();
    blind.commit().unwrap();
}

#[test]
fn one_key_larger_than_the_window_is_met() {
    let (db, a, b) = store();
    let key = vec![b'k'; esker::KEY_BYTES_MAX];
    let mut tx = db.transaction().unwrap();
    tx.get(&a, &key).unwrap();
    tx.insert(&b, "x", "").unwrap();
    a.insert(&key, "").unwrap();
    assert_conflict(tx);
    let mut tx = db.transaction().unwrap();
    assert_eq!(tx.range(&a, key.clone()..).unwrap().count(), 1);
    assert!(tx.get(&a, vec![0; esker::KEY_BYTES_MAX + 1]).is_err());
    assert!(tx.insert(&a, vec![0; esker::KEY_BYTES_MAX + 1], "").is_err());
    assert!(tx.insert(&a, "", vec![0; esker::VALUE_BYTES_MAX + 1]).is_err());
    assert!(tx.is_empty(), "what is refused is not kept");
}

#[test]
fn transact_repeats_until_there_is_no_conflict() {
    let (db, a, _) = store();
    let mut others = 7_u8;
    let tries = AtomicU32::new(0);
    let answer = db.transact(|tx| -> esker::Result<u8> {
        tries.fetch_add(1, Ordering::Relaxed);
        let seen = tx.get(&a, "n")?.map_or(0, |value| value[0]);
        if others > 0 {
            others -= 1;
            a.insert("n", [seen + 1])?;
        }
        tx.insert(&a, "n", [seen + 10])?;
        Ok(seen)
    });
    assert_eq!((answer.unwrap(), tries.into_inner()), (7, 8));
    assert_eq!(a.get("n").unwrap().unwrap(), [17]);
    let endless = db.transact(|tx| {
        tx.get(&a, "n")?;
        a.insert("n", "")?;
        tx.insert(&a, "n", "")
    });
    assert!(endless.unwrap_err().is_conflict());
}

#[test]
fn an_error_or_a_panic_rolls_back() {
    #[derive(Debug, PartialEq)]
    enum Mine {
        Poor,
        Store,
    }
    impl From<Error> for Mine {
        fn from(_: Error) -> Self {
            Self::Store
        }
    }
    let (db, a, _) = store();
    let poor = db.transact(|tx| {
        tx.insert(&a, "n", "")?;
        Err::<(), _>(Mine::Poor)
    });
    assert_eq!(poor, Err(Mine::Poor));
    let closed = db.transact(|tx| {
        tx.insert(&a, "n", "")?;
        db.clone().close()?;
        Ok::<_, Mine>(())
    });
    assert_eq!(closed, Err(Mine::Store));
    let (db, a, _) = store();
    let panics = || {
        db.transact(|tx| -> esker::Result<()> {
            tx.insert(&a, "n", "")?;
            panic!("of the caller's own")
        })
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
    assert!(contents(&a).is_empty());
    assert_eq!(db.stats().unwrap().transactions.live, 0);
}

#[test]
fn turns_exclude_each_other_and_nothing_else() {
    let (db, a, _) = store();
    let mut turn = db.write_transaction().unwrap();
    let again = db.write_transaction().unwrap_err();
    assert!(matches!(again, Error::Invalid { .. }), "it would wait for itself: {again}");
    assert!(matches!(db.try_write_transaction(), Err(Error::Invalid { .. })));
    thread::scope(|scope| {
        scope.spawn(|| assert!(db.try_write_transaction().unwrap().is_none()));
    });
    a.insert("other", "").unwrap();
    let mut tx = db.transaction().unwrap();
    tx.get(&a, "n").unwrap();
    tx.insert(&a, "n", "").unwrap();
    tx.commit().unwrap();
    turn.insert(&a, "blind", "").unwrap();
    turn.commit().unwrap();
    let mut turn = db.try_write_transaction().unwrap().unwrap();
    turn.get(&a, "n").unwrap();
    turn.insert(&a, "n", "").unwrap();
    a.insert("n", "plain").unwrap();
    assert_conflict(turn);
    drop(db.write_transaction().unwrap());
}

#[test]
fn those_who_take_turns_never_conflict() {
    let db = threaded(&MemoryDevice::new()).open().unwrap();
    let a = tiny(&db, "a");
    let add = |tx: &mut Transaction| {
        let seen =
            tx.get(&a, "n")?.map_or(0, |value| u32::from_be_bytes(value.try_into().unwrap()));
        tx.insert(&a, "n", (seen + 1).to_be_bytes())
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let (db, a, add) = (&db, &a, &add);
            scope.spawn(move || {
                for round in 0..200_u32 {
                    let mut tx = db.write_transaction().unwrap();
                    add(&mut tx).unwrap();
                    let synced = round % 9 == 0;
                    tx.commit_with(if synced { Durability::Synced } else { Durability::Buffered })
                        .unwrap();
                    a.insert(format!("other{thread}"), round.to_be_bytes()).unwrap();
                }
            });
        }
    });
    assert_eq!(a.get("n").unwrap().unwrap(), 800_u32.to_be_bytes());
    assert_eq!(db.stats().unwrap().transactions.conflicts, 0);
}

/// Threads that all want the same key get through, each once.
#[test]
fn a_hot_key_is_counted_right() {
    let device = MemoryDevice::new();
    let db = threaded(&device).open().unwrap();
    let a = tiny(&db, "a");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    db.transact(|tx| {
                        let seen = tx.get(&a, "n")?;
                        let seen =
                            seen.map_or(0, |value| u32::from_be_bytes(value.try_into().unwrap()));
                        tx.insert(&a, "n", (seen + 1).to_be_bytes())
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(a.get("n").unwrap().unwrap(), 800_u32.to_be_bytes());
    assert_sound(&db);
    let again = small(&copy(&device)).open().unwrap();
    assert_eq!(tiny(&again, "a").get("n").unwrap().unwrap(), 800_u32.to_be_bytes());
}

/// Each takes numbers from a shared set, and no number is taken twice: phantoms at speed.
#[test]
fn a_queue_hands_out_each_entry_once() {
    let db = threaded(&MemoryDevice::new()).open().unwrap();
    let (queue, taken) = (tiny(&db, "queue"), tiny(&db, "taken"));
    let done = AtomicBool::new(false);
    let popped = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..300_u32 {
                queue.insert(number.to_be_bytes(), "").unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        let pop = || {
            let mut popped = Vec::new();
            loop {
                let was_done = done.load(Ordering::SeqCst);
                let next = db.transact(|tx| -> esker::Result<_> {
                    let Some((key, _)) = tx.first(&queue)? else { return Ok(None) };
                    tx.remove(&queue, &key)?;
                    tx.insert(&taken, &key, "")?;
                    Ok(Some(key))
                });
                match next.unwrap() {
                    Some(key) => popped.push(key),
                    None if was_done => return popped,
                    None => thread::yield_now(),
                }
            }
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(pop)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(popped.len(), 300);
    assert_eq!(popped.iter().collect::<BTreeSet<_>>().len(), 300);
    assert_eq!(contents(&taken).len(), 300);
    assert!(contents(&queue).is_empty());
}

#[test]
fn a_closed_or_dropped_thing_is_refused() {
    let (db, a, b) = store();
    let (other_db, other, _) = store();
    let mut tx = db.transaction().unwrap();
    assert!(matches!(tx.insert(&other, "x", ""), Err(Error::Invalid { .. })));
    assert!(matches!(tx.get(&other, "x"), Err(Error::Invalid { .. })));
    assert!(matches!(tx.multi_get(&other, ["x"]), Err(Error::Invalid { .. })));
    assert!(matches!(tx.iter(&other).map(drop), Err(Error::Invalid { .. })));
    tx.get(&a, "x").unwrap();
    tx.insert(&b, "x", "").unwrap();
    db.drop_keyspace("a").unwrap();
    assert!(matches!(tx.get(&a, "y"), Err(Error::NoKeyspace { .. })));
    assert!(matches!(tx.insert(&a, "y", ""), Err(Error::NoKeyspace { .. })));
    assert!(matches!(tx.commit(), Err(Error::NoKeyspace { .. })), "what it read is gone");
    let mut tx = db.transaction().unwrap();
    tx.insert(&b, "x", "").unwrap();
    let range = db.transaction().unwrap();
    let mut range = range.iter(&b).unwrap();
    let waiting = db.transaction().unwrap();
    db.clone().close().unwrap();
    assert!(matches!(tx.get(&b, "x"), Err(Error::Closed)), "even its own");
    assert!(matches!(tx.insert(&b, "x", ""), Err(Error::Closed)));
    assert!(matches!(tx.commit(), Err(Error::Closed)));
    assert!(matches!(waiting.commit(), Err(Error::Closed)));
    assert!(matches!(range.next(), Some(Err(Error::Closed))));
    assert!(range.next().is_none() && range.next_back().is_none());
    assert!(matches!(db.transaction(), Err(Error::Closed)));
    assert!(matches!(db.write_transaction(), Err(Error::Closed)));
    assert!(matches!(db.try_write_transaction(), Err(Error::Closed)));
    drop(other_db);
}

#[test]
fn who_waits_for_a_turn_hears_of_the_close() {
    let (db, _, _) = store();
    let turn = db.write_transaction().unwrap();
    let started = Barrier::new(2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            started.wait();
            db.write_transaction().map(drop)
        });
        started.wait();
        thread::sleep(std::time::Duration::from_millis(20));
        db.clone().close().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    });
    assert!(matches!(turn.commit(), Err(Error::Closed)));
}

/// Writes and reads both count, and what would be too much is refused before it is kept.
#[test]
fn a_transaction_is_bounded() {
    let (db, a, _) = store();
    let mut tx = db.transaction().unwrap();
    let value = vec![0; 200 << 10];
    let most = (0_u32..).find(|key| tx.insert(&a, key.to_be_bytes(), &value).is_err()).unwrap();
    assert_eq!(most, 20, "4 MiB");
    assert_eq!(tx.len(), 20);
    for _ in 0..100 {
        tx.insert(&a, 7_u32.to_be_bytes(), "").unwrap();
    }
    tx.commit().unwrap();
    let tx = db.transaction().unwrap();
    let long = |key: u32| [&key.to_be_bytes()[..], &[0; 60_000]].concat();
    let most = (0_u32..).find(|key| tx.get(&a, long(*key)).is_err()).unwrap();
    assert_eq!(most, 69);
    tx.get(&a, long(1)).unwrap();
    tx.get(&a, long(99)).unwrap_err();
    let error = tx.range(&a, long(1)..).map(drop).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    tx.commit().unwrap();
}
