"""Statistics of a state: its largest partitions and rows, recent changes, age and expiry of keys.

A row has expired by a time-out, by a time to live, or because the watermark has passed its window.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from state_store.core.engine.rows import Page, rows
from state_store.core.engine.table import read_records
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.partitions import READING, Partitions, PinnedVersion
from state_store.data.dataset.views import EVENT_TIMERS, EXPIRES_MS, TIMER_MS, View
from state_store.data.jobs import Workers
from state_store.data.query import Progress, Query
from state_store.data.query.arguments import counted

if TYPE_CHECKING:
    import pyarrow

WATERMARK, TIME = "watermark", "time"
"""The clocks: the watermark that a batch left, and the time at which the next batch ran, or now."""

_TIMEOUT, _EXPIRES_MICROS = "timeoutTimestamp", "expiresAtMicros"

MAX_DELTAS = 100
MAX_BYTES = 64 << 20
"""Bound of the deltas that are read of one partition, in bytes."""

SAMPLE = 4
RECENT = 10
LARGEST = 5
_QUANTILES = (0.5, 0.95, 0.99, 1.0)


@dataclass(frozen=True)
class Expired:
    """The number of rows that have expired; the next batch may remove them.

    Attributes:
        column: the column that says when a row expires.
        clock: `watermark` or `time`.
        at_ms: the clock's value for the next batch, in ms since 1970 UTC.
        rows: the number of expired rows.
        looked_at: the number of rows examined.
    """

    column: str
    clock: str
    at_ms: int
    rows: int
    looked_at: int

    @property
    def share(self) -> float:
        """The share of expired rows; 0 if there are no rows."""
        return self.rows / self.looked_at if self.looked_at else 0.0


class Expiry:
    """The rule by which rows of a view expire, with the clock's value for the next batch."""

    def __init__(self, view: View, column: str, clock: str, at_ms: int) -> None:
        self.column = column
        self.clock = clock
        self.at_ms = at_ms
        self.columns = Columns(view, [column])

    @classmethod
    def of(cls, query: Query, view: View, batch: int, now_ms: int) -> Expiry | None:
        """Return the rule for the state after a batch.

        The result is None if no column of the view says when a row expires, or if Spark has forgotten the
        batch.
        """
        watermark_ms = query.logs.next_watermark_ms(batch)
        if watermark_ms is None:
            return None
        next_ms = query.logs.batch_ms(batch + 1)
        time_ms = now_ms if next_ms is None else next_ms
        names = {column.name: column.type for column in Columns(view).schema}
        if EXPIRES_MS in names:
            return cls(view, EXPIRES_MS, TIME, time_ms)
        if view.has_timers:
            by_watermark = view.schema.family.startswith(EVENT_TIMERS)
            clock = (WATERMARK, watermark_ms) if by_watermark else (TIME, time_ms)
            return cls(view, TIMER_MS, *clock)
        if _EXPIRES_MICROS in names:
            return cls(view, _EXPIRES_MICROS, WATERMARK, watermark_ms)
        if view.has_groups and _TIMEOUT in names:
            # Without a watermark in the query, time-outs go by the time of the batches.
            clock = (WATERMARK, watermark_ms) if watermark_ms else (TIME, time_ms)
            return cls(view, _TIMEOUT, *clock)
        window = next((name for name, type_ in names.items() if _is_window(type_)), None)
        return cls(view, window, WATERMARK, watermark_ms) if window is not None and watermark_ms else None

    def count(self, batch: pyarrow.RecordBatch) -> int:
        """Return the number of expired rows in a batch of `columns`."""
        import pyarrow
        import pyarrow.compute

        times, least = batch.column(0), -(2**63)
        if pyarrow.types.is_struct(times.type):
            times = times.flatten()[times.type.get_field_index("end")].cast(pyarrow.int64())
        at = self.at_ms if self.column in (_TIMEOUT, EXPIRES_MS, TIMER_MS) else self.at_ms * 1000
        if self.column == _TIMEOUT:  # -1 is none; Spark takes times before the watermark
            at, least = at - 1, 0
        is_over = pyarrow.compute.and_(
            pyarrow.compute.greater_equal(times, least), pyarrow.compute.less_equal(times, at)
        )
        return int(pyarrow.compute.sum(is_over).as_py() or 0)


