"""Threads, forks, ends of the interpreter, and ends without one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import esker
import pytest


def python(script, *arguments, **more):
    """A process that runs a script."""
    command = [sys.executable, "-u", "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def finished(child, code=0):
    """What a process printed, when it has ended as expected."""
    output, errors = child.communicate(timeout=60)
    assert child.returncode == code, errors
    assert code != 0 or errors == ""
    return output


def test_threads_write_and_read(tmp_path):
    """Each has keys of its own, all scan, one compacts: every thread finds what it wrote."""
    with esker.open(tmp_path / "db", memory="1MiB") as db:
        ks = db.keyspace("things")

        def work(number):
            mine, source = {}, random.Random(number)
            for turn in range(400):
                key = b"%d-%03d" % (number, source.randrange(100))
                if source.random() < 0.3:
                    assert ks.pop(key, None) == mine.pop(key, None)
                else:
                    ks[key] = mine[key] = b"%d" % turn * 40
                if turn % 50 == 0:
                    assert dict(ks.prefix(b"%d-" % number)) == mine
            return mine

        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(work, number) for number in range(7)]
            pool.submit(db.compact).result()
            expected = {}
            for job in jobs:
                expected.update(job.result())
        assert ks == expected and db.check().ok


def test_each_step_is_one_for_all_threads(tmp_path):
    """Of several threads that want an entry one gets it, and no default is set twice."""
    with esker.open(tmp_path / "db") as db:
        queue, owners = db.keyspace("queue"), db.keyspace("owners")
        jobs = [b"%04d" % n for n in range(1000)]
        queue.update((job, b"") for job in jobs)
        start = threading.Barrier(4)

        def work(number):
            mine, name = [], b"%d" % number
            start.wait()
            for job in jobs[::2]:
                if queue.pop(job, None) is not None:
                    mine.append(job)
            while True:
                try:
                    mine.append(queue.popitem()[0])
                except KeyError:
                    break
            won = [job for job in jobs if owners.setdefault(job, name) == name]
            return mine, won

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(work, range(4)))
        assert sorted(job for mine, _ in results for job in mine) == jobs
        assert sorted(job for _, won in results for job in won) == jobs


def test_one_iterator_of_several_threads(tmp_path):
    """Every entry comes once."""
    with esker.open(tmp_path / "db") as db:
        ks = db.keyspace("things")
        ks.update((b"%05d" % n, b"") for n in range(20000))
        walk = ks.range()
        with ThreadPoolExecutor(4) as pool:
            parts = [job.result() for job in [pool.submit(list, walk) for _ in range(4)]]
        assert sorted(key for part in parts for key, _ in part) == list(ks)


def test_others_run_while_a_thread_waits(tmp_path):
    """A thread that syncs, or compacts, has released the interpreter."""
    with esker.open(tmp_path / "db", memory="1MiB") as db:
        ks = db.keyspace("things")
        ks.update((b"%06d" % n, bytes(100)) for n in range(100_000))
        done = threading.Event()

        def work():
            db.compact()
            len(ks)
            done.set()

        ticks = 0
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            ticks += 1
            time.sleep(0.0005)
        thread.join()
        assert ticks > 20


def test_closing_beside_threads_that_read(tmp_path):
    for _ in range(5):
        db = esker.open(tmp_path / "db")
        ks = db.keyspace("things")
        ks.update((b"%d" % n, b"") for n in range(1000))

        def work(ks=ks):
            try:
                while True:
                    assert len(list(ks.range())) == 1000 and ks[b"7"] == b""
            except esker.ClosedError:
                return True

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(work) for _ in range(4)]
            time.sleep(0.02)
            db.close()
            assert all(job.result() for job in jobs)


FORKS = """
    import gc, os, sys, esker

    db = esker.open(sys.argv[1])
    ks = db.keyspace("things")
    ks.update((b"%04d" % n, b"before") for n in range(2000))
    snapshot, walk, batch = db.snapshot(), ks.range(), db.batch()
    view = snapshot.keyspace(ks)
    next(walk)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        refused = 0
        for call in [
            lambda: ks[b"0001"], lambda: ks.__setitem__(b"x", b""), lambda: len(ks),
            lambda: b"x" in ks, lambda: list(ks), lambda: ks.pop(b"x", None),
            lambda: ks.update({b"x": b""}), lambda: ks.clear(), lambda: ks.items().__iter__(),
            lambda: view[b"0001"], lambda: next(walk), lambda: walk.close(),
            lambda: batch.insert(ks, b"x", b""), lambda: batch.commit(), lambda: batch.discard(),
            lambda: snapshot.keyspace("things"), lambda: snapshot.close(), lambda: db.close(),
            lambda: db.keyspaces(), lambda: db.batch(), lambda: db.snapshot(), lambda: db.stats(),
            lambda: db.keyspace("things"), lambda: db.__enter__(), lambda: db.persist(),
        ]:
            try:
                call()
            except esker.ForkError as error:
                assert isinstance(error, RuntimeError) and "fork" in str(error)
                refused += 1
        repr(db), repr(ks)
        assert refused == 25, refused
        # A store of its own is as good as any.
        with esker.open(sys.argv[1] + "-child") as own:
            own.keyspace("own")[b"a"] = b"b"
        del db, ks, snapshot, view, walk, batch
        gc.collect()
        # Hooks at exit run, too.
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ks[b"after"] = b"the fork"
    assert next(walk) == (b"0001", b"before") and len(view) == 2000 and len(ks) == 2001
    db.close()
    with esker.open(sys.argv[1]) as db:
        assert len(db.keyspace("things")) == 2001 and db.check().ok
    with esker.open(sys.argv[1] + "-child") as db:
        assert db.keyspace("own") == {b"a": b"b"}
    print("good")
