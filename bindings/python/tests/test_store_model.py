"""A store compared with dictionaries, through random histories."""

from __future__ import annotations

import os
import shutil
import tempfile

import esker
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

BUDGET = int(os.environ.get("ESKER_TEST_BUDGET", "1"))
#: Each kind of index, by the name of its keyspace.
KINDS = {"a": "fdtree", "b": "lsm"}
NAMES = list(KINDS)

# Few keys, so that they meet; some that no byte follows.
keys = st.one_of(
    st.binary(max_size=2),
    st.sampled_from([b"", b"\xff", b"\xff\xff", b"ab", b"abc", b"b" * 300]),
    st.integers(0, 60).map(lambda n: b"k%02d" % n),
)
values = st.one_of(st.binary(max_size=8), st.integers(0, 5000).map(bytes))
names = st.sampled_from(NAMES)
bounds = st.one_of(st.none(), keys)
durabilities = st.sampled_from([None, "buffered", "synced"])
#: Of batches: a name, a key, and a value, or none where the key is removed.
writes = st.lists(st.tuples(names, keys, st.one_of(st.none(), values)), max_size=8)


class Boom(Exception):
    """What ends a batch."""


def within(model, start, end):
    """The entries of a dictionary between two bounds."""
    return [
        (key, value)
        for key, value in sorted(model.items())
        if (start is None or start <= key) and (end is None or key < end)
    ]


