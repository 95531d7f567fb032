"""Keyspaces with history: earlier versions, the changes of a key, times."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import esker
import pytest


@pytest.fixture
def prices(db):
    return db.keyspace("prices", history=True)


def test_earlier_versions_are_mappings(db, prices):
    prices[b"tea"] = b"3.20"
    first = db.version
    with db.batch() as batch:
        batch.insert(prices, b"tea", b"3.60")
        batch.insert(prices, b"coffee", b"4.10")
    second = db.version
    with db.transaction() as transaction:
        del transaction.keyspace(prices)[b"tea"]
    then, later, now = prices.at(first), prices.at(second), prices.at(db.version)
    assert then == {b"tea": b"3.20"} and now == prices == {b"coffee": b"4.10"}
    assert later == {b"coffee": b"4.10", b"tea": b"3.60"} and then.version == first
    assert later[b"tea"] == b"3.60" and b"tea" in then and b"tea" not in now
    assert then.get(b"coffee") is None and then.get(b"coffee", 7) == 7
    assert len(later) == 2 and bool(later) and later.get_many([b"x", b"tea"]) == [None, b"3.60"]
    assert list(later.keys()) == list(later) == [b"coffee", b"tea"]
    assert list(reversed(later)) == [b"tea", b"coffee"]
    assert list(later.values()) == [b"4.10", b"3.60"]
    assert list(later.range(reverse=True)) == list(later.items())[::-1]
    assert list(later.prefix(b"t")) == [(b"tea", b"3.60")] == list(later.range(b"d", None))
    assert later.first() == (b"coffee", b"4.10") and later.last() == (b"tea", b"3.60")
    with later.reader(b"tea") as file:
        assert file.read() == b"3.60"
    with pytest.raises(KeyError):
        now[b"tea"]
    assert not hasattr(then, "insert") and "__setitem__" not in dir(then)
    assert "prices" in repr(then) and str(first) in repr(then)
    assert then.name == "prices" and os.fsdecode(then.path) == db.path
    assert isinstance(then, esker.PastKeyspace)


def test_changes_come_newest_first(db, prices):
    start = datetime.now(timezone.utc) - timedelta(milliseconds=1)
    versions = []
    for value in [b"3.20", b"3.60"]:
        prices[b"tea"] = value
        versions.append(db.version)
    prices.remove(b"milk")
    prices.remove(b"tea")
    versions.append(db.version)
    changes = list(prices.history(b"tea"))
    assert [change.version for change in changes] == versions[::-1]
    assert [change.value for change in changes] == [None, b"3.60", b"3.20"]
    times = [change.time for change in changes]
    assert times == sorted(times, reverse=True)
    assert start <= times[-1] and times[0] <= datetime.now(timezone.utc)
    for change in changes:
        assert change.time == db.time_of(change.version) == prices.at(change.version).time
        assert (change.version, change.value, change.time) == change
    assert list(prices.history(bytearray(b"milk"))) == []
    assert list(prices.at(versions[1]).history(b"tea")) == changes[1:]
    walk = prices.history(b"tea")
    prices[b"tea"] = b"9"
    assert next(walk) == changes[0], "an iterator sees what was there when it was made"


def test_times_find_versions(db, prices):
    assert db.time_of(db.version) is None
    states = []
    for number in range(5):
        prices[b"tea"] = b"%d" % number
        states.append((db.version, db.time_of(db.version)))
        time.sleep(0.003)
    for number, (version, when) in enumerate(states):
        assert when.tzinfo is timezone.utc
        elsewhere = when.astimezone(timezone(timedelta(hours=-7)))
        for given in [when, elsewhere, when.timestamp(), when + timedelta(milliseconds=1)]:
            past = prices.at_time(given)
            assert past[b"tea"] == b"%d" % number and past.time == when
            assert past.version >= version
    assert prices.at_time(time.time() + 60) == prices
    late = db.keyspace("late", history=True)
    for early in [0, -1e9, datetime(1960, 1, 1, tzinfo=timezone.utc), states[0][1].timestamp() - 1]:
        assert prices.at_time(early) == {}
        with pytest.raises(esker.ArgumentError, match="before its history"):
            late.at_time(early)
    for bad in [datetime(2026, 11, 26), float("nan"), float("inf"), 10**400]:
        with pytest.raises(esker.ArgumentError):
            prices.at_time(bad)
    for bad in [None, [], b"1", "2026"]:
        with pytest.raises(esker.ArgumentTypeError):
            prices.at_time(bad)


def test_every_version_is_kept(db, tmp_path):
    """Over memtables that are flushed, merges, a backup and reopening."""
    prices = db.keyspace("prices", history="all", memtable="4KiB")
    made, state, states = random.Random(7), {}, {}
    for _ in range(400):
        key, value = b"%d" % made.randrange(20), made.randbytes(made.randrange(40))
        if made.random() < 0.3:
            prices.remove(key)
            state.pop(key, None)
        else:
            prices[key] = value
            state[key] = value
        states[db.version] = dict(state)
    db.compact()
    db.backup(tmp_path / "backup")
    db.close()
    esker.restore(tmp_path / "backup", tmp_path / "restored")
    for path in [tmp_path / "db", tmp_path / "restored"]:
        with esker.open(path) as db:
            prices = db.keyspace("prices")
            assert db.keyspaces() == ["prices"] and db.check().ok
            assert db.stats().keyspaces["prices"].history_from < min(states)
            for version, state in states.items():
                assert dict(prices.at(version).items()) == state


def test_what_has_no_history_is_refused(db, prices):
    plain = db.keyspace("plain", index="lsm")
    plain[b"k"] = b"v"
    prices[b"k"] = b"v"
    late = db.keyspace("late", history=True)
    stats = db.stats().keyspaces
    assert stats["plain"].history_from is None and stats["late"].history_from == db.version
    for call in [
        lambda: plain.at(db.version),
        lambda: plain.at_time(time.time()),
        lambda: plain.history(b"k"),
        lambda: prices.at(db.version + 1),
        lambda: late.at(0),
        lambda: late.at(db.version - 1),
        lambda: prices.at(-1),
        lambda: prices.at(2**64),
        lambda: db.time_of(-1),
        lambda: prices.history(bytes(1 << 17)),
        lambda: prices.at("1"),
        lambda: db.keyspace("plain", history=True),
        lambda: db.keyspace("new", history=True, merge="add"),
        lambda: db.keyspace("new", history=True, index="lsm"),
        lambda: db.keyspace("new", history="some"),
        lambda: db.keyspace("esker.times"),
    ]:
        with pytest.raises(esker.ArgumentError):
            call()
    for call in [
        lambda: prices.at(None),
        lambda: prices.at(1.5),
        lambda: db.time_of(None),
        lambda: prices.history("k"),
        lambda: db.keyspace("new", history=1.0),
        lambda: esker.PastKeyspace(db, 1, 0),
    ]:
        with pytest.raises(TypeError):
            call()
    assert db.keyspaces() == ["late", "plain", "prices"]


def test_what_is_closed_or_dropped_is_refused(db, prices):
    prices[b"k"] = b"v"
    past, walk = prices.at(db.version), prices.history(b"k")
    db.drop_keyspace("prices")
    for call in [lambda: past[b"k"], lambda: prices.at(db.version), lambda: prices.history(b"k")]:
        with pytest.raises(esker.NoKeyspaceError):
            call()
    db.close()
    for call in [
        lambda: past[b"k"],
        lambda: past.time,
        lambda: past.history(b"k"),
        lambda: next(walk),
        lambda: prices.at(1),
        lambda: db.version,
        lambda: db.time_of(1),
    ]:
        with pytest.raises(esker.ClosedError):
            call()


def test_threads_share_an_iterator_of_changes(db, prices):
    for number in range(500):
        prices[b"k"] = b"%d" % number
    walk = prices.history(b"k")
    with ThreadPoolExecutor(4) as pool:
        parts = [job.result() for job in [pool.submit(list, walk) for _ in range(4)]]
    values = sorted(int(change.value) for part in parts for change in part)
    assert values == list(range(500))


def test_a_forked_child_reads_nothing_of_the_past(db, prices):
    prices[b"k"] = b"v"
    past, walk = prices.at(db.version), prices.history(b"k")
    calls = [
        lambda: past[b"k"],
        lambda: past.time,
        lambda: past.history(b"k"),
        lambda: next(walk),
        lambda: prices.at(1),
        lambda: db.version,
    ]
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except esker.ForkError:
                refused += 1
        os._exit(refused)
    assert os.waitpid(child, 0)[1] >> 8 == len(calls)
    assert past == {b"k": b"v"} and next(walk).value == b"v"


def test_history_is_kept_for_a_time_or_for_the_newest_versions(db):
    for nothing in [0, timedelta(0), timedelta(microseconds=999)]:
        with pytest.raises(esker.ArgumentError, match="1 ms, or for 1 version"):
            db.keyspace("prices", history=nothing)
    for wrong, error in [("some", esker.ArgumentError), (1.5, esker.ArgumentTypeError)]:
        with pytest.raises(error, match="timedelta"):
            db.keyspace("prices", history=wrong)
    with pytest.raises(esker.ArgumentError, match="history_share"):
        db.keyspace("prices", history=True, history_share=0.1)
    db.keyspace("days", history=timedelta(days=30))
    with pytest.raises(esker.ArgumentError, match="For"):
        db.keyspace("days", history=100)
    newest = db.keyspace("newest", history=20, history_share=0.4, memtable=1024)
    first = db.version
    for number in range(400):
        newest[bytes([number % 8])] = b"%d" % number * 20
        db.flush()
    stats = db.stats().keyspaces["newest"]
    assert stats.history_from > first + 200
    assert all(past.until_version > past.from_version for past in stats.past_indexes)
    assert len(newest.at(stats.history_from)) == len(newest.at(db.version - 19)) == 8
    with pytest.raises(esker.ArgumentError, match="before its history"):
        newest.at(first + 100)
