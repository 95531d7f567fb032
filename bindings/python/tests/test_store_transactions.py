"""Transactions: together or not at all, and as if each were alone."""

from __future__ import annotations

import os
import pickle
import threading

import esker
import pytest


@pytest.fixture(params=["fdtree", "lsm"])
def ks(db, request):
    return db.keyspace("ks", index=request.param)


def test_it_is_committed_at_the_end_of_its_block(db, ks):
    ks.update({b"a": b"1", b"b": b"2"})
    with db.transaction() as transaction:
        inside = transaction.keyspace("ks")
        inside[b"a"] = b"3"
        del inside[b"b"]
        inside.insert(b"c", memoryview(b"4"))
        assert inside[b"a"] == b"3" and b"b" not in inside and inside.get(b"b", 7) == 7
        assert list(inside.items()) == [(b"a", b"3"), (b"c", b"4")]
        assert len(transaction) == 3 and transaction and not transaction.closed
        assert dict(ks) == {b"a": b"1", b"b": b"2"}
    assert dict(ks) == {b"a": b"3", b"c": b"4"} and transaction.closed
    with pytest.raises(esker.ClosedError, match="committed or rolled back"):
        inside.get(b"a")
    with pytest.raises(esker.ClosedError):
        next(inside.range())
    with pytest.raises(esker.ClosedError):
        transaction.commit()
    transaction.rollback()


def test_an_exception_rolls_back(db, ks):
    with pytest.raises(KeyError), db.transaction() as transaction:
        transaction.keyspace(ks)[b"a"] = b"1"
        transaction.keyspace(ks)[b"none"]
    assert len(ks) == 0
    with db.transaction() as transaction:
        transaction.keyspace(ks)[b"a"] = b"1"
        transaction.rollback()
    assert len(ks) == 0


def test_a_keyspace_in_it_is_a_mapping(db, ks):
    ks.update({b"%02d" % n: b"%d" % n for n in range(40)})
    with db.transaction() as transaction:
        inside = transaction.keyspace("ks")
        assert inside == dict(ks) and len(inside) == 40 and inside
        assert inside.pop(b"07") == b"7" and inside.pop(b"07", None) is None
        assert inside.popitem() == (b"00", b"0")
        assert inside.setdefault(b"99", b"new") == b"new"
        inside.update({b"98": b"x"})
        assert inside.first() == (b"01", b"1") and inside.last() == (b"99", b"new")
        assert list(inside.range(b"05", b"09")) == [
            (b"05", b"5"),
            (b"06", b"6"),
            (b"08", b"8"),
        ]
        assert list(inside.prefix(b"9", reverse=True)) == [(b"99", b"new"), (b"98", b"x")]
        assert inside.get_many([b"98", b"00", b"01"]) == [b"x", None, b"1"]
        assert list(reversed(inside))[:2] == [b"99", b"98"]
        with pytest.raises(KeyError):
            del inside[b"00"]
        inside.clear()
        assert not inside
    assert len(ks) == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda inside: inside.get(b"b"),
        lambda inside: b"b" in inside,
        lambda inside: list(inside.range(b"a", b"c")),
        lambda inside: len(inside),
        lambda inside: inside.last(),
        lambda inside: list(inside.prefix(b"b")),
        lambda inside: inside.get_many([b"a", b"b"]),
    ],
)
def test_what_was_read_and_written_since_conflicts(db, ks, read):
    ks[b"a"] = b"1"
    transaction = db.transaction()
    inside = transaction.keyspace(ks)
    read(inside)
    inside[b"z"] = b"1"
    ks[b"b"] = b"a phantom"
    with pytest.raises(esker.ConflictError, match="run the transaction again"):
        transaction.commit()
    assert b"z" not in ks and transaction.closed


def test_what_an_iterator_did_not_come_to_does_not_count(db, ks):
    ks.update({b"%03d" % n: b"" for n in range(500)})
    with db.transaction() as transaction:
        inside = transaction.keyspace(ks)
        walk = inside.range()
        assert [next(walk)[0] for _ in range(5)] == [b"000", b"001", b"002", b"003", b"004"]
        ks[b"020"] = b"beyond"
        back = inside.range(reverse=True)
        assert next(back)[0] == b"499"
        ks[b"490"] = b"beyond"
        inside[b"x"] = b""
    assert b"x" in ks


def test_a_range_that_is_removed_is_no_read_and_conflicts_with_readers(db, ks):
    ks.update((b"%d" % n, b"") for n in range(10))
    with db.transaction() as transaction:
        inside = transaction.keyspace(ks)
        inside.remove_range(b"2", b"8")
        assert b"3" not in inside and inside.get(b"4") is None
        ks[b"33"] = b"removed with the others"
    assert list(ks) == [b"0", b"1", b"8", b"9"]
    with pytest.raises(esker.ConflictError), db.transaction() as transaction:
        inside = transaction.keyspace(ks)
        inside[b"new"] = inside[b"8"]
        ks.remove_range(b"5")
    assert b"new" not in ks