"""


def test_a_forked_child_uses_nothing_of_its_parent(tmp_path):
    # Python says itself that forking with threads is unwise.
    child = python("import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(FORKS),
                   tmp_path / "db")
    assert finished(child) == "good\n"


LOCKS = """
    import os, signal, sys, time, esker

    # A child lives on while its parent closes.
    db = esker.open(sys.argv[1])
    db.keyspace("things")[b"a"] = b"1"
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    db.close()
    with esker.open(sys.argv[1]) as db:
        assert db.keyspace("things") == {b"a": b"1"}
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # And while its parent dies.
    receiver, sender = os.pipe()
    parent = os.fork()
    if parent == 0:
        db = esker.open(sys.argv[1])
        db.keyspace("things")[b"b"] = b"2"
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        os.write(sender, b"%d" % child)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    child = int(os.read(receiver, 20))
    with esker.open(sys.argv[1]) as db:
        assert db.keyspace("things") == {b"a": b"1", b"b": b"2"} and db.check().ok
    os.kill(child, signal.SIGKILL)
    print("good")
"""


def test_a_child_keeps_nothing_locked(tmp_path):
    child = python("import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(LOCKS),
                   tmp_path / "db")
    assert finished(child) == "good\n"


def test_forks_beside_threads_that_write(tmp_path):
    """However the fork meets them, the child ends and the parent goes on."""
    with warnings.catch_warnings(), esker.open(tmp_path / "db") as db:
        warnings.simplefilter("ignore", DeprecationWarning)
        ks = db.keyspace("things")
        stop = threading.Event()

        def work(number):
            turn = 0
            while not stop.is_set():
                ks[b"%d" % number] = b"%d" % turn
                ks.pop(b"%d-none" % number, None)
                turn += 1
            return turn

        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(work, number) for number in range(3)]
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        ks.get(b"0")
                    except esker.ForkError:
                        code = 0
                    finally:
                        os._exit(code)
                assert os.waitpid(child, 0)[1] == 0
            stop.set()
            for number, job in enumerate(jobs):
                turns = job.result()
                assert turns == 0 or ks[b"%d" % number] == b"%d" % (turns - 1)


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "del db, ks",
        "db = None; keep = [ks, db_cycle(ks)]",
        "threading.Thread(target=write_for_ever, daemon=True).start(); time.sleep(0.05)",
        "os._exit(0)",
    ],
)
def test_the_interpreter_ends_with_an_open_store(tmp_path, end):
    script = f"""
        import os, sys, threading, time, esker

        def db_cycle(ks):
            cycle = [ks, ks.range(), iter(ks.items())]
            cycle.append(cycle)
            next(cycle[1])
            return cycle

        def write_for_ever():
            try:
                while True:
                    ks[b"later"] = b"x"
            except esker.ClosedError:
                pass

        db = esker.open(sys.argv[1])
        ks = db.keyspace("things")
        for n in range(5000):
            ks[b"%d" % n] = b"value %d" % n
        snapshot = db.snapshot()
        print("acknowledged")
        {end}
    """
    assert finished(python(script, tmp_path / "db")) == "acknowledged\n"
    with esker.open(tmp_path / "db", create=False) as db:
        ks = db.keyspace("things", create=False)
        assert all(ks[b"%d" % n] == b"value %d" % n for n in range(5000)) and db.check().ok


def test_an_exception_ends_the_interpreter_and_nothing_is_lost(tmp_path):
    script = """
        import sys, esker
        db = esker.open(sys.argv[1])
        ks = db.keyspace("things")
        ks[b"a"] = b"1"
        with db.batch() as batch:
            batch.insert(ks, b"b", b"2")
            raise RuntimeError("mine")
    """
    finished(python(script, tmp_path / "db"), 1)
    with esker.open(tmp_path / "db") as db:
        assert db.keyspace("things") == {b"a": b"1"}


def test_an_interrupt_reaches_who_counts(tmp_path):
    """In a process of its own, which is counting when SIGINT comes."""
    script = """
        import signal, sys, esker
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with esker.open(sys.argv[1]) as db:
            ks = db.keyspace("things")
            ks.update((b"%07d" % n, b"") for n in range(300_000))
            try:
                print("counting")
                while True:
                    len(ks), list(ks.keys())
            except KeyboardInterrupt:
                print("interrupted", len(ks))
    """
    child = python(script, tmp_path / "db")
    assert child.stdout.readline() == "counting\n"
    child.send_signal(signal.SIGINT)
    assert finished(child) == "interrupted 300000\n"


def test_a_device_without_room_loses_nothing(tmp_path):
    """Files may not grow beyond 6 MiB, as on a full device: what was acknowledged can be read then,
    and is there when it is opened again."""
    script = """
        import resource, sys, esker
        db = esker.open(sys.argv[1], memory="1MiB")
        ks = db.keyspace("things")
        resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, resource.RLIM_INFINITY))
        acknowledged = 0
        try:
            while acknowledged < 100_000:
                ks[b"%08d" % acknowledged] = b"%d" % acknowledged * 200
                acknowledged += 1
        except esker.FullError as error:
            assert error.errno == 28 and isinstance(error, OSError), error
        assert 1000 < acknowledged < 100_000 and len(ks) == acknowledged
        assert all(value == b"%d" % n * 200 for n, value in enumerate(ks.values()))
        print(acknowledged)
    """
    acknowledged = int(finished(python(script, tmp_path / "db")))
    with esker.open(tmp_path / "db") as db:
        assert list(db.keyspace("things")) == [b"%08d" % n for n in range(acknowledged)] and db.check().ok


@pytest.mark.parametrize("durability", ["buffered", "synced"])
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path, budget, durability):
    """Killed at any moment, several times: each write that returned is there, and batches whole."""
    script = """
        import sys, esker
        db = esker.open(sys.argv[1], memory="1MiB", durability=sys.argv[2])
        left, right = db.keyspace("left"), db.keyspace("right")
        n = int(sys.argv[3])
        while True:
            with db.batch() as batch:
                batch.insert(left, b"%08d" % n, b"%d" % n * 50)
                batch.insert(right, b"%08d" % n, b"%d" % n)
            print(n)
            n += 1
    """
    source, first = random.Random(durability), 0
    for _ in range(3 * budget):
        child = python(script, tmp_path / "db", durability, first)
        acknowledged = int(child.stdout.readline())
        # A reader that is slow must not be what stops the writer.
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(child.stdout), daemon=True)
        reader.start()
        time.sleep(source.uniform(0.05, 0.5))
        child.kill()
        child.wait(timeout=60)
        reader.join()
        child.stderr.close()
        acknowledged = int([f"{acknowledged}\n", *(line for line in lines if line.endswith("\n"))][-1])
        with esker.open(tmp_path / "db") as db:
            left, right = db.keyspace("left"), db.keyspace("right")
            count = len(left)
            assert count > acknowledged and list(left) == [b"%08d" % n for n in range(count)]
            assert list(left) == list(right) and db.check().ok
            assert left[b"%08d" % acknowledged] == b"%d" % acknowledged * 50
        first = count
