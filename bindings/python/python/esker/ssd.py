"""Simulated SSDs: what flash memory does for a host's reads and writes.

`simulate` replays arrays of requests on a NAND flash device with a translation layer, and returns
write amplification, wear, reads, programs and erases by cause, and latencies. It needs numpy, and
no device.
"""

from __future__ import annotations

import json
import operator
from typing import Any, Dict, Optional, Tuple

import numpy as np

from ._errors import ArgumentError, ArgumentTypeError
from ._esker import simulate_ssd

__all__ = ["simulate"]

#: Requests that are converted at a time: the arrays may be memory maps of any length.
_CHUNK = 1 << 16
#: The columns of requests.
_NAMES = ("offsets", "sizes", "is_write", "times", "streams")


def simulate(
    offsets: Any,
    sizes: Any,
    is_write: Any,
    *,
    times: Any = None,
    streams: Any = None,
    preset: str = "mqsim",
    channels: Optional[int] = None,
    dies: Optional[int] = None,
    planes: Optional[int] = None,
    blocks: Optional[int] = None,
    pages: Optional[int] = None,
    page_size: Optional[int] = None,
    capacity: Optional[int] = None,
    ftl: str = "page",
    gc: str = "greedy",
    op: float = 7.0,
    placement: str = "none",
    seed: int = 0,
    qd: Optional[int] = None,
    timed: bool = False,
    warm_up: float = 2.0,
    fresh: bool = False,
    wrap: bool = False,
) -> Dict[str, Any]:
    """Replay requests on a simulated SSD and return the report of `esker flash sim --json`.

    `offsets` and `sizes` are arrays of bytes, `is_write` of truth values, all of one length; a
    scalar stands for an array of equal items. `times` are nanoseconds since any moment, which
    `timed` replays at. `streams` are numbers from 0 to 255 that say what the bytes of a request are
    for. Arrays are read a piece at a time, so that memory maps of any length are
    not loaded.

    The device is a `preset`, with `blocks` per plane, `channels`, `dies` per channel, `planes` per
    die, `pages` per block and `page_size` in bytes in place of its own, and `op` percent of spare
    blocks; or as many blocks as give the host `capacity` MiB. With `placement="streams:N"` each of
    N streams has blocks of its own, which come on top, and with `"purpose"` the streams are those
    of a recorded trace of `esker flash record`. `ftl` is the translation layer, `gc` the policy of
    its garbage collection.

    Before the first request the device is filled, and overwritten `warm_up` times at random, which
    counts as nothing; `fresh` leaves it empty. Requests behind its end raise `ArgumentError`,
    unless addresses `wrap`.

    Without `qd` and `timed` the simulation has no clock, and counts alone. `qd` keeps as many
    requests outstanding; `timed` issues them at their `times`.

    The same arguments give the same report. Other threads of Python run meanwhile, and an
    interrupt ends the simulation.
    """
    requests = _Requests(offsets, sizes, is_write, times, streams)
    if placement != "none" and streams is None:
        raise ArgumentError("placement is by the streams of the requests: give streams")
    if timed and times is None:
        raise ArgumentError("timed replays the requests at their times: give times")
    settings = {
        "preset": preset,
        "channels": channels,
        "dies": dies,
        "planes": planes,
        "blocks": blocks,
        "pages": pages,
        "page-size": page_size,
        "capacity": capacity,
        "ftl": ftl,
        "gc": gc,
        "op": op,
        "placement": placement,
        "seed": seed,
        "qd": qd,
        "timed": bool(timed),
        "warm-up": warm_up,
        "fresh": bool(fresh),
        "wrap": bool(wrap),
    }
    given = [(name, _text(name, value)) for name, value in settings.items() if value is not None]
    report: Dict[str, Any] = json.loads(simulate_ssd(given, len(requests), requests.chunk))
    return report


def _text(name: str, value: Any) -> str:
    """A setting as the command would have it."""
    if isinstance(value, (str, bool)):
        return value if isinstance(value, str) else str(value).lower()
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    try:
        return str(operator.index(value))
    except TypeError:
        text = f"{name} is a number or a name, not {type(value).__name__}"
        raise ArgumentTypeError(text) from None


class _Requests:
    """Arrays of requests, read in chunks."""

    def __init__(
        self, offsets: Any, sizes: Any, is_write: Any, times: Any, streams: Any
    ) -> None:
        given = (offsets, sizes, is_write, times, streams)
        kinds = ("iu", "iu", "biu", "iu", "iu")
        columns = [
            None if index > 2 and column is None else _column(_NAMES[index], column, kinds[index])
            for index, column in enumerate(given)
        ]
        lengths = {len(column) for column in columns if column is not None and column.ndim}
        if len(lengths) > 1:
            raise ArgumentError(f"the arrays have different lengths: {sorted(lengths)}")
        self._length: int = lengths.pop() if lengths else 1
        self._columns = columns

    def __len__(self) -> int:
        return self._length

    def chunk(self, start: int) -> Tuple[bytes, ...]:
        """The requests from `start` on, each column as bytes: little-endian words, or one byte for
        truth values and streams. A column that was not given is empty."""
        end = min(start + _CHUNK, self._length)
        return tuple(self._bytes(index, start, end) for index in range(len(self._columns)))

    def _bytes(self, index: int, start: int, end: int) -> bytes:
        column = self._columns[index]
        if column is None:
            return b""
        part = column[start:end] if column.ndim else np.broadcast_to(column, end - start)
        if index == 2:
            flags: bytes = (part != 0).astype(np.uint8).tobytes()
            return flags
        if part.dtype.kind == "i" and part.size and part.min() < 0:
            where = start + int(np.argmin(part))
            raise ArgumentError(f"{_NAMES[index]}[{where}] is {part.min()}: it cannot be negative")
        if index == 4:
            if part.size and part.max() > 255:
                where = start + int(np.argmax(part))
                raise ArgumentError(f"streams[{where}] is {part.max()}: it is at most 255")
            numbers: bytes = part.astype(np.uint8).tobytes()
            return numbers
        return part.astype("<u8").tobytes()


def _column(name: str, given: Any, kinds: str) -> np.ndarray[Any, Any]:
    column = given if isinstance(given, np.ndarray) else np.asarray(given)
    if column.ndim > 1:
        raise ArgumentError(f"{name} has {column.ndim} dimensions: give one")
    if column.dtype.kind not in kinds and column.size:
        what = "truth values" if "b" in kinds else "whole numbers"
        raise ArgumentTypeError(f"{name} has items of type {column.dtype}: give {what}")
    return column
