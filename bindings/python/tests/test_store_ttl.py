"""Values that end."""

from __future__ import annotations

import time

import esker
import pytest


@pytest.fixture(params=["fdtree", "lsm"])
def ks(db, request):
    return db.keyspace("things", index=request.param)


def test_a_value_with_a_time_to_live_is_there_and_then_gone(ks):
    ks.insert_with_ttl(b"long", b"1", 3600)
    ks.insert_with_ttl(b"short", b"2", 0.001)
    time.sleep(0.01)
    assert ks.get(b"short") is None and list(ks.range()) == [(b"long", b"1")]
    for seconds in (0, -1.0, float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError):
            ks.insert_with_ttl(b"never", b"", seconds)
        with pytest.raises(esker.ArgumentError):
            ks.insert(b"never", b"", ttl=seconds)
    assert b"never" not in ks


def test_a_time_to_live_wherever_something_is_inserted(db, ks):
    ks.insert(b"plain", b"1", ttl=0.05)
    ks.insert(b"synced", b"2", ttl=0.05, durability="synced")
    with db.batch() as batch:
        batch.insert(ks, b"batch", b"3", ttl=0.05)
        batch.insert(ks, b"batch, kept", b"4", ttl=3600)
    with db.transaction() as transaction:
        inside = transaction.keyspace(ks)
        inside.insert(b"transaction", b"5", ttl=0.05)
        inside.insert(b"transaction, kept", b"6", ttl=3600)
        assert inside[b"transaction"] == b"5"
    time.sleep(0.1)
    assert list(ks.range()) == [(b"batch, kept", b"4"), (b"transaction, kept", b"6")]
    with pytest.raises(esker.ArgumentError):
        db.batch().insert(ks, b"never", b"", ttl=0)
    with pytest.raises(esker.ArgumentTypeError), db.transaction() as transaction:
        transaction.keyspace(ks).insert(b"never", b"", ttl=b"1")
