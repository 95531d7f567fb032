"""Fixtures and helpers that the tests share."""

from __future__ import annotations

import os
import tempfile

import esker
import numpy as np
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

# What it notes goes away with the tests.
_NOTES = tempfile.TemporaryDirectory(prefix="esker-hypothesis-")
set_hypothesis_home_dir(_NOTES.name)


@pytest.fixture
def budget() -> int:
    """How much is tried: ESKER_TEST_BUDGET, 1 by default."""
    return int(os.environ.get("ESKER_TEST_BUDGET", "1"))


@pytest.fixture
def db(tmp_path):
    """An open store with the least memory that does: little data makes much maintenance."""
    with esker.open(tmp_path / "db", memory="1MiB") as db:
        yield db


@pytest.fixture(params=["fdtree", "lsm"])
def ks(db, request):
    """An empty keyspace of each kind of index."""
    return db.keyspace("things", index=request.param)


def items(shape, dtype, seed=0):
    """Items that tell where they were."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.random.default_rng(seed).bytes(count * dtype.itemsize)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


def same(found, expected) -> bool:
    """Whether two arrays have the same shape and bytes."""
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()
