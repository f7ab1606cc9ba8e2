"""The versions of one key, as far back as deltas reach."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from state_store.core.compat import zip
from state_store.data.dataset.changes import PUT, REMOVED, ROWS, records_of, rows_schema
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.layout.keys import Key, key_bytes, key_columns, key_filter, partition_of
from state_store.data.dataset.reading.partitions import Partitions, open_database
from state_store.errors import MissingError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

Records = Iterable[tuple[bytes, "bytes | None"]]
"""Keys with the id of their column family, each with its value; None if the key was removed."""


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

    def of_side(self, kept: pyarrow.compute.Expression, family: bytes, number: int) -> list[KeyVersion]:
        """Return the versions of the rows of a side of a join whose keys fulfil an expression, oldest first.

        Reads the whole side at the oldest version, and all later changes.

        Args:
            kept: the expression.
            family: the id of the column family.
            number: the partition.
        """
        end = (int.from_bytes(family, "big") + 1).to_bytes(FAMILY_BYTES, "big")
        return self._over_versions(
            number,
            family,
            lambda records: self._kept(kept, records),
            lambda database: self._kept(kept, database.scan(family, end)),
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

    def _kept(self, kept: pyarrow.compute.Expression, records: Records) -> Records:
        """Yield the records whose keys fulfil an expression."""
        import pyarrow

        names = [*(field.name for field in self._columns.key_fields), "index"]
        pending = iter(records)
        while chunk := list(itertools.islice(pending, ROWS)):
            keys = self._columns.keys([key for key, _ in chunk])
            table = pyarrow.Table.from_arrays([*keys, pyarrow.array(range(len(chunk)))], names)
            yield from (chunk[index] for index in table.filter(kept).column(len(keys)).to_pylist())

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
            found = [batch for batch in rows(columns, number) if batch.num_rows]
            if found:
                return pyarrow.Table.from_batches(found)
        return self._columns.schema.empty_table()

    def versions(self, key: Key) -> list[KeyVersion]:
        """Return the versions of a key: see `State.history`."""
        return self._versions(key_columns(self._view, key))[1]

    def history(self, key: Key, *, every: bool) -> pyarrow.Table:
        """Return the versions of a key as rows: see `State.history_rows`."""
        columns = key_columns(self._view, key)
        number, versions = self._versions(columns)
        kept = [version for version in versions if every or version.is_changed]
        return self._history.table(columns, number, kept)

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
        kept = key_filter(self._view, columns)
        yield from (batch.filter(kept) for batch in self._scan(number))

    def _versions(self, columns: list[pyarrow.Array]) -> tuple[int, list[KeyVersion]]:
        """Return the partition that has a key, or may have it, and the key's versions there."""
        found = [(number, self._versions_in(number, columns)) for number in self._partitions_of(columns)]
        return next((pair for pair in found if any(version.found.num_rows for version in pair[1])), found[0])

    def _versions_in(self, number: int, columns: list[pyarrow.Array]) -> list[KeyVersion]:
        family = self._partitions.family_id(number)
        if family is None:
            return []
        if self._view.is_side:
            kept = key_filter(self._view, columns)
            return self._history.of_side(kept, family.to_bytes(FAMILY_BYTES, "big"), number)
        return self._history.of_key(key_bytes(self._view, columns, family), number)
