"""The store as mappings: what each entry point does, and what it refuses."""

from __future__ import annotations

import array
import collections.abc
import contextlib
import copy
import errno
import importlib.metadata
import itertools
import os
import pickle

import esker
import numpy as np
import pytest


@pytest.fixture(params=["fdtree", "lsm"])
def ks(db, request):
    return db.keyspace("things", index=request.param)


def test_a_keyspace_is_a_mapping(ks):
    assert isinstance(ks, collections.abc.MutableMapping)
    assert not ks and len(ks) == 0 and list(ks) == [] and ks == {}
    ks[b"b"] = b"2"
    ks[b"a"] = b""
    ks[b""] = b"0"
    assert ks and len(ks) == 3 and b"a" in ks and b"c" not in ks
    assert ks[b"a"] == b"" and ks.get(b"b") == b"2" and ks.get(b"c") is None
    assert ks.get(b"c", 7) == 7 and ks.get(b"c", default=b"x") == b"x"
    assert list(ks) == list(ks.keys()) == [b"", b"a", b"b"]
    assert list(reversed(ks)) == list(reversed(ks.keys())) == [b"b", b"a", b""]
    assert list(ks.values()) == [b"0", b"", b"2"] and list(reversed(ks.values()))[0] == b"2"
    assert list(ks.items()) == [(b"", b"0"), (b"a", b""), (b"b", b"2")]
    assert next(iter(reversed(ks.items()))) == (b"b", b"2")
    assert dict(ks) == ks == {b"": b"0", b"a": b"", b"b": b"2"}
    assert (b"a", b"") in ks.items() and (b"a", b"x") not in ks.items()
    assert b"2" in ks.values() and b"a" in ks.keys() and ks.keys() & {b"a", b"z"} == {b"a"}
    assert len(ks.items()) == len(ks.keys()) == len(ks.values()) == 3
    del ks[b"a"]
    assert b"a" not in ks
    with pytest.raises(KeyError) as caught:
        del ks[b"a"]
    assert caught.value.args == (b"a",) and isinstance(caught.value, esker.KeyNotFoundError)
    with pytest.raises(KeyError):
        ks[b"a"]
    with pytest.raises(TypeError):
        hash(ks)


def test_what_takes_out_and_puts_in(ks):
    ks.update({b"a": b"1", b"b": b"2"})
    ks.update([(b"c", b"3"), [b"d", b"4"]])
    ks.update()
    assert ks.pop(b"a") == b"1" and ks.pop(b"a", None) is None and ks.pop(b"a", 3) == 3
    with pytest.raises(KeyError):
        ks.pop(b"a")
    assert ks.setdefault(b"b", b"x") == b"2" and ks.setdefault(b"x", b"y") == b"y"
    assert ks[b"x"] == b"y"
    assert ks.popitem() == (b"b", b"2")
    ks.clear()
    assert not ks
    ks.clear()
    with pytest.raises(KeyError):
        ks.popitem()
    ks.insert(b"k", b"v", durability="synced")
    ks.remove(b"k", durability="buffered")
    ks.remove(b"k")
    assert not ks
    # More than is written, or removed, at once.
    ks.update((b"%d" % n, bytes(n % 300)) for n in range(3000))
    assert len(ks) == 3000 and ks[b"299"] == bytes(299)
    ks.update(ks)
    assert len(ks) == 3000
    ks.clear()
    assert len(ks) == 0
    # Keys of more bytes than a batch may have.
    ks.update((n.to_bytes(60_000, "big"), b"") for n in range(100))
    assert len(ks) == 100
    ks.clear()
    assert not ks