def _is_window(type_: Any) -> bool:
    import pyarrow

    names = (
        [type_.field(place).name for place in range(type_.num_fields)]
        if pyarrow.types.is_struct(type_)
        else []
    )
    return names == ["start", "end"] and all(
        pyarrow.types.is_timestamp(type_.field(place).type) and type_.field(place).type.unit == "us"
        for place in range(2)
    )


@dataclass(frozen=True)
class LastChanges:
    """The keys that a version was the last to write.

    Attributes:
        version: the version.
        committed_ms: time of its commit by the storage's clock, in ms since 1970 UTC, in the first partition
            read; None if a copy of the checkpoint does not say it.
        keys: the number of these keys.
    """

    version: int
    committed_ms: int | None
    keys: int


@dataclass(frozen=True)
class Ages:
    """The versions that wrote the keys of some partitions last.

    Attributes:
        last_changes: numbers of keys by version, oldest version first.
        older: the number of keys that none of these versions wrote.
    """

    last_changes: tuple[LastChanges, ...]
    older: int

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.older + sum(change.keys for change in self.last_changes)


def _last_written(
    partitions: Partitions, pin: PinnedVersion, prefix: bytes, times_ms: dict[int, int | None]
) -> dict[int, int]:
    """Return the number of keys that each version wrote and no later version wrote or removed."""
    directory = partitions.directory / "ages"
    seen: set[bytes] = set()
    counts: dict[int, int] = {}
    expected, remaining_bytes = pin.version.number, MAX_BYTES
    for delta in reversed(pin.lineage):
        remaining_bytes -= pin.delta_bytes(delta)
        is_old = delta.version <= pin.version.number - MAX_DELTAS
        if delta.version != expected or remaining_bytes < 0 or is_old:
            break
        expected -= 1
        try:
            records = [
                record for record in read_records(pin.fetch(delta, directory)) if record[0].startswith(prefix)
            ]
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        times_ms.setdefault(delta.version, partitions.committed_ms(pin, delta))
        counts[delta.version] = sum(value is not None and key not in seen for key, value in records)
        seen.update(key for key, _ in records)
    return counts


@dataclass(frozen=True)
class PartitionSize:
    """Rows of the view in a partition, and bytes of all its files in checkpoint storage."""

    partition: int
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class LargeRow:
    """A row by its key, and the bytes of its encoded key and value."""

    key: dict[str, Any]
    partition: int
    size_bytes: int


@dataclass(frozen=True)
class VersionChanges:
    """The puts and removes of a version as its deltas state them, over all partitions and column families."""

    version: int
    puts: int
    removes: int
    delta_bytes: int


