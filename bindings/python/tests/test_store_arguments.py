"""Refusals of the entry points of a store: wrong types, wrong values, objects of another store."""

from __future__ import annotations

import copy
import pickle

import esker
import numpy as np
import pytest


class Refused:
    """Neither bytes nor a buffer."""


@pytest.mark.parametrize(
    "wrong", ["text", 3, 1.5, None, (b"a",), Refused(), np.array([None]), [b"a"]]
)
def test_wrong_types_are_distinguished(db, ks, wrong):
    """At every entry point that takes a key or a value."""
    ks[b"a"] = b"1"
    batch = db.batch()
    with db.snapshot() as snapshot:
        view = snapshot.keyspace(ks)
        calls = [
            lambda: ks.__setitem__(wrong, b""),
            lambda: ks.__setitem__(b"a", wrong),
            lambda: ks.__delitem__(wrong),
            lambda: ks.insert(wrong, b""),
            lambda: ks.insert(b"", wrong),
            lambda: ks.remove(wrong),
            lambda: ks.pop(wrong),
            lambda: ks.pop(wrong, None),
            lambda: ks.setdefault(wrong, b""),
            lambda: ks.setdefault(b"a", wrong),
            lambda: ks.update([(wrong, b"")]),
            lambda: ks.update({b"": wrong}),
            lambda: batch.insert(ks, wrong, b""),
            lambda: batch.insert(ks, b"", wrong),
            lambda: batch.remove(ks, wrong),
        ]
        for reads in (ks, view):
            calls += [
                lambda reads=reads: reads[wrong],
                lambda reads=reads: reads.get(wrong),
                lambda reads=reads: reads.get(wrong, b""),
                lambda reads=reads: wrong in reads,
                lambda reads=reads: wrong in reads.keys(),
                lambda reads=reads: reads.get_many([b"a", wrong]),
                lambda reads=reads: reads.prefix(wrong),
            ]
            if wrong is not None:
                calls += [
                    lambda reads=reads: reads.range(wrong),
                    lambda reads=reads: reads.range(b"", wrong),
                ]
        for call in calls:
            with pytest.raises(TypeError, match="encode" if wrong == "text" else "not|format"):
                call()
    assert ks == {b"a": b"1"} and len(batch) == 0


def test_wrong_arguments(tmp_path, db, ks):
    for call in [
        lambda: ks.insert(b"k" * 65537, b""),
        lambda: ks.insert(b"k", bytes((1 << 30) + 1)),
        lambda: ks.get(b"k" * 65537),
        lambda: b"k" * 65537 in ks,
        lambda: ks.get_many([b"k" * 65537]),
        lambda: ks.setdefault(b"k" * 65537, b""),
        lambda: ks.insert(b"k", b"", durability="never"),
        lambda: ks.remove(b"k", durability=""),
        lambda: db.batch(durability="Synced"),
        lambda: db.batch().insert(ks, b"k" * 65537, b""),
        lambda: db.keyspace(""),
        lambda: db.keyspace("a\nb"),
        lambda: db.keyspace("x" * 256),
        lambda: db.keyspace("x", memtable=1023),
        lambda: db.keyspace("x", memtable="lots"),
        lambda: esker.open(tmp_path / "new", memory=(128 << 10) - 1),
        lambda: esker.open(tmp_path / "new", memory=-1),
        lambda: esker.open(tmp_path / "new", memory=2**70),
        lambda: esker.open(tmp_path / "new", memory="much"),
        lambda: esker.open(tmp_path / "new", durability="eventually"),
    ]:
        with pytest.raises(esker.ArgumentError) as caught:
            call()
        assert "\n" not in str(caught.value) and isinstance(caught.value, ValueError)
    for call in [
        lambda: esker.open(3.5),
        lambda: esker.open(None),
        lambda: esker.open(tmp_path / "new", memory=1.5),
        lambda: esker.open(tmp_path / "new", memory=None),
        lambda: esker.open(tmp_path / "new", durability=None),
        lambda: esker.Db(tmp_path),
        lambda: db.keyspace(b"x"),
        lambda: db.keyspace("x", compression=3),
        lambda: db.keyspace("x", merge=3),
        lambda: db.keyspace("x", memtable=[]),
        lambda: esker.check_backup(3),
        lambda: esker.restore(tmp_path, 3),
        lambda: db.backup(None),
        lambda: db.batch().insert(ks, "k", b"v"),
        lambda: ks.insert(b"k", 3),
        lambda: ks.insert(b"k", b"v", ttl="1"),
        lambda: ks.insert(b"k", b"v", durability=1),
        lambda: ks.insert_with_ttl(b"k", b"v", None),
        lambda: ks.update(a=b"v"),
        lambda: ks["k"],
        lambda: pickle.dumps(db),
        lambda: db.drop_keyspace(3),
        lambda: db.batch().insert("things", b"k", b"v"),
        lambda: db.batch().remove(db, b"k"),
        lambda: ks.pop(b"a", 1, 2),
        lambda: ks.get_many(b"ab"),
        lambda: ks.get_many(5),
        lambda: db.snapshot().keyspace(3),
        lambda: db.transaction().keyspace(3),
    ]:
        with pytest.raises(esker.ArgumentTypeError) as caught:
            call()
        assert "\n" not in str(caught.value) and isinstance(caught.value, TypeError)
    # A call of a wrong form is Python's to refuse.
    for call in [
        lambda: esker.open(),
        lambda: db.keyspace(),
        lambda: ks.get(),
        lambda: ks.range(b"a", b"b", True),
        lambda: esker.Range(),
    ]:
        with pytest.raises((TypeError, AttributeError)):
            call()
    for call in [lambda: ks[b"?"], lambda: ks.pop(b"?"), ks.popitem, lambda: ks.reader(b"?")]:
        with pytest.raises(esker.KeyNotFoundError) as caught:
            call()
        assert isinstance(caught.value, KeyError)
    assert not (tmp_path / "new").exists() and db.keyspaces() == ["things"]
    # A batch that was refused once is not applied.
    batch = db.batch()
    with pytest.raises(esker.ArgumentError), batch:
        batch.insert(ks, b"a", b"")
        batch.insert(ks, b"b" * 65537, b"")
    assert not ks
    largest = bytes(range(256)) * 1024
    ks[b"k" * 65536] = largest
    assert ks[b"k" * 65536] == largest


def test_a_batch_keeps_to_its_store(tmp_path, db, ks):
    with esker.open(tmp_path / "second") as second:
        foreign = second.keyspace("things")
        with pytest.raises(esker.ArgumentError, match="another store"), db.batch() as batch:
            batch.insert(ks, b"a", b"")
            batch.insert(foreign, b"a", b"")
        assert not ks and not foreign
        with db.snapshot() as snapshot, pytest.raises(esker.ArgumentError, match="another store"):
            snapshot.keyspace(foreign)


def test_objects_of_an_open_store_stay_where_they_are(db, ks):
    for thing in [db, ks, db.batch(), db.snapshot(), db.snapshot().keyspace(ks), ks.range()]:
        with pytest.raises(TypeError, match="cannot"):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match="cannot"):
            copy.copy(thing)
