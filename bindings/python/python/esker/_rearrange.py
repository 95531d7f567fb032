"""Rearranging, and plans of it."""

from __future__ import annotations

import operator
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Sequence

import numpy as np

from ._errors import ArgumentError, ArgumentTypeError, PatternError
from ._esker import Job, parse_bytes
from ._source import UNNAMED, sizes_of, source_of

if TYPE_CHECKING:
    from ._esker import Options


@dataclass(frozen=True)
class Pass:
    """The figures of one pass over the data."""

    #: Records that are in memory at the same time, in bytes.
    load_bytes: int
    #: The size of a read, the number of reads, and the number of times that each is made.
    segment_bytes: int
    segments: int
    waste: int
    #: The size of a write, the number of writes, and the number of runs of the result that they
    #: are parts of.
    flush_bytes: int
    flushes: int
    partitions: int


@dataclass(frozen=True, repr=False)
class Plan:
    """The plan of a call of `rearrange`. Its text is the plan in words."""

    #: Sizes of the dimensions of the result; None where short tiles make it no array.
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]
    #: Bytes of the items, which every pass reads and writes.
    nbytes: int
    passes: tuple[Pass, ...]
    #: The seconds that the device is expected to take.
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

    def job(self, target: str | None) -> Job:
        """Look at the files and plan.

        Without a target the result is a file without a name in the folder of the source.
        """
        for name, size in self.sizes.items():
            if not isinstance(size, (int, np.integer)) or not 0 <= size < 2**63:
                raise ArgumentError(f"{name}={size!r}: the size of an axis is a whole number")
        if self.zarr_format not in (None, 2, 3):
            raise ArgumentError(f"Zarr has versions 2 and 3, not {self.zarr_format!r}")
        if not isinstance(self.pattern, str):
            raise ArgumentTypeError(f"the pattern is text, not {self.pattern!r}")
        if self.compressor is not None and not isinstance(self.compressor, str):
            raise ArgumentTypeError(f"a compressor is given by its name, not {self.compressor!r}")
        options: Options = {
            "memory": _budget(self.memory),
            "sizes": {name: int(size) for name, size in self.sizes.items()},
            "bare": None,
            "chunks": None if self.chunks is None else sizes_of("chunks", self.chunks),
            "compressor": self.compressor,
            "zarr_format": self.zarr_format,
            "force": bool(self.force),
        }
        with source_of(self.src, self.shape, self.dtype) as source:
            options["bare"] = source.bare
            if target is not None:
                return Job(source.path, self.pattern, target, options)
            hidden = os.path.join(source.folder, f".esker-{uuid.uuid4().hex}.raw")
            job = Job(source.path, self.pattern, hidden, options)
        if job.short_tiles is not None:
            raise PatternError(
                f"{job.short_tiles}: give sizes that do, or out='….raw' for tile after tile, the "
                "last ones short"
            )
        return job


def _budget(memory: Any) -> int:
    if isinstance(memory, str):
        return parse_bytes(memory)
    if isinstance(memory, float) and memory.is_integer():
        memory = int(memory)
    try:
        return min(max(operator.index(memory), 0), 2**63 - 1)
    except TypeError:
        text = f"memory is bytes, or text such as '64MiB', not {memory!r}"
        raise ArgumentTypeError(text) from None


def _target(out: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(out)
    except TypeError:
        raise ArgumentTypeError(f"out is a path, not {out!r}") from None


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
    """Rearrange an array of any size from file to file, in bounded memory.

    `src` is a path (of a file, or of the folder of a Zarr array), a `numpy.memmap`, whose file is
    read, not its pages, or a `zarr.Array` in a local folder. `pattern` is that of einops'
    `rearrange`; `-name` on the right flips an axis; `sizes` are sizes of axes by name. One that
    does not divide its dimension makes the last tile short, which a .raw or .bin file alone can
    hold: any other result is refused with `PatternError`.

    `out` is a path that ends in .npy, .raw, .bin or .zarr, and appears complete or not at all; of a
    symbolic link it is the target of the link. Without it the result is a file without a name, on
    the file system of `src`, that lasts as long as the array which is returned.

    `chunks`, `compressor` (none, gzip, zlib, zstd or blosc) and `zarr_format` (2 or 3) describe the
    Zarr array that is made; the default of each is as in `src`. `force` replaces `out` if it
    exists.

    `memory` bounds all buffers, in bytes or as "256MiB". `shape` and `dtype` describe a file of
    bare items.

    Returns the result as a read-only `numpy.memmap`, flat where the last tiles are short; of a Zarr
    array the path. A bare result without items is an ordinary array: no pages can be mapped.

    Groups above a Zarr array that have consolidated metadata get the array in there too; where that
    cannot be done, a `MetadataWarning` says so.
    """
    request = _Request(
        src, pattern, memory, sizes, shape, dtype, chunks, compressor, zarr_format, force
    )
    if out is None:
        if chunks is not None or compressor is not None or zarr_format is not None:
            raise ArgumentError("a Zarr array needs a name: give out='….zarr'")
        return _temporary(request)
    target = _target(out)
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
    """Return the plan of `rearrange` with the same arguments; nothing is written."""
    request = _Request(
        src, pattern, memory, sizes, shape, dtype, chunks, compressor, zarr_format, force
    )
    job = request.job(None if out is None else _target(out))
    return Plan(
        shape=None if job.shape is None else tuple(job.shape),
        dtype=np.dtype(job.descr),
        nbytes=job.payload_bytes,
        passes=tuple(Pass(**figures) for figures in job.passes()),
        seconds=job.seconds,
        text="\n".join(job.describe()),
    )


def _temporary(request: _Request) -> np.ndarray[Any, Any]:
    """Return the result in a file without a name, which is freed with its last mapped page."""
    job = request.job(None)
    file = os.fdopen(job.run_unnamed(), "rb")
    try:
        array = _mapped(file, job)
        # Views hold the pages, not the array.
        pages = getattr(array, "_mmap", None)
    except BaseException:
        file.close()
        raise
    if pages is None:
        file.close()
    else:
        UNNAMED[pages] = file
    return array


def _mapped(path: str | BinaryIO, job: Job) -> np.ndarray[Any, Any]:
    dtype = np.dtype(job.descr)
    shape = (job.payload_bytes // dtype.itemsize,) if job.shape is None else tuple(job.shape)
    if job.payload_bytes == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)
