"""Results of type checkers for the package: its stubs match it, and no type is unknown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import esker
import pytest

ENVIRONMENT = {
    **os.environ,
    # pyright looks for the package in the first environment on the path.
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "VIRTUAL_ENV": sys.prefix,
    "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
}


def checked(folder, *command):
    """What a checker says of the installed package."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "command", [("mypy.stubtest", "esker"), ("mypy", "--strict", "-p", "esker")], ids=lambda c: c[0]
)
def test_mypy(tmp_path, command):
    done = checked(tmp_path, *command)
    assert done.returncode == 0, done.stdout


def test_pyright(tmp_path):
    command = ["pyright", "--verifytypes", "esker", "--ignoreexternal", "--outputjson"]
    done = checked(tmp_path, *command)
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout[done.stdout.index("{") :])["typeCompleteness"]
    assert found["completenessScore"] == 1, done.stdout
    assert found["exportedSymbolCounts"]["withKnownType"] > len(esker.__all__) - 5, done.stdout


def test_what_users_write(tmp_path):
    (tmp_path / "use.py").write_text(
        """
import time
from datetime import datetime

import esker
import numpy as np

with esker.open("db", memory="1MiB", durability="synced") as db:
    things = db.keyspace("things", merge="add", index="lsm", compression="lz4")
    things[b"a"] = np.zeros(3).tobytes()
    things.insert(b"b", bytearray(b"x"), ttl=1.5, durability="buffered")
    value: bytes | None = things.get(b"a")
    with db.batch() as batch:
        batch.insert(things, b"c", memoryview(b"y"), ttl=3)
    with db.transaction() as transaction:
        transaction.keyspace(things).insert(b"d", b"z", ttl=2)
    pairs: list[tuple[bytes, bytes]] = list(things.range(reverse=True))
    prices = db.keyspace("prices", history=True)
    past: esker.PastKeyspace = prices.at(db.version)
    then: bytes | None = prices.at_time(time.time()).get(b"a")
    since: datetime | None = db.time_of(past.version)
    versions: list[int] = [change.version for change in prices.history(b"a")]
    db.pin("audit")
    names: dict[str, int] = db.named_versions()
    audited: esker.PastKeyspace = prices.at("audit")
    prices.set_history("all")
    keys: list[bytes] = [change.key for change in prices.changes("audit", db.version)]
    differences: list[esker.Difference] = list(prices.diff("audit", prefix=b"a"))
    version: str = esker.__version__
result = esker.rearrange("a.npy", "(h k) -> k h", "b.npy", k=3)
plan: esker.Plan = esker.plan("a.npy", "h w -> w h", memory=1 << 20)
"""
    )
    done = checked(tmp_path, "mypy", "--strict", "use.py")
    assert done.returncode == 0, done.stdout
