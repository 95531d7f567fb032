"""Figures of a store. Sizes are bytes; counters begin at zero when the store is opened."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any, Mapping


@dataclass(frozen=True)
class IoStats:
    """The requests to the device for one purpose."""

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
    #: Cached blocks, and the buffers of flushes and merges.
    cache_bytes: int
    #: The buffers alone.
    buffer_bytes: int


@dataclass(frozen=True)
class LevelStats:
    """One level of a keyspace, all versions of its entries included."""

    rank: int
    blocks: int
    bytes: int
    puts: int
    tombstones: int


@dataclass(frozen=True)
class LsmWrites:
    """The writes for a level of an LSM index, or for its runs, since the store was opened."""

    blocks_written: int
    #: Those of them that were written because too much of the level was empty.
    blocks_packed: int
    #: Left as they were by merges into the level.
    blocks_kept: int
    #: Blocks that hold fences.
    node_bytes_written: int


@dataclass(frozen=True)
class LsmLearnt:
    """The parameters of the policy Mixed, as it has learnt them."""

    #: Of levels 2, 3, …: one is merged whole into a level that is less full than this.
    thresholds: tuple[float, ...]
    #: Whether merges into the last level are of whole levels.
    last_is_full: bool
    #: "settling", "trying" or "learnt".
    phase: str
    #: Blocks written per entry, as it was measured for what was learnt last.
    cost: float | None


@dataclass(frozen=True)
class LsmRunStats:
    """A run of an LSM index: a memtable as it was written out."""

    #: As it was written.
    bytes: int
    #: Bytes that have not been merged yet, and still take space.
    left_bytes: int


@dataclass(frozen=True)
class LsmLevelStats:
    """A level of an LSM index."""

    blocks: int
    bytes: int
    #: The space of its blocks: each has units of 4 KiB of its own.
    space_bytes: int
    #: The space of the fences to them.
    fence_bytes: int
    #: The key at which the next merge into the level below begins; the last has none.
    next_key: builtins.bytes
    #: The most space that it may take before it is merged; `None` without a bound.
    capacity_bytes: int | None
    written: LsmWrites

    @property
    def waste_bytes(self) -> int:
        """The part of their space that its blocks leave empty."""
        return max(self.space_bytes - self.bytes, 0)

    @property
    def occupancy(self) -> float | None:
        """The share of their space that its blocks fill; `None` where it has none."""
        return self.bytes / self.space_bytes if self.space_bytes else None


@dataclass(frozen=True)
class LsmStats:
    """The runs and levels of an LSM index."""

    #: Newest first.
    runs: tuple[LsmRunStats, ...]
    #: From the first down.
    levels: tuple[LsmLevelStats, ...]
    #: The key at which the next merge of the runs begins.
    next_key: bytes
    #: The policy by which it is merged.
    policy: str
    #: The most that runs may hold before they are merged.
    runs_capacity_bytes: int
    runs_written: LsmWrites
    #: Entries that merges have taken out of runs since the store was opened.
    records_entered: int
    #: `None` unless the policy is Mixed.
    learnt: LsmLearnt | None


@dataclass(frozen=True)
class ShapeStats:
    """The sizes of levels that were chosen at the last full merge."""

    growth: float
    upper_levels: int
    #: The largest number of sorted runs.
    sorted_runs: int
    #: A full memtable.
    memtable_bytes: int


@dataclass(frozen=True)
class CompactionStats:
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
class NextStats:
    """A keyspace's next flush or merge, as it is planned now."""

    #: Memory of the memtable that is to be filled before; 0 where it is due.
    after_bytes: int
    #: Bytes of the memtable that are written out as a sorted run first, and bytes that are then
    #: merged; 0 for nothing.
    flush_bytes: int
    merge_bytes: int
    #: Levels that the merge replaces, and whether these are all.
    merge_levels: int
    merge_is_full: bool


@dataclass(frozen=True)
class PinStats:
    """The causes that keep space from being used again."""

    #: The time that the oldest snapshot has been held; iterators and transactions hold some, too.
    oldest_snapshot_seconds: float | None
    #: Operations since it was taken.
    writes_since_oldest: int
    #: Versions that merges have kept for snapshots alone.
    kept_versions: int
    #: Blocks that merges have replaced and that readers or a backup still keep.
    replaced_bytes: int
    #: Whether a backup is being made.
    backup: bool
    #: The keyspace whose memtable needs the oldest part of the log.
    log_keyspace: str | None


@dataclass(frozen=True)
class WaitStats:
    """Writers that waited for one reason."""

    #: The writers that wait now, and the number of all waits.
    waiting: int
    waits: int
    seconds: float
    longest_seconds: float


@dataclass(frozen=True)
class TransactionStats:
    """Transactions."""

    #: Begun and not ended.
    live: int
    #: Commits that were refused.
    conflicts: int
    #: Keys written lately, remembered for those that are live.
    remembered_bytes: int


@dataclass(frozen=True)
class PastIndexStats:
    """A past index of a keyspace with history."""

    #: The first version that it answers, and the first one that it does not.
    from_version: int
    until_version: int
    #: Its entries, all versions, and the space that they take on the device, with fences.
    entries: int
    stored_bytes: int


