"""Rearranging, and plans of it."""

from __future__ import annotations

import os
import uuid
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from ._errors import ArgumentError
from ._esker import Job, parse_bytes
from ._source import sizes_of, source_of

if TYPE_CHECKING:
    from ._esker import Options


@dataclass(frozen=True)
class Pass:
    """What one pass over the data does."""

    #: Records that are in memory at once, in bytes.
    load_bytes: int
    #: The size of a read, how many there are, and how often each is done.
    segment_bytes: int
    segments: int
    waste: int
    #: The size of a write, how many there are, and of how many runs of the result they are parts.
    flush_bytes: int
    flushes: int
    partitions: int


@dataclass(frozen=True, repr=False)
class Plan:
    """What would be done. Prints itself."""

    #: Sizes of the dimensions of the result; None where short tiles make it no array.
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]
    #: Bytes of the items, which every pass reads and writes.
    nbytes: int
    passes: tuple[Pass, ...]
    #: How long the device is expected to take.
    seconds: float
    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True)
class _Request:
    """The arguments of `rearrange`."""

    src: Any
    pattern: str
    memory: int | str
    sizes: dict[str, int]
    shape: Sequence[int] | None
    dtype: Any
    chunks: Sequence[int] | None
    compressor: str | None
    zarr_format: int | None
    force: bool

    def job(self, target: str) -> Job:
        """Looks at the files and plans."""
        source = source_of(self.src, self.shape, self.dtype)
        memory = self.memory
        budget = parse_bytes(memory) if isinstance(memory, str) else int(memory)
        for name, size in self.sizes.items():
            if not isinstance(size, (int, np.integer)) or not 0 <= size < 2**63:
                raise ArgumentError(f"{name}={size!r}: the size of an axis is a whole number")
        if self.zarr_format not in (None, 2, 3):
            raise ArgumentError(f"Zarr has versions 2 and 3, not {self.zarr_format!r}")
        options: Options = {
            "memory": min(max(budget, 0), 2**63 - 1),
            "sizes": {name: int(size) for name, size in self.sizes.items()},
            "bare": source.bare,
            "chunks": None if self.chunks is None else sizes_of("chunks", self.chunks),
            "compressor": self.compressor,
            "zarr_format": self.zarr_format,
            "force": self.force,
        }
        return Job(source.path, self.pattern, target, options)


def rearrange(
    src: Any,
    pattern: str,
    out: str | os.PathLike[str] | None = None,
    memory: int | str = "256MiB",
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    chunks: Sequence[int] | None = None,
    compressor: str | None = None,
    zarr_format: int | None = None,
    force: bool = False,
    **sizes: int,
) -> np.ndarray[Any, Any] | str:
    """Rearranges an array of any size from file to file, in bounded memory.

    `src` is a path (of a file, or of the folder of a Zarr array), a `numpy.memmap`, whose file is
    read, not its pages, or a `zarr.Array` in a local folder. `pattern` is that of einops'
    `rearrange`; `-name` on the right flips an axis; `sizes` are sizes of axes by name, and need not
    divide.

    `out` is a path that ends in .npy, .raw, .bin or .zarr, and appears complete or not at all;
    without it the result is a temporary file beside `src` that lasts as long as the array which is
    returned. `chunks`, `compressor` (none, gzip, zlib, zstd or blosc) and `zarr_format` (2 or 3)
    say how a Zarr array is made; what they leave open is as in `src`. `force` replaces `out` if it
    exists.

    `memory` bounds all buffers, in bytes or as "256MiB". `shape` and `dtype` describe a file of
    bare items.

    Returns the result as a read-only `numpy.memmap`, flat where the last tiles are short; of a Zarr
    array the path. A bare result without items is an ordinary array: no pages can be mapped.
    """
    request = _Request(
        src, pattern, memory, sizes, shape, dtype, chunks, compressor, zarr_format, force
    )
    if out is None:
        if chunks is not None or compressor is not None or zarr_format is not None:
            raise ArgumentError("a Zarr array needs a name: give out='….zarr'")
        return _temporary(request)
    target = os.fsdecode(out)
    job = request.job(target)
    job.run()
    if job.is_zarr:
        return target
    if target.endswith(".npy"):
        return np.lib.format.open_memmap(target, mode="r")
    return _mapped(target, job)


def plan(
    src: Any,
    pattern: str,
    out: str | os.PathLike[str] | None = None,
    memory: int | str = "256MiB",
    *,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    chunks: Sequence[int] | None = None,
    compressor: str | None = None,
    zarr_format: int | None = None,
    force: bool = False,
    **sizes: int,
) -> Plan:
    """What `rearrange` would do with the same arguments; nothing is written."""
    request = _Request(
        src, pattern, memory, sizes, shape, dtype, chunks, compressor, zarr_format, force
    )
    job = request.job(_hidden(src) if out is None else os.fsdecode(out))
    return Plan(
        shape=None if job.shape is None else tuple(job.shape),
        dtype=np.dtype(job.descr),
        nbytes=job.payload_bytes,
        passes=tuple(Pass(**figures) for figures in job.passes()),
        seconds=job.seconds,
        text="\n".join(job.describe()),
    )


def _temporary(request: _Request) -> np.ndarray[Any, Any]:
    target = _hidden(request.src)
    job = request.job(target)
    try:
        job.run()
        array = _mapped(target, job)
        # Views hold the pages, not the array.
        pages = getattr(array, "_mmap", None)
        if pages is None:
            _remove(target)
        else:
            weakref.finalize(pages, _remove, target)
    except BaseException:
        _remove(target)
        raise
    return array


def _hidden(src: Any) -> str:
    """A new name beside the source."""
    path = source_of(src, None, None).path if not isinstance(src, np.memmap) else src.filename
    # A map without a file is refused in a moment, in words.
    folder = os.path.dirname(os.path.abspath(os.fsdecode(path or "")))
    return os.path.join(folder, f".esker-{uuid.uuid4().hex}.raw")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)


def _mapped(path: str, job: Job) -> np.ndarray[Any, Any]:
    dtype = np.dtype(job.descr)
    shape = (job.payload_bytes // dtype.itemsize,) if job.shape is None else tuple(job.shape)
    if job.payload_bytes == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)
