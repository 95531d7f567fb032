"""Figures of a store. Sizes are bytes; counters begin at zero when the store is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping


@dataclass(frozen=True)
class IoStats:
    """What was asked of the device for one purpose."""

    reads: int
    bytes_read: int
    writes: int
    bytes_written: int
    syncs: int


@dataclass(frozen=True)
class SpaceStats:
    """Space on the device."""

    data_file_bytes: int
    #: Parts of the data file.
    allocated_bytes: int
    free_bytes: int
    #: Segments of the log, spare ones included.
    log_bytes: int
    manifest_bytes: int


@dataclass(frozen=True)
class MemoryStats:
    """Memory."""

    #: The `memory` of `open`, which bounds the rest together.
    budget_bytes: int
    memtable_bytes: int
    #: Fences and filters.
    fence_bytes: int
    #: Cached blocks, and the buffers of spills and merges.
    cache_bytes: int


@dataclass(frozen=True)
class LevelStats:
    """One level of a keyspace, all versions of its entries included."""

    rank: int
    blocks: int
    bytes: int
    puts: int
    tombstones: int


@dataclass(frozen=True)
class ShapeStats:
    """The sizes of levels that were chosen at the last full merge."""

    growth: float
    upper_levels: int
    #: Spill runs that may stand.
    spill_runs: int
    #: A full memtable.
    memtable_bytes: int


@dataclass(frozen=True)
class MergeStats:
    """A merge under way."""

    #: Whether everything is merged.
    full: bool
    #: Levels, from the top, that are replaced.
    levels: int
    written_bytes: int
    input_bytes: int
    #: The last key that has been merged.
    wavefront: bytes | None


@dataclass(frozen=True)
class KeyspaceStats:
    """One keyspace."""

    #: Puts less tombstones: overwritten entries, and old versions, are counted.
    entries_estimate: int
    #: Entries on the device, as they are encoded.
    data_bytes: int
    #: Top down.
    levels: tuple[LevelStats, ...]
    #: Spill runs that stand.
    spills: int
    memtable_bytes: int
    memtable_entries: int
    shape: ShapeStats
    #: Merges that were finished since the keyspace was created.
    merges: int
    #: Why the last merge stopped, if it did, and how many have since the store was opened.
    stalled: str | None
    merges_stopped: int
    #: The merge under way.
    merge: MergeStats | None
    #: Whether the memtable is being written out.
    spilling: bool
    #: Removals of ranges that are remembered until full merges have passed over what they hide.
    removed_ranges: int


@dataclass(frozen=True)
class Stats:
    """What a store holds and what it has done."""

    #: By name.
    keyspaces: dict[str, KeyspaceStats]
    #: By purpose: user, log, merge, spill, gc, manifest, recovery, check.
    io: dict[str, IoStats]
    #: Keys and values that were written.
    user_bytes_written: int
    space: SpaceStats
    memory: MemoryStats
    #: Snapshots that are held, iterators included, and the number of the oldest.
    snapshots: int
    oldest_snapshot: int | None
    #: Blocks that were found in the cache, and that were read.
    cache_hits: int
    cache_misses: int
    #: Why writes are refused, if they are.
    poisoned: str | None


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    file: str
    #: In the file, in bytes.
    offset: int
    what: str


@dataclass(frozen=True)
class CheckReport:
    """What `Db.check` has read and found."""

    #: Blocks that were read, their bytes, and the entries in them, all versions.
    blocks: int
    bytes: int
    entries: int
    #: Everything that is wrong.
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def stats_of(found: Mapping[str, Any]) -> Stats:
    """The classes of what the native half answers."""
    return Stats(
        **{
            **found,
            "keyspaces": {name: _keyspace(of) for name, of in found["keyspaces"].items()},
            "io": {purpose: IoStats(**of) for purpose, of in found["io"].items()},
            "space": SpaceStats(**found["space"]),
            "memory": MemoryStats(**found["memory"]),
        }
    )


def _keyspace(found: Mapping[str, Any]) -> KeyspaceStats:
    merge = found["merge"]
    return KeyspaceStats(
        **{
            **found,
            "levels": tuple(LevelStats(**of) for of in found["levels"]),
            "shape": ShapeStats(**found["shape"]),
            "merge": None if merge is None else MergeStats(**merge),
        }
    )
