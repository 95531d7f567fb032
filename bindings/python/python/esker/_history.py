"""History: changes and differences, versions, their names and their times."""

from __future__ import annotations

import operator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._errors import ArgumentError, ArgumentTypeError

if TYPE_CHECKING:
    from typing import Iterable, Iterator, SupportsIndex

    from typing_extensions import Buffer

    from ._types import _History, _Version

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


class KeyChange(NamedTuple):
    """A change of one of the keys of a keyspace."""

    #: The key.
    key: bytes
    #: The version that made it: the number of the commit.
    version: int
    #: The new value; None where the key was removed.
    value: Optional[bytes]
    #: The time of the version, in UTC: see `Db.time_of`.
    time: Optional[datetime]


class Difference(NamedTuple):
    """A key whose value is another one in the second of two versions."""

    #: The key.
    key: bytes
    #: The value in the first version; None where there was none.
    before: Optional[bytes]
    #: The value in the second version; None where there is none.
    after: Optional[bytes]


def _key_change(of: tuple[bytes, int, int | None, bytes | None]) -> KeyChange:
    key, version, time, value = of
    return KeyChange(key, version, value, time_at(time))


def _difference(of: tuple[bytes, bytes | None, bytes | None]) -> Difference:
    return Difference(*of)


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


def point_of(version: _Version) -> int | str:
    """Return a version that was given as an argument, by its number or its name."""
    return version if isinstance(version, str) else version_of(version)


def _optional(version: _Version | None) -> int | str | None:
    return None if version is None else point_of(version)


def _name(name: str) -> str:
    if isinstance(name, str):
        return name
    raise ArgumentTypeError(f"the name of a version is text, not {name!r}")


def _keys(
    start: Buffer | None, end: Buffer | None, prefix: Buffer | None
) -> tuple[Buffer | None, Buffer | None, Buffer | None]:
    if prefix is not None and (start is not None or end is not None):
        raise ArgumentError("keys are given by a prefix, or by start and end, not by both")
    return (start, end, prefix)


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


class Between:
    """What happened between two versions, and what is kept."""

    def changes(
        self: Any,
        since: _Version | None = None,
        until: _Version | None = None,
        *,
        start: Buffer | None = None,
        end: Buffer | None = None,
        prefix: Buffer | None = None,
    ) -> Iterator[KeyChange]:
        """Return the changes after version `since` and up to `until`, as `KeyChange`::

            seen = db.version
            prices[b"tea"] = b"3.60"
            assert [change.key for change in prices.changes(seen)] == [b"tea"]

        They are in the order of keys, those of a key newest first. Versions are given by number or
        name; without `since` it is all changes that are kept, without `until` those up to now. Only
        of keys with `start <= key < end`, or of those that begin with `prefix`.

        The iterator finds keys by their versions, without reading all others, and costs a `get` for
        each. It blocks nothing, and all versions stay readable while it lives. A keyspace without
        history, and a version that is not kept, raise `ArgumentError`.
        """
        keys = _keys(start, end, prefix)
        return map(_key_change, self._key_changes(_optional(since), _optional(until), keys))

    def diff(
        self: Any,
        before: _Version,
        after: _Version | None = None,
        *,
        start: Buffer | None = None,
        end: Buffer | None = None,
        prefix: Buffer | None = None,
    ) -> Iterator[Difference]:
        """Return the keys whose values differ between two versions, as `Difference`::

            for key, old, new in prices.diff("audit"):
                print(key, old, new)

        They are in the order of keys. Versions are given by number or name; without `after` it is
        the newest one. Keys are restricted and found as in `changes`, and each costs two lookups;
        where values may have expired, it looks at every key.
        """
        keys = _keys(start, end, prefix)
        return map(_difference, self._diff(point_of(before), _optional(after), keys))

    def set_history(self: Any, history: _History) -> None:
        """Keep earlier versions readable from now on, or change which of them are kept.

        `history` is as in `Db.keyspace`, and not False: a history cannot be ended, but may be as
        short as 1. What is not kept any more is freed in steps. A keyspace with a merge operator or
        an index of kind "lsm" raises `ArgumentError`. Writers wait meanwhile.
        """
        kept = kept_history(history)
        if kept is None:
            raise ArgumentError("a history cannot be ended: set_history(1) keeps the least")
        self._set_history(kept)

    def erase(self: Any, keys: Iterable[Buffer]) -> None:
        """Erase `keys` with all of their versions, which `del` leaves in the past::

            users.erase([b"alan", b"ada"])

        Afterwards every version reads as if they had never been written. Compacts the keyspace and
        rewrites each part of its past that has one of the keys: erase many by one call. Backups
        that were made before still have them, and so has the log until it is written over. A
        keyspace without history raises `ArgumentError`.
        """
        if isinstance(keys, (bytes, bytearray, memoryview)):
            raise TypeError("erase takes the keys in a list or another iterable, and not one key")
        self._erase([bytes(memoryview(key)) for key in keys])


class Versions:
    """The versions of a store."""

    __slots__ = ()

    @property
    def version(self: Any) -> int:
        """The newest version: the number of the last commit, as `Keyspace.at` takes it."""
        return self._store.version()  # type: ignore[no-any-return]

    def time_of(self: Any, version: int) -> datetime | None:
        """Return the time at which `version` was committed, in UTC and to the millisecond.

        That is the time of the last commit to a keyspace with history up to it; None before the
        first one. It does not fall with growing versions, even if the clock is set back.
        """
        return time_at(self._store.time_of(version_of(version)))

    def pin(self: Any, name: str, version: int | None = None) -> None:
        """Give `version`, by default the newest one, a name, durably::

            db.pin("audit")
            prices[b"tea"] = b"3.60"
            assert prices.at("audit")[b"tea"] == b"3.20"

        It stays readable in all keyspaces whose history it is part of now, whatever they keep,
        until `unpin`; later versions of these keyspaces stay too. A name has 1 to 255 bytes of
        UTF-8, without control characters; 1000 versions can have names. A name that is in use, and
        a version that no keyspace can read, raise `ArgumentError`.
        """
        self._store.pin(_name(name), None if version is None else version_of(version))

    def unpin(self: Any, name: str) -> None:
        """Remove the name of a version, durably. `ArgumentError` where no version has it."""
        self._store.unpin(_name(name))

    def named_versions(self: Any) -> dict[str, int]:
        """Return the names of versions with their versions, in the order of the names."""
        return dict(self._store.named_versions())
