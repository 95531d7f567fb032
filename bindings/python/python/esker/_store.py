"""The store: an ordered map of bytes to bytes, in a folder, in keyspaces."""

from __future__ import annotations

import atexit
import operator
import os
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import TYPE_CHECKING, Any, TypeVar

from . import _esker
from ._errors import ArgumentTypeError, ConflictError
from ._esker import Batch
from ._history import (
    Between,
    Histories,
    Versions,
    kept_history,
    microseconds_of,
    point_of,
    time_at,
)
from ._stats import BackupReport, CheckReport, Stats, report_of, stats_of
from ._values import ValueReader, ValueWriter

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Iterator, NoReturn

    from typing_extensions import Buffer, Self

    from ._types import (
        _Compression,
        _Durability,
        _History,
        _IndexKind,
        _Operator,
        _Version,
    )

# Nothing that was acknowledged needs it, but the next opening is quicker.
atexit.register(_esker.close_all)

_T = TypeVar("_T")
_Text = TypeVar("_Text", bound=str)

#: The numbers of conflicts after which `transact` takes the writers' turn, and raises the conflict.
_CONFLICTS_BEFORE_TURN = 3
_CONFLICTS_MAX = 100
#: The bytes, or entries, that `update` writes in one step.
_UPDATE_BYTES = 256 << 10
_UPDATE_ENTRIES = 1024


