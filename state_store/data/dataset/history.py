"""Changes of a state: between two versions, and the versions of one key.

Both are read from deltas as far back as all of them are present; changes between versions whose deltas are
gone are found by comparing the two versions.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from state_store.core.engine.rows import ByteSlices
from state_store.core.engine.table import read_records
from state_store.core.snapshots.context import LocalDatabase
from state_store.data.dataset.columns import (
    FAMILY_BYTES,
    Columns,
    Key,
    key_bytes,
    key_columns,
    key_filter,
    partition_of,
    renamed,
)
from state_store.data.dataset.partitions import Partitions, PinnedVersion, open_database
from state_store.data.rows.types import joined, split_values
from state_store.errors import MissingError, OptionError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

ADDED, CHANGED, REMOVED = "added", "changed", "removed"
PUT = "put"
ROWS = 1 << 14
"""Bound of the rows in a batch."""

Change = tuple[bytes, "bytes | None", "bytes | None"]
"""A key with the id of its column family, its value before, and its value after; None if it has none."""

Records = Iterable[tuple[bytes, "bytes | None"]]
"""Keys with the id of their column family, each with its value; None if the key was removed."""


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
                        difference = self._diff(before, after, since, number, scratch)
                        yield from _diff_batches(self._columns, difference, number)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)

    def _diff(
        self, older: PinnedVersion | None, newer: PinnedVersion, since: int, number: int, scratch: Path
    ) -> Iterator[Change]:
        before = None if older is None else older.restore(scratch / "before")
        family = None if before is None else before.column_families.get(self._columns.view.schema.family)
        id_ = self._partitions.family_id(number)
        id_before = id_ if family is None else family.id
        if id_before is None:
            return iter(())
        if id_ in (None, id_before):
            touched = _touched(newer, since, _prefix(id_before), scratch / "delta")
            if touched is not None:
                return _looked_up(before, touched)
        after = newer.restore(scratch / "after")
        return _compared(before, after, _prefix(id_before), _prefix(id_before if id_ is None else id_))

    def _feeds(self, since: int) -> Iterator[pyarrow.RecordBatch]:
        partitions = self._partitions
        with partitions.pinned(partitions.version, since) as pins:
            for version in range(since + 1, partitions.version + 1):
                for number in partitions.numbers:
                    family = partitions.family(number)
                    if family is None:
                        continue
                    prefix = _prefix(family.id)
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
    names_in_use = {field.name for field in (*first, *last)}
    return pyarrow.schema([*first, *renamed(columns.key_fields, names_in_use, "key_"), *last])


def _diff_batches(
    columns: Columns, changes: Iterable[Change], partition: int
) -> Iterator[pyarrow.RecordBatch]:
    """Yield changes as batches of `_diff_schema`, without those whose values are equal."""
    import pyarrow

    schema = _diff_schema(columns)
    real: Iterator[Change] = (change for change in changes if change[1] != change[2])
    if columns.view.is_side:
        real = _of_side_changes(columns, real)
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


def _of_side_changes(columns: Columns, changes: Iterator[Change]) -> Iterator[Change]:
    """Yield the changes of a side of a join: what was added and removed of the rows that wait with a key.

    Spark numbers these rows, and gives the number of a row that goes to another one of the same key: by its
    number a row would seem to have become another one.
    """
    rows: dict[bytes, tuple[bytes, Counter[bytes], Counter[bytes]]] = {}
    while chunk := list(itertools.islice(changes, ROWS)):
        keys = [key for key, _, _ in chunk]
        for (key, before, after), shown_key in zip(chunk, columns.shown_keys(keys), strict=True):
            _, gone, come = rows.setdefault(shown_key, (key, Counter(), Counter()))
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

    names_in_use = {field.name for field in (*first, columns.partition_field)}
    keys = renamed(columns.key_fields, names_in_use, "key_")
    values = renamed(columns.value_fields, names_in_use, "value_")
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


def _compared(
    before: LocalDatabase | None, after: LocalDatabase, family_before: bytes, family: bytes
) -> Iterator[Change]:
    """Yield the changes between two databases from all rows of a column family, in order.

    Its id in the older one may be another, because the family was removed and made anew.
    """
    with open_database(after) as newer:
        rows = newer.scan(family, _end(family))
        if before is None:
            yield from ((key, None, value) for key, value in rows)
            return
        with open_database(before) as older:
            rows_before = older.scan(family_before, _end(family_before))
            yield from _merged(((family + key[FAMILY_BYTES:], value) for key, value in rows_before), rows)


def _prefix(family: int) -> bytes:
    """Return the bytes with which the keys of a column family begin."""
    return family.to_bytes(FAMILY_BYTES, "big")


def _end(prefix: bytes) -> bytes:
    """Return the key after all keys of a column family."""
    return _prefix(int.from_bytes(prefix, "big") + 1)


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


class _Database(Protocol):
    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


@dataclass(frozen=True, repr=False)
class KeyVersion:
    """A key at a version.

    Attributes:
        version: the version.
        committed_ms: time of the commit by the storage's clock, in ms since 1970 UTC; None if a copy of the
            checkpoint does not say it.
        is_changed: True if the batch of the version wrote the key.
        found: its rows as columns of the state; empty if it has none.
    """

    version: int
    committed_ms: int | None
    is_changed: bool
    found: pyarrow.RecordBatch

    def __repr__(self) -> str:
        wrote = "wrote it" if self.is_changed else "did not write it"
        rows = (
            "no row"
            if not self.found.num_rows
            else repr(self.row)
            if self.found.num_rows == 1
            else f"{self.found.num_rows} rows"
        )
        return f"KeyVersion({self.version}, {wrote}: {rows})"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its rows as Python values.

        A list has a row for each element, a side of a join a row for each that waits.
        """
        return [dict(row) for row in self.found.to_pylist()]

    @property
    def row(self) -> dict[str, Any] | None:
        """Its first row; None if it has none."""
        return next(iter(self.rows), None)


