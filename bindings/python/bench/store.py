"""How fast the store is from Python, one thread and several.

    pip install ./bindings/python && python bindings/python/bench/store.py [FOLDER]

Entries of 16 + 100 bytes in a release build, with memory for all of them. Printed are operations a
second, the median of five runs and the best; the best of `dict`, where it can do the same, is what
Python itself costs.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import random
import shutil
import statistics
import tempfile
import threading
import time

import esker

ENTRIES = 200_000
RUNS = 5


def rate(count, run):
    """Operations a second: the median and the best."""
    seconds = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return count / statistics.median(seconds), count / min(seconds)


def shown(name, store, plain=None):
    figures = [*store, *([] if plain is None else plain[1:])]
    print(f"{name:<44}" + "".join(f"{figure:>14,.0f}" for figure in figures), flush=True)


def consumed(iterator):
    collections.deque(iterator, maxlen=0)


def looked_up(mapping, keys):
    for key in keys:
        mapping[key]


def got(mapping, keys):
    get = mapping.get
    for key in keys:
        get(key)


def put(mapping, entries):
    for key, value in entries:
        mapping[key] = value


def looped(iterable):
    for _key, _value in iterable:
        pass


def in_threads(count, run):
    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def scanned_by_hundreds(keyspace, starts):
    for start in starts:
        consumed(itertools.islice(keyspace.range(start), 100))


def measure(db):
    source = random.Random(1)
    entries = [(source.randbytes(16), source.randbytes(100)) for _ in range(ENTRIES)]
    keys = [key for key, _ in entries]
    source.shuffle(keys)
    plain, ks = {}, db.keyspace("bench")
    print(f"{'operations a second':<44}{'median':>14}{'best':>14}{'dict, best':>14}")
    shown("keyspace[key] = value", rate(ENTRIES, lambda: put(ks, entries)),
          rate(ENTRIES, lambda: put(plain, entries)))
    shown("keyspace.update(pairs)", rate(ENTRIES, lambda: ks.update(entries)),
          rate(ENTRIES, lambda: plain.update(entries)))
    for state, change in [("memtable", None), ("cache", db.compact)]:
        if change is not None:
            change()
            looked_up(ks, keys)
        shown(f"keyspace[key], from the {state}", rate(ENTRIES, lambda: looked_up(ks, keys)),
              rate(ENTRIES, lambda: looked_up(plain, keys)))
        shown(f"keyspace.get(key), from the {state}", rate(ENTRIES, lambda: got(ks, keys)),
              rate(ENTRIES, lambda: got(plain, keys)))
        shown(f"entries of a loop over items(), {state}",
              rate(ENTRIES, lambda: looped(ks.items())),
              rate(ENTRIES, lambda: looped(plain.items())))
        shown(f"entries of range(), consumed, {state}",
              rate(ENTRIES, lambda: consumed(ks.range())))
    shown("entries of range(reverse=True), consumed",
          rate(ENTRIES, lambda: consumed(ks.range(reverse=True))))
    shown("keys of iter(keyspace), consumed", rate(ENTRIES, lambda: consumed(iter(ks))),
          rate(ENTRIES, lambda: consumed(iter(plain))))
    shown("entries counted by len(keyspace)", rate(ENTRIES, lambda: len(ks)))
    starts = keys[:2000]
    shown("scans of 100", rate(2000, lambda: scanned_by_hundreds(ks, starts)))
    hundreds = [keys[n : n + 100] for n in range(0, ENTRIES, 100)]
    shown("keys of get_many, a hundred each",
          rate(ENTRIES, lambda: [ks.get_many(some) for some in hundreds]))
    for count in (2, 4):
        some = keys[: ENTRIES // 4]
        total = count * len(some)
        shown(f"keyspace.get(key), cache, {count} threads",
              rate(total, lambda count=count, some=some: in_threads(count, lambda: got(ks, some))))
    synced = [(key, b"x") for key in keys[:2000]]
    run = lambda: [ks.insert(key, value, durability="synced") for key, value in synced]
    shown("synced writes, one thread", rate(2000, run))
    shown("synced writes, eight threads", rate(16000, lambda: in_threads(8, run)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="for the store; a temporary one unless given")
    folder = tempfile.mkdtemp(dir=parser.parse_args().folder)
    try:
        with esker.open(os.path.join(folder, "db"), memory="256MiB") as db:
            measure(db)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
