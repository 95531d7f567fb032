"""Values as files: read from any place, written as they come."""

from __future__ import annotations

import io
import operator
import os
from typing import TYPE_CHECKING

from ._errors import ArgumentError, ArgumentTypeError, ClosedError

if TYPE_CHECKING:
    from typing import NoReturn

    from typing_extensions import Buffer, Self

    from . import _esker
    from ._types import _Durability

#: The bytes that `readall` reads in one call.
_READ_BYTES = 1 << 20


class ValueReader(io.RawIOBase):
    """A value as a file to be read, made by `reader` of a keyspace.

    It is the value at the time when the reader was made, whatever is written meanwhile. A blob is
    read in pieces of 64 KiB; each is checked before any of its bytes are returned. A reader holds
    old versions as a snapshot does: use it in a `with` block, or call `close`. `io.BufferedReader`
    makes many small reads cheap.
    """

    def __init__(self, source: _esker.ValueReader) -> None:
        self._source = source
        self._position = 0

    @property
    def nbytes(self) -> int:
        """Length of the value, in bytes."""
        return self._source.nbytes

    def readable(self) -> bool:
        self._check()
        return True

    def seekable(self) -> bool:
        self._check()
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        self._check()
        view = memoryview(buffer).cast("B")
        data = self._source.read(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check()
        parts = []
        while data := self._source.read(self._position, _READ_BYTES):
            self._position += len(data)
            parts.append(data)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check()
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.nbytes}
        if whence not in bases:
            raise ArgumentError(f"whence is 0, 1 or 2, not {whence!r}")
        position = bases[whence] + operator.index(offset)
        if not 0 <= position < 2**63:
            raise ArgumentError(f"{position} is no position in a value")
        self._position = position
        return position

    def tell(self) -> int:
        self._check()
        return self._position

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._source.close()

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the reader is closed")

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a reader cannot be pickled: it belongs to an open store")


class ValueWriter(io.RawIOBase):
    """A value as a file to be written, made by `Keyspace.writer`.

    The value may have up to 1 GiB; memory is bounded whatever its length. It is not visible before
    the end of the `with` block, or `finish`, which sets the key's value in one step. If the writer
    is closed before that, or the block raises an exception, the key is unchanged.
    """

    def __init__(self, target: _esker.ValueWriter, durability: _Durability | None) -> None:
        self._target = target
        self._durability = durability
        self._bytes = 0

    def writable(self) -> bool:
        self._check()
        return True

    def write(self, data: Buffer, /) -> int:
        self._check()
        written = self._target.write(data)
        self._bytes += written
        return written

    def tell(self) -> int:
        self._check()
        return self._bytes

    def finish(self) -> None:
        """Set the value of the key to the written bytes, and close the writer."""
        self._check()
        try:
            self._target.finish(self._durability)
        finally:
            self.close()

    def close(self) -> None:
        """Discard the written bytes, unless the writer was finished."""
        if not self.closed:
            super().close()
            self._target.close()

    def _check(self) -> None:
        if self.closed:
            raise ClosedError("the writer is closed")

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: object, *_where: object) -> None:
        if kind is None and not self.closed:
            self.finish()
        else:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a writer cannot be pickled: it belongs to an open store")