def test_ranges_are_removed_at_once(db, ks):
    ks.update((b"%03d" % n, b"") for n in range(100))
    snapshot = db.snapshot()
    ks.remove_range(b"010", b"020")
    ks.remove_range(bytearray(b"090"))
    ks.remove_range(end=b"005", durability="synced")
    ks.remove_range(b"7", b"6")
    ks.remove_prefix(b"05")
    assert len(ks) == 100 - 10 - 10 - 5 - 10
    with db.batch() as batch:
        batch.insert(ks, b"060", b"before")
        batch.remove_range(ks, b"050", b"070")
        batch.insert(ks, b"061", b"after")
        assert batch.nbytes == (3 + 6) + (3 + 3) + (3 + 5)
    assert [key for key, _ in ks.range(b"04", b"08")][10:12] == [b"061", b"070"]
    assert len(snapshot.keyspace(ks)) == 100
    assert 0 < db.stats().keyspaces["things"].removed_ranges < 10
    snapshot.close()
    ks.compact()
    assert db.stats().keyspaces["things"].removed_ranges == 0
    for call in (ks.remove_range, ks.remove_prefix):
        with pytest.raises(TypeError):
            call("text")
    ks.remove_range()
    assert not ks


def test_an_update_that_fails_keeps_what_came_before(ks):
    def pairs():
        for n in range(1500):
            yield b"%04d" % n, b""
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        ks.update(pairs())
    assert len(ks) == 1500
    with pytest.raises(TypeError):
        ks.update([(b"z", b""), ("y", b"")])
    assert b"z" in ks
    with pytest.raises(TypeError, match="not str"):
        ks.update(name=b"x")
    for wrong in [5, [5], [(b"a",)], [(b"a", b"b", b"c")]]:
        with pytest.raises((TypeError, ValueError)):
            ks.update(wrong)
    assert len(ks) == 1501

    class Keyed:
        def keys(self):
            return [b"k"]

        def __getitem__(self, key):
            return key * 2

    ks.update(Keyed())
    assert ks[b"k"] == b"kk"


def test_every_buffer_is_taken(ks):
    numbers = np.arange(6, dtype="<u2")
    for given, expected in [
        (b"x", b"x"),
        (bytearray(b"y"), b"y"),
        (memoryview(b"-z-")[1:2], b"z"),
        (array.array("H", [258]), b"\2\1"),
        (numbers, numbers.tobytes()),
        (numbers[::2], numbers[::2].tobytes()),
        (numbers.reshape(2, 3).T, numbers.reshape(2, 3).T.tobytes()),
        (type("Mine", (bytes,), {})(b"m"), b"m"),
    ]:
        ks[given] = given
        assert ks[given] == ks[expected] == expected and type(ks[given]) is bytes
        assert given in ks and ks.get(given) == expected and ks.pop(given) == expected
    # Later changes are nothing to the store.
    value = bytearray(b"before")
    ks[b"k"] = value
    value[:] = b"after!"
    assert ks[b"k"] == b"before"


class Refused:
    """Neither bytes nor a buffer."""


@pytest.mark.parametrize(
    "wrong", ["text", 3, 1.5, None, (b"a",), Refused(), np.array([None]), [b"a"]]
)
def test_wrong_types_are_told_apart(db, ks, wrong):
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
        lambda: esker.open(tmp_path / "new", memory=1000),
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


def test_ranges_and_prefixes(ks):
    model = {b"%03d" % n: b"%d" % n for n in range(500)}
    ks.update(model)
    entries = sorted(model.items())
    for start, end in itertools.product([None, b"", b"007", b"1", b"499", b"9"], repeat=2):
        expected = [
            (key, value)
            for key, value in entries
            if (start is None or start <= key) and (end is None or key < end)
        ]
        assert list(ks.range(start, end)) == expected
        assert list(ks.range(start, end, reverse=True)) == expected[::-1]
    assert list(ks.range(start=b"498")) == entries[498:] == list(ks.range(bytearray(b"498")))
    for prefix in [b"", b"1", b"49", b"499", b"4999", b"\xff", b"x" * 70000]:
        expected = [entry for entry in entries if entry[0].startswith(prefix)]
        assert list(ks.prefix(prefix)) == expected
        assert list(ks.prefix(prefix, reverse=True)) == expected[::-1]
    assert ks.first() == entries[0] and ks.last() == entries[-1]
    assert ks.get_many([b"003", b"x", bytearray(b"001"), b"003"]) == [b"3", None, b"1", b"3"]
    assert ks.get_many(iter([])) == []
    ks.clear()
    assert ks.first() is None and ks.last() is None