def open(
    path: str | os.PathLike[str],
    *,
    memory: int | str = "64MiB",
    durability: _Durability = "buffered",
    create: bool = True,
    read_only: bool = False,
    follow: bool = False,
) -> Db:
    """Open the store in the folder `path`, or create one there.

    Use the store in a `with` block, or call `close`.

    `memory` bounds the memory of memtables, fences, filters and cached blocks together: bytes, or
    text such as "256MiB"; 128 KiB to 16 TiB.

    `durability` is the point at which a write returns. "buffered": once the operating system has
    it, so that it survives a killed process, but not a power cut. "synced": once the device has it;
    one sync serves all threads that wait.

    Without `create` a store has to be there already (`NoStoreError`).

    With `read_only` nothing is written: the store has to be there, also on a medium that cannot be
    written to, every write raises `ReadOnlyError`, and the contents of the log must fit in
    `memory`. If another process or object has the store open for writing, this one follows it and
    `Db.refresh` catches up; if none has, none can open it for writing meanwhile.

    With `follow` the store is opened as with `read_only`, and keeps no process from writing it.

    One object of one process has a store open for writing at a time (`LockedError`); its threads
    share it.
    """
    opened = _esker.Store(_path(path), _bytes_of(memory), durability, create, read_only, follow)
    return Db(opened)


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Make a store of the backup in the folder `backup`.

    The store is in the folder `path`, which is new or empty. All of the backup is checked on the
    way; damage raises `DamagedError`, and there is no store then.
    """
    _esker.restore(_path(backup), _path(path))


def check_backup(path: str | os.PathLike[str]) -> CheckReport:
    """Read all of the backup in the folder `path` and verify it.

    Damage raises no exception here: it is in the report.
    """
    return report_of(_esker.check_backup(_path(path)))


class Db(Versions):
    """An open store, made by `esker.open`. Any thread may use it.

    Writes have one order. After a crash the store has the first of them, up to some write or batch;
    "synced" writes, and those before a call of `persist`, are among them.
    """

    __slots__ = ("__weakref__", "_store")

    def __init__(self, store: _esker.Store) -> None:
        if not isinstance(store, _esker.Store):
            raise ArgumentTypeError("a store is opened with esker.open(path)")
        self._store = store

    @property
    def path(self) -> str:
        """The folder."""
        return os.fsdecode(self._store.path)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._store.closed

    def keyspace(
        self,
        name: str,
        *,
        create: bool = True,
        memtable: int | str | None = None,
        compression: _Compression | None = None,
        inline_max: int | str | None = None,
        merge: _Operator | None = None,
        index: _IndexKind | None = None,
        history: _History = False,
        history_share: float | None = None,
    ) -> Keyspace:
        """Open the keyspace `name`, or create it where there is none.

        Without `create` a missing keyspace raises `NoKeyspaceError`. A name has 1 to 255 bytes of
        UTF-8, without control characters.

        `memtable` is the memory after which the memtable is flushed to the data file, 1 KiB to
        1 TiB; by default half of the store's memory. It is kept if the keyspace is created;
        otherwise it applies until the store is closed.

        `compression` is the compression of blocks that are written from now on, and is kept: "lz4"
        takes little time, "zstd" takes less space. By default blocks are not compressed.

        `inline_max` is the longest value that is stored with its key, up to 256 KiB, which is the
        default. Longer values are stored as blobs, which merges do not write again. It applies to
        writes until the store is closed.

        `merge` is the operator of `Keyspace.merge`. "add" adds integers of 8 bytes, little-endian,
        "append" appends, "max" and "min" keep the greater or smaller of two byte strings. These are
        built in. Any other operator is a pair of a name, which the store keeps, and a function of
        key, older and newer bytes that returns bytes. The function has to be associative, and is
        given whenever the keyspace is opened. Threads of the store call it too. It must not use the
        store.

        `index` is the arrangement of entries, which never changes: "fdtree", the default, or "lsm",
        which writes least. For an existing keyspace another kind than it has raises
        `ArgumentError`.

        `history` keeps earlier versions of the keyspace readable: see `Keyspace.at` and
        `Keyspace.history`. It is True or "all" for all of them, a timedelta for those of at least
        this time, or a number of newest ones. It applies to a keyspace that is created, and need
        not be given again; an existing keyspace with another history, or none, raises
        `ArgumentError`: `Keyspace.set_history` begins or changes it. Such a keyspace has no merge
        operator and an index of kind "fdtree".

        `history_share` is the share of superseded entries at which the live ones are copied, so
        that scans of the present do not slow down with every version: 0.2 to 0.8, by default 0.5;
        1.0 for never. It is fixed when a keyspace with history is created.
        """
        kept = kept_history(history)
        memtable_bytes = None if memtable is None else _bytes_of(memtable)
        inline_bytes = None if inline_max is None else _bytes_of(inline_max)
        sizes = (memtable_bytes, inline_bytes)
        names = (_text("compression", compression), _text("index", index))
        choices = (*names, kept, history_share)
        return Keyspace(self._store, _name(name), create, sizes, choices, merge)

    def keyspaces(self) -> list[str]:
        """Return the names of all keyspaces, sorted."""
        return self._store.keyspaces()

    def drop_keyspace(self, name: str) -> bool:
        """Drop the keyspace `name` with its contents, durably. Return whether there was one."""
        return self._store.drop_keyspace(_name(name))

    def batch(self, *, durability: _Durability | None = None) -> Batch:
        """Begin a batch: writes to any keyspaces of this store, applied all or not at all::

            with db.batch() as batch:
                batch.insert(accounts, b"ada", b"90")
                batch.insert(accounts, b"alan", b"110")

        They are applied at the end of the block, and dropped if it raises an exception. They are
        not visible before that, not even within the block.
        """
        return Batch(self._store, durability)

    def snapshot(self) -> Snapshot:
        """Return a snapshot: all keyspaces as they are now, for a `with` block.

        A snapshot holds old versions, and blocks no writer.
        """
        return Snapshot(self._store)

    def transaction(
        self, *, write: bool = False, durability: _Durability | None = None
    ) -> Transaction:
        """Begin a transaction: reads and writes that happen at one moment, or not at all::

            with db.transaction() as transaction:
                accounts = transaction.keyspace("accounts")
                accounts[b"ada"] = b"%d" % (int(accounts[b"ada"]) - 10)
                accounts[b"alan"] = b"%d" % (int(accounts[b"alan"]) + 10)

        It is committed at the end of the block, and rolled back if the block raises an exception.
        The commit raises `ConflictError`, and applies nothing, if another writer has since changed
        data that was read here. `transact` runs the transaction again in this case.

        With `write` it waits for the writers' turn, which one transaction at a time holds. If all
        writes are made in such transactions, none ever conflicts.
        """
        return Transaction(self._store, write, durability)

    def transact(
        self, body: Callable[[Transaction], _T], *, durability: _Durability | None = None
    ) -> _T:
        """Call `body` with a transaction, commit it and return the result of `body`.

        If the commit conflicts, all of this is repeated: from the fourth time on with the writers'
        turn, and at most a hundred times. Other effects of `body` must allow the repetition.
        """
        conflicts = 0
        while True:
            turn = conflicts >= _CONFLICTS_BEFORE_TURN
            transaction = self.transaction(write=turn, durability=durability)
            try:
                answer = body(transaction)
                transaction.commit()
                return answer
            except ConflictError:
                conflicts += 1
                if not transaction.closed or conflicts > _CONFLICTS_MAX:
                    raise
            finally:
                transaction.rollback()

    def refresh(self) -> int:
        """Catch up with the process that writes the store, where this object follows one.

        Everything that it had passed on to the operating system before is seen afterwards. Return
        the number of the newest commit that is.
        """
        return self._store.refresh()

    def persist(self) -> None:
        """Make all writes so far durable: one sync, or none if there is nothing to do."""
        self._store.persist()

    def flush(self) -> None:
        """Flush the part of the store that is only in memory (and in the log) to the data file."""
        self._store.flush()

    def compact(self) -> None:
        """Merge every keyspace into one level without garbage, and give free space back.

        This reads and writes all data.
        """
        self._store.compact()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the store, as it is at this moment, into the folder `path`.

        Others may read and write meanwhile. The folder is new or empty, or has a backup of this
        store: then only the changes since are read and written, and the older backup is there until
        the new one is complete and durable. `restore` makes a store of a backup.
        """
        return BackupReport(*_esker.back_up(self._store, _path(path)))

    def check(self) -> CheckReport:
        """Read all of the store and verify it.

        Damage raises no exception here: it is in the report. Writes wait meanwhile.
        """
        return report_of(self._store.check())

    def stats(self) -> Stats:
        """Return the figures of the store."""
        return stats_of(self._store.stats())

    def close(self) -> None:
        """Wait for operations of other threads, make everything durable and close the store.

        Objects that were made from the store raise `ClosedError` afterwards. May be called
        repeatedly.
        """
        self._store.close()

    def __enter__(self) -> Self:
        self._store.keyspaces()  # It may have been closed, or be a parent's.
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("an open store cannot be pickled: give its path")

    def __repr__(self) -> str:
        return f"<esker.Db {self.path!r}{', closed' if self.closed else ''}>"


