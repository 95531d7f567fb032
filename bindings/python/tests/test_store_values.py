"""Values as files."""

import gc
import io
import json
import os
import random
import shutil
import threading

import pytest

import esker


@pytest.fixture
def files(db):
    return db.keyspace("files", inline_max="1KiB")


def noise(length, seed=1):
    return random.Random(seed).randbytes(length)


@pytest.mark.parametrize("length", [0, 1, 1024, 1025, 65_496, 65_497, 1 << 20, 3_000_001])
def test_what_is_written_is_read_from_anywhere(files, length):
    value = noise(length)
    with files.writer(b"k") as file:
        for start in range(0, length, 100_003):
            assert file.write(value[start : start + 100_003]) == min(100_003, length - start)
        assert file.tell() == length and b"k" not in files
    assert files[b"k"] == value
    with files.reader(b"k") as file:
        assert file.nbytes == length and file.readable() and file.seekable()
        assert file.read() == value and file.read() == b"" == file.read(10)
        assert file.seek(-min(length, 70_000), os.SEEK_END) == max(0, length - 70_000)
        assert file.readall() == value[-70_000:]
        for _ in range(20):
            start = random.Random(length).randrange(length + 10)
            assert file.seek(start) == start == file.tell()
            into = bytearray(1000)
            count = file.readinto(into)
            assert bytes(into[:count]) == value[start : start + 1000][:count]
            assert count > 0 or start >= length


def test_a_writer_that_is_left_early_leaves_nothing(db, files):
    files[b"k"] = b"before"
    with pytest.raises(ZeroDivisionError), files.writer(b"k") as file:
        file.write(noise(200_000))
        1 / 0
    file = files.writer(b"k")
    file.write(noise(200_000))
    file.close()
    file.close()
    files.writer(b"k").write(noise(200_000))
    gc.collect()
    assert files[b"k"] == b"before"
    db.compact()
    assert db.stats().keyspaces["files"].value_bytes == 0
    assert db.check().ok


def test_files_of_the_standard_library_take_them(files):
    lines = [json.dumps({"line": number, "text": "x" * (number % 90)}) for number in range(20_000)]
    with files.writer(b"lines") as raw:
        text = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")
        text.writelines(line + "\n" for line in lines)
        text.flush()
        text.detach().detach()
    with io.TextIOWrapper(io.BufferedReader(files.reader(b"lines")), encoding="utf-8") as text:
        assert [line.rstrip("\n") for line in text] == lines
    with files.reader(b"lines") as source, files.writer(b"copy", durability="synced") as target:
        shutil.copyfileobj(source, target)
    assert files[b"copy"] == files[b"lines"]


def test_a_reader_stays_where_it_was(db, files):
    old, new = noise(500_000, 1), noise(500_000, 2)
    files[b"k"] = old
    with db.snapshot() as snapshot, files.reader(b"k") as file:
        files[b"k"] = new
        db.compact()
        with snapshot.keyspace(files).reader(b"k") as then:
            assert then.read() == old == file.read()
    with pytest.raises(KeyError):
        files.reader(b"none")
    with db.transaction() as transaction:
        assert not hasattr(transaction.keyspace(files), "reader")


def test_what_cannot_be_is_said(db, files):
    files[b"k"] = noise(5000)
    with pytest.raises(esker.ArgumentError, match="inline_bytes_max"):
        db.keyspace("more", inline_max="1MiB")
    with pytest.raises(TypeError, match="a value is bytes"), files.writer(b"k") as file:
        file.write("text")
    with pytest.raises(TypeError, match="a key is bytes"):
        files.reader("k")
    with pytest.raises(esker.ArgumentError):
        files.writer(b"x" * 70_000)
    with pytest.raises(esker.ArgumentError, match="durability"):
        with files.writer(b"k", durability="now") as file:
            file.write(b"1")
    reader, writer = files.reader(b"k"), files.writer(b"k")
    for position in (-1, 2**63):
        with pytest.raises(ValueError):
            reader.seek(position)
    with pytest.raises(ValueError, match="whence"):
        reader.seek(0, 9)
    with pytest.raises(TypeError, match="pickled"):
        reader.__reduce__()
    assert not reader.writable() and not writer.readable() and not writer.seekable()
    writer.finish()
    for use in (writer.finish, lambda: writer.write(b"1"), writer.__enter__):
        with pytest.raises(esker.ClosedError):
            use()
    reader.close()
    with pytest.raises(esker.ClosedError):
        reader.read(1)
    files[b"k"] = b"short"
    reader, writer = files.reader(b"k"), files.writer(b"l")
    db.close()
    with pytest.raises(esker.ClosedError):
        reader.read(1)
    with pytest.raises(esker.ClosedError):
        writer.write(noise(5000))
    with pytest.raises(esker.ClosedError):
        writer.finish()


def test_threads_write_values_of_their_own(files):
    def work(number):
        for turn in range(5):
            with files.writer(b"%d-%d" % (number, turn)) as file:
                for part in range(20):
                    file.write(noise(30_000, number * 100 + part))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for number in range(4):
        expected = b"".join(noise(30_000, number * 100 + part) for part in range(20))
        assert all(files[b"%d-%d" % (number, turn)] == expected for turn in range(5))


def test_a_child_leaves_its_parents_streams_alone(files):
    files[b"k"] = noise(5000)
    reader, writer = files.reader(b"k"), files.writer(b"l")
    writer.write(noise(5000))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            reader.read(1)
        except esker.ForkError:
            try:
                writer.finish()
            except esker.ForkError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.read() == noise(5000)
    writer.finish()
    assert files[b"l"] == noise(5000)