class History:
    """The versions of keys of some partitions, up to the version of the partitions."""

    def __init__(self, partitions: Partitions, columns: Columns) -> None:
        self._partitions = partitions
        self._columns = columns

    def of_key(self, key: bytes, number: int) -> list[KeyVersion]:
        """Return the versions of an encoded key in a partition, oldest first."""
        return self._over_versions(
            number,
            key[:FAMILY_BYTES],
            lambda records: (record for record in records if record[0] == key),
            lambda database: [(key, database.get(key))],
        )

    def of_side(self, condition: pyarrow.compute.Expression, family: bytes, number: int) -> list[KeyVersion]:
        """Return the versions of the rows of a side of a join whose keys fulfil an expression, oldest first.

        Reads the whole side at the oldest version, and all later changes.

        Args:
            condition: the expression.
            family: the id of the column family.
            number: the partition.
        """
        return self._over_versions(
            number,
            family,
            lambda records: self._kept(condition, records),
            lambda database: self._kept(condition, database.scan(family, _end(family))),
        )

    def _over_versions(
        self,
        number: int,
        family: bytes,
        matching: Callable[[Records], Records],
        read: Callable[[_Database], Records],
    ) -> list[KeyVersion]:
        """Return the versions of some rows of a partition.

        `matching` picks them from changes; `read` picks them from the database of the oldest version.
        """
        partitions = self._partitions
        with partitions.pinned(partitions.version, 0) as pins:
            pin = pins[number]
            versions = [delta.version for delta in pin.lineage]
            run = versions[versions.index(_first_of_run(versions)) :] if versions else []
            start, rows = self._oldest(number, run, read)
            deltas = [delta for delta in pin.lineage if delta.version in run and delta.version >= start]
            key_versions = []
            with partitions.reporting([pin], sum(map(pin.delta_bytes, deltas))):
                for delta in deltas:
                    records = records_of(pin, delta.version, family, partitions.directory / "delta")
                    changed = dict(matching(records))
                    rows = _present({**rows, **changed})
                    key_versions.append(
                        KeyVersion(
                            delta.version,
                            partitions.committed_ms(pin, delta),
                            bool(changed),
                            self._decoded(rows, number),
                        )
                    )
            return key_versions

    def table(
        self, key: Sequence[pyarrow.Array], number: int, versions: Iterable[KeyVersion]
    ) -> pyarrow.Table:
        """Return the versions of a key of a partition, whose columns are `key`: see `State.history_rows`."""
        import pyarrow

        batches = [self._batch(key, number, version) for version in versions]
        return pyarrow.Table.from_batches(batches, self._schema)

    def _batch(self, key: Sequence[pyarrow.Array], number: int, at: KeyVersion) -> pyarrow.RecordBatch:
        """Return the rows of a key at a version; one row with null values if it has none."""
        import pyarrow

        exists = at.found.num_rows > 0
        rows: Sequence[pyarrow.Array] = at.found.columns
        if not exists:
            nulls = [pyarrow.nulls(1, field.type) for field in self._columns.value_fields]
            rows = [*key, *nulls, pyarrow.array([number], pyarrow.int32())]
        change = (PUT if exists else REMOVED) if at.is_changed else None
        described = [at.version, at.version - 1, at.committed_ms, change]
        first = [
            pyarrow.repeat(pyarrow.scalar(value, field.type), len(rows[0]))
            for value, field in zip(described, self._schema, strict=False)
        ]
        return pyarrow.RecordBatch.from_arrays([*first, *rows], schema=self._schema)

    @cached_property
    def _schema(self) -> pyarrow.Schema:
        import pyarrow

        return rows_schema(
            self._columns,
            [
                pyarrow.field("version", pyarrow.int64(), False),
                pyarrow.field("batch", pyarrow.int64(), False),
                pyarrow.field("committed", pyarrow.timestamp("ms", "UTC")),
                pyarrow.field("change", pyarrow.string()),
            ],
        )

    def _decoded(self, rows: dict[bytes, bytes], number: int) -> pyarrow.RecordBatch:
        import pyarrow

        if not rows:
            return pyarrow.RecordBatch.from_pylist([], self._columns.schema)
        keys = sorted(rows)
        return self._columns.decode(keys, [rows[key] for key in keys], number)

    def _kept(self, condition: pyarrow.compute.Expression, records: Records) -> Records:
        """Yield the records whose keys fulfil an expression."""
        import pyarrow

        names = [*(field.name for field in self._columns.key_fields), "index"]
        pending = iter(records)
        while chunk := list(itertools.islice(pending, ROWS)):
            keys = self._columns.keys([key for key, _ in chunk])
            table = pyarrow.Table.from_arrays([*keys, pyarrow.array(range(len(chunk)))], names)
            yield from (chunk[index] for index in table.filter(condition).column(len(keys)).to_pylist())

    def _oldest(
        self, number: int, run: Sequence[int], read: Callable[[_Database], Records]
    ) -> tuple[int, dict[bytes, bytes]]:
        """Return the oldest restorable version among a run of versions and the one before it, and its rows.

        Raises:
            MissingError: not even the newest can be restored.
        """
        if not run or run[0] <= 1:
            return 0, {}
        for version in (run[0] - 1, *run[:-1]):
            with contextlib.suppress(MissingError):
                return version, self._read_at(number, version, read)
        return run[-1], self._read_at(number, run[-1], read)

    def _read_at(self, number: int, version: int, read: Callable[[_Database], Records]) -> dict[bytes, bytes]:
        directory = self._partitions.directory / "before"
        try:
            with self._partitions.pinned(version) as pins:
                pin = pins[number]
                with (
                    self._partitions.reporting([pin], pin.size_bytes),
                    open_database(pin.restore(directory)) as database,
                ):
                    return _present(dict(read(database)))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _present(rows: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in rows.items() if value is not None}


