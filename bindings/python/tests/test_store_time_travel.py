"""What happened between versions, versions with names, histories that begin later."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone

import esker
import pytest


@pytest.fixture
def prices(db):
    return db.keyspace("prices", history=True)


@pytest.fixture
def versions(db, prices):
    """Four states of the prices, and their versions."""
    found = []
    for write in [
        lambda: prices.update({b"milk": b"1.10", b"tea": b"3.20"}),
        lambda: prices.update({b"coffee": b"4.10", b"tea": b"3.60"}),
        lambda: prices.remove(b"milk"),
        lambda: prices.insert(b"tea", b"3.20"),
    ]:
        write()
        found.append(db.version)
    return found


def test_differences(prices, versions):
    first, second, third, _ = versions
    both = [(b"coffee", None, b"4.10"), (b"tea", b"3.20", b"3.60")]
    assert list(prices.diff(first, second)) == both
    assert list(prices.diff(second, first)) == [(k, after, before) for k, before, after in both]
    assert list(prices.diff(second, third)) == [(b"milk", b"1.10", None)]
    # Tea costs again what it cost.
    since = [(b"coffee", None, b"4.10"), (b"milk", b"1.10", None)]
    assert list(prices.diff(first)) == since
    assert list(prices.diff(first, first)) == []
    assert list(prices.diff(first, start=b"d")) == since[1:]
    assert list(prices.diff(first, end=bytearray(b"d"))) == since[:1]
    assert list(prices.diff(first, prefix=b"m")) == since[1:]
    assert list(prices.diff(first, start=b"m", end=b"a")) == []
    walk = prices.diff(first)
    prices[b"sugar"] = b"2"
    difference = next(walk)
    assert isinstance(difference, esker.Difference)
    assert (difference.key, difference.before, difference.after) == (b"coffee", None, b"4.10")
    assert len(list(walk)) == 1


def test_changes_of_all_keys(db, prices, versions):
    start = datetime.now(timezone.utc) - timedelta(minutes=1)
    first, second, third, fourth = versions
    everything = [
        (b"coffee", second, b"4.10"),
        (b"milk", third, None),
        (b"milk", first, b"1.10"),
        (b"tea", fourth, b"3.20"),
        (b"tea", second, b"3.60"),
        (b"tea", first, b"3.20"),
    ]

    def changes(*given, **keys):
        return [change[:3] for change in prices.changes(*given, **keys)]

    assert changes() == everything
    assert changes(first) == [change for change in everything if change[1] > first]
    assert changes(first, second) == [everything[0], everything[4]]
    assert changes(until=first) == [everything[2], everything[5]]
    assert changes(fourth) == [] == changes(since=third, until=second)
    assert changes(prefix=b"t") == everything[3:]
    assert changes(first, start=b"d", end=b"n") == [everything[1]]
    for change in prices.changes():
        assert isinstance(change, esker.KeyChange)
        assert change.time == db.time_of(change.version) and change.time >= start
    db.compact()
    assert changes() == everything


def test_versions_have_names(db, prices, versions, tmp_path):
    assert db.named_versions() == {}
    db.pin("audit", versions[0])
    db.pin("now")
    assert db.named_versions() == {"audit": versions[0], "now": versions[3]}
    assert prices.at("audit") == {b"milk": b"1.10", b"tea": b"3.20"}
    assert prices.at("audit").version == versions[0]
    assert [key for key, _, _ in prices.diff("audit", "now")] == [b"coffee", b"milk"]
    assert list(prices.changes("audit")) == list(prices.changes(versions[0], "now"))
    db.unpin("now")
    path = db.path
    db.close()
    with esker.open(path) as db:
        assert db.named_versions() == {"audit": versions[0]}
        assert db.keyspace("prices").at("audit")[b"tea"] == b"3.20"


def test_a_name_keeps_what_the_history_would_not(db):
    few = db.keyspace("few", history=1, memtable=1024)
    few[b"k"] = b"first"
    db.pin("first")
    for number in range(2000):
        few[b"k"] = b"%d" % number
    few.compact()
    assert few.at("first") == {b"k": b"first"}
    assert next(few.diff("first"))[1:] == (b"first", b"1999")


def test_a_history_begins_and_changes(db):
    plain = db.keyspace("plain")
    plain[b"k"] = b"1"
    with pytest.raises(esker.ArgumentError, match="history"):
        plain.diff(db.version)
    plain.set_history(True)
    begun = db.version
    plain[b"k"] = b"2"
    assert plain.at(begun) == {b"k": b"1"}
    assert list(plain.diff(begun)) == [(b"k", b"1", b"2")]
    for kept in ["all", timedelta(days=1), 1000]:
        plain.set_history(kept)
        db.keyspace("plain", history=kept)
    with pytest.raises(esker.ArgumentError):
        db.keyspace("plain", history=True)


def test_values_that_expire_in_a_history(db, prices):
    prices.insert(b"session", b"ada", ttl=0.05)
    prices[b"k"] = b"v"
    then = db.version
    time.sleep(0.1)
    prices[b"k"] = b"w"
    assert b"session" not in prices and prices.at(then)[b"session"] == b"ada"
    assert list(prices.diff(then)) == [(b"k", b"v", b"w"), (b"session", b"ada", None)]


def test_what_is_refused(db, prices, versions):
    logged = db.keyspace("logged", index="lsm")
    db.pin("audit", versions[0])
    for call in [
        lambda: logged.changes(),
        lambda: logged.set_history(True),
        lambda: prices.set_history(False),
        lambda: prices.set_history(0),
        lambda: prices.set_history("some"),
        lambda: prices.at("again"),
        lambda: prices.diff("again"),
        lambda: prices.diff(versions[0], "again"),
        lambda: prices.diff(versions[0], db.version + 1),
        lambda: prices.changes("again"),
        lambda: prices.changes(-1),
        lambda: prices.changes(prefix=b"a", start=b"a"),
        lambda: prices.diff(versions[0], prefix=b"a", end=b"a"),
        lambda: db.pin("audit"),
        lambda: db.pin(""),
        lambda: db.pin("a\n"),
        lambda: db.pin("later", db.version + 1),
        lambda: db.unpin("again"),
    ]:
        with pytest.raises(esker.ArgumentError):
            call()
    for call in [
        lambda: prices.set_history(None),
        lambda: prices.at(None),
        lambda: prices.diff(None),
        lambda: prices.diff(1.5),
        lambda: prices.changes(b"audit"),
        lambda: prices.changes(prefix="a"),
        lambda: prices.diff(versions[0], start=1),
        lambda: db.pin(b"audit"),
        lambda: db.pin("new", "audit"),
        lambda: db.unpin(None),
    ]:
        with pytest.raises(TypeError):
            call()
    assert db.named_versions() == {"audit": versions[0]}


def test_erased_keys_are_in_no_version(db, prices, versions):
    assert prices.at(versions[0])[b"tea"]
    prices.erase([b"tea", bytearray(b"absent")])
    for version in range(versions[0], db.version + 1):
        assert b"tea" not in prices.at(version)
    assert list(prices.history(b"tea")) == []
    prices.erase(iter([]))
    with pytest.raises(TypeError):
        prices.erase(b"tea")
    with pytest.raises(TypeError):
        prices.erase(["tea"])
    with pytest.raises(esker.ArgumentError):
        db.keyspace("plain").erase([b"tea"])


def test_a_closed_store_and_a_forked_child(db, prices, versions):
    walks = [prices.changes(), prices.diff(versions[0])]
    calls = [
        *[lambda walk=walk: next(walk) for walk in walks],
        lambda: prices.changes(),
        lambda: prices.diff(1),
        lambda: prices.set_history(1),
        lambda: prices.erase([]),
        lambda: db.pin("late"),
        lambda: db.unpin("late"),
        lambda: db.named_versions(),
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
    assert [next(walk).key for walk in walks] == [b"coffee", b"coffee"]
    db.close()
    for call in calls:
        with pytest.raises(esker.ClosedError):
            call()