@dataclass(frozen=True, repr=False)
class Statistics:
    """Sizes of a view at a version.

    Attributes:
        version: the version.
        partitions: rows and bytes of each partition.
        sampled: the partitions whose rows were read.
        average_bytes: mean size of a row in these partitions.
        key_bytes: the sizes of keys that 50, 95, 99 and 100 % of the rows do not exceed.
        value_bytes: the same of values.
        largest: the largest rows of these partitions.
        recent: the changes of recent versions, oldest first, as far back as all their deltas exist.
        ages: the last changes of keys in the sampled partitions.
        expired: the expired rows of the sampled partitions; None if rows do not expire.
    """

    version: int
    partitions: tuple[PartitionSize, ...]
    sampled: tuple[int, ...]
    average_bytes: float
    key_bytes: tuple[int, ...]
    value_bytes: tuple[int, ...]
    largest: tuple[LargeRow, ...]
    recent: tuple[VersionChanges, ...]
    ages: Ages
    expired: Expired | None

    def __repr__(self) -> str:
        return (
            f"Statistics(version {self.version}: {counted(self.rows, 'row')} in "
            f"{counted(len(self.partitions), 'partition')}, "
            f"{self.size_bytes} bytes in files)"
        )

    @property
    def rows(self) -> int:
        """Rows of all partitions."""
        return sum(partition.rows for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files of the partitions."""
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def is_exact(self) -> bool:
        """True if all partitions were sampled."""
        return len(self.sampled) == len(self.partitions)

    @property
    def skew(self) -> float:
        """Rows of the largest partition as a multiple of the average; 1 if there are no rows."""
        average = self.rows / len(self.partitions)
        return max(partition.rows for partition in self.partitions) / average if average else 1.0


class OpenedPartitions(Protocol):
    """A state with the partition that is looked at, perhaps among others."""

    def part_statistics(self, number: int, *, is_sampled: bool, recent: int, now_ms: int) -> PartStatistics:
        """Return what the statistics need of one partition; it is `now_ms` on the driver."""


Opened = Callable[[int, Progress | None], AbstractContextManager[OpenedPartitions]]
"""Opens a partition: its number, and a receiver of progress."""


@dataclass(frozen=True)
class PartStatistics:
    """A partition as the statistics need it.

    Attributes:
        size: its rows and bytes.
        is_readable: False if it is lost, and was skipped.
        key_bytes: numbers of rows by the size of their key, if its rows were read; else empty.
        value_bytes: the same by the size of their value.
        largest: its largest rows.
        expired: the number of expired rows.
        looked_at: the number of rows examined for that.
        recent: puts, removes and bytes of the deltas of recent versions.
        written: the number of keys that each version was the last to write.
        times_ms: when these versions were committed.
    """

    size: PartitionSize
    is_readable: bool
    key_bytes: dict[int, int]
    value_bytes: dict[int, int]
    largest: tuple[LargeRow, ...]
    expired: int
    looked_at: int
    recent: dict[int, tuple[int, int, int]]
    written: dict[int, int]
    times_ms: dict[int, int | None]


def part_statistics(
    partitions: Partitions,
    columns: Columns,
    number: int,
    *,
    is_sampled: bool,
    recent: int,
    expiry: Expiry | None,
) -> PartStatistics:
    """Return what the statistics need of one partition; its rows are read only if it `is_sampled`.

    Its last deltas are read then, too, newest first, up to the first gap between them.

    Raises:
        DamagedError: a delta is damaged.
        StorageError: as the storage raises it.
    """
    size = PartitionSize(number, partitions.count(number), partitions.size_bytes(number))
    keys_by_bytes: Counter[int] = Counter()
    values_by_bytes: Counter[int] = Counter()
    largest: list[LargeRow] = []
    over = looked_at = 0
    for page in _pages(partitions, number) if is_sampled else ():
        keys, values = page.keys.lengths - FAMILY_BYTES, page.values.lengths
        keys_by_bytes.update(_counted(keys))
        values_by_bytes.update(_counted(values))
        if expiry is not None:
            batch = expiry.columns.decode(tuple(page.keys), tuple(page.values), number)
            over, looked_at = over + expiry.count(batch), looked_at + batch.num_rows
        largest = _of_largest([*largest, *_largest(page, keys + values, columns, number)])
    last_written: dict[int, int] = {}
    times_ms: dict[int, int | None] = {}
    changes: dict[int, tuple[int, int, int]] = {}
    reach = max(recent, MAX_DELTAS if is_sampled else 0)
    with partitions.pinned(partitions.version, max(0, partitions.version - reach), [number]) as pins:
        for pin in pins.values():
            changes = dict(_changes(partitions, pin, partitions.version - recent))
            family = partitions.family_id(number) if is_sampled else None
            if family is not None:
                last_written = _last_written(partitions, pin, family.to_bytes(FAMILY_BYTES, "big"), times_ms)
    return PartStatistics(
        size,
        bool(pins),
        dict(keys_by_bytes),
        dict(values_by_bytes),
        tuple(largest),
        over,
        looked_at,
        changes,
        last_written,
        times_ms,
    )


def statistics(
    numbers: tuple[int, ...],
    version: int,
    opened: Opened,
    sample: int | None,
    recent: int,
    now_ms: int,
    expiry: Expiry | None,
    workers: Workers,
    meter: Progress | None = None,
) -> Statistics:
    """Return the sizes of a view: see `State.stats`.

    Args:
        numbers: the numbers of the partitions.
        version: the version.
        opened: opens a partition; pickled if the workers are elsewhere.
        sample: the number of partitions whose rows are read, evenly chosen; None reads all.
        recent: the number of versions whose changes are counted.
        now_ms: the time, in ms since 1970 UTC.
        expiry: the rule by which rows expire; None: they do not.
        workers: who read the partitions, one at a time in a process.
        meter: receives the progress.
    """
    sampled = _chosen(numbers, sample)

    def of_partition(number: int, meter: Progress | None) -> PartStatistics:
        with opened(number, meter) as state:
            return state.part_statistics(number, is_sampled=number in sampled, recent=recent, now_ms=now_ms)

    parts = workers.run(of_partition, numbers, at_once=1, meter=meter)
    keys_by_bytes: Counter[int] = Counter()
    values_by_bytes: Counter[int] = Counter()
    for part in parts:
        keys_by_bytes.update(part.key_bytes)
        values_by_bytes.update(part.value_bytes)
    rows = sum(keys_by_bytes.values())
    size_bytes = sum(size * count for by in (keys_by_bytes, values_by_bytes) for size, count in by.items())
    expired = None
    if expiry is not None:
        over, looked_at = sum(part.expired for part in parts), sum(part.looked_at for part in parts)
        expired = Expired(expiry.column, expiry.clock, expiry.at_ms, over, looked_at)
    return Statistics(
        version,
        tuple(part.size for part in parts),
        sampled,
        size_bytes / rows if rows else 0.0,
        _quantiles(keys_by_bytes),
        _quantiles(values_by_bytes),
        tuple(_of_largest([row for part in parts for row in part.largest])),
        tuple(_recent([part.recent for part in parts if part.is_readable], version, recent)),
        _ages([part for part in parts if part.size.partition in sampled]),
        expired,
    )


def _ages(parts: Sequence[PartStatistics]) -> Ages:
    keys: Counter[int] = Counter()
    times_ms: dict[int, int | None] = {}
    for part in parts:
        keys.update(part.written)
        times_ms = {**part.times_ms, **times_ms}
    changes = tuple(LastChanges(version, times_ms[version], keys[version]) for version in sorted(keys))
    return Ages(changes, sum(part.size.rows for part in parts) - sum(keys.values()))


def _counted(sizes: Any) -> dict[int, int]:
    """Return the number of occurrences of each size in an array."""
    import numpy

    distinct_sizes, counts = numpy.unique(sizes, return_counts=True)
    return dict(zip(distinct_sizes.tolist(), counts.tolist(), strict=True))


def _of_largest(rows: Iterable[LargeRow]) -> list[LargeRow]:
    return heapq.nlargest(LARGEST, rows, key=lambda row: row.size_bytes)


def _chosen(numbers: tuple[int, ...], sample: int | None) -> tuple[int, ...]:
    if sample is None or sample >= len(numbers):
        return numbers
    return tuple(numbers[position * len(numbers) // sample] for position in range(sample))


def _pages(partitions: Partitions, number: int) -> Iterator[Page]:
    with partitions.read(number):
        family = partitions.family(number)
        if family is not None:
            start, end = (number.to_bytes(FAMILY_BYTES, "big") for number in (family.id, family.id + 1))
            yield from rows(partitions.base(number).directory, READING, start, end)


def _largest(page: Page, sizes: Any, columns: Columns, partition: int) -> list[LargeRow]:
    """Return the largest rows of a page; only their keys are decoded."""
    import numpy

    positions = numpy.argsort(sizes, kind="stable")[-LARGEST:]
    keys = page.keys.take(positions).to_list()
    names = [field.name for field in columns.key_fields]
    arrays = [column.to_pylist() for column in columns.keys(keys)]
    return [
        LargeRow(
            dict(zip(names, [array[row] for array in arrays], strict=True)), partition, int(sizes[position])
        )
        for row, position in enumerate(positions.tolist())
    ]


def _quantiles(by_bytes: Mapping[int, int]) -> tuple[int, ...]:
    """Return the sizes that shares of the rows do not exceed."""
    sizes = sorted(by_bytes)
    up_to = list(itertools.accumulate(by_bytes[size] for size in sizes))
    if not sizes:
        return (0,) * len(_QUANTILES)
    return tuple(sizes[bisect.bisect_left(up_to, share * up_to[-1])] for share in _QUANTILES)


def _changes(
    partitions: Partitions, pin: PinnedVersion, since: int
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield the versions after `since` of which there is a delta, with its puts, removes and bytes."""
    for delta in pin.lineage:
        if delta.version > since:
            metadata = pin.metadata(delta, partitions.directory / "delta")
            yield delta.version, (metadata.puts, metadata.removes, pin.delta_bytes(delta))


def _recent(
    changes: Sequence[Mapping[int, tuple[int, int, int]]], newest: int, recent: int
) -> Iterator[VersionChanges]:
    """Yield the changes of each recent version of which all partitions have a delta."""
    for version in range(max(0, newest - recent) + 1, newest + 1):
        if all(version in of_partition for of_partition in changes):
            of_version = [of_partition[version] for of_partition in changes]
            yield VersionChanges(version, *(sum(numbers) for numbers in zip(*of_version, strict=True)))