def test_an_iterator_sees_what_was_there(db, ks):
    expected = {b"%05d" % n: b"" for n in range(5000)}
    ks.update(expected)
    seen = []
    for key, value in ks.items():
        seen.append((key, value))
        del ks[key]
        ks[b"x" + key] = b"new"
    assert dict(seen) == expected and len(ks) == 5000
    walk = ks.range()
    assert next(walk)[0] == b"x00000" and iter(walk) is walk
    held = db.stats().snapshots
    walk.close()
    walk.close()
    assert next(walk, None) is None and db.stats().snapshots == held - 1
    with contextlib.closing(ks.range(reverse=True)) as walk:
        assert next(walk)[0] == b"x04999"
    assert list(ks.range(b"b", b"a")) == []
    assert isinstance(walk, collections.abc.Iterator)
    assert esker.Range[bytes] and "things" in repr(walk)


def test_batches(db, ks):
    other = db.keyspace("other")
    with db.batch() as batch:
        batch.insert(ks, b"a", b"1")
        batch.insert(other, bytearray(b"b"), memoryview(b"2"))
        batch.remove(ks, b"absent")
        batch.insert(ks, b"a", b"3")
        assert not ks and len(batch) == 4 and batch.nbytes == 12 and batch
        assert "4 writes" in repr(batch)
    assert ks == {b"a": b"3"} and other == {b"b": b"2"}
    for call in [
        lambda: batch.insert(ks, b"", b""),
        lambda: batch.remove(ks, b""),
        lambda: batch.commit(),
        lambda: batch.__enter__(),
        lambda: len(batch),
    ]:
        with pytest.raises(esker.ClosedError):
            call()
    batch.discard()
    assert "applied or dropped" in repr(batch)
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch.insert(ks, b"a", b"4")
        1 / 0
    assert ks == {b"a": b"3"}
    with db.batch(durability="synced") as batch:
        batch.remove(ks, b"a")
        batch.commit()
        assert not ks
    with db.batch() as batch:
        batch.insert(ks, b"a", b"5")
        batch.discard()
    with db.batch():
        pass
    assert not ks


def test_a_batch_keeps_to_its_store(tmp_path, db, ks):
    with esker.open(tmp_path / "second") as second:
        foreign = second.keyspace("things")
        with pytest.raises(esker.ArgumentError, match="another store"), db.batch() as batch:
            batch.insert(ks, b"a", b"")
            batch.insert(foreign, b"a", b"")
        assert not ks and not foreign
        with db.snapshot() as snapshot, pytest.raises(esker.ArgumentError, match="another store"):
            snapshot.keyspace(foreign)


def test_snapshots(db, ks):
    ks.update({b"a": b"1", b"b": b"2"})
    with db.snapshot() as snapshot:
        view = snapshot.keyspace("things")
        ks[b"a"] = b"9"
        del ks[b"b"]
        ks[b"c"] = b"3"
        late = snapshot.keyspace(db.keyspace("late"))
        assert isinstance(view, collections.abc.Mapping) and not hasattr(view, "pop")
        assert view == {b"a": b"1", b"b": b"2"} and len(view) == 2 and view and not late
        assert view[b"b"] == b"2" and b"c" not in view and view.get_many([b"c", b"a"])[0] is None
        assert view.first() == (b"a", b"1") and view.last() == (b"b", b"2")
        assert list(view.range(b"b")) == list(view.prefix(b"b")) == [(b"b", b"2")]
        assert list(reversed(view)) == [b"b", b"a"] and list(view.values()) == [b"1", b"2"]
        with pytest.raises(TypeError):
            view[b"a"] = b""
        with pytest.raises(TypeError):
            del view[b"a"]
        with pytest.raises(esker.NoKeyspaceError):
            snapshot.keyspace("absent")
        with pytest.raises(TypeError):
            db.batch().insert(view, b"a", b"")
        walk = view.range()
        assert "things" in repr(view) and str(snapshot.seq) in repr(snapshot)
    assert list(walk) == [(b"a", b"1"), (b"b", b"2")]
    for call in [
        lambda: view[b"a"],
        lambda: len(view),
        lambda: bool(view),
        lambda: list(view),
        lambda: snapshot.keyspace("things"),
        lambda: snapshot.__enter__(),
    ]:
        with pytest.raises(esker.ClosedError, match="snapshot"):
            call()
    snapshot.close()
    assert db.stats().snapshots == 0


