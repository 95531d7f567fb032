"""Refused calls, and the state that an interrupt leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import esker
import numpy as np
import pytest
from conftest import items


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "from.npy", items((6, 4), "<f8"))
    return tmp_path / "from.npy"


def test_the_classes():
    assert issubclass(esker.PatternError, (esker.Error, ValueError))
    assert issubclass(esker.FileError, OSError) and issubclass(esker.FileError, esker.Error)
    assert issubclass(esker.ArgumentError, ValueError)
    assert esker.PatternError.__module__ == "esker"


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("h w", {}),
        ("h w -> h", {}),
        ("a b c -> a b c", {}),
        ("(a b) c -> a b c", {}),
        ("a b -> b a", {"z": 3}),
        ("(a b) c -> b a c", {"b": 4}),
    ],
)
def test_patterns_that_do_not_fit(path, pattern, sizes):
    with pytest.raises(esker.PatternError) as caught:
        esker.rearrange(path, pattern, **sizes)
    assert "\n" not in str(caught.value)
    assert os.listdir(path.parent) == ["from.npy"]


def test_arguments_that_cannot_be_used(path):
    for arguments in [
        {"memory": "much"},
        {"memory": 1000},
        {"memory": -1},
        {"shape": (6, 4)},
        {"shape": (6, -4), "dtype": "<f8"},
        {"shape": (6, 4), "dtype": object},
        {"shape": (6, 4), "dtype": [("a", "<f8")]},
        {"h": 2.5},
        {"h": 2**70},
        {"shape": (2**70, 4), "dtype": "<f8"},
        {"shape": (2**40, 2**40), "dtype": "<f8"},
        {"chunks": (2, 2)},
        {"zarr_format": 4},
    ]:
        with pytest.raises(esker.ArgumentError):
            esker.rearrange(path, "h w -> w h", **arguments)
    for source in [np.zeros((2, 2)), 3, None]:
        with pytest.raises(esker.ArgumentError):
            esker.rearrange(source, "h w -> w h")
    with pytest.raises(esker.ArgumentError, match="mode 'c'"):
        esker.rearrange(np.load(path, mmap_mode="c"), "h w -> w h")


def test_files_that_cannot_be_used(path):
    folder = path.parent
    with pytest.raises(esker.FileError) as caught:
        esker.rearrange(folder / "absent.npy", "h w -> w h")
    assert caught.value.errno == 2 and caught.value.filename.endswith("absent.npy")
    (folder / "text.npy").write_text("no header")
    (folder / "short.npy").write_bytes(path.read_bytes()[:-1])
    for source in ["text.npy", "short.npy", "."]:
        with pytest.raises(esker.FileError):
            esker.rearrange(folder / source, "h w -> w h")
    (folder / "there.npy").write_text("kept")
    for out in ["there.npy", "from.npy", "to.txt", "no/folder.npy"]:
        with pytest.raises(esker.FileError):
            esker.rearrange(path, "h w -> w h", folder / out)
    assert (folder / "there.npy").read_text() == "kept"
    found = esker.rearrange(path, "h w -> w h", folder / "there.npy", force=True)
    assert found.shape == (4, 6)


def test_a_map_without_a_name(path):
    with open(path, "rb") as file:
        unnamed = os.dup(file.fileno())
    with os.fdopen(unnamed, "rb") as file:
        # numpy knows no name of a file that was opened by its number.
        array = np.memmap(file, dtype="<f8", mode="r", offset=128, shape=(6, 4))
    if array.filename is not None:
        pytest.skip("this numpy has a name for it")
    with pytest.raises(esker.ArgumentError, match="no file of its own"):
        esker.rearrange(array, "h w -> w h")


def test_an_interrupt_leaves_nothing_and_other_threads_run(tmp_path):
    """In a process of its own, whose main thread gets SIGINT while it works."""
    np.save(tmp_path / "from.npy", items((1500, 1300), "<f8"))
    script = textwrap.dedent(
        """
        import signal, sys, threading, time, esker
        # A shell that runs the tests in the background may have it ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ticks = 0
        def count():
            global ticks
            while True:
                time.sleep(0.01)
                ticks += 1
                if ticks == 20:
                    print("working", flush=True)
        threading.Thread(target=count, daemon=True).start()
        try:
            kept = []
            while True:
                kept.append(esker.rearrange(sys.argv[1], "h w -> w h", memory="64KiB"))
        except KeyboardInterrupt:
            print("interrupted", ticks >= 20)
        """
    )
    command = [sys.executable, "-c", script, tmp_path / "from.npy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "working\n"
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=30)
    assert output == "interrupted True\n"
    assert time.monotonic() - begun < 10
    assert os.listdir(tmp_path) == ["from.npy"]


def test_jobs_of_several_threads(tmp_path):
    """Each is for itself."""
    array = items((300, 200), "<i4")
    np.save(tmp_path / "from.npy", array)
    results = {}

    def work(number):
        out = tmp_path / f"to{number}.npy"
        found = esker.rearrange(tmp_path / "from.npy", "h w -> w h", out, memory="100KiB")
        results[number] = np.array_equal(found, array.T)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)
