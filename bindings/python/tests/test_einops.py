"""Results and refusals of einops and of esker: the same, named sizes included.

What only esker can do, files of short tiles, has its own form: only a name that ends in .raw asks for it.
"""

from __future__ import annotations

import os

import einops
import esker
import numpy as np
import pytest
from conftest import items, same


def random_side(rng, names):
    """The names in groups."""
    side, at = [], 0
    while at < len(names):
        count = int(rng.choice([1, 1, 2, 3]))
        group = names[at : at + count]
        at += count
        joined = len(group) > 1 or rng.random() < 0.1
        side.append(f"({' '.join(group)})" if joined else group[0])
        if rng.random() < 0.05:
            side.append(str(rng.choice(["1", "()"])))
    return side


def random_case(rng):
    """A shape, a pattern and sizes: most of them fit each other, some in no way."""
    names = ["a", "b", "c", "d", "e"][: int(rng.integers(1, 6))]
    true = {name: int(rng.choice([1, 1, 2, 3, 4, 5, 7, 64])) for name in names}
    left = random_side(rng, names)
    shape, sizes = [], {}
    for group in left:
        inner = group.strip("()").split()
        axes = [name for name in inner if name in true]
        size = int(np.prod([true[name] for name in axes], dtype=np.int64))
        # A dimension that its axes make up, or one next to it.
        shape.append(max(size + (int(rng.choice([-1, 1, 2])) if rng.random() < 0.15 else 0), 0))
        unknown = int(rng.integers(0, len(axes) + 1)) if axes and rng.random() < 0.9 else -1
        for index, name in enumerate(axes):
            if index != unknown and (len(axes) > 1 or rng.random() < 0.2):
                wrong = rng.random() < 0.1
                sizes[name] = int(rng.choice([0, 1, 3, 6, 64])) if wrong else true[name]
    if np.prod(shape, dtype=np.int64) > 20_000:
        return random_case(rng)
    order = [names[index] for index in rng.permutation(len(names))]
    if rng.random() < 0.03:
        order = order[:-1] or ["z"]
    if rng.random() < 0.03:
        sizes["z"] = 2
    return tuple(shape), f"{' '.join(left)} -> {' '.join(random_side(rng, order))}", sizes


def test_esker_refuses_what_einops_refuses_and_nothing_else(tmp_path, budget):
    rng = np.random.default_rng(20)
    done = refused = 0
    for number in range(600 * budget):
        shape, pattern, sizes = random_case(rng)
        array = items(shape, "<i4", seed=number)
        path = tmp_path / "from.npy"
        np.save(path, array)
        try:
            expected = einops.rearrange(array, pattern, **sizes)
        except (einops.EinopsError, ZeroDivisionError, RuntimeError):
            expected = None
        out = [None, tmp_path / "to.npy"][number % 2]
        case = (shape, pattern, sizes)
        if expected is None:
            refused += 1
            with pytest.raises(esker.PatternError) as caught:
                esker.rearrange(path, pattern, out, force=True, **sizes)
            assert "\n" not in str(caught.value), case
            with pytest.raises(esker.PatternError):
                esker.plan(path, pattern, out, force=True, **sizes)
            assert not (tmp_path / "to.npy").exists(), case
        else:
            done += 1
            found = esker.rearrange(path, pattern, out, force=True, **sizes)
            assert same(found, expected), case
            assert esker.plan(path, pattern, out, force=True, **sizes).shape == expected.shape
        if out is not None and out.exists():
            os.remove(out)
    assert done >= 200 * budget and refused >= 100 * budget, (done, refused)


@pytest.mark.parametrize(
    ("pattern", "sizes"),
    [
        ("(h h2) -> h h2", {"h2": 64}),
        ("(h h2) -> h h2", {"h": 1, "h2": 64}),
        ("(h h2) -> h h2", {"h2": 3}),
        ("(h h2) -> (h h2)", {"h2": 3}),
        ("(a b c) -> a b c", {"b": 9, "c": 9}),
    ],
)
def test_short_tiles_are_raw_or_refused(tmp_path, pattern, sizes):
    np.save(tmp_path / "a.npy", np.arange(5))
    for out in (None, tmp_path / "o.npy", tmp_path / "o.zarr"):
        with pytest.raises(esker.PatternError, match="does not divide a dimension of 5"):
            esker.rearrange(tmp_path / "a.npy", pattern, out, **sizes)
    found = esker.rearrange(tmp_path / "a.npy", pattern, tmp_path / "o.raw", **sizes)
    assert found.tolist() == list(range(5))
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "o.raw"]