def test_keyspaces(db, ks):
    db.keyspace("more", memtable="64KiB")
    assert db.keyspaces() == ["more", "things"]
    again = db.keyspace("things", create=False)
    again[b"a"] = b"1"
    assert ks[b"a"] == b"1" and again.name == "things"
    with pytest.raises(esker.NoKeyspaceError, match="absent"):
        db.keyspace("absent", create=False)
    assert db.drop_keyspace("things") and not db.drop_keyspace("things")
    for call in [lambda: ks[b"a"], lambda: ks.pop(b"a", None), lambda: len(ks), lambda: ks.clear()]:
        with pytest.raises(esker.NoKeyspaceError) as caught:
            call()
    assert isinstance(caught.value, LookupError) and not isinstance(caught.value, KeyError)
    assert not db.keyspace("things")


def test_what_is_done_to_the_whole_store(db, ks):
    ks.update((b"%05d" % n, bytes(100)) for n in range(20000))
    db.persist()
    db.flush()
    ks.flush()
    db.compact()
    ks.compact()
    report = db.check()
    assert report.ok and report.entries == 20000 and report.problems == ()
    stats = db.stats()
    things = stats.keyspaces["things"]
    assert things.entries_estimate == 20000 and things.levels and things.merge is None
    assert stats.io["log"].bytes_written > 0 and stats.user_bytes_written == 20000 * 105
    assert stats.space.data_file_bytes >= stats.space.allocated_bytes > 2_000_000
    assert stats.memory.budget_bytes == 1 << 20 and stats.poisoned is None
    assert len(ks) == 20000


def test_after_it_was_closed(tmp_path):
    db = esker.open(tmp_path / "db")
    assert not db.closed and db.path == str(tmp_path / "db")
    ks = db.keyspace("things")
    ks.update((b"%d" % n, b"") for n in range(1000))
    snapshot = db.snapshot()
    view, walk, batch = snapshot.keyspace(ks), ks.range(), db.batch()
    batch.insert(ks, b"a", b"1")
    next(walk)
    assert repr(db) == f"<esker.Db {db.path!r}>" and db.path in repr(ks)
    db.close()
    db.close()
    assert db.closed and repr(db).endswith(", closed>") and repr(ks) and repr(batch)
    for call in [
        lambda: ks[b"a"],
        lambda: ks.__setitem__(b"a", b""),
        lambda: ks.__delitem__(b"a"),
        lambda: ks.get(b"a", b"x"),
        lambda: b"a" in ks,
        lambda: len(ks),
        lambda: bool(ks),
        lambda: list(ks),
        lambda: ks.items().__iter__(),
        lambda: ks.pop(b"a", None),
        lambda: ks.popitem(),
        lambda: ks.setdefault(b"a", b""),
        lambda: ks.update({b"a": b"b"}),
        lambda: ks.clear(),
        lambda: ks.remove_range(),
        lambda: ks.remove_prefix(b"a"),
        lambda: ks.range(),
        lambda: ks.prefix(b""),
        lambda: ks.first(),
        lambda: ks.get_many([b"a"]),
        lambda: ks.flush(),
        lambda: ks.compact(),
        lambda: view[b"a"],
        lambda: list(view),
        lambda: next(walk),
        lambda: batch.insert(ks, b"a", b""),
        lambda: batch.commit(),
        lambda: snapshot.keyspace("things"),
        lambda: db.keyspace("things"),
        lambda: db.keyspaces(),
        lambda: db.drop_keyspace("things"),
        lambda: db.batch(),
        lambda: db.snapshot(),
        lambda: db.persist(),
        lambda: db.flush(),
        lambda: db.compact(),
        lambda: db.check(),
        lambda: db.stats(),
        lambda: db.__enter__(),
    ]:
        with pytest.raises(esker.ClosedError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
    walk.close()
    snapshot.close()
    # Those of before stay closed, whoever opens it.
    with esker.open(tmp_path / "db", create=False) as again:
        assert len(again.keyspace("things")) == 1000
        with pytest.raises(esker.ClosedError):
            ks[b"a"]


def test_what_is_only_read_is_not_written(tmp_path):
    with esker.open(tmp_path / "db") as db:
        db.keyspace("things")[b"a"] = b"1"
    before = {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()}
    with esker.open(tmp_path / "db", read_only=True) as db:
        ks = db.keyspace("things")
        # Others may read at the same time, and nobody writes.
        with esker.open(tmp_path / "db", read_only=True) as other:
            assert other.keyspace("things")[b"a"] == b"1"
        with pytest.raises(esker.LockedError):
            esker.open(tmp_path / "db")
        assert list(ks.items()) == [(b"a", b"1")] and db.check().ok
        for write in [
            lambda: ks.insert(b"a", b"2"),
            lambda: ks.remove(b"a"),
            lambda: db.keyspace("new"),
            lambda: db.flush(),
            lambda: db.compact(),
        ]:
            with pytest.raises(esker.ReadOnlyError):
                write()
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()}
    with pytest.raises(esker.NoStoreError):
        esker.open(tmp_path / "absent", read_only=True)


