"""Backups, compression, figures."""

import signal
import threading
import time

import pytest

import esker


def fill(keyspace, count, start=0):
    keyspace.update((b"%08d" % number, b"%d" % (number * 7)) for number in range(start, count))


def test_a_backup_is_a_store_of_one_moment(db, tmp_path):
    space = db.keyspace("a")
    fill(space, 2000)
    first = db.backup(tmp_path / "copy")
    assert (first.run, first.bytes_reused) == (1, 0)
    assert first.bytes_written >= first.bytes_total > 0
    fill(space, 2100, 2000)
    again = db.backup(tmp_path / "copy")
    assert again.run == 2 and again.seq > first.seq
    expected = list(space.range())
    fill(space, 2200, 2100)
    report = esker.check_backup(tmp_path / "copy")
    assert report.ok and report.problems == ()
    esker.restore(tmp_path / "copy", tmp_path / "restored")
    with esker.open(tmp_path / "restored", create=False) as restored:
        assert list(restored.keyspace("a", create=False).range()) == expected


def test_backups_that_cannot_be(db, tmp_path):
    fill(db.keyspace("a"), 10)
    with pytest.raises(esker.ArgumentError, match="backup"):
        esker.restore(tmp_path / "nothing", tmp_path / "to")
    with pytest.raises(esker.Error):
        db.backup(db.path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"x")
    with pytest.raises(esker.Error):
        db.backup(tmp_path / "full")
    db.backup(tmp_path / "copy")
    with pytest.raises(esker.ArgumentError):
        esker.restore(tmp_path / "copy", db.path)
    damaged = tmp_path / "copy"
    for file in damaged.iterdir():
        content = bytearray(file.read_bytes())
        for at in range(0, len(content), 16):
            content[at] ^= 0xFF
        file.write_bytes(content)
    with pytest.raises(esker.Error):
        esker.restore(damaged, tmp_path / "to")
    db.close()
    with pytest.raises(esker.ClosedError):
        db.backup(tmp_path / "late")


def test_a_backup_can_be_interrupted(db, tmp_path):
    space = db.keyspace("a")
    space.update((b"%08d" % number, bytes([number % 251]) * 5000) for number in range(20_000))
    db.flush()

    def alarm(number, frame):
        raise TimeoutError("too long")

    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        with pytest.raises(TimeoutError):
            # It is copied again until the signal comes.
            for number in range(100):
                db.backup(tmp_path / f"copy{number}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert db.backup(tmp_path / "whole").run == 1


def test_others_go_on_beside_a_backup(db, tmp_path):
    space = db.keyspace("a")
    fill(space, 20_000)
    over = threading.Event()

    def write():
        number = 0
        while not over.is_set():
            space[b"w%08d" % number] = b"x"
            number += 1
            time.sleep(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        db.backup(tmp_path / "copy")
    finally:
        over.set()
        writer.join()
    esker.restore(tmp_path / "copy", tmp_path / "restored")
    with esker.open(tmp_path / "restored") as restored:
        copied = restored.keyspace("a")
        written = list(copied.prefix(b"w"))
        assert [key for key, _ in written] == [b"w%08d" % n for n in range(len(written))]
        assert copied[b"00019999"] == b"%d" % (19999 * 7)


@pytest.mark.parametrize("name", ["none", "lz4", "zstd"])
def test_compression_is_kept(tmp_path, name):
    with esker.open(tmp_path / "store") as db:
        space = db.keyspace("a", compression=name)
        space.update((b"%08d" % number, b"the same words " * 20) for number in range(5000))
        db.compact()
    with esker.open(tmp_path / "store") as db:
        assert len(list(db.keyspace("a").range())) == 5000
        stats = db.stats().keyspaces["a"]
        assert stats.compression == name
        assert (stats.stored_bytes < stats.data_bytes / 3) == (name != "none")


def test_a_compression_that_is_none(db):
    with pytest.raises(esker.ArgumentError, match="snappy"):
        db.keyspace("a", compression="snappy")


def test_a_kind_of_index_is_chosen_once(tmp_path):
    with esker.open(tmp_path / "store", memory="1MiB") as db:
        space = db.keyspace("a", index="lsm")
        for _ in range(3):
            space.update((b"%08d" % (n * 7919 % 50000), bytes(30)) for n in range(50000))
        assert db.check().ok
        assert db.keyspace("b").update([(b"k", b"v")]) is None
        with pytest.raises(esker.ArgumentError, match="fdtree or lsm"):
            db.keyspace("c", index="btree")
        assert db.keyspaces() == ["a", "b"]
    with esker.open(tmp_path / "store") as db:
        assert len(list(db.keyspace("a").range())) == 50000
        for name, kind, other in [("a", "lsm", "fdtree"), ("b", "fdtree", "lsm")]:
            with pytest.raises(esker.ArgumentError, match=f"kind {kind}, and not {other}"):
                db.keyspace(name, index=other)
            assert db.stats().keyspaces[name].index == kind
        db.keyspace("a", index="lsm")
        assert db.stats().keyspaces["b"].lsm is None
        lsm = db.stats().keyspaces["a"].lsm
        level = lsm.levels[-1]
        assert level.blocks > 0 and level.fence_bytes > 0 and isinstance(lsm.next_key, bytes)
        assert lsm.policy == "pull" and lsm.learnt is None and lsm.runs_capacity_bytes > 0
        assert level.space_bytes - level.bytes == level.waste_bytes and 0.5 < level.occupancy <= 1
        assert all(run.left_bytes <= run.bytes for run in lsm.runs)
        db.compact()
        lsm = db.stats().keyspaces["a"].lsm
        assert lsm.runs == () and lsm.records_entered > 0
        assert lsm.levels[-1].written.blocks_written > 0


def test_stats_say_what_is_kept_and_what_comes(db):
    space = db.keyspace("a")
    fill(space, 100)
    with db.snapshot():
        fill(space, 50)
        db.compact()
        stats = db.stats()
        assert stats.pins.oldest_snapshot_seconds >= 0
        assert (stats.pins.writes_since_oldest, stats.pins.kept_versions) == (50, 50)
    stats = db.stats()
    assert stats.pins.oldest_snapshot_seconds is None and not stats.pins.backup
    assert set(stats.waits) == {"memory", "merge", "turn"}
    assert stats.waits["turn"].waits == 0 == stats.transactions.live
    assert stats.write_amplification > 1
    assert stats.keyspaces["a"].next.after_bytes > 0