class _Views:
    """Views that are iterated in runs, from either end."""

    def keys(self: Any) -> KeysView[bytes]:
        """Return a view of the keys, in their order. It can be iterated again, and reversed."""
        return _Keys(self)

    def values(self: Any) -> ValuesView[bytes]:
        """Return a view of the values, in the order of their keys."""
        return _Values(self)

    def items(self: Any) -> ItemsView[bytes, bytes]:
        """Return a view of the entries, in the order of their keys."""
        return _Items(self)

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("an object of an open store cannot be pickled: give path and name")


class _Keys(KeysView[bytes]):
    __slots__ = ()
    _mapping: _esker.Reads

    def __iter__(self) -> Iterator[bytes]:
        return self._mapping._all("keys", False)

    def __reversed__(self) -> Iterator[bytes]:
        return self._mapping._all("keys", True)


class _Values(ValuesView[bytes]):
    __slots__ = ()
    _mapping: _esker.Reads

    def __iter__(self) -> Iterator[bytes]:
        return self._mapping._all("values", False)

    def __reversed__(self) -> Iterator[bytes]:
        return self._mapping._all("values", True)


class _Items(ItemsView[bytes, bytes]):
    __slots__ = ()
    _mapping: _esker.Reads

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping._all("items", False)

    def __reversed__(self) -> Iterator[tuple[bytes, bytes]]:
        return self._mapping._all("items", True)


