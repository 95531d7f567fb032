"""What is rearranged: a path, the file below a memory map, or the folder of a Zarr array."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from ._errors import ArgumentError

#: Shape, type, where the items begin in the file, whether the first dimension varies fastest.
Bare = Tuple[Sequence[int], str, Optional[int], bool]


@dataclass(frozen=True)
class Source:
    """A file, and what is known of items without a header."""

    path: str
    bare: Bare | None


def source_of(src: Any, shape: Sequence[int] | None, dtype: Any) -> Source:
    """The file or folder of what is given."""
    if isinstance(src, np.memmap):
        if shape is not None or dtype is not None:
            raise ArgumentError("a memory map has its own shape and dtype: leave them out")
        return _of_memmap(src)
    if isinstance(src, np.ndarray):
        raise ArgumentError(
            "the array is in memory, where numpy.transpose and einops.rearrange are at home; "
            "give a path or a numpy.memmap"
        )
    path = _path_of(src)
    if (shape is None) != (dtype is None):
        raise ArgumentError("shape and dtype go together: they describe a file of bare items")
    if shape is None:
        return Source(path, None)
    return Source(path, (sizes_of("shape", shape), descr_of(np.dtype(dtype)), None, False))


def _path_of(src: Any) -> str:
    if isinstance(src, (str, os.PathLike)):
        return os.fsdecode(src)
    # A zarr.Array: its store has a folder, and its name is a path in there.
    store, name = getattr(src, "store", None), getattr(src, "path", None)
    if store is not None and isinstance(name, str):
        folder = getattr(store, "root", None) or getattr(store, "path", None)
        if not isinstance(folder, (str, os.PathLike)):
            raise ArgumentError("this Zarr array is not in a folder of this machine")
        return os.path.join(os.fsdecode(folder), name)
    kind = f"{type(src).__module__}.{type(src).__qualname__}"
    raise ArgumentError(f"src is a path, a numpy.memmap or a zarr.Array, not {kind}")


def sizes_of(name: str, given: Any) -> list[int]:
    """Sizes of dimensions."""
    sizes = [given] if isinstance(given, int) else list(given)
    if not all(isinstance(size, (int, np.integer)) and 0 <= size < 2**63 for size in sizes):
        raise ArgumentError(f"{name} is a tuple of sizes, not {given!r}")
    return [int(size) for size in sizes]


def descr_of(dtype: np.dtype[Any]) -> str:
    """The type as .npy files write it."""
    if dtype.hasobject:
        raise ArgumentError("Python objects have no fixed size: convert the array first")
    if dtype.fields is not None or dtype.subdtype is not None:
        raise ArgumentError(
            f"the items are records: view them as one type first, 'V{dtype.itemsize}'"
        )
    return dtype.str


def _of_memmap(array: np.memmap[Any, Any]) -> Source:
    """Where the items of a memory map lie in its file. Its pages are not touched."""
    pages = getattr(array, "_mmap", None)
    if pages is None or array.filename is None:
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
    first = np.frombuffer(pages, dtype=np.uint8).__array_interface__["data"][0]
    offset = begin + array.__array_interface__["data"][0] - first
    bare = (list(array.shape), descr_of(array.dtype), int(offset), not is_c)
    return Source(os.fsdecode(array.filename), bare)
