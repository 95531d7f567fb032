"""The store as a whole: its keyspaces, opening and closing it, folders that are none, damage."""

from __future__ import annotations

import errno
import importlib.metadata
import os

import esker
import pytest


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
    # Old handles stay closed when the store is opened again.
    with esker.open(tmp_path / "db", create=False) as again:
        assert len(again.keyspace("things")) == 1000
        with pytest.raises(esker.ClosedError):
            ks[b"a"]


@pytest.mark.parametrize("how", ["read_only", "follow"])
def test_a_store_is_followed_while_it_is_written(tmp_path, how):
    with esker.open(tmp_path / "db") as writer:
        writer.keyspace("all")[b"a"] = b"1"
        with esker.open(tmp_path / "db", **{how: True}) as follower:
            seen = follower.keyspace("all")
            assert seen[b"a"] == b"1"
            writer.keyspace("all")[b"b"] = b"2"
            assert b"b" not in seen
            assert follower.refresh() == writer.version
            assert seen[b"b"] == b"2"
            with pytest.raises(esker.ReadOnlyError):
                seen[b"c"] = b"3"


def test_a_snapshot_that_the_writer_does_not_know_of_becomes_too_old(tmp_path):
    with esker.open(tmp_path / "db") as writer:
        things = writer.keyspace("things")
        things[b"a"] = b"1"
        # By this file the writer knows what others read.
        (tmp_path / "db" / "followers").unlink()
        with esker.open(tmp_path / "db", follow=True) as follower:
            seen = follower.keyspace("things")
            with follower.snapshot() as snapshot:
                view = snapshot.keyspace("things")
                assert view[b"a"] == b"1"
                things[b"a"] = b"2"
                writer.compact()
                follower.refresh()
                with pytest.raises(esker.TooOldError) as caught:
                    view[b"a"]
            assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, esker.Error)
            assert seen[b"a"] == b"2"
    assert issubclass(esker.OvertakenError, RuntimeError)


def test_what_is_only_read_is_not_written(tmp_path):
    with esker.open(tmp_path / "db") as db:
        db.keyspace("things")[b"a"] = b"1"
    before = {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()}
    with esker.open(tmp_path / "db", read_only=True) as db:
        ks = db.keyspace("things")
        # Others may read at the same time, and none writes.
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


def test_the_classes():
    for name in esker.__all__:
        of = getattr(esker, name)
        assert of.__doc__, name
        assert of.__module__.split(".")[0] == "esker", name
        if isinstance(of, type) and issubclass(of, Exception):
            assert issubclass(of, (esker.Error, Warning)) and of.__module__ == "esker", name
    mappings = [esker.Keyspace, esker.KeyspaceView, esker.PastKeyspace]
    for of in [esker.Db, *mappings, esker.Batch, esker.Range]:
        for name in dir(of):
            assert name.startswith("_") or getattr(of, name).__doc__, f"{of.__name__}.{name}"
    assert set(esker.__all__) <= set(dir(esker))
    assert esker.__version__ == importlib.metadata.version("esker")
    with pytest.raises(AttributeError, match="transmogrify"):
        esker.transmogrify