class Machine(RuleBasedStateMachine):
    """Each rule does the same to both, and compares what they answer."""

    snapshots = Bundle("snapshots")
    walks = Bundle("walks")

    @initialize()
    def create(self):
        self.folder = tempfile.mkdtemp(prefix="esker-model-")
        self.models = {name: {} for name in NAMES}
        self.db = None
        self.opened()

    def opened(self):
        # Little memory: sorted_runs and merges come early.
        self.db = esker.open(os.path.join(self.folder, "db"), memory="128KiB")
        self.spaces = {name: self.made(name) for name in NAMES}
        self.generation = object()

    def made(self, name):
        return self.db.keyspace(name, memtable="2KiB", index=KINDS[name])

    def teardown(self):
        if getattr(self, "db", None) is not None:
            report = self.db.check()
            self.db.close()
            shutil.rmtree(self.folder)
            assert report.ok, report

    @rule(name=names, key=keys, value=values)
    def set(self, name, key, value):
        self.spaces[name][key] = value
        self.models[name][key] = value

    @rule(name=names, key=keys, value=values, durability=durabilities)
    def insert_as_a_buffer(self, name, key, value, durability):
        self.spaces[name].insert(bytearray(key), memoryview(value), durability=durability)
        self.models[name][key] = value

    @rule(name=names, key=keys)
    def read(self, name, key):
        space, model = self.spaces[name], self.models[name]
        assert space.get(key) == model.get(key) and (key in space) == (key in model)
        assert space.get(key, 5) == model.get(key, 5)
        if key not in model:
            with pytest.raises(KeyError):
                space[key]

    @rule(name=names, some=st.lists(keys, max_size=9))
    def read_many(self, name, some):
        expected = [self.models[name].get(key) for key in some]
        assert self.spaces[name].get_many(some) == expected

    @rule(name=names, key=keys)
    def delete(self, name, key):
        if key in self.models[name]:
            del self.spaces[name][key]
            del self.models[name][key]
        else:
            with pytest.raises(KeyError):
                del self.spaces[name][key]

    @rule(name=names, key=keys, durability=durabilities)
    def remove(self, name, key, durability):
        self.spaces[name].remove(key, durability=durability)
        self.models[name].pop(key, None)

    @rule(name=names, key=keys)
    def pop(self, name, key):
        assert self.spaces[name].pop(key, 7) == self.models[name].pop(key, 7)

    @rule(name=names)
    def popitem(self, name):
        model = self.models[name]
        if model:
            key = min(model)
            assert self.spaces[name].popitem() == (key, model.pop(key))
        else:
            with pytest.raises(KeyError):
                self.spaces[name].popitem()

    @rule(name=names, key=keys, value=values)
    def setdefault(self, name, key, value):
        expected = self.models[name].setdefault(key, value)
        assert self.spaces[name].setdefault(key, value) == expected

    @rule(name=names, some=st.dictionaries(keys, values, max_size=9), pairs=st.booleans())
    def update(self, name, some, pairs):
        self.spaces[name].update(some.items() if pairs else some)
        self.models[name].update(some)

    @rule(name=names, first=st.integers(0, 50), count=st.integers(1, 400))
    def fill(self, name, first, count):
        some = {b"k%02d" % n: b"%d" % n * 30 for n in range(first, first + count)}
        self.spaces[name].update(some)
        self.models[name].update(some)

    @rule(name=names)
    def clear(self, name):
        self.spaces[name].clear()
        self.models[name].clear()

    @rule(name=names, start=bounds, end=bounds, durability=durabilities)
    def remove_range(self, name, start, end, durability):
        self.spaces[name].remove_range(start, end, durability=durability)
        for key, _ in within(self.models[name], start, end):
            del self.models[name][key]

    @rule(name=names, prefix=keys)
    def remove_prefix(self, name, prefix):
        self.spaces[name].remove_prefix(prefix)
        model = self.models[name]
        self.models[name] = {k: v for k, v in model.items() if not k.startswith(prefix)}

    @rule(name=names, start=bounds, end=bounds, reverse=st.booleans())
    def range(self, name, start, end, reverse):
        expected = within(self.models[name], start, end)
        found = list(self.spaces[name].range(start, end, reverse=reverse))
        assert found == (expected[::-1] if reverse else expected)

    @rule(name=names, prefix=keys, reverse=st.booleans())
    def prefix(self, name, prefix, reverse):
        expected = [of for of in sorted(self.models[name].items()) if of[0].startswith(prefix)]
        found = list(self.spaces[name].prefix(prefix, reverse=reverse))
        assert found == (expected[::-1] if reverse else expected)

    @rule(writes=writes, durability=durabilities, fails=st.booleans())
    def batch(self, writes, durability, fails):
        changed = {name: dict(model) for name, model in self.models.items()}
        try:
            with self.db.batch(durability=durability) as batch:
                for name, key, value in writes:
                    if value is None:
                        batch.remove(self.spaces[name], key)
                        changed[name].pop(key, None)
                    else:
                        batch.insert(self.spaces[name], key, value)
                        changed[name][key] = value
                if fails:
                    raise Boom
            self.models = changed
        except Boom:
            pass

    @rule(
        writes=writes,
        start=bounds,
        reverse=st.booleans(),
        turn=st.booleans(),
        end=st.sampled_from(["commit", "raise", "conflict"]),
    )
    def transaction(self, writes, start, reverse, turn, end):
        changed = {name: dict(model) for name, model in self.models.items()}
        try:
            with self.db.transaction(write=turn) as transaction:
                spaces = {name: transaction.keyspace(name) for name in NAMES}
                for name, key, value in writes:
                    space, model = spaces[name], changed[name]
                    assert space.get(key) == model.get(key)
                    if value is None:
                        assert space.pop(key, 7) == model.pop(key, 7)
                    else:
                        space[key] = model[key] = value
                for name in NAMES:
                    expected = within(changed[name], start, None)
                    found = list(spaces[name].range(start, reverse=reverse))
                    assert found == (expected[::-1] if reverse else expected)
                if end == "raise":
                    raise Boom
                if end == "conflict":
                    # A key that was absent when the range was read.
                    spaces["a"].insert(b"mine", b"")
                    self.spaces["a"][b"\xff\xff\xff"] = b"yours"
            assert end == "commit"
            self.models = changed
        except Boom:
            pass
        except esker.ConflictError:
            assert end == "conflict"
            self.models["a"][b"\xff\xff\xff"] = b"yours"

    @rule(target=snapshots)
    def snapshot(self):
        models = {name: dict(model) for name, model in self.models.items()}
        return self.generation, self.db.snapshot(), models

    @rule(of=snapshots, name=names, start=bounds, reverse=st.booleans())
    def read_then(self, of, name, start, reverse):
        generation, snapshot, models = of
        if generation is not self.generation:
            with pytest.raises(esker.ClosedError):
                len(snapshot.keyspace(name))
            return
        view, model = snapshot.keyspace(name), models[name]
        assert view == model and len(view) == len(model)
        expected = within(model, start, None)
        found = list(view.range(start, reverse=reverse))
        assert found == (expected[::-1] if reverse else expected)
        assert [view.get(key) for key in model] == list(model.values())

    @rule(of=consumes(snapshots))
    def forget(self, of):
        of[1].close()

    @rule(target=walks, name=names, reverse=st.booleans())
    def walk(self, name, reverse):
        expected = sorted(self.models[name].items(), reverse=reverse)
        return self.generation, self.spaces[name].range(reverse=reverse), expected

    @rule(target=walks, of=consumes(walks), steps=st.integers(1, 200))
    def step(self, of, steps):
        generation, walk, expected = of
        for _ in range(steps):
            if generation is not self.generation:
                with pytest.raises(esker.ClosedError):
                    next(walk)
                return multiple()
            if not expected:
                assert next(walk, None) is None
                return multiple()
            assert next(walk) == expected.pop(0)
        return generation, walk, expected

    @rule(name=names)
    def drop(self, name):
        assert self.db.drop_keyspace(name)
        with pytest.raises(esker.NoKeyspaceError):
            self.spaces[name].get(b"")
        self.spaces[name] = self.made(name)
        self.models[name] = {}
        # What was read from the old one is gone.
        self.generation = object()
        self.db.close()
        self.opened()

    @rule()
    def flush(self):
        self.db.flush()

    @rule(name=names)
    def compact(self, name):
        self.spaces[name].compact()

    @rule()
    def persist(self):
        self.db.persist()

    @rule()
    def reopen(self):
        self.db.close()
        self.opened()

    @invariant()
    def the_same_is_in_both(self):
        if getattr(self, "db", None) is None:
            return
        for name in NAMES:
            assert list(self.spaces[name].range()) == sorted(self.models[name].items())

    @rule(name=names)
    def as_a_mapping(self, name):
        space, model = self.spaces[name], self.models[name]
        entries = sorted(model.items())
        assert space == model and len(space) == len(model) and bool(space) == bool(model)
        assert list(space) == [key for key, _ in entries]
        assert list(reversed(space.values())) == [value for _, value in reversed(entries)]
        assert space.first() == (entries[0] if entries else None)
        assert space.last() == (entries[-1] if entries else None)


def test_a_store_is_what_dictionaries_are():
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25 * BUDGET,
            stateful_step_count=60,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
