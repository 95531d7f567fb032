"""The source of a job: a path, the file of a memory map, or the folder of a Zarr array."""

from __future__ import annotations

import json
import mmap
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Optional, Sequence, Tuple

import numpy as np

from ._errors import ArgumentError, ArgumentTypeError, FileError

#: Shape, type, offset of the first item in the file, whether the first dimension varies fastest.
Bare = Tuple[Sequence[int], str, Optional[int], bool]

#: The files of results without a name, as long as their pages are mapped.
UNNAMED: weakref.WeakKeyDictionary[Any, BinaryIO] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Source:
    """A file, and the description of items without a header."""

    path: str
    #: The folder that it lies in, for results without a name.
    folder: str
    bare: Bare | None


@contextmanager
def source_of(src: Any, shape: Sequence[int] | None, dtype: Any) -> Iterator[Source]:
    """Yield the file or folder of a source; its path is valid within the block."""
    if isinstance(src, np.memmap):
        if shape is not None or dtype is not None:
            raise ArgumentError("a memory map has its own shape and dtype: leave them out")
        with _of_memmap(src) as source:
            yield source
        return
    if isinstance(src, np.ndarray):
        raise ArgumentError(
            "the array is in memory, where numpy.transpose and einops.rearrange are at home; "
            "give a path or a numpy.memmap"
        )
    path = _path_of(src)
    folder = os.path.dirname(os.path.abspath(path))
    if (shape is None) != (dtype is None):
        raise ArgumentError("shape and dtype go together: they describe a file of bare items")
    if shape is None:
        yield Source(path, folder, None)
    else:
        bare = (sizes_of("shape", shape), descr_of(_dtype_of(dtype)), None, False)
        yield Source(path, folder, bare)


def _dtype_of(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"dtype={dtype!r}: {error}") from None


def _path_of(src: Any) -> str:
    if isinstance(src, (str, os.PathLike)):
        return os.fsdecode(src)
    if type(src).__module__.partition(".")[0] == "zarr" and hasattr(src, "store"):
        return _of_zarr(src)
    kind = f"{type(src).__module__}.{type(src).__qualname__}"
    raise ArgumentError(f"src is a path, a numpy.memmap or a zarr.Array, not {kind}")


#: Stores of zarr-python that are a folder of files, each under its key, and the attribute for it.
_FOLDERS = {
    ("zarr", "LocalStore"): "root",
    ("zarr", "DirectoryStore"): "path",
    ("zarr", "TempStore"): "path",
    ("zarr", "NestedDirectoryStore"): "path",
}


def _of_zarr(array: Any) -> str:
    """Return the folder of an array of zarr-python, if its files alone are the array."""
    store, kind = array.store, type(array.store)
    attribute = _FOLDERS.get((kind.__module__.partition(".")[0], kind.__qualname__))
    # A store around another may change what it holds, and one that is not local has paths, too.
    if attribute is None:
        raise ArgumentError(
            f"this Zarr array is in a {kind.__qualname__}, not in a folder of files: copy it into "
            "a local one first, and give the path of that"
        )
    if getattr(array, "is_view", False) or getattr(array, "_is_view", False):
        raise ArgumentError(
            "this Zarr array is a view of another: give the other, or its path"
        )
    if getattr(array, "chunk_store", store) is not store:
        raise ArgumentError(
            "this Zarr array has its chunks in another store than its metadata: copy it into one "
            "folder first"
        )
    folder = os.path.join(os.fsdecode(getattr(store, attribute)), str(array.path).strip("/"))
    if kind.__qualname__ == "NestedDirectoryStore" and not _is_nested(folder):
        raise ArgumentError(
            "this Zarr array has nested chunks and does not say so in its metadata, as arrays of "
            "zarr-python before 2.8: write it anew first"
        )
    return folder


def _is_nested(folder: str) -> bool:
    """Return whether chunks of an array of version 2 are in folders of folders, by its metadata."""
    try:
        with open(os.path.join(folder, ".zarray"), "rb") as file:
            return bool(json.load(file).get("dimension_separator") == "/")
    except (OSError, ValueError, AttributeError):
        # The error is reported later.
        return True


