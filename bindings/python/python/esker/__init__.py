"""Storage in files: an ordered key-value store, and arrays larger than memory.

`open` opens a store, whose keyspaces are mappings of bytes to bytes. `rearrange` transposes,
reorders and tiles arrays of any size in bounded memory, with the patterns of einops; `plan` returns
its plan.
"""

from typing import TYPE_CHECKING, Any

from ._errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    ConflictError,
    DamagedError,
    Error,
    FileError,
    ForkError,
    FormatError,
    FullError,
    KeyNotFoundError,
    LockedError,
    MetadataWarning,
    NoKeyspaceError,
    NoStoreError,
    OperatorError,
    OvertakenError,
    PatternError,
    PoisonedError,
    ReadOnlyError,
    TooOldError,
)
from ._esker import Batch, Range
from ._esker import __version__ as __version__
from ._history import Change, Difference, KeyChange
from ._stats import (
    BackupReport,
    CheckReport,
    IoStats,
    KeyspaceStats,
    LevelStats,
    LsmLearnt,
    LsmLevelStats,
    LsmRunStats,
    LsmStats,
    LsmWrites,
    MemoryStats,
    CompactionStats,
    NextStats,
    PastIndexStats,
    PinStats,
    Problem,
    ShapeStats,
    SpaceStats,
    Stats,
    TransactionStats,
    WaitStats,
)
from ._store import (
    Db,
    Keyspace,
    KeyspaceView,
    PastKeyspace,
    Snapshot,
    Transaction,
    TransactionKeyspace,
    check_backup,
    open,
    restore,
)
from ._values import ValueReader, ValueWriter

if TYPE_CHECKING:
    from ._rearrange import Pass, Plan, plan, rearrange

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BackupReport",
    "Batch",
    "Change",
    "CheckReport",
    "ClosedError",
    "ConflictError",
    "DamagedError",
    "Db",
    "Difference",
    "Error",
    "FileError",
    "ForkError",
    "FormatError",
    "FullError",
    "IoStats",
    "KeyChange",
    "KeyNotFoundError",
    "Keyspace",
    "KeyspaceStats",
    "KeyspaceView",
    "LevelStats",
    "LockedError",
    "LsmLearnt",
    "LsmLevelStats",
    "LsmRunStats",
    "LsmStats",
    "LsmWrites",
    "MemoryStats",
    "CompactionStats",
    "MetadataWarning",
    "NextStats",
    "NoKeyspaceError",
    "NoStoreError",
    "OperatorError",
    "OvertakenError",
    "Pass",
    "PastKeyspace",
    "PatternError",
    "PastIndexStats",
    "PinStats",
    "Plan",
    "PoisonedError",
    "Problem",
    "Range",
    "ReadOnlyError",
    "ShapeStats",
    "Snapshot",
    "SpaceStats",
    "Stats",
    "TooOldError",
    "Transaction",
    "TransactionKeyspace",
    "TransactionStats",
    "ValueReader",
    "ValueWriter",
    "WaitStats",
    "check_backup",
    "open",
    "plan",
    "rearrange",
    "restore",
]

_OF_ARRAYS = {"Pass", "Plan", "plan", "rearrange"}


def __getattr__(name: str) -> Any:
    """Import the functions for arrays at their first use: they need numpy, and a store does not."""
    if name not in _OF_ARRAYS:
        raise AttributeError(f"module 'esker' has no attribute {name!r}")
    from . import _rearrange

    for each in _OF_ARRAYS:
        globals()[each] = getattr(_rearrange, each)
    return globals()[name]


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
