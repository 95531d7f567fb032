"""Merge operands: operators that every store has, functions of Python, and what they refuse."""

from __future__ import annotations

import esker
import pytest


def test_counters_and_lists_are_merged_without_reading(db, tmp_path):
    counters = db.keyspace("counters", merge="add")
    one = (1).to_bytes(8, "little")
    for _ in range(200):
        counters.merge(b"a", one)
    counters.merge(b"b", one, durability="synced")
    assert int.from_bytes(counters[b"a"], "little") == 200 and counters[b"b"] == one

    def union(key, older, newer):
        return bytes(sorted(set(older) | set(newer)))

    sets = db.keyspace("sets", merge=("union", union))
    with db.batch() as batch:
        batch.merge(sets, b"k", b"ba")
        batch.merge(sets, b"k", b"bc")
    with db.transaction() as transaction:
        inside = transaction.keyspace(sets)
        inside.merge(b"k", b"da")
        assert inside[b"k"] == b"abcd"
    sets.compact()
    assert sets[b"k"] == b"abcd" and list(sets.range()) == [(b"k", b"abcd")]
    sets.merge(b"k", b"e")
    db.close()

    with esker.open(tmp_path / "db") as db:
        assert len(db.keyspace("counters")) == 2
        sets = db.keyspace("sets")
        with pytest.raises(esker.OperatorError, match="union of keyspace sets: open the keyspace"):
            sets[b"k"]
        with pytest.raises(esker.ArgumentError, match="merge operator union, and not"):
            db.keyspace("sets", merge="add")
        assert db.keyspace("sets", merge=("union", union))[b"k"] == b"abcde"


def test_an_operator_that_raises_is_an_error_of_its_keys(db):
    def moody(key, older, newer):
        if moody.mood == "raises":
            raise ValueError("not today")
        return older + newer if moody.mood == "good" else None

    lists = db.keyspace("lists", merge=("moody", moody))
    lists[b"a"] = b"1"
    lists[b"b"] = b"2"
    lists.merge(b"b", b"3")
    for moody.mood, why in [("raises", "ValueError: not today"), ("none", "answers bytes")]:
        with pytest.raises(esker.OperatorError, match=why):
            lists[b"b"]
        assert b"b" in lists and b"c" not in lists, "nothing is merged for that"
        lists.compact()
        assert lists[b"a"] == b"1" and list(lists.range(None, b"b")) == [(b"a", b"1")]
    moody.mood = "good"
    assert lists[b"b"] == b"23"
    for bad in ["sub", "", ("union",), ("union", 3), 7]:
        with pytest.raises((ValueError, TypeError)):
            db.keyspace("other", merge=bad)
    with pytest.raises(ValueError):
        db.keyspace("plain").merge(b"k", b"v")
