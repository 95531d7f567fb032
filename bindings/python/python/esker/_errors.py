"""The exceptions of esker.

Everything that esker raises is an `Error`, and also the exception that Python would raise. (A call
with too few or too many arguments is Python's own `TypeError`, and an interrupt its
`KeyboardInterrupt`.)
"""


class Error(Exception):
    """The base class of all exceptions of esker; the text says what to change."""


class PatternError(Error, ValueError):
    """The pattern cannot be read, or does not fit the shape and sizes."""


class ArgumentError(Error, ValueError):
    """An argument other than the pattern is out of bounds, or not among the choices."""


class ArgumentTypeError(Error, TypeError):
    """An argument is of a type that cannot be used, or an object cannot be pickled."""


class KeyNotFoundError(Error, KeyError):
    """The key is not there."""


class FileError(Error, OSError):
    """A file cannot be read, written or used as what it is.

    `errno` and `filename` are set where the system refused.
    """


class NoStoreError(FileError, FileNotFoundError):
    """There is no store in the folder, and none was to be created."""


class LockedError(FileError, BlockingIOError):
    """The store is open already, in another process or by another object of this one."""


class FullError(FileError):
    """The device has no room left.

    Reads and removals continue; make room, or remove and compact.
    """


class FormatError(FileError):
    """The folder holds something else than a store, or a store of a newer version.

    The folder was not changed.
    """


class DamagedError(FileError):
    """Bytes of the store are not those that were written. Everything else can still be read."""

    #: The file, and where in it the damage is, in bytes.
    file: str
    offset: int


class PoisonedError(Error, RuntimeError):
    """A write or sync failed before: the store is read-only until it is opened again."""


class ReadOnlyError(Error, RuntimeError):
    """The store was opened with `read_only`: it is not written to."""


class TooOldError(Error, RuntimeError):
    """A snapshot or range of a store that is followed is older than what the writer keeps.

    The writer could not be told what is read here. Begin again with a new one.
    """


class OvertakenError(Error, RuntimeError):
    """A store that is followed was read many times where the writer had used space again.

    Try again.
    """


class ConflictError(Error, RuntimeError):
    """Another writer has changed data that the transaction has read.

    Nothing was applied: run the transaction again from its beginning, as `Db.transact` does.
    """


class OperatorError(Error, RuntimeError):
    """A merge operator could not combine the operands of a key.

    It raised an exception, or was not given when the keyspace was opened. Nothing is lost; other
    keys can be read.
    """


class ClosedError(Error, ValueError):
    """The store, snapshot, batch, transaction, reader or writer has been closed.

    A closed file of Python raises `ValueError`, too.
    """


class ForkError(Error, RuntimeError):
    """The store was opened by a parent process: a child opens it after the fork, or not at all."""


class NoKeyspaceError(Error, LookupError):
    """There is no keyspace of this name, or it was dropped."""


class MetadataWarning(UserWarning):
    """A Zarr array is complete, but consolidated metadata of a group above it is not up to date.

    Readers of the group do not see the array, or see its former state.
    """


for _class in [value for value in globals().values() if isinstance(value, type)]:
    _class.__module__ = "esker"