class _Streams:
    """Values that are read as files."""

    def reader(self: Any, key: Buffer) -> ValueReader:
        """Return the value of `key`, as it is now, as a file that can be read from any place.

        Raises `KeyError` where there is none.
        """
        return ValueReader(self._reader(key))


class Keyspace(
    _Views, Histories, Between, _Streams, _esker.Keyspace, MutableMapping[bytes, bytes]
):
    """An ordered map from keys (up to 64 KiB) to values (up to 1 GiB), made by `Db.keyspace`.

    It has the methods of a `dict`, with the data on the device. Keys and values are `bytes`, or
    other objects with the buffer protocol; results are `bytes`. Keys are in the order of their
    bytes. Each operation is one step for all threads, except for `update`, which makes one step for
    some hundred entries each; a `batch` of any size is one step.

    An iterator sees the keyspace as it was when the iterator was made, whatever is written
    meanwhile, by the body of its loop too. `len` counts by reading everything, and so do
    `list(keyspace)` and `list(keyspace.items())`, before they read once more;
    `list(keyspace.range())` does not.
    """

    def update(  # type: ignore[override]
        self, other: Mapping[Buffer, Buffer] | Iterable[tuple[Buffer, Buffer]] = (), /, **named: Any
    ) -> None:
        """Set the entries of a mapping, or of an iterable of pairs, some hundred in a step.

        If the iterable raises an exception, the entries before it stay.
        """
        if named:
            raise ArgumentTypeError("a key is bytes, not str: give a dict, not keyword arguments")
        batch = self._batch()
        try:
            for key, value in _pairs(other):
                batch.insert(self, key, value)
                if len(batch) >= _UPDATE_ENTRIES or batch.nbytes >= _UPDATE_BYTES:
                    full, batch = batch, self._batch()
                    full.commit()
        finally:
            batch.commit()

    def writer(self, key: Buffer, *, durability: _Durability | None = None) -> ValueWriter:
        """Return a file to which the value of `key` is written in pieces, for a `with` block.

        The value is set at the end of the block, in one step, and not at all if the block raises an
        exception.
        """
        return ValueWriter(self._writer(key), durability)

    def at(self, version: _Version) -> PastKeyspace:
        """Return the keyspace as it was after the commit `version`, and before the next one::

            prices = db.keyspace("prices", history=True)
            prices[b"tea"] = b"3.20"
            before = db.version
            prices[b"tea"] = b"3.60"
            assert prices.at(before)[b"tea"] == b"3.20"

        `version` is its number, or a name that `Db.pin` has given it. No I/O. A keyspace without
        history, and a version from before it began or of the future, raise `ArgumentError`.
        """
        return PastKeyspace(self, point_of(version), 0)

    def at_time(self, time: datetime | float) -> PastKeyspace:
        """Return the keyspace as it was at `time`: after the last commit up to then.

        The time is a `datetime` with a time zone, or seconds since 1970 as `time.time` returns
        them, to the millisecond. A time before the first commit to the keyspace finds it empty, or
        raises `ArgumentError` if it had no history yet.
        """
        return PastKeyspace(self, None, microseconds_of(time))

    def __repr__(self) -> str:
        return f"<esker.Keyspace {self.name!r} of {os.fsdecode(self.path)!r}>"


class Snapshot(_esker.Snapshot):
    """All keyspaces as they were at one moment, made by `Db.snapshot`."""

    def keyspace(self, keyspace: str | Keyspace) -> KeyspaceView:
        """Return a keyspace, given itself or by its name, as it was at that moment.

        A keyspace that was made later is empty.
        """
        return KeyspaceView(self, _named(keyspace))

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a snapshot cannot be pickled: it belongs to an open store")

    def __repr__(self) -> str:
        return f"<esker.Snapshot of {os.fsdecode(self.path)!r} at {self.seq}>"


