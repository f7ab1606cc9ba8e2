"""The changes between versions: from deltas if all are present, else by comparing two versions."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from state_store.core.compat import zip
from state_store.core.engine.rows import ByteSlices
from state_store.core.engine.table import read_records
from state_store.core.snapshots.context import LocalDatabase
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns, renamed
from state_store.data.dataset.reading.partitions import Partitions, open_database
from state_store.data.dataset.reading.pinned import PinnedVersion
from state_store.data.rows.packed import joined, split_values
from state_store.errors import MissingError, OptionError

if TYPE_CHECKING:
    import pyarrow

ADDED, CHANGED, REMOVED = "added", "changed", "removed"
PUT = "put"
ROWS = 1 << 14
"""Bound of the rows in a batch."""

Change = tuple[bytes, "bytes | None", "bytes | None"]
"""A key with the id of its column family, its value before, and its value after; None if it has none."""


class Changes:
    """The changes in some partitions up to their version."""

    def __init__(self, partitions: Partitions, columns: Columns) -> None:
        self._partitions = partitions
        self._columns = columns

    def diff(self, since: int) -> pyarrow.RecordBatchReader:
        """Return the net changes: see `State.diff`."""
        import pyarrow

        self._check(since)
        return pyarrow.RecordBatchReader.from_batches(_diff_schema(self._columns), self._diffs(since))

    def feed(self, since: int) -> pyarrow.RecordBatchReader:
        """Return the changes version by version: see `State.changes`."""
        import pyarrow

        self._check(since)
        return pyarrow.RecordBatchReader.from_batches(_feed_schema(self._columns), self._feeds(since))

    def _check(self, since: int) -> None:
        if not 0 <= since <= self._partitions.version:
            raise OptionError(f"version {self._partitions.version} does not come after version {since}")

    def _diffs(self, since: int) -> Iterator[pyarrow.RecordBatch]:
        partitions = self._partitions
        with (
            partitions.pinned(since) as older,
            partitions.pinned(partitions.version, since) as newer,
        ):
            for number in partitions.numbers:
                scratch = partitions.directory / f"diff-{number}"
                before, after = older.get(number), newer[number]
                size_bytes = after.lineage_bytes + (before.size_bytes if before else 0)
                try:
                    with partitions.reporting([after, *([before] if before else [])], size_bytes):
                        found = self._diff(before, after, since, scratch)
                        yield from _diff_batches(self._columns, found, number)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)

    def _diff(
        self, older: PinnedVersion | None, newer: PinnedVersion, since: int, scratch: Path
    ) -> Iterator[Change]:
        name = self._columns.view.schema.family
        before = None if older is None else older.restore(scratch / "before")
        family = None if before is None else before.column_families.get(name)
        after = None
        if family is None:
            after = newer.restore(scratch / "after")
            family = after.column_families.get(name)
            if family is None:
                return iter(())
        prefix = family.id.to_bytes(FAMILY_BYTES, "big")
        touched = _touched(newer, since, prefix, scratch / "delta")
        if touched is not None:
            return _looked_up(before, touched)
        return _compared(before, after or newer.restore(scratch / "after"), prefix)

    def _feeds(self, since: int) -> Iterator[pyarrow.RecordBatch]:
        partitions = self._partitions
        with partitions.pinned(partitions.version, since) as pins:
            for version in range(since + 1, partitions.version + 1):
                for number in partitions.numbers:
                    family = partitions.family(number)
                    if family is None:
                        continue
                    prefix = family.id.to_bytes(FAMILY_BYTES, "big")
                    records = records_of(pins[number], version, prefix, partitions.directory / "delta")
                    yield from _feed_batches(self._columns, version, records, number)


def _touched(
    pin: PinnedVersion, since: int, family: bytes, directory: Path
) -> dict[bytes, bytes | None] | None:
    """Return the last value of each key of a column family that was written after version `since`.

    A removed key has None. The result is None if a delta is gone.
    """
    if [delta.version for delta in pin.lineage] != list(range(since + 1, pin.version.number + 1)):
        return None
    values: dict[bytes, bytes | None] = {}
    for delta in pin.lineage:
        values.update(records_of(pin, delta.version, family, directory))
    return values


def records_of(
    pin: PinnedVersion, version: int, family: bytes, directory: Path
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the records that a delta of the lineage wrote in a column family; removed keys have None.

    Raises:
        MissingError: the delta is gone.
    """
    delta = next((delta for delta in pin.lineage if delta.version == version), None)
    if delta is None:
        raise MissingError(
            f"the changes of version {version} of store {pin.key} are no longer known: its delta was removed"
        )
    try:
        path = pin.fetch(delta, directory)
        yield from ((key, value) for key, value in read_records(path) if key[:FAMILY_BYTES] == family)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _diff_schema(columns: Columns) -> pyarrow.Schema:
    """Return the columns of a diff.

    They are `change`, the columns of the key, `before` and `after`, and the partition. `before` and `after`
    are structs of the columns of the value, or lists of such structs.
    """
    import pyarrow

    first = [pyarrow.field("change", pyarrow.string(), False)]
    last = [
        pyarrow.field("before", columns.value_type),
        pyarrow.field("after", columns.value_type),
        columns.partition_field,
    ]
    taken = {field.name for field in (*first, *last)}
    return pyarrow.schema([*first, *renamed(columns.key_fields, taken, "key_"), *last])