def sizes_of(name: str, given: Any) -> list[int]:
    """Return the sizes of dimensions as a list."""
    try:
        sizes = [given] if isinstance(given, int) else list(given)
    except TypeError:
        raise ArgumentTypeError(f"{name} is a tuple of sizes, not {given!r}") from None
    if not all(isinstance(size, (int, np.integer)) and 0 <= size < 2**63 for size in sizes):
        raise ArgumentError(f"{name} is a tuple of sizes, not {given!r}")
    return [int(size) for size in sizes]


def descr_of(dtype: np.dtype[Any]) -> str:
    """Return the type as .npy files write it."""
    if dtype.hasobject:
        raise ArgumentError("Python objects have no fixed size: convert the array first")
    if dtype.fields is not None or dtype.subdtype is not None:
        raise ArgumentError(
            f"the items are records: view them as one type first, 'V{dtype.itemsize}'"
        )
    return dtype.str


@contextmanager
def _of_memmap(array: np.memmap[Any, Any]) -> Iterator[Source]:
    """Yield the file of a memory map, with the place of its items. Its pages are not touched."""
    pages = getattr(array, "_mmap", None)
    kept = None if pages is None else UNNAMED.get(pages)
    if pages is None or (kept is None and array.filename is None):
        raise ArgumentError("this memory map has no file of its own: give the path")
    if array.mode == "c":
        raise ArgumentError(
            "changes to a map of mode 'c' are in memory alone: open the file with mode 'r'"
        )
    is_c, is_fortran = array.flags.c_contiguous, array.flags.f_contiguous
    if not (is_c or is_fortran):
        raise ArgumentError(
            "this view leaves gaps in its file, or turns it round: give the whole memory map, "
            "and say in the pattern what is wanted"
        )
    if array.mode != "r":
        pages.flush()
    # `offset` is that of the map which a view was taken from.
    begin = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    first = _address(pages)
    offset = begin + array.__array_interface__["data"][0] - first
    bare = (list(array.shape), descr_of(array.dtype), int(offset), not is_c)
    if kept is not None:
        yield Source(_by_number(kept), _folder_of(kept), bare)
        return
    name = os.path.abspath(os.fsdecode(array.filename or ""))
    try:
        # Opening a pipe would wait for a writer.
        number = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        file = os.fdopen(number, "rb")
    except OSError as error:
        raise _moved(name, str(error.strerror)) from error
    with file:
        # The name may lead to another file by now.
        if not _is_mapped(file, first):
            raise _moved(name, "there is another file under its name")
        yield Source(_by_number(file), os.path.dirname(name), bare)


def _moved(name: str, why: str) -> FileError:
    return FileError(
        f"the file of this memory map, {name}, was moved, replaced or removed since it was mapped "
        f"({why}): give the path of the file that is meant, or map it again"
    )


def _by_number(file: BinaryIO) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _folder_of(file: BinaryIO) -> str:
    """Return the folder in which a file without a name was made."""
    return os.path.dirname(os.readlink(_by_number(file)))


def _address(pages: Any) -> int:
    return int(np.frombuffer(pages, dtype=np.uint8).__array_interface__["data"][0])


def _is_mapped(file: BinaryIO, address: int) -> bool:
    """Return whether the pages at an address are those of a file.

    A page of the file is mapped, and the system's device and file numbers of both mappings are
    compared. (Those of the file itself may differ: a layered file system has numbers of its own.)
    """
    try:
        page = mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        # It is empty, or no file.
        return False
    with page:
        return _mapping(_address(page)) == _mapping(address)


def _mapping(address: int) -> tuple[str, str]:
    """Return the device and the number of the file that is mapped at an address."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, _, device, inode, *_ = line.split(None, 5)
            begin, end = (int(bound, 16) for bound in span.split("-"))
            if begin <= address < end:
                return device, inode
    raise ArgumentError("this memory map is not mapped any more")
