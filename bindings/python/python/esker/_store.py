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
from ._stats import BackupReport, CheckReport, Stats, report_of, stats_of
from ._values import ValueReader, ValueWriter

if TYPE_CHECKING:
    from typing import Iterator, NoReturn

    from typing_extensions import Buffer, Self

    from ._types import _Compression, _Durability, _IndexKind, _Operator

# Nothing that was acknowledged needs it, but the next opening is quicker.
atexit.register(_esker.close_all)

_T = TypeVar("_T")
_Text = TypeVar("_Text", bound=str)

#: `transact` takes the writers' turn after so many conflicts, and gives up after so many.
_CONFLICTS_BEFORE_TURN = 3
_CONFLICTS_MAX = 100
#: `update` writes so many bytes, or entries, at once.
_UPDATE_BYTES = 256 << 10
_UPDATE_ENTRIES = 1024


def open(
    path: str | os.PathLike[str],
    *,
    memory: int | str = "64MiB",
    durability: _Durability = "buffered",
    create: bool = True,
    read_only: bool = False,
) -> Db:
    """Opens the store in the folder `path`, or makes one there. Use it in a `with` block, or call
    `close`.

    `memory` bounds what memtables, fences, filters and cached blocks take together: bytes, or text
    such as "256MiB"; 256 KiB to 16 TiB.

    `durability` says when a write returns. "buffered": when the operating system has it, so that it
    survives a killed process, but not a power cut. "synced": when the device has it; one sync
    serves all threads that wait.

    Without `create` a store has to be there already (`NoStoreError`).

    With `read_only` nothing is written: the store has to be there, also on a medium that cannot be
    written to, every write raises `ReadOnlyError`, and what the log holds must fit in `memory`.

    One object of one process has a store open at a time (`LockedError`), or several that only read;
    its threads share it.
    """
    return Db(_esker.Store(_path(path), _bytes_of(memory), durability, create, read_only))


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Makes a store of the backup in the folder `backup`, in the folder `path`, which is new or
    empty. All of it is checked on the way; damage raises `DamagedError`, and there is no store then.
    """
    _esker.restore(_path(backup), _path(path))


def check_backup(path: str | os.PathLike[str]) -> CheckReport:
    """Reads all of the backup in the folder `path` and compares it with what it should be. Damage is
    no exception here: it is in the report."""
    return report_of(_esker.check_backup(_path(path)))


class Db:
    """An open store, made by `esker.open`. Any thread may use it.

    Writes have one order. A crash leaves what the first of them did, up to some write or batch;
    "synced" ones, and what `persist` was called after, are among them.
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
    ) -> Keyspace:
        """The keyspace `name`, which is made where there is none, or without `create` refused
        (`NoKeyspaceError`). A name has 1 to 255 bytes of UTF-8, without control characters.

        `memtable` is the memory after which what was written goes to the data file, 1 KiB to 1 TiB;
        half of the store's unless given. It is kept if the keyspace is made, and holds until the
        store is closed otherwise.

        `compression` is what blocks are compressed with that are written from now on, and is kept:
        "lz4" costs little, "zstd" makes less of the same; nothing, unless given.

        `inline_max` is the longest value that is stored with its key, up to 256 KiB, which it is
        unless given; longer ones are stored apart, where merges do not write them again. It holds for
        what is written until the store is closed.

        `merge` says what `Keyspace.merge` does with operands. "add" adds integers of 8 bytes,
        little-endian, "append" appends, "max" and "min" keep the greater or smaller of two byte
        strings: whoever opens the store has these. Else it is a pair of a name, which the store
        keeps, and a function of key, older and newer bytes that answers bytes; it has to be
        associative, and is given whenever the keyspace is opened. Threads of the store call it too.
        It must not use the store.

        `index` is how entries are arranged, for good: "fdtree", which it is unless given, or "lsm",
        which writes least. Given for a keyspace that is there, it has to be what that has
        (`ArgumentError`).
        """
        memtable_bytes = None if memtable is None else _bytes_of(memtable)
        inline_bytes = None if inline_max is None else _bytes_of(inline_max)
        sizes = (memtable_bytes, inline_bytes)
        names = (_text("compression", compression), _text("index", index))
        return Keyspace(self._store, _name(name), create, sizes, names, merge)

    def keyspaces(self) -> list[str]:
        """The names of all keyspaces, sorted."""
        return self._store.keyspaces()

    def drop_keyspace(self, name: str) -> bool:
        """Drops the keyspace `name` with all that is in it, durably; whether there was one."""
        return self._store.drop_keyspace(_name(name))

    def batch(self, *, durability: _Durability | None = None) -> Batch:
        """Writes to any keyspaces of this store, applied all or not at all::

            with db.batch() as batch:
                batch.insert(accounts, b"ada", b"90")
                batch.insert(accounts, b"alan", b"110")

        They are applied at the end of the block, and dropped if it raises. Nothing is seen before,
        in the block neither.
        """
        return Batch(self._store, durability)

    def snapshot(self) -> Snapshot:
        """All keyspaces as they are now, for a `with` block. It holds old versions, and keeps
        nobody from writing."""
        return Snapshot(self._store)

    def transaction(
        self, *, write: bool = False, durability: _Durability | None = None
    ) -> Transaction:
        """Reads and writes that happen at one moment, or not at all::

            with db.transaction() as transaction:
                accounts = transaction.keyspace("accounts")
                accounts[b"ada"] = b"%d" % (int(accounts[b"ada"]) - 10)
                accounts[b"alan"] = b"%d" % (int(accounts[b"alan"]) + 10)

        It is committed at the end of the block, and rolled back if that raises. The commit raises
        `ConflictError`, and applies nothing, when anybody has written since what was read here:
        `transact` runs it again then.

        With `write` it waits for its turn: one transaction at a time has it. Where all that is
        written is written in turns, none ever conflicts.
        """
        return Transaction(self._store, write, durability)

    def transact(
        self, body: Callable[[Transaction], _T], *, durability: _Durability | None = None
    ) -> _T:
        """Calls `body` with a transaction, commits that and answers what `body` did; all of it again
        when the commit conflicts, from the fourth time on with the writers' turn, and at most a
        hundred times. What `body` does beside the transaction should bear that."""
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

    def persist(self) -> None:
        """Makes durable what has been written: one sync, or none if there is nothing to do."""
        self._store.persist()

    def flush(self) -> None:
        """Writes what is in memory alone (and in the log) to the data file."""
        self._store.flush()

    def compact(self) -> None:
        """Merges every keyspace into one level without garbage, and gives free space back: reads
        and writes everything."""
        self._store.compact()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copies the store, as it is at this moment, into the folder `path`, while others read and
        write. The folder is new or empty, or has a backup of this store: then only what has changed
        since is read and written, and the older one is there until the new one is complete and
        durable. `restore` makes a store of it."""
        return BackupReport(*_esker.back_up(self._store, _path(path)))

    def check(self) -> CheckReport:
        """Reads everything and compares it with what it should be. Damage is no exception here: it
        is in the report. Writes wait meanwhile."""
        return report_of(self._store.check())

    def stats(self) -> Stats:
        """What the store holds and what it has done."""
        return stats_of(self._store.stats())

    def close(self) -> None:
        """Waits for what other threads are doing, makes everything durable and closes the store;
        whatever was made from it raises `ClosedError` then. Once more is fine."""
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
        """The keys, in their order: a view that can be iterated again, and reversed."""
        return _Keys(self)

    def values(self: Any) -> ValuesView[bytes]:
        """The values, in the order of their keys."""
        return _Values(self)

    def items(self: Any) -> ItemsView[bytes, bytes]:
        """The entries, in the order of their keys."""
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
        """The value of `key`, as it is now, as a file that can be read from any place; `KeyError`
        where there is none."""
        return ValueReader(self._reader(key))


class Keyspace(_Views, _Streams, _esker.Keyspace, MutableMapping[bytes, bytes]):
    """An ordered map from keys (up to 64 KiB) to values (up to 1 GiB), made by `Db.keyspace`.

    What a `dict` does, on the device: keys and values are `bytes`, or whatever has the buffer
    protocol; what comes back is `bytes`. Keys are in the order of their bytes. Each operation is
    one step for all threads, but for `update`, which is a step for some hundred entries each; a
    `batch` of any size is one.

    An iterator sees the keyspace as it was when it was made, whatever is written meanwhile, by the
    body of its loop too. `len` counts by reading everything, and so do `list(keyspace)` and
    `list(keyspace.items())`, before they read once more; `list(keyspace.range())` does not.
    """

    def update(  # type: ignore[override]
        self, other: Mapping[Buffer, Buffer] | Iterable[tuple[Buffer, Buffer]] = (), /, **named: Any
    ) -> None:
        """Sets what a mapping, or an iterable of pairs, holds: some hundred entries a step. If it
        raises, what came before stays."""
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
        """A file to which the value of `key` is written as it comes, for a `with` block: it is there
        at the end of the block, in one step, and not at all if that raises."""
        return ValueWriter(self._writer(key), durability)

    def __repr__(self) -> str:
        return f"<esker.Keyspace {self.name!r} of {os.fsdecode(self.path)!r}>"


class Snapshot(_esker.Snapshot):
    """All keyspaces as they were at one moment, made by `Db.snapshot`."""

    def keyspace(self, keyspace: str | Keyspace) -> KeyspaceView:
        """A keyspace, itself or by its name, as it was at that moment; one that was made later is
        empty."""
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
    """Reads and writes of any keyspaces of one store that happen at one moment, or not at all, made
    by `Db.transaction`. It sees the store as it was when it began, and its own writes, which nobody
    else sees before the commit."""

    def keyspace(self, keyspace: str | Keyspace) -> TransactionKeyspace:
        """A keyspace, itself or by its name, in this transaction; there has to be one."""
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
    """A keyspace in a transaction: what is read counts when it is committed, and what is written
    waits until then. `insert`, `merge` and `remove` read nothing; what iterators have not come to
    has not been read (nor more entries beyond than they have come past)."""

    def __repr__(self) -> str:
        return f"<esker.TransactionKeyspace {self.name!r} of {os.fsdecode(self.path)!r}>"


class KeyspaceView(_Views, _Streams, _esker.KeyspaceView, Mapping[bytes, bytes]):
    """A keyspace as a snapshot sees it: a `Keyspace` without what changes it."""

    def __repr__(self) -> str:
        return f"<esker.KeyspaceView {self.name!r} of {os.fsdecode(self.path)!r}>"


def _pairs(of: Any) -> Iterable[tuple[Buffer, Buffer]]:
    """The pairs of what `dict.update` takes."""
    if isinstance(of, Mapping):
        return of.items()
    if hasattr(of, "keys"):
        return ((key, of[key]) for key in of.keys())
    return of  # type: ignore[no-any-return]


def _bytes_of(size: int | str) -> int:
    """Bytes of a size in words or figures; what is out of bounds is refused further on."""
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