def _diff_batches(
    columns: Columns, changes: Iterable[Change], partition: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield changes as batches of `_diff_schema`, without those whose values are equal."""
    import pyarrow

    schema = _diff_schema(columns)
    real: Iterator[Change] = (change for change in changes if change[1] != change[2])
    if columns.view.is_side:
        real = _of_side(columns, real)
    while chunk := list(itertools.islice(real, ROWS)):
        keys, before, after = zip(*chunk, strict=True)
        kinds = [
            ADDED if old is None else REMOVED if new is None else CHANGED
            for old, new in zip(before, after, strict=True)
        ]
        arrays = [
            pyarrow.array(kinds),
            *columns.keys(list(keys)),
            columns.whole_values(list(before)),
            columns.whole_values(list(after)),
            pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), len(chunk)),
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _of_side(columns: Columns, changes: Iterator[Change]) -> Iterator[Change]:
    """Yield the changes of a side of a join: what was added and removed of the rows that wait with a key.

    Spark numbers these rows, and gives the number of a row that goes to another one of the same key: by its
    number a row would seem to have become another one.
    """
    rows: dict[bytes, tuple[bytes, Counter[bytes], Counter[bytes]]] = {}
    while chunk := list(itertools.islice(changes, ROWS)):
        keys = [key for key, _, _ in chunk]
        for (key, before, after), shown in zip(chunk, columns.shown_keys(keys), strict=True):
            _, gone, come = rows.setdefault(shown, (key, Counter(), Counter()))
            gone.update(() if before is None else (before,))
            come.update(() if after is None else (after,))
    for key, gone, come in rows.values():
        yield from ((key, value, None) for value in (gone - come).elements())
        yield from ((key, None, value) for value in (come - gone).elements())


def _feed_schema(columns: Columns) -> pyarrow.Schema:
    """Return the columns of a feed: `version`, `batch`, `change`, and the columns of the state.

    The columns of the value are null if the key was removed.
    """
    import pyarrow

    return rows_schema(
        columns,
        [
            pyarrow.field("version", pyarrow.int64(), False),
            pyarrow.field("batch", pyarrow.int64(), False),
            pyarrow.field("change", pyarrow.string(), False),
        ],
    )


def rows_schema(columns: Columns, first: Sequence[pyarrow.Field]) -> pyarrow.Schema:
    """Return the columns `first`, followed by those of the state, those of the value nullable.

    A column whose name is taken gets the prefix `key_` or `value_`.
    """
    import pyarrow

    taken = {field.name for field in (*first, columns.partition_field)}
    keys = renamed(columns.key_fields, taken, "key_")
    values = renamed(columns.value_fields, taken, "value_")
    return pyarrow.schema(
        [*first, *keys, *(field.with_nullable(True) for field in values), columns.partition_field]
    )


def _feed_batches(
    columns: Columns, version: int, records: Iterable[tuple[bytes, bytes | None]], partition: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of one delta as batches of `_feed_schema`, with a row for each element of a list."""
    import pyarrow

    schema = _feed_schema(columns)
    pending = _elements(records) if columns.view.is_list else iter(records)
    while chunk := list(itertools.islice(pending, ROWS)):
        keys, values = zip(*chunk, strict=True)
        count = len(chunk)
        arrays = [
            pyarrow.repeat(pyarrow.scalar(version, pyarrow.int64()), count),
            pyarrow.repeat(pyarrow.scalar(version - 1, pyarrow.int64()), count),
            pyarrow.array([REMOVED if value is None else PUT for value in values]),
            *columns.keys(list(keys)),
            *columns.values(list(values)).flatten(),
            pyarrow.repeat(pyarrow.scalar(partition, pyarrow.int32()), count),
        ]
        yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _elements(records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the elements of lists, each with the list's key."""
    for key, value in records:
        if value is None:
            yield key, None
            continue
        _, parts = split_values(joined([value]))
        yield from ((key, element) for element in ByteSlices(*parts).to_list())


def _looked_up(base: LocalDatabase | None, touched: dict[bytes, bytes | None]) -> Iterator[Change]:
    """Yield the changes of keys, in order, with their values before from a database; None is an empty one."""
    if base is None:
        yield from ((key, None, touched[key]) for key in sorted(touched))
        return
    with open_database(base) as database:
        for key in sorted(touched):
            yield key, database.get(key), touched[key]


def _compared(before: LocalDatabase | None, after: LocalDatabase, family: bytes) -> Iterator[Change]:
    """Yield the changes between two databases from all rows of a column family, in order."""
    end = (int.from_bytes(family, "big") + 1).to_bytes(FAMILY_BYTES, "big")
    with open_database(after) as newer:
        if before is None:
            yield from ((key, None, value) for key, value in newer.scan(family, end))
            return
        with open_database(before) as older:
            yield from _merged(older.scan(family, end), newer.scan(family, end))


def _merged(before: Iterator[tuple[bytes, bytes]], after: Iterator[tuple[bytes, bytes]]) -> Iterator[Change]:
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            yield old[0], old[1], None
            old = next(before, None)
        elif old is None or new[0] < old[0]:
            yield new[0], None, new[1]
            new = next(after, None)
        else:
            yield old[0], old[1], new[1]
            old, new = next(before, None), next(after, None)