def test_folders_that_cannot_be_opened(tmp_path):
    with pytest.raises(esker.NoStoreError) as caught:
        esker.open(tmp_path / "absent", create=False)
    assert isinstance(caught.value, FileNotFoundError) and caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(tmp_path / "absent")
    with pytest.raises(esker.FileError) as caught:
        esker.open(tmp_path / "no" / "parent")
    assert caught.value.errno == errno.ENOENT and caught.value.filename
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ["foreign", "file"]:
        with pytest.raises(esker.FormatError, match="not an Esker store"):
            esker.open(tmp_path / name)
    with pytest.raises((esker.Error, ValueError)):
        esker.open(str(tmp_path / "nul\0"))
    with esker.open(os.fsencode(tmp_path / "db")) as db:
        with pytest.raises(esker.LockedError) as caught:
            esker.open(tmp_path / "db")
        assert caught.value.errno == errno.EWOULDBLOCK and caught.value.filename == db.path
        assert isinstance(caught.value, (esker.FileError, BlockingIOError))
    for name in os.listdir(tmp_path / "db"):
        if name != "lock":
            (tmp_path / "db" / name).write_bytes(bytes(5000))
    with pytest.raises(esker.FileError) as caught:
        esker.open(tmp_path / "db")
    assert "\n" not in str(caught.value)


def test_damage_names_its_place(tmp_path):
    with esker.open(tmp_path / "db", memory="1MiB") as db:
        ks = db.keyspace("things")
        ks.update((b"%05d" % n, b"%d" % n * 20) for n in range(5000))
        db.compact()
    data = bytearray((tmp_path / "db" / "data").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "db" / "data").write_bytes(data)
    with esker.open(tmp_path / "db", memory="1MiB") as db:
        ks = db.keyspace("things")
        with pytest.raises(esker.DamagedError) as caught:
            list(ks.items())
        assert caught.value.file.endswith("data") and 0 < caught.value.offset <= len(data) // 2
        with pytest.raises(esker.DamagedError):
            len(ks)
        report = db.check()
        assert not report.ok and report.problems[0].offset == caught.value.offset
        # What is elsewhere is there.
        assert ks[b"00000"] == b"0" * 20


def test_objects_of_an_open_store_stay_where_they_are(db, ks):
    for thing in [db, ks, db.batch(), db.snapshot(), db.snapshot().keyspace(ks), ks.range()]:
        with pytest.raises(TypeError, match="cannot"):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match="cannot"):
            copy.copy(thing)


def test_the_classes():
    for name in esker.__all__:
        of = getattr(esker, name)
        assert of.__doc__, name
        assert of.__module__.split(".")[0] == "esker", name
        if isinstance(of, type) and issubclass(of, Exception):
            assert issubclass(of, (esker.Error, Warning)) and of.__module__ == "esker", name
    for of in [esker.Db, esker.Keyspace, esker.KeyspaceView, esker.Batch, esker.Range]:
        for name in dir(of):
            assert name.startswith("_") or getattr(of, name).__doc__, f"{of.__name__}.{name}"
    assert set(esker.__all__) <= set(dir(esker))
    assert esker.__version__ == importlib.metadata.version("esker")
    with pytest.raises(AttributeError, match="transmogrify"):
        esker.transmogrify
