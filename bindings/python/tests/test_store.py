"""A keyspace as a mapping: what each entry point does, and what batches and snapshots of it do."""

from __future__ import annotations

import array
import collections.abc
import contextlib
import itertools

import esker
import numpy as np
import pytest


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
