"""What is big in a state, and what is hot."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from state_store.core.compat import zip
from state_store.core.engine.pages import Page
from state_store.core.engine.rows import rows
from state_store.data.dataset.ages import Ages, ages
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.expiry import Expired, Expiry
from state_store.data.dataset.partitions import READING, Partitions

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
    """What the deltas of a version say that it put and removed, all partitions and column families."""

    version: int
    puts: int
    removes: int
    delta_bytes: int


@dataclass(frozen=True)
class Statistics:
    """Of a view at a version. `key_bytes` and `value_bytes` are the sizes that 50, 95, 99 and 100 % of the
    rows do not exceed, `average_bytes` that of a row; they and `largest` are those of the partitions
    `sampled` (`is_exact`: of all). `recent` are the versions whose deltas are all still there, oldest first.
    `ages` and `expired`, of the partitions sampled as well, say since when keys have not been changed, and
    how many rows have had their time (None: nothing tells when rows go).
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

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.partitions)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.partitions)

    @property
    def is_exact(self) -> bool:
        return len(self.sampled) == len(self.partitions)

    @property
    def skew(self) -> float:
        """Rows of the largest partition as a multiple of the average; 1 without rows."""
        average = self.rows / len(self.partitions)
        return max(one.rows for one in self.partitions) / average if average else 1.0


def statistics(
    partitions: Partitions, columns: Columns, sample: int | None, recent: int, expiry: Expiry | None
) -> Statistics:
    """See `State.stats`."""
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
    return tuple(numbers[place * len(numbers) // sample] for place in range(sample))


def _pages(partitions: Partitions, number: int) -> Iterator[Page]:
    with partitions.read(number):
        family = partitions.family(number)
        if family is not None:
            start, end = (one.to_bytes(FAMILY_BYTES, "big") for one in (family.id, family.id + 1))
            yield from rows(partitions.base(number).directory, READING, start, end)


def _largest(page: Page, sizes: Any, columns: Columns, partition: int) -> list[LargeRow]:
    """The largest rows of a page; only their keys are decoded."""
    import numpy

    places = numpy.argsort(sizes, kind="stable")[-LARGEST:]
    keys = page.keys.take(places).to_list()
    names = [field.name for field in columns.key_fields]
    arrays = [column.to_pylist() for column in columns.keys(keys)]
    return [
        LargeRow(
            dict(zip(names, [array[row] for array in arrays], strict=True)), partition, int(sizes[place])
        )
        for row, place in enumerate(places.tolist())
    ]


def _quantiles(sizes: Any) -> tuple[int, ...]:
    import numpy

    if not len(sizes):
        return (0,) * len(_QUANTILES)
    return tuple(int(one) for one in numpy.quantile(sizes, _QUANTILES, method="inverted_cdf"))


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
