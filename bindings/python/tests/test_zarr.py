"""Zarr arrays in and out, against zarr-python."""

from __future__ import annotations

import json
import os
import shutil

import esker
import numpy as np
import pytest
from conftest import items
from conftest import same as identical

zarr = pytest.importorskip("zarr", minversion="3", reason="version 3 of zarr-python")
numcodecs = pytest.importorskip("numcodecs")

V3_CODECS = {
    "none": None,
    "gzip": [zarr.codecs.GzipCodec(level=1)],
    "zstd": [zarr.codecs.ZstdCodec(level=1, checksum=True)],
    "zstd, crc32c": [zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()],
    "crc32c": [zarr.codecs.Crc32cCodec()],
    **{
        f"blosc {name} {shuffle}": [
            zarr.codecs.BloscCodec(cname=name, clevel=5, shuffle=shuffle)
        ]
        for name, shuffle in [
            ("lz4", "shuffle"),
            ("zstd", "bitshuffle"),
            ("lz4hc", "noshuffle"),
            ("zlib", "shuffle"),
            ("blosclz", "shuffle"),
            ("blosclz", "bitshuffle"),
        ]
    },
}
V2_COMPRESSORS = {
    "none": None,
    "zlib": numcodecs.Zlib(level=1),
    "gzip": numcodecs.GZip(level=1),
    "zstd": numcodecs.Zstd(level=1),
    "blosc": numcodecs.Blosc(),
    "blosc bits": numcodecs.Blosc(cname="blosclz", shuffle=numcodecs.Blosc.BITSHUFFLE),
}


def same(found, expected):
    """Whether two arrays have the same items; zarr-python turns the bytes of some round."""
    return identical(np.asarray(found).astype(expected.dtype), expected)


def stored(path, array, chunks, zarr_format=3, compressors=None, **options):
    """An array as zarr-python writes it."""
    made = zarr.create_array(
        path,
        shape=array.shape,
        chunks=chunks,
        dtype=array.dtype,
        zarr_format=zarr_format,
        compressors=compressors,
        overwrite=True,
        **options,
    )
    made[...] = array
    return made


