"""Files that are read and written, where names lead elsewhere than they seem to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import esker
import numpy as np
import pytest
from conftest import items, same
from esker import _source


@pytest.fixture
def mapped(tmp_path):
    """A map of a file."""
    array = items((6, 4), "<i4")
    np.save(tmp_path / "from.npy", array)
    return np.load(tmp_path / "from.npy", mmap_mode="r"), array


def test_a_map_is_its_own_file_and_no_other_of_its_name(mapped, tmp_path):
    source, array = mapped
    path = tmp_path / "from.npy"
    np.save(tmp_path / "other.npy", np.zeros((6, 4), "<i4"))
    os.replace(tmp_path / "other.npy", path)
    with pytest.raises(esker.FileError, match="moved, replaced or removed"):
        esker.rearrange(source, "a b -> b a")
    with pytest.raises(esker.FileError, match="moved, replaced or removed"):
        esker.plan(source, "a b -> b a")
    os.remove(path)
    with pytest.raises(esker.FileError, match="moved, replaced or removed"):
        esker.rearrange(source, "a b -> b a", tmp_path / "to.npy")
    assert os.listdir(tmp_path) == []
    path.touch()
    with pytest.raises(esker.FileError, match="another file under its name"):
        esker.rearrange(source, "a b -> b a")
    os.remove(path)
    os.mkfifo(path)
    with pytest.raises(esker.FileError, match="another file under its name"):
        esker.rearrange(source, "a b -> b a")
    os.remove(path)
    np.save(path, array)
    again = np.load(path, mmap_mode="r")
    # Another name of the same file is as good.
    os.link(path, tmp_path / "linked.npy")
    os.remove(path)
    os.rename(tmp_path / "linked.npy", path)
    assert same(esker.rearrange(again, "a b -> b a"), array.T)


def test_a_map_that_is_read_by_its_name_is_found(mapped, tmp_path, monkeypatch):
    """A test that cannot fail proves nothing."""
    monkeypatch.setattr(_source, "_is_mapped", lambda file, address: True)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_map_is_its_own_file_and_no_other_of_its_name(mapped, tmp_path)


def test_a_map_is_found_from_another_folder(mapped, tmp_path, monkeypatch):
    source, array = mapped
    monkeypatch.chdir("/")
    assert same(esker.rearrange(source[2:4], "a b -> b a"), array[2:4].T)


def test_a_link_is_written_through(mapped, tmp_path):
    _, array = mapped
    (tmp_path / "data").mkdir()
    os.symlink("data/far.npy", tmp_path / "near.npy")
    # As numpy.save: what a link leads to need not be there.
    found = esker.rearrange(tmp_path / "from.npy", "a b -> b a", tmp_path / "near.npy")
    assert same(found, array.T)
    assert (tmp_path / "near.npy").is_symlink() and not (tmp_path / "data/far.npy").is_symlink()
    with pytest.raises(esker.FileError, match="force=True"):
        esker.rearrange(tmp_path / "from.npy", "a b -> a b", tmp_path / "near.npy")
    esker.rearrange(tmp_path / "from.npy", "a b -> a b", tmp_path / "near.npy", force=True)
    assert (tmp_path / "near.npy").is_symlink()
    assert same(np.load(tmp_path / "data/far.npy"), array)
    os.symlink("data/far.zarr", tmp_path / "near.zarr")
    for chunks in [(2, 2), (3, 3)]:
        out = tmp_path / "near.zarr"
        esker.rearrange(tmp_path / "from.npy", "a b -> b a", out, chunks=chunks, force=True)
    assert (tmp_path / "near.zarr").is_symlink() and (tmp_path / "data/far.zarr/zarr.json").exists()
    assert sorted(os.listdir(tmp_path / "data")) == ["far.npy", "far.zarr"]


def test_no_text_of_python_names_a_flag(mapped, tmp_path):
    path = tmp_path / "from.npy"
    np.save(tmp_path / "empty.npy", np.zeros((37, 0)))
    (tmp_path / "bare.raw").write_bytes(bytes(96))
    texts = []
    for source, out, options in [
        (path, "o.zarr", {}),
        (path, "o.zarr", {"chunks": (2,)}),
        (path, "from.npy", {}),
        (path, "o.npy", {"memory": 1}),
        (tmp_path / "empty.npy", "o.zarr", {}),
        (tmp_path / "bare.raw", "o.npy", {}),
        (tmp_path / "bare.raw", "o.npy", {"shape": (2, 2), "dtype": "<f8"}),
        (path, "o.npy", {"chunks": (2, 2)}),
        (path, "o.npy", {"shape": (2, 2)}),
        (path, "o.txt", {}),
    ]:
        with pytest.raises(esker.Error) as caught:
            esker.rearrange(source, "a b -> b a", tmp_path / out, **options)
        texts.append(str(caught.value))
    with pytest.raises(esker.Error) as caught:
        esker.rearrange(path, "a (b c) -> a b c", tmp_path / "o.zarr", c=3, chunks=(1, 1, 1))
    texts.append(str(caught.value))
    assert all("--" not in text and "\n" not in text for text in texts), texts
    assert "chunks=(4, 6)" in texts[0] and "chunks=(1, 37)" in texts[4], texts
    assert 'memory="64KiB"' in texts[3]


def test_a_killed_process_leaves_nothing(tmp_path):
    """Neither with a result that it makes nor with one that it holds."""
    np.save(tmp_path / "from.npy", items((1500, 1300), "<f8"))
    script = textwrap.dedent(
        """
        import sys, esker
        path, out = sys.argv[1:]
        kept = esker.rearrange(path, "h w -> w h", memory="8MiB")
        print("made", flush=True)
        while True:
            esker.rearrange(path, "h w -> w h", out, memory="64KiB", force=True)
        """
    )
    for out, number in [("o.npy", signal.SIGKILL), ("o.npy", signal.SIGHUP)]:
        command = [sys.executable, "-c", script, tmp_path / "from.npy", tmp_path / out]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout.readline() == "made\n"
            child.send_signal(number)
            try:
                assert child.wait(timeout=30) == -number
            finally:
                # Where the signal is ignored, it would be waited for without end.
                child.kill()
        assert set(os.listdir(tmp_path)) <= {"from.npy", "o.npy"}


class Elsewhere:
    """Of zarr-python, by its names: a store that is no folder, with a path that is one."""

    def __init__(self, kind, **attributes):
        self.__class__ = type(kind, (), {"__module__": "zarr.storage"})
        self.__dict__.update(attributes)


def array_in(store, path="", **attributes):
    array = Elsewhere("Array", store=store, path=path, **attributes)
    array.__class__.__module__ = "zarr.core.array"
    return array


def test_a_zarr_array_is_read_from_a_folder_of_its_own_alone(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3", reason="version 3 of zarr-python")
    local = items((6, 4), "<i4")
    made = zarr.create_array(tmp_path / "a.zarr", shape=(6, 4), chunks=(3, 2), dtype="<i4")
    made[...] = local
    assert same(esker.rearrange(zarr.open_array(tmp_path / "a.zarr"), "a b -> b a"), local.T)
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("x/y", shape=(6, 4), chunks=(3, 2), dtype="<i4")[...] = local
    assert same(esker.rearrange(group["x/y"], "a b -> b a"), local.T)
    # Stores that have a path, or a root, which is not where the array is.
    folder = str(tmp_path / "a.zarr")
    for store in [
        Elsewhere("FsspecStore", path=folder),
        Elsewhere("FSStore", path=folder),
        Elsewhere("ZipStore", path=folder, root=folder),
        Elsewhere("N5Store", path=folder),
        Elsewhere("LRUStoreCache", path=folder),
        Elsewhere("MemoryStore"),
        zarr.storage.MemoryStore(),
        type("LocalStore", (), {"root": folder})(),
        type("Mine", (zarr.storage.LocalStore,), {})(folder),
    ]:
        with pytest.raises(esker.ArgumentError, match="not in a folder of files"):
            esker.rearrange(array_in(store), "a b -> b a")
    memory = zarr.storage.MemoryStore()
    far = zarr.create_array(memory, shape=(6, 4), chunks=(3, 2), dtype="<i4", zarr_format=2)
    with pytest.raises(esker.ArgumentError, match="not in a folder of files"):
        esker.rearrange(far, "a b -> b a")
    # Version 2 of zarr-python, by its names.
    store = Elsewhere("DirectoryStore", path=folder)
    assert same(esker.rearrange(array_in(store), "a b -> b a"), local.T)
    with pytest.raises(esker.ArgumentError, match="view"):
        esker.rearrange(array_in(store, is_view=True), "a b -> b a")
    with pytest.raises(esker.ArgumentError, match="chunks in another store"):
        esker.rearrange(array_in(store, chunk_store=Elsewhere("DirectoryStore")), "a b -> b a")
    nested = zarr.create_array(
        tmp_path / "n.zarr",
        shape=(6, 4),
        chunks=(3, 2),
        dtype="<i4",
        zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    nested[...] = local
    store = Elsewhere("NestedDirectoryStore", path=str(tmp_path / "n.zarr"))
    assert same(esker.rearrange(array_in(store), "a b -> b a"), local.T)
    metadata = json.loads((tmp_path / "n.zarr/.zarray").read_text())
    del metadata["dimension_separator"]
    (tmp_path / "n.zarr/.zarray").write_text(json.dumps(metadata))
    with pytest.raises(esker.ArgumentError, match="nested"):
        esker.rearrange(array_in(store), "a b -> b a")


class EveryStore(dict):
    """Takes every store that says where it is for a folder."""

    def get(self, kind, default=None):
        return super().get(kind, "root" if kind[1] == "ZipStore" else "path")


def test_a_zarr_store_that_is_taken_for_a_folder_is_found(tmp_path, monkeypatch):
    """A test that cannot fail proves nothing."""
    monkeypatch.setattr(_source, "_FOLDERS", EveryStore(_source._FOLDERS))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_zarr_array_is_read_from_a_folder_of_its_own_alone(tmp_path)


@pytest.mark.parametrize("fmt", [2, 3])
def test_consolidated_metadata_has_what_is_made_below_it(tmp_path, fmt):
    zarr = pytest.importorskip("zarr", minversion="3", reason="version 3 of zarr-python")
    array = items((6, 4), "<i4")
    np.save(tmp_path / "from.npy", array)
    root = zarr.create_group(tmp_path / "r.zarr", zarr_format=fmt)
    inner = root.create_group("deep/inner")
    # Numbers that no 64 bits hold stay as they are.
    inner.attrs["large"] = 2**70
    inner.attrs["exact"] = 0.1 + 0.2
    root.create_array("there", shape=(3,), chunks=(2,), dtype="<f8", fill_value=1e-300)
    zarr.consolidate_metadata(tmp_path / "r.zarr/deep", zarr_format=fmt)
    zarr.consolidate_metadata(tmp_path / "r.zarr", zarr_format=fmt)
    out = tmp_path / "r.zarr/deep/inner/new"
    options = {"zarr_format": fmt, "compressor": "zstd", "force": True}
    for chunks, pattern in [((2, 2), "a b -> b a"), ((3, 4), "a b -> a b")]:
        esker.rearrange(tmp_path / "from.npy", pattern, out, chunks=chunks, **options)
        expected = array if pattern.endswith("a b") else array.T
        for path, name in [("r.zarr", "deep/inner/new"), ("r.zarr/deep", "inner/new")]:
            group = zarr.open_group(tmp_path / path, mode="r", use_consolidated=True)
            assert group[name].chunks == chunks
            assert same(np.asarray(group[name][...]), expected)
    group = zarr.open_group(tmp_path / "r.zarr", mode="r", use_consolidated=True)
    assert dict(group["deep/inner"].attrs) == {"large": 2**70, "exact": 0.1 + 0.2}
    assert group["there"].fill_value == 1e-300
    # What zarr-python would make of it all is the same.
    name = ".zmetadata" if fmt == 2 else "zarr.json"
    ours = json.loads((tmp_path / "r.zarr" / name).read_text())
    zarr.consolidate_metadata(tmp_path / "r.zarr", zarr_format=fmt)
    theirs = json.loads((tmp_path / "r.zarr" / name).read_text())
    metadata = ["metadata"] if fmt == 2 else ["consolidated_metadata", "metadata"]
    for key in metadata:
        ours, theirs = ours[key], theirs[key]
    assert set(ours) - {"deep/inner/new/.zattrs"} == set(theirs) - {"deep/inner/new/.zattrs"}
    assert all(not name.startswith(".esker") for name in os.listdir(tmp_path / "r.zarr"))


def test_consolidated_metadata_that_cannot_be_changed_is_a_warning(tmp_path):
    zarr = pytest.importorskip("zarr", minversion="3", reason="version 3 of zarr-python")
    np.save(tmp_path / "from.npy", items((6, 4), "<i4"))
    zarr.create_group(tmp_path / "r.zarr", zarr_format=2)
    (tmp_path / "r.zarr/.zmetadata").write_text('{"metadata": {"a": NaN}}')
    out = tmp_path / "r.zarr/new"
    with pytest.warns(esker.MetadataWarning, match="zarr.consolidate_metadata"):
        esker.rearrange(tmp_path / "from.npy", "a b -> b a", out, chunks=(2, 2), zarr_format=2)
    assert zarr.open_array(out).shape == (4, 6)
    assert (tmp_path / "r.zarr/.zmetadata").read_text() == '{"metadata": {"a": NaN}}'