def _first_of_run(versions: list[int]) -> int:
    """Return the first number of the consecutive run that ends the list; 0 if the list is empty."""
    first = versions[-1] if versions else 0
    for version in reversed(versions):
        if version < first - 1:
            break
        first = version
    return first


class Lookups:
    """Look-ups of keys in some partitions, at their version and at earlier ones.

    Methods raise OptionError for a key of other columns or types, and MissingError if its partition was not
    opened.
    """

    def __init__(
        self,
        partitions: Partitions,
        columns: Columns,
        scan: Callable[[int], Iterator[pyarrow.RecordBatch]],
    ) -> None:
        """Remember the partitions and their columns; `scan` yields all rows of a partition."""
        self._partitions = partitions
        self._columns = columns
        self._view = columns.view
        self._scan = scan

    def rows(self, key: Key) -> pyarrow.Table:
        """Return the rows of a key: see `State.rows_of`."""
        import pyarrow

        columns = key_columns(self._view, key)
        rows = self._of_side if self._view.is_side else self._of_key
        for number in self._partitions_of(columns):
            batches = [batch for batch in rows(columns, number) if batch.num_rows]
            if batches:
                return pyarrow.Table.from_batches(batches)
        return self._columns.schema.empty_table()

    def versions(self, key: Key) -> list[KeyVersion]:
        """Return the versions of a key: see `State.history`."""
        return self._versions(key_columns(self._view, key))[1]

    def history(self, key: Key, *, every: bool) -> pyarrow.Table:
        """Return the versions of a key as rows: see `State.history_rows`."""
        columns = key_columns(self._view, key)
        number, versions = self._versions(columns)
        key_versions = [version for version in versions if every or version.is_changed]
        return self._history.table(columns, number, key_versions)

    @property
    def _history(self) -> History:
        return History(self._partitions, self._columns)

    def _partitions_of(self, columns: list[pyarrow.Array]) -> Sequence[int]:
        """Return the partitions that may have a key."""
        numbers = self._partitions.numbers
        partition = partition_of(self._view, columns)
        if partition is not None and partition not in numbers:
            raise MissingError(f"the key is in partition {partition}, which was not opened")
        return numbers if partition is None else (partition,)

    def _of_key(self, columns: list[pyarrow.Array], number: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of an encoded key in a partition."""
        with self._partitions.local_copy(number) as base:
            family = base.column_families.get(self._view.schema.family)
            if family is None:
                return
            encoded = key_bytes(self._view, columns, family.id)
            with open_database(base) as database:
                value = database.get(encoded)
        if value is not None:
            yield self._columns.decode([encoded], [value], number)

    def _of_side(self, columns: list[pyarrow.Array], number: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows that wait with a key in a partition, which is read as a whole."""
        condition = key_filter(self._view, columns)
        yield from (batch.filter(condition) for batch in self._scan(number))

    def _versions(self, columns: list[pyarrow.Array]) -> tuple[int, list[KeyVersion]]:
        """Return the partition that has a key, or may have it, and the key's versions there."""
        by_partition = [
            (number, self._versions_in(number, columns)) for number in self._partitions_of(columns)
        ]
        return next(
            (pair for pair in by_partition if any(version.found.num_rows for version in pair[1])),
            by_partition[0],
        )

    def _versions_in(self, number: int, columns: list[pyarrow.Array]) -> list[KeyVersion]:
        family = self._partitions.family_id(number)
        if family is None:
            return []
        if self._view.is_side:
            condition = key_filter(self._view, columns)
            return self._history.of_side(condition, family.to_bytes(FAMILY_BYTES, "big"), number)
        return self._history.of_key(key_bytes(self._view, columns, family), number)