def smooth(shape, dtype):
    """Items that compress."""
    count = int(np.prod(shape))
    return (np.arange(count) // 3 % 251).astype(dtype).reshape(shape)


def read(path):
    return np.asarray(zarr.open_array(path, mode="r")[...])


@pytest.mark.parametrize("name", V3_CODECS)
def test_codecs_of_version_3(tmp_path, name):
    for array in [smooth((70, 53), "<f8"), items((70, 53), "<i2"), smooth((33, 7), "u1")]:
        chunks = (32, 20) if array.shape[0] > 40 else (16, 7)
        stored(tmp_path / "a.zarr", array, chunks, compressors=V3_CODECS[name])
        flat = esker.rearrange(tmp_path / "a.zarr", "h w -> w h", memory="1MiB")
        assert same(flat, array.T)
        out = tmp_path / "b.zarr"
        assert esker.rearrange(tmp_path / "a.zarr", "h w -> w h", out, force=True) == str(out)
        assert same(read(out), array.T)
        described = json.loads((out / "zarr.json").read_text())
        assert described["chunk_grid"]["configuration"]["chunk_shape"] == list(chunks[::-1])
        kept = [codec["name"] for codec in described["codecs"][1:]]
        assert kept == [part.split()[0] for part in name.split(", ") if part != "none"]


@pytest.mark.parametrize("name", V2_COMPRESSORS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_codecs_of_version_2(tmp_path, name, order):
    array = smooth((41, 30, 3), ">i4")
    options = {"zarr_format": 2, "compressors": V2_COMPRESSORS[name], "order": order}
    stored(tmp_path / "a.zarr", array, (10, 7, 2), **options)
    expected = np.transpose(array, (2, 0, 1))
    assert same(esker.rearrange(tmp_path / "a.zarr", "a b c -> c a b", memory="1MiB"), expected)
    out = tmp_path / "b.zarr"
    esker.rearrange(tmp_path / "a.zarr", "a b c -> c a b", out)
    assert same(read(out), expected)
    assert zarr.open_array(out).metadata.zarr_format == 2
    third = tmp_path / "c.zarr"
    esker.rearrange(out, "c a b -> a b c", third, zarr_format=3, compressor="blosc")
    assert same(read(third), array)


def random_chunks(rng, shape):
    return tuple(int(rng.integers(1, size + 3)) for size in shape)


def test_random_arrays(tmp_path, budget):
    rng = np.random.default_rng(11)
    dtypes = ["|u1", "<i2", ">f4", "<f8", "<c16", "|V6"]
    many = 0
    for number in range(120 * budget):
        count = int(rng.integers(1, 5))
        shape = tuple(int(size) for size in rng.integers(1, [0, 2000, 70, 20, 9][count], count))
        array = items(shape, dtypes[number % 6], seed=number)
        order = rng.permutation(count)
        names = "abcd"[:count]
        right = " ".join(("-" if rng.random() < 0.2 else "") + names[dim] for dim in order)
        pattern = f"{' '.join(names)} -> {right}"
        flips = tuple(
            slice(None, None, -1 if name.startswith("-") else 1) for name in right.split()
        )
        expected = np.transpose(array, order)[flips]
        chunks = random_chunks(rng, shape)
        fmt = 2 + number % 2
        codecs = (list(V2_COMPRESSORS.values()) if fmt == 2 else list(V3_CODECS.values()))
        compressors = None if rng.random() < 0.5 else codecs[int(rng.integers(len(codecs)))]
        options = {"zarr_format": fmt, "compressors": compressors}
        if fmt == 2:
            options["order"] = "CF"[int(rng.integers(2))]
        elif rng.random() < 0.3:
            options["filters"] = [
                zarr.codecs.TransposeCodec(order=tuple(int(d) for d in rng.permutation(count)))
            ]
        if rng.random() < 0.3:
            options["chunk_key_encoding"] = {
                "name": "v2" if fmt == 2 else "default",
                "separator": "/" if fmt == 2 else ".",
            }
        stored(tmp_path / "a.zarr", array, chunks, **options)
        memory = int(rng.integers(128 << 10, 2 << 20))
        goal = ["to.npy", "to.zarr", "to.zarr"][number % 3]
        wanted = {}
        if goal == "to.zarr" and number % 2:
            wanted = {
                "chunks": random_chunks(rng, expected.shape),
                "compressor": ["none", "zstd", "gzip", "blosc"][int(rng.integers(4))],
                "zarr_format": int(rng.integers(2, 4)),
            }
        out = tmp_path / goal
        plan = esker.plan(
            tmp_path / "a.zarr", pattern, out, memory=memory, force=True, **wanted
        )
        many += len(plan.passes) > 1
        esker.rearrange(
            tmp_path / "a.zarr", pattern, out, memory=memory, force=True, **wanted
        )
        found = np.load(out) if goal == "to.npy" else read(out)
        assert same(found, np.ascontiguousarray(expected)), (shape, pattern, chunks, wanted)
        left = sorted(os.listdir(tmp_path))
        assert all(not name.startswith(".") for name in left), left
    assert many >= 5 * budget


def test_from_npy_and_back(tmp_path):
    array = items((37, 23), "<M8[ns]")
    np.save(tmp_path / "a.npy", array)
    for fmt in (2, 3):
        out = tmp_path / f"{fmt}.zarr"
        esker.rearrange(tmp_path / "a.npy", "h w -> h w", out, chunks=(8, 30), zarr_format=fmt)
        assert same(read(out), array)
        assert same(esker.rearrange(out, "h w -> w h"), array.T)
        assert same(esker.rearrange(zarr.open_array(out), "h w -> h w"), array)


@pytest.mark.parametrize("dtype", ["?", "|S3", "<U4", "|V6", "<m8[s]", "<f2", ">c8", "<M8[25s]"])
def test_types_that_zarr_python_writes(tmp_path, dtype):
    array = items((7, 5), "|u1").astype("?") if dtype == "?" else np.zeros((7, 5), dtype)
    if dtype in ("|S3", "<U4"):
        array[2:4] = np.array(["é" if dtype == "<U4" else "e", "abc"], dtype)[:, None]
    for fmt in (2, 3):
        stored(tmp_path / "a.zarr", array, (3, 4), zarr_format=fmt)
        esker.rearrange(tmp_path / "a.zarr", "h w -> w h", tmp_path / "b.zarr", force=True)
        assert (read(tmp_path / "b.zarr") == array.T).all()
        shutil.rmtree(tmp_path / "b.zarr")
        to = 5 - fmt
        esker.rearrange(tmp_path / "a.zarr", "h w -> w h", tmp_path / "b.zarr", zarr_format=to)
        assert (read(tmp_path / "b.zarr") == array.T).all()


@pytest.mark.parametrize("fmt", [2, 3])
@pytest.mark.parametrize("compressor", [None, "auto"])
def test_chunks_that_are_missing_are_the_fill_value(tmp_path, fmt, compressor):
    made = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(30, 20),
        chunks=(8, 8),
        dtype=">f4",
        fill_value=-1.5,
        zarr_format=fmt,
        compressors=compressor,
    )
    made[9:12, 3:17] = 7
    expected = np.asarray(made[...])
    assert same(esker.rearrange(tmp_path / "a.zarr", "h w -> w h"), expected.T)
    esker.rearrange(tmp_path / "a.zarr", "h w -> w h", tmp_path / "b.zarr", chunks=(5, 16))
    assert same(read(tmp_path / "b.zarr"), expected.T)
    assert zarr.open_array(tmp_path / "b.zarr").fill_value == -1.5


def test_attributes_and_names_of_dimensions_go_along(tmp_path):
    array = items((6, 4), "<i4")
    made = stored(tmp_path / "a.zarr", array, (3, 2), dimension_names=["y", "x"])
    made.attrs["unit"] = "m"
    esker.rearrange(tmp_path / "a.zarr", "h w -> w h", tmp_path / "b.zarr")
    turned = zarr.open_array(tmp_path / "b.zarr")
    assert turned.metadata.dimension_names == ("x", "y") and turned.attrs["unit"] == "m"
    esker.rearrange(tmp_path / "b.zarr", "h w -> w h", tmp_path / "c.zarr", zarr_format=2)
    attributes = dict(zarr.open_array(tmp_path / "c.zarr").attrs)
    assert attributes == {"unit": "m", "_ARRAY_DIMENSIONS": ["y", "x"]}
    esker.rearrange(tmp_path / "c.zarr", "h w -> (w h)", tmp_path / "d.zarr", chunks=(24,))
    assert dict(zarr.open_array(tmp_path / "d.zarr").attrs) == {"unit": "m"}


def test_patterns_with_tiles(tmp_path):
    array = items((24, 15), "<i4")
    stored(tmp_path / "a.zarr", array, (10, 4))
    out = tmp_path / "b.zarr"
    esker.rearrange(tmp_path / "a.zarr", "(h t) w -> h w t", out, chunks=(1, 15, 4), t=8)
    assert same(read(out), np.ascontiguousarray(array.reshape(3, 8, 15).transpose(0, 2, 1)))


def test_arrays_that_cannot_be_used(tmp_path):
    array = items((6, 4), "<i4")
    stored(tmp_path / "a.zarr", array, (3, 2))
    zarr.create_group(tmp_path / "group.zarr")
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.zarr").write_text("kept")

    def refused(source, out="out.zarr", **options):
        with pytest.raises(esker.Error) as caught:
            esker.rearrange(tmp_path / source, "h w -> w h", tmp_path / out, **options)
        text = str(caught.value)
        assert "\n" not in text
        return text

    assert "group" in refused("group.zarr")
    assert "no Zarr array" in refused("empty")
    assert "exists" in refused("a.zarr", "note.zarr", force=True)
    assert "exists" in refused("a.zarr", "empty", force=True, chunks=(2, 2))
    assert "exists" in refused("a.zarr", "group.zarr", force=True)
    assert "the input itself" in refused("a.zarr", "a.zarr", force=True)
    assert "end the name in .zarr" in refused("a.zarr", "out.npy", chunks=(2, 2))
    assert "dimensions" in refused("a.zarr", chunks=(2,))
    assert "size of 0" in refused("a.zarr", chunks=(0, 2))
    assert "not known" in refused("a.zarr", compressor="lzma")
    stored(tmp_path / "b.zarr", array, (3, 2))
    assert "force=True" in refused("a.zarr", "b.zarr")
    esker.rearrange(tmp_path / "a.zarr", "h w -> w h", tmp_path / "b.zarr", force=True)
    assert same(read(tmp_path / "b.zarr"), array.T)
    # A chunk that is damaged, cut, or too long.
    coded = [zarr.codecs.GzipCodec(level=1), zarr.codecs.Crc32cCodec()]
    for compressors in [None, coded]:
        stored(tmp_path / "a.zarr", array, (3, 2), compressors=compressors)
        chunk = tmp_path / "a.zarr" / "c" / "1" / "0"
        whole = chunk.read_bytes()
        chunk.write_bytes(whole[:-1])
        assert "c/1/0" in refused("a.zarr")
    chunk.write_bytes(whole[:5] + bytes([whole[5] ^ 1]) + whole[6:])
    assert "checksum" in refused("a.zarr")
    chunk.write_bytes(whole + bytes(100_000))
    assert "longer" in refused("a.zarr")
    with pytest.raises(esker.Error, match="memory"):
        big = smooth((1000, 1000), "<f8")
        stored(tmp_path / "big.zarr", big, (1000, 1000), compressors=coded)
        esker.rearrange(tmp_path / "big.zarr", "h w -> w h", memory="4MiB")
    sharded = zarr.create_array(
        tmp_path / "s.zarr", shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="<i4"
    )
    sharded[...] = 1
    assert "shards" in refused("s.zarr")
    assert not (tmp_path / "out.zarr").exists()
    assert all(not name.startswith(".") for name in os.listdir(tmp_path))


def test_arrays_of_no_dimensions_or_items(tmp_path):
    for fmt in (2, 3):
        made = zarr.create_array(
            tmp_path / f"a{fmt}.zarr", shape=(), chunks=(), dtype="<i4", zarr_format=fmt
        )
        made[...] = 5
        esker.rearrange(tmp_path / f"a{fmt}.zarr", " -> ", tmp_path / f"b{fmt}.zarr")
        assert read(tmp_path / f"b{fmt}.zarr") == 5
    zarr.create_array(tmp_path / "e.zarr", shape=(0, 4), chunks=(1, 2), dtype="<i4")
    out = tmp_path / "f.zarr"
    esker.rearrange(tmp_path / "e.zarr", "a b -> b a", out, chunks=(2, 1))
    assert read(out).shape == (4, 0)