@dataclass(frozen=True)
class KeyspaceStats:
    """One keyspace."""

    #: "fdtree" or "lsm".
    index: str
    #: Puts less tombstones: overwritten entries, and old versions, are counted.
    entries_estimate: int
    #: "none", "lz4" or "zstd".
    compression: str
    #: Entries on the device, as they are encoded, before compression.
    data_bytes: int
    #: The space that they take on the device, with fences.
    stored_bytes: int
    #: The space of blobs on the device.
    value_bytes: int
    #: Top down.
    levels: tuple[LevelStats, ...]
    #: More about an LSM index; `None` for other kinds.
    lsm: LsmStats | None
    #: The number of sorted runs.
    sorted_runs: int
    memtable_bytes: int
    memtable_entries: int
    #: The oldest version that can be read, of a keyspace with history.
    history_from: int | None
    #: Its past indexes, oldest first: what copies of the live entries have left for readers of
    #: earlier versions.
    past_indexes: tuple[PastIndexStats, ...]
    shape: ShapeStats
    #: Merges that were finished since the keyspace was created.
    merges: int
    #: The reason why the last merge stopped, if it did, and the number of merges that have stopped
    #: since the store was opened.
    stalled: str | None
    merges_stopped: int
    #: The merge under way.
    merge: CompactionStats | None
    #: Whether the memtable is being written out.
    flushing: bool
    #: Removals of ranges that are remembered until full merges have passed over what they hide.
    removed_ranges: int
    #: The next flush or merge; `None` while it has to wait for the present one.
    next: NextStats | None
    #: Versions that merges have kept for snapshots alone.
    kept_versions: int
    #: Blocks that merges have replaced and that readers or a backup still keep.
    replaced_bytes: int


@dataclass(frozen=True)
class Stats:
    """The contents and counters of a store."""

    #: By name.
    keyspaces: dict[str, KeyspaceStats]
    #: By purpose: user, log, merge, flush, gc, manifest, recovery, check.
    io: dict[str, IoStats]
    #: Keys and values that were written.
    user_bytes_written: int
    #: Bytes written to the device for each of those, and bytes of all files for each byte of
    #: entries in them; `None` before there are any.
    write_amplification: float | None
    space_amplification: float | None
    space: SpaceStats
    memory: MemoryStats
    transactions: TransactionStats
    pins: PinStats
    #: By reason: "memory" (memtables were being written out), "merge" (to keep step with one) and
    #: "turn" (the writers').
    waits: dict[str, WaitStats]
    #: Snapshots that are held, iterators included, and the number of the oldest.
    snapshots: int
    oldest_snapshot: int | None
    #: Blocks that were found in the cache, and that were read.
    cache_hits: int
    cache_misses: int
    #: The reason why writes are refused, if they are.
    poisoned: str | None


@dataclass(frozen=True)
class BackupReport:
    """The result of `Db.backup`."""

    #: Writes up to this number are in the backup.
    seq: int
    #: The number of the backup in its folder, from 1; the same as before if nothing had changed.
    run: int
    #: Read from the store: blocks that are new, and the log.
    bytes_read: int
    #: Written to the folder.
    bytes_written: int
    #: Bytes that the backup before had already.
    bytes_reused: int
    #: Bytes of the store that the backup holds.
    bytes_total: int


@dataclass(frozen=True)
class Problem:
    """A damage that a check has found."""

    file: str
    #: In the file, in bytes.
    offset: int
    what: str


@dataclass(frozen=True)
class CheckReport:
    """The result of `Db.check` or `check_backup`."""

    #: Blocks that were read, their bytes, and the entries in them, all versions.
    blocks: int
    bytes: int
    entries: int
    #: All damages that were found.
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def report_of(found: tuple[int, int, int, list[tuple[str, int, str]]]) -> CheckReport:
    """Return the report of a check of the native half."""
    blocks, size, entries, problems = found
    return CheckReport(blocks, size, entries, tuple(Problem(*of) for of in problems))


def stats_of(found: Mapping[str, Any]) -> Stats:
    """Return the figures of the native half as classes."""
    return Stats(
        **{
            **found,
            "keyspaces": {name: _keyspace(of) for name, of in found["keyspaces"].items()},
            "io": {purpose: IoStats(**of) for purpose, of in found["io"].items()},
            "space": SpaceStats(**found["space"]),
            "memory": MemoryStats(**found["memory"]),
            "transactions": TransactionStats(**found["transactions"]),
            "pins": PinStats(**found["pins"]),
            "waits": {reason: WaitStats(**of) for reason, of in found["waits"].items()},
        }
    )


def _keyspace(found: Mapping[str, Any]) -> KeyspaceStats:
    merge, following, lsm = found["merge"], found["next"], found["lsm"]
    return KeyspaceStats(
        **{
            **found,
            "levels": tuple(LevelStats(**of) for of in found["levels"]),
            "past_indexes": tuple(PastIndexStats(**of) for of in found["past_indexes"]),
            "lsm": None if lsm is None else _lsm(lsm),
            "shape": ShapeStats(**found["shape"]),
            "merge": None if merge is None else CompactionStats(**merge),
            "next": None if following is None else NextStats(**following),
        }
    )


def _lsm(found: Mapping[str, Any]) -> LsmStats:
    def level(of: Mapping[str, Any]) -> LsmLevelStats:
        return LsmLevelStats(**{**of, "written": LsmWrites(**of["written"])})

    learnt = found["learnt"]
    if learnt is not None:
        learnt = LsmLearnt(**{**learnt, "thresholds": tuple(learnt["thresholds"])})
    return LsmStats(
        **{
            **found,
            "runs": tuple(LsmRunStats(**of) for of in found["runs"]),
            "levels": tuple(level(of) for of in found["levels"]),
            "runs_written": LsmWrites(**found["runs_written"]),
            "learnt": learnt,
        }
    )
