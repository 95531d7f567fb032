"""What can go wrong.

Everything that esker raises is an `Error`, and also what Python would raise. (A call with too few
or too many arguments is Python's own `TypeError`, and an interrupt its `KeyboardInterrupt`.)
"""


class Error(Exception):
    """Anything that esker refuses or fails at; its text says what to change."""


class PatternError(Error, ValueError):
    """The pattern cannot be read, or does not fit the shape and sizes."""


class ArgumentError(Error, ValueError):
    """Another argument cannot be used: it is out of bounds, or no choice that there is."""


class ArgumentTypeError(Error, TypeError):
    """An argument is of a type that cannot be used, or an object cannot be pickled."""


class KeyNotFoundError(Error, KeyError):
    """The key is not there."""


class FileError(Error, OSError):
    """A file cannot be read, written or used as what it is; `errno` and `filename` are set where
    the system refused."""


class NoStoreError(FileError, FileNotFoundError):
    """There is no store in the folder, and none was to be created."""


class LockedError(FileError, BlockingIOError):
    """The store is open already, in another process or by another object of this one."""


class FullError(FileError):
    """The device has no room left. Reads and removals go on; make room, or remove and compact."""


class FormatError(FileError):
    """The folder holds something else than a store, or one of a newer version. It was not
    touched."""


class DamagedError(FileError):
    """Bytes of the store are not those that were written. Everything else can still be read."""

    #: The file, and where in it the damage is, in bytes.
    file: str
    offset: int


class PoisonedError(Error, RuntimeError):
    """A write or sync failed before: the store is read-only until it is opened again."""


class ReadOnlyError(Error, RuntimeError):
    """The store was opened with `read_only`: it is not written to."""


class ConflictError(Error, RuntimeError):
    """Somebody else has written what the transaction has read. Nothing was applied: run it again
    from its beginning, as `Db.transact` does."""


class OperatorError(Error, RuntimeError):
    """A merge operator could not say what the operands of a key come to: it raised, or was not given
    when the keyspace was opened. Nothing is lost; other keys are read as ever."""


class ClosedError(Error, ValueError):
    """The store, snapshot, batch, transaction, reader or writer has been closed (a file says the
    same with `ValueError`)."""


class ForkError(Error, RuntimeError):
    """The store was opened by a parent process: a child opens it after the fork, or not at all."""


class NoKeyspaceError(Error, LookupError):
    """There is no keyspace of this name, or it was dropped."""


class MetadataWarning(UserWarning):
    """A Zarr array is complete, but consolidated metadata of a group above it could not be brought up
    to date: readers of the group do not see the array, or see what it was before."""


for _class in [value for value in globals().values() if isinstance(value, type)]:
    _class.__module__ = "esker"
