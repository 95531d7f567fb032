"""A Zarr array in other chunks: esker beside rechunker, cubed and dask.

    python3 -m venv peers && peers/bin/pip install rechunker cubed 'dask[array]' zarr
    ESKER_COMMAND=target/release/esker peers/bin/python bindings/python/bench/rechunk.py FOLDER

One gibibyte of float64 in chunks of (1024, 64) becomes chunks of (64, 1024), version 2 of Zarr,
uncompressed, with 61 MiB of memory for each system that takes such a bound. Systems take turns;
each run is a process of its own, from a cold page cache, and ends when the file system has it all.
With --group N each runs in a control group of N MiB, page cache included, as it would if the array
were far larger than the memory of the machine (memory controller of version 1; needs root). Printed are seconds and the most resident memory of each run, and medians. Results are compared with
the source, once each.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROWS, COLUMNS = 8192, 16384
SOURCE, TARGET = (1024, 64), (64, 1024)
MEMORY = 61 << 20


def esker(source, target, scratch):
    command = [os.environ.get("ESKER_COMMAND", "esker"), "permute", source, "h w -> h w", target]
    chunks = ",".join(map(str, TARGET))
    subprocess.run([*command, "--chunks", chunks, "--memory", str(MEMORY)], check=True)


def rechunker(source, target, scratch):
    import zarr
    from rechunker import rechunk

    plan = rechunk(zarr.open(source), TARGET, MEMORY, target, temp_store=scratch)
    plan.execute()


def cubed(source, target, scratch):
    import cubed as library

    # Its bound is the memory of one worker, the interpreter and what it has loaded included.
    spec = library.Spec(work_dir=scratch, allowed_mem=MEMORY, reserved_mem=0)
    array = library.from_zarr(source, spec=spec).rechunk(TARGET)
    library.to_zarr(array, target)


def dask(source, target, scratch):
    import dask.array
    import dask.config

    # It takes no bound: chunks between, and the width of its graph, are its own choice.
    with dask.config.set({"temporary-directory": scratch, "array.chunk-size": MEMORY // 4}):
        array = dask.array.from_zarr(source).rechunk(TARGET)
        dask.array.to_zarr(array, target, compressor=None)


def copy(source, target, scratch):
    """For orientation: every chunk file read and written once, as it is."""
    subprocess.run(["cp", "-r", source, target], check=True)


SYSTEMS = {"copy": copy, "esker": esker, "rechunker": rechunker, "cubed": cubed, "dask": dask}


def make(path):
    import numpy as np
    import zarr

    array = zarr.open(
        path, "w", shape=(ROWS, COLUMNS), chunks=SOURCE, dtype="<f8", compressor=None
    )
    for row in range(0, ROWS, SOURCE[0]):
        rows = np.arange(row, row + SOURCE[0], dtype="<f8")[:, None]
        array[row : row + SOURCE[0]] = rows * COLUMNS + np.arange(COLUMNS)


def check(path):
    import numpy as np
    import zarr

    array = zarr.open(path, "r")
    assert array.chunks == TARGET and array.shape == (ROWS, COLUMNS)
    for row in range(0, ROWS, TARGET[0]):
        rows = np.arange(row, row + TARGET[0], dtype="<f8")[:, None]
        assert (array[row : row + TARGET[0]] == rows * COLUMNS + np.arange(COLUMNS)).all()


def forget(folder):
    """Nothing of the folder stays in the page cache."""
    os.sync()
    for place, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def child(name, folder, group):
    """One run; prints seconds and resident bytes."""
    if group:
        enter_group(group)
    begun = time.monotonic()
    target = os.path.join(folder, "target.zarr")
    SYSTEMS[name](os.path.join(folder, "source.zarr"), target, os.path.join(folder, "scratch"))
    os.sync()
    seconds = time.monotonic() - begun
    is_command = name in ("esker", "copy")
    whom = resource.RUSAGE_CHILDREN if is_command else resource.RUSAGE_SELF
    print(json.dumps({"seconds": seconds, "resident": resource.getrusage(whom).ru_maxrss << 10}))


GROUP = "/sys/fs/cgroup/memory/esker-rechunk"


def enter_group(mib):
    """This process and its children have this much memory, page cache included."""
    os.makedirs(GROUP, exist_ok=True)
    with open(os.path.join(GROUP, "memory.limit_in_bytes"), "w") as file:
        file.write(str(mib << 20))
    with open(os.path.join(GROUP, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))


def clean(folder):
    for name in ("target.zarr", "scratch"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def run(name, folder, group):
    clean(folder)
    forget(folder)
    command = [sys.executable, __file__, folder, "--child", name, "--group", str(group)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode < 0:
        # The group has no more memory for it.
        return None
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--child")
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--systems", default="copy,esker,rechunker,cubed,dask")
    arguments = parser.parse_args()
    folder = arguments.folder
    if arguments.child:
        child(arguments.child, folder, arguments.group)
        return
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "source.zarr")):
        make(os.path.join(folder, "source.zarr"))
    runs = {name: [] for name in arguments.systems.split(",")}
    for turn in range(arguments.repeat):
        for name, results in runs.items():
            result = run(name, folder, arguments.group)
            if result is None:
                print(f"{name}: killed, its memory was not enough", flush=True)
                continue
            results.append(result)
            resident = result["resident"] / 2**20
            print(f"{name}: {result['seconds']:.2f} s, {resident:.0f} MiB resident", flush=True)
            if turn == 0 and name != "copy":
                check(os.path.join(folder, "target.zarr"))
    clean(folder)
    print()
    for name, results in runs.items():
        if not results:
            continue
        seconds = statistics.median(result["seconds"] for result in results)
        resident = max(result["resident"] for result in results) / 2**20
        print(f"{name}: median {seconds:.2f} s, at most {resident:.0f} MiB resident")


if __name__ == "__main__":
    main()
