"""Results against numpy and einops, from paths and memory maps."""

from __future__ import annotations

import gc
import os

import einops
import esker
import numpy as np
import pytest
from conftest import items, same

DTYPES = ["|u1", "<i2", ">f4", "<f8", "<c16", "|S3", "|V12", "<M8[ns]"]


def random_case(rng):
    """A shape, a pattern and sizes that einops can do too."""
    left, names, shape, sizes = [], [], [], {}
    for index in range(int(rng.integers(1, 6))):
        size = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 12]))
        name = f"a{index}"
        names.append(name)
        if rng.random() < 0.3:
            inner = int(rng.choice([1, 2, 3]))
            names.append(name + "i")
            sizes[name + "i"] = inner
            left.append(f"({name} {name}i)")
            shape.append(size * inner)
        else:
            left.append(name)
            shape.append(size)
    order = [names[index] for index in rng.permutation(len(names))]
    right, at = [], 0
    while at < len(order):
        count = int(rng.integers(1, 3))
        group = order[at : at + count]
        right.append(group[0] if len(group) == 1 else f"({' '.join(group)})")
        at += count
    return tuple(shape), f"{' '.join(left)} -> {' '.join(right)}", sizes


def test_random_arrays_are_rearranged_as_einops_does(tmp_path, budget):
    rng = np.random.default_rng(7)
    for number in range(150 * budget):
        shape, pattern, sizes = random_case(rng)
        array = items(shape, DTYPES[number % len(DTYPES)], seed=number)
        if rng.random() < 0.3:
            array = np.asfortranarray(array)
        path = tmp_path / "from.npy"
        np.save(path, array)
        memory = int(rng.integers(64 << 10, 1 << 20))
        expected = einops.rearrange(array.view(f"V{array.itemsize}"), pattern, **sizes)
        source = np.load(path, mmap_mode="r") if number % 2 else path
        out = [None, tmp_path / "to.npy", tmp_path / "to.raw"][number % 3]
        found = esker.rearrange(source, pattern, out, memory=memory, force=True, **sizes)
        assert isinstance(found, np.memmap)
        assert found.dtype == array.dtype
        assert same(found, expected), (shape, pattern, sizes)
        if number % 3 == 1:
            assert same(np.load(out), expected)


def test_arrays_larger_than_the_memory(tmp_path):
    array = items((701, 1013), "<f8")
    path = tmp_path / "from.npy"
    np.save(path, array)
    for memory in [64 << 10, "300KiB", "2MiB"]:
        found = esker.rearrange(path, "h w -> w h", tmp_path / "to.npy", memory, force=True)
        assert same(found, array.T)
    flipped = esker.rearrange(path, "h w -> -w h", memory="1MiB")
    assert same(flipped, array.T[::-1])


def test_short_tiles_are_flat(tmp_path):
    array = items((13, 5), "<i4")
    np.save(tmp_path / "from.npy", array)
    out = tmp_path / "to.raw"
    found = esker.rearrange(tmp_path / "from.npy", "(h t) w -> h w t", out, t=5)
    tiles = [array[at : at + 5].T.ravel() for at in (0, 5, 10)]
    assert same(found, np.concatenate(tiles))
    # A tile that is larger than its dimension is short, too.
    found = esker.rearrange(tmp_path / "from.npy", "(h t) w -> h w t", out, t=64, force=True)
    assert same(found, array.T.ravel())
    plan = esker.plan(tmp_path / "from.npy", "(h t) w -> h w t", out, t=64, force=True)
    assert plan.shape is None


def test_bare_files(tmp_path):
    array = items((4, 6), ">i4")
    (tmp_path / "from.raw").write_bytes(array.tobytes())
    out = tmp_path / "to.npy"
    found = esker.rearrange(
        tmp_path / "from.raw", "a b -> b a", out, shape=(4, 6), dtype=">i4"
    )
    assert same(found, array.T) and found.dtype == np.dtype(">i4")
    assert same(np.load(out), array.T)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_memory_maps_are_read_from_their_file(tmp_path, order, mode):
    array = items((9, 7, 5), "<i2")
    path = tmp_path / "from.raw"
    lead = 4096 * 17 + 34
    path.write_bytes(b"x" * lead + array.tobytes(order) + b"after")
    source = np.memmap(path, "<i2", mode, offset=lead, shape=array.shape, order=order)
    if mode == "r+":
        source[3] += 1
        array = np.array(source)
    assert same(esker.rearrange(source, "a b c -> c a b"), np.transpose(array, (2, 0, 1)))
    # The turned view is the same file in the other order.
    assert same(esker.rearrange(source.T, "c b a -> a b c"), array)
    part = source[2:5] if order == "C" else source[:, :, 2:5]
    expected = np.array(part)
    assert same(esker.rearrange(part, "a b c -> b c a"), np.transpose(expected, (1, 2, 0)))
    with pytest.raises(esker.ArgumentError, match="gaps"):
        esker.rearrange(source[:, ::2], "a b c -> b a c")


def test_a_result_without_a_name_goes_with_its_array(tmp_path):
    np.save(tmp_path / "from.npy", items((30, 40), "<f8"))
    found = esker.rearrange(tmp_path / "from.npy", "a b -> b a")
    again = esker.rearrange(found, "b a -> a b")
    assert same(again, np.load(tmp_path / "from.npy"))
    view = np.asarray(again)[1:3, ::2]
    expected = view.copy()
    del found, again
    gc.collect()
    assert same(view, expected)
    # It has no name, and is gone when the process is, however that ends.
    assert os.listdir(tmp_path) == ["from.npy"]
    del view
    gc.collect()
    assert os.listdir(tmp_path) == ["from.npy"]


def test_arrays_of_no_items(tmp_path):
    np.save(tmp_path / "from.npy", np.zeros((3, 0, 2), "<f8"))
    found = esker.rearrange(tmp_path / "from.npy", "a b c -> c (a b)", tmp_path / "to.npy")
    assert found.shape == (2, 0)
    assert esker.rearrange(tmp_path / "from.npy", "a b c -> c (a b)").shape == (2, 0)


def test_plans_print_themselves(tmp_path):
    np.save(tmp_path / "from.npy", items((512, 256), "<f8"))
    plan = esker.plan(tmp_path / "from.npy", "h w -> w h", memory="1MiB")
    assert plan.shape == (256, 512) and plan.dtype == np.dtype("<f8")
    assert plan.nbytes == 512 * 256 * 8
    assert plan.seconds > 0
    assert len(plan.passes) >= 1
    assert sum(p.segments * p.segment_bytes for p in plan.passes) >= plan.nbytes
    assert "pass 1: reads" in str(plan) and repr(plan) == str(plan)
    assert os.listdir(tmp_path) == ["from.npy"]