def test_writes_alone_never_conflict(db, ks):
    first, second = db.transaction(), db.transaction()
    first.keyspace(ks)[b"a"] = b"1"
    second.keyspace(ks)[b"a"] = b"2"
    second.commit()
    first.commit()
    assert ks[b"a"] == b"1"


def test_transact_runs_until_no_other_commit_intervenes(db, ks):
    ks[b"n"] = b"0"

    def count(transaction):
        inside = transaction.keyspace("ks")
        inside[b"n"] = b"%d" % (int(inside[b"n"]) + 1)
        return int(inside[b"n"])

    answers = []

    def work():
        answers.extend(db.transact(count) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ks[b"n"] == b"300" and sorted(answers) == list(range(1, 301))


def test_transact_hands_on_what_its_body_raises(db, ks):
    calls = []

    def fails(transaction):
        calls.append(transaction)
        transaction.keyspace(ks)[b"a"] = b"1"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        db.transact(fails)
    assert len(calls) == 1 and calls[0].closed and len(ks) == 0


def test_transact_gives_up_in_the_end(db, ks):
    calls = []

    def contended(transaction):
        calls.append(len(calls))
        transaction.keyspace(ks).get(b"a")
        transaction.keyspace(ks)[b"b"] = b""
        ks[b"a"] = b"again"

    with pytest.raises(esker.ConflictError):
        db.transact(contended)
    assert len(calls) == 101 and b"b" not in ks


def test_turns_never_conflict(db, ks):
    ks[b"n"] = b"0"

    def work():
        for _ in range(50):
            with db.transaction(write=True) as transaction:
                inside = transaction.keyspace("ks")
                inside[b"n"] = b"%d" % (int(inside[b"n"]) + 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ks[b"n"] == b"200"
    with db.transaction(write=True):
        with pytest.raises(esker.ArgumentError):
            db.transaction(write=True)


def test_pops_beside_transactions_hand_out_each_value_once(db, ks):
    """One-step operations of a mapping are one step concurrently with commits, too."""
    taken = []

    def pops():
        for _ in range(200):
            value = ks.pop(b"job", None)
            if value is not None:
                taken.append(value)

    def puts(base):
        for n in range(50):

            def put(transaction, n=n):
                inside = transaction.keyspace(ks)
                if b"job" in inside:
                    return None
                inside[b"job"] = b"%d" % (base + n)
                return base + n

            made.append(db.transact(put))

    made = []
    threads = [threading.Thread(target=pops) for _ in range(2)]
    threads += [threading.Thread(target=puts, args=(base,)) for base in (1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [ks[b"job"]] if b"job" in ks else []
    assert sorted(taken + left) == sorted(b"%d" % n for n in made if n is not None)


def test_what_is_no_use(tmp_path, db, ks):
    with esker.open(tmp_path / "other") as other, db.transaction() as transaction:
        with pytest.raises(esker.ArgumentError, match="another store"):
            transaction.keyspace(other.keyspace("ks"))
        with pytest.raises(esker.NoKeyspaceError):
            transaction.keyspace("none")
        with pytest.raises(TypeError):
            transaction.keyspace(ks)["text"] = b""
        with pytest.raises(esker.ArgumentError):
            transaction.keyspace(ks)[b"k" * 70000] = b""
        with pytest.raises(TypeError):
            pickle.dumps(transaction)
        assert len(transaction) == 0
    with pytest.raises(esker.ArgumentError):
        db.transaction(durability="lucky")
    assert "Transaction of" in repr(transaction)


def test_after_the_store_was_closed(tmp_path):
    db = esker.open(tmp_path / "db")
    ks = db.keyspace("ks")
    transaction = db.transaction()
    inside = transaction.keyspace(ks)
    inside[b"a"] = b"1"
    db.close()
    for use in (
        lambda: inside.get(b"a"),
        lambda: inside.insert(b"a", b""),
        transaction.commit,
        db.transaction,
    ):
        with pytest.raises(esker.ClosedError):
            use()
    with esker.open(tmp_path / "db") as again:
        assert len(again.keyspace("ks")) == 0


def test_a_forked_child_leaves_it_alone(db, ks):
    transaction = db.transaction()
    inside = transaction.keyspace(ks)
    inside[b"a"] = b"1"
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (transaction.commit, transaction.rollback, lambda: inside.get(b"a")):
            try:
                use()
            except esker.ForkError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    transaction.commit()
    assert ks[b"a"] == b"1"
