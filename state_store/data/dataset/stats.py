"""Statistics of a state: its largest partitions and rows, recent changes, age and expiry of keys."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from state_store.core.compat import zip
from state_store.core.engine.rows import Page, rows
from state_store.core.engine.table import read_records
from state_store.data.dataset.expiry import Expired, Expiry
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.reading.partitions import READING, Partitions
from state_store.data.dataset.reading.pinned import PinnedVersion
from state_store.data.query.arguments import counted

MOST_DELTAS = 100
MOST_BYTES = 64 << 20
"""Bound of the deltas that are read of one partition, in bytes."""


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


def ages(partitions: Partitions, chosen: Iterable[int]) -> Ages:
    """Return the ages of the view's keys in the chosen partitions.

    Reads the last deltas of each partition, newest first, up to the first gap between them.

    Raises:
        DamagedError: a delta is damaged.
        StorageError: as the storage raises it.
    """
    keys: dict[int, int] = {}
    times_ms: dict[int, int | None] = {}
    rows = 0
    since = max(0, partitions.version - MOST_DELTAS)
    with partitions.pinned(partitions.version, since) as pins:
        for number in chosen:
            rows += partitions.count(number)
            family = partitions.family_id(number)
            if family is None:
                continue
            prefix = family.to_bytes(FAMILY_BYTES, "big")
            found = _last_written(partitions, pins[number], prefix, times_ms)
            for version, count in found.items():
                keys[version] = keys.get(version, 0) + count
    changes = tuple(LastChanges(version, times_ms[version], keys[version]) for version in sorted(keys))
    return Ages(changes, rows - sum(keys.values()))


def _last_written(
    partitions: Partitions, pin: PinnedVersion, prefix: bytes, times_ms: dict[int, int | None]
) -> dict[int, int]:
    """Return the number of keys that each version wrote and no later version wrote or removed."""
    directory = partitions.directory / "ages"
    seen: set[bytes] = set()
    counts: dict[int, int] = {}
    expected, remaining_bytes = pin.version.number, MOST_BYTES
    for delta in reversed(pin.lineage):
        remaining_bytes -= pin.delta_bytes(delta)
        if delta.version != expected or remaining_bytes < 0:
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


SAMPLE = 4
RECENT = 10
LARGEST = 5
_QUANTILES = (0.5, 0.95, 0.99, 1.0)


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


def statistics(
    partitions: Partitions, columns: Columns, sample: int | None, recent: int, expiry: Expiry | None
) -> Statistics:
    """Return the sizes of a view: see `State.stats`."""
    import numpy

    sizes = tuple(
        PartitionSize(number, partitions.count(number), partitions.size_bytes(number))
        for number in partitions.numbers
    )
    sampled = _chosen(partitions.numbers, sample)
    key_sizes, value_sizes = [numpy.zeros(0, "i8")], [numpy.zeros(0, "i8")]
    largest: list[LargeRow] = []
    over = looked_at = 0
    for number in sampled:
        for page in _pages(partitions, number):
            keys, values = page.keys.lengths - FAMILY_BYTES, page.values.lengths
            key_sizes.append(keys)
            value_sizes.append(values)
            if expiry is not None:
                batch = expiry.columns.decode(tuple(page.keys), tuple(page.values), number)
                over, looked_at = over + expiry.count(batch), looked_at + batch.num_rows
            largest = heapq.nlargest(
                LARGEST,
                [*largest, *_largest(page, keys + values, columns, number)],
                key=lambda row: row.size_bytes,
            )
    all_keys, all_values = numpy.concatenate(key_sizes), numpy.concatenate(value_sizes)
    average = float((all_keys + all_values).mean()) if len(all_keys) else 0.0
    return Statistics(
        partitions.version,
        sizes,
        sampled,
        average,
        _quantiles(all_keys),
        _quantiles(all_values),
        tuple(largest),
        tuple(_recent(partitions, recent)),
        ages(partitions, sampled),
        None if expiry is None else Expired(expiry.column, expiry.clock, expiry.at_ms, over, looked_at),
    )


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


def _quantiles(sizes: Any) -> tuple[int, ...]:
    import numpy

    if not len(sizes):
        return (0,) * len(_QUANTILES)
    return tuple(int(size) for size in numpy.quantile(sizes, _QUANTILES, method="inverted_cdf"))


def _recent(partitions: Partitions, recent: int) -> Iterator[VersionChanges]:
    since = max(0, partitions.version - recent)
    with partitions.pinned(partitions.version, since) as pins:
        for version in range(since + 1, partitions.version + 1):
            commits = [
                (pin.metadata(delta, partitions.directory / "delta"), pin.delta_bytes(delta))
                for pin in pins.values()
                for delta in pin.lineage
                if delta.version == version
            ]
            if len(commits) == len(pins):
                yield VersionChanges(
                    version,
                    sum(metadata.puts for metadata, _ in commits),
                    sum(metadata.removes for metadata, _ in commits),
                    sum(size_bytes for _, size_bytes in commits),
                )
