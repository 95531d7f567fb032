"""Simulated SSDs."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from esker import ArgumentError, ArgumentTypeError, ssd

#: A device of 4 MiB, of which 3.6 MiB can be used.
SMALL = {"preset": "slc512", "blocks": 256}
PAGE = 512


def test_requests_are_counted():
    offsets = np.array([0, 512, 1024, 0], dtype=np.int64)
    report = ssd.simulate(offsets, PAGE, [True, True, True, False], fresh=True, **SMALL)
    host = report["host"]
    assert (host["pages_written"], host["pages_read"], host["requests"]) == (3, 1, 4)
    assert report["write_amplification"] == 1.0
    assert report["latency_ns"] is None


def test_the_same_seed_gives_the_same_report():
    offsets = np.random.default_rng(1).integers(0, 7000, 200_000) * PAGE

    def run(seed):
        return ssd.simulate(offsets, PAGE, True, op=7, seed=seed, gc="d-choices:3", **SMALL)

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(1)["write_amplification"] > 2


def test_columns_of_any_type_and_stride():
    plain = np.arange(1000) * PAGE
    expected = ssd.simulate(plain, PAGE, True, fresh=True, **SMALL)
    sizes = np.full(1000, PAGE, dtype=">u2")
    writes = np.ones(2000, dtype=np.uint8)[::2]
    assert ssd.simulate(plain.astype(np.uint32), sizes, writes, fresh=True, **SMALL) == expected
    assert ssd.simulate([0], [PAGE], [1], fresh=True, **SMALL)["host"]["requests"] == 1
    assert ssd.simulate([], [], [], fresh=True, **SMALL)["host"]["requests"] == 0


def test_memory_maps_are_read_in_pieces(tmp_path):
    path = tmp_path / "offsets.npy"
    np.save(path, np.arange(150_000, dtype=np.int64) % 7000 * PAGE)
    offsets = np.load(path, mmap_mode="r")
    report = ssd.simulate(offsets, PAGE, True, fresh=True, **SMALL)
    assert report["host"]["pages_written"] == 150_000


def test_clocks():
    times = np.arange(100) * 10_000_000
    report = ssd.simulate(0, PAGE, np.ones(100, bool), times=times + 5, timed=True, fresh=True, **SMALL)
    assert report["latency_ns"]["write"]["count"] == 100
    assert 0.98e9 < report["simulated_ns"] < 1.01e9
    closed = ssd.simulate(0, PAGE, np.ones(100, bool), qd=4, fresh=True, **SMALL)
    assert closed["simulated_ns"] < report["simulated_ns"]


def test_streams_keep_lifetimes_apart():
    # Two logs, a short one and a long one, whose writes alternate.
    at = np.arange(120_000)
    pages = np.where(at % 2 == 0, at // 2 % 500, 500 + at // 2 % 5500)
    given = {"fresh": True, "preset": "slc512", "capacity": 3, "streams": at % 2}

    def run(placement):
        return ssd.simulate(pages * PAGE, PAGE, True, placement=placement, **given)

    mixed, apart = run("none"), run("streams:2")
    assert (mixed["run"]["streams"], apart["run"]["streams"]) == (1, 2)
    assert apart["write_amplification"] < 1.02 < mixed["write_amplification"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"preset": "optane"}, "mqsim, femu"),
        ({"gc": "lazy"}, "cost-benefit"),
        ({"ftl": "best"}, "page"),
        ({"op": 0}, "percentage"),
        ({"qd": 0}, "from 1"),
        ({"blocks": 0}, "from 1"),
        ({"blocks": 3}, "blocks in a die"),
        ({"timed": True}, "give times"),
        ({"placement": "purpose"}, "give streams"),
        ({"placement": "level", "streams": 1}, "none, purpose"),
        ({"streams": [256]}, r"streams\[0\] is 256"),
        ({"streams": [-1]}, "negative"),
        ({"offsets": [-512]}, r"offsets\[0\] is -512"),
        ({"offsets": [1 << 40]}, "wrap"),
        ({"offsets": [[0]]}, "dimensions"),
        ({"offsets": [0, 1]}, "different lengths"),
    ],
)
def test_mistakes(arguments, text):
    given = {"offsets": [0], "sizes": [PAGE], "is_write": [True], "fresh": True, **SMALL, **arguments}
    with pytest.raises(ArgumentError, match=text):
        ssd.simulate(**given)


def test_wrong_types():
    with pytest.raises(ArgumentTypeError, match="whole numbers"):
        ssd.simulate([0.5], [PAGE], [True])
    with pytest.raises(ArgumentTypeError, match="seed"):
        ssd.simulate([0], [PAGE], [True], seed=object())


def test_an_interrupt_ends_it_and_other_threads_run():
    ticks = []

    def tick():
        for _ in range(5):
            time.sleep(0.02)
            ticks.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=tick)
    # A process in the background may have been started to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            ssd.simulate([0], [4096], [True], preset="femu", warm_up=10_000)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert len(ticks) == 5 and time.monotonic() - started < 10
