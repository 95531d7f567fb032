"""History: the changes of a key, versions and their times."""

from __future__ import annotations

import operator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from typing import Iterator, SupportsIndex

    from typing_extensions import Buffer

    from ._types import _History

#: The origin of times.
_1970 = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class Change(NamedTuple):
    """A change of a key."""

    #: The version that made it: the number of the commit.
    version: int
    #: The new value; None where the key was removed.
    value: Optional[bytes]
    #: The time of the version, in UTC: see `Db.time_of`.
    time: Optional[datetime]


def _change(of: tuple[int, int | None, bytes | None]) -> Change:
    version, time, value = of
    return Change(version, value, time_at(time))


def time_at(microseconds: int | None) -> datetime | None:
    """Return the time that is so many microseconds after 1970 began."""
    return None if microseconds is None else _1970 + microseconds * _MICROSECOND


def microseconds_of(time: datetime | float) -> int:
    """Return the microseconds from 1970 to a time; those before it are at its beginning."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise ArgumentError(f"a time has a time zone, unlike {time!r}")
        return max((time - _1970) // _MICROSECOND, 0)
    try:
        microseconds = round(time * 1e6)
    except (OverflowError, ValueError):
        raise ArgumentError(f"a time is a number of seconds, not {time!r}") from None
    except TypeError:
        raise ArgumentTypeError(f"a time is a datetime, or seconds, not {time!r}") from None
    return min(max(microseconds, 0), 2**63 - 1)


def version_of(version: SupportsIndex) -> int:
    """Return a version that was given as an argument."""
    try:
        number = operator.index(version)
    except TypeError:
        raise ArgumentTypeError(f"a version is an integer, not {version!r}") from None
    if not 0 <= number < 2**64:
        raise ArgumentError(f"there is no version {number}")
    return number


def kept_history(history: _History) -> tuple[str, int] | None:
    """Return the history that an argument `history` asks for."""
    if history is True or history == "all":
        return ("all", 0)
    if history is False:
        return None
    if isinstance(history, timedelta):
        return ("for", max(history // _MICROSECOND, 0))
    refused = ArgumentError if isinstance(history, str) else ArgumentTypeError
    if isinstance(history, str) or not hasattr(history, "__index__"):
        raise refused(f"history is True, False, 'all', a timedelta or a number, not {history!r}")
    return ("newest", version_of(history))


class Histories:
    """Keys with their changes."""

    def history(self: Any, key: Buffer) -> Iterator[Change]:
        """Return the changes of `key`, newest first, as an iterator of `Change`::

            for change in prices.history(b"tea"):
                print(change.version, change.time, change.value)

        Each step costs a `get`. The iterator blocks nothing, and all versions stay readable while
        it lives. Only of a keyspace with history; others raise `ArgumentError`.
        """
        return map(_change, self._changes(key))