class Transaction(_esker.Transaction):
    """Reads and writes of any keyspaces of one store that happen at one moment, or not at all.

    Made by `Db.transaction`. A transaction sees the store as it was when it began, and its own
    writes, which are not visible to others before the commit.
    """

    def keyspace(self, keyspace: str | Keyspace) -> TransactionKeyspace:
        """Return an existing keyspace, given itself or by its name, in this transaction."""
        return TransactionKeyspace(self, _named(keyspace))

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: object, *_where: object) -> None:
        if kind is not None:
            self.rollback()
        elif not self.closed:
            self.commit()

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError("a transaction cannot be pickled: it belongs to an open store")

    def __repr__(self) -> str:
        return f"<esker.Transaction of {os.fsdecode(self.path)!r} at {self.seq}>"


class TransactionKeyspace(_Views, _esker.TransactionKeyspace, MutableMapping[bytes, bytes]):
    """A keyspace in a transaction.

    The commit checks the entries that were read, and applies the writes. `insert`, `merge` and
    `remove` read nothing. An iterator reads ahead at most as many entries as it has returned.
    """

    def __repr__(self) -> str:
        return f"<esker.TransactionKeyspace {self.name!r} of {os.fsdecode(self.path)!r}>"


class KeyspaceView(_Views, _Streams, _esker.KeyspaceView, Mapping[bytes, bytes]):
    """A keyspace as a snapshot sees it: a `Keyspace` without methods that change it."""

    def __repr__(self) -> str:
        return f"<esker.KeyspaceView {self.name!r} of {os.fsdecode(self.path)!r}>"


class PastKeyspace(_Views, Histories, _Streams, _esker.PastKeyspace, Mapping[bytes, bytes]):
    """A keyspace as it was at one version: a `Keyspace` without methods that change it.

    Made by `Keyspace.at` and `Keyspace.at_time`, of a keyspace with history. Its version stays
    readable while it lives; it blocks nothing. Its `history` has the changes up to its version.
    """

    @property
    def time(self) -> datetime | None:
        """The time at which the version was committed: see `Db.time_of`."""
        return time_at(self._time())

    def __repr__(self) -> str:
        path = os.fsdecode(self.path)
        return f"<esker.PastKeyspace {self.name!r} of {path!r} at {self.version}>"


def _pairs(of: Any) -> Iterable[tuple[Buffer, Buffer]]:
    """Return the pairs of an argument that `dict.update` would take."""
    if isinstance(of, Mapping):
        return of.items()
    if hasattr(of, "keys"):
        return ((key, of[key]) for key in of.keys())
    return of  # type: ignore[no-any-return]


def _bytes_of(size: int | str) -> int:
    """Return the bytes of a size in words or figures; bounds are checked later."""
    if isinstance(size, str):
        return _esker.parse_bytes(size)
    try:
        return min(max(operator.index(size), 0), 2**63 - 1)
    except TypeError:
        raise ArgumentTypeError(f"a size is bytes, or text such as '64MiB', not {size!r}") from None


def _path(path: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ArgumentTypeError(f"a path is text or a path, not {path!r}") from None


def _text(what: str, given: _Text | None) -> _Text | None:
    if given is None or isinstance(given, str):
        return given
    raise ArgumentTypeError(f"{what} is text, not {given!r}")


def _name(name: str) -> str:
    if isinstance(name, str):
        return name
    raise ArgumentTypeError(f"the name of a keyspace is text, not {name!r}")


def _named(keyspace: str | Keyspace) -> str | Keyspace:
    if isinstance(keyspace, (str, Keyspace)):
        return keyspace
    raise ArgumentTypeError(f"a keyspace is given itself, or by its name, not as {keyspace!r}")
