"""One key over the versions of a store, as far back as deltas go."""

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
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.partitions import Partitions, opened
from state_store.errors import MissingError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.compute

Records = Iterable[tuple[bytes, "bytes | None"]]
"""Keys with the id of their column family, and what each has; None where it was removed."""


class _Database(Protocol):
    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


@dataclass(frozen=True)
class KeyVersion:
    """A key at a version: whether the version's batch wrote it (`is_changed`), and what it has there as
    columns of the state, without rows where it has nothing. `committed_ms` is when the version was written,
    by the storage's clock.
    """

    version: int
    committed_ms: int
    is_changed: bool
    found: pyarrow.RecordBatch

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its rows as Python values: none or one, of a list one for each element, of a side of a join one for
        each that waits.
        """
        return [dict(row) for row in self.found.to_pylist()]

    @property
    def row(self) -> dict[str, Any] | None:
        """Its row, the first where it has several; None where it has none."""
        return next(iter(self.rows), None)


class History:
    """The keys of some partitions until their version."""

    def __init__(self, partitions: Partitions, columns: Columns) -> None:
        self._partitions = partitions
        self._columns = columns

    def of_key(self, key: bytes, number: int) -> list[KeyVersion]:
        """The versions of an encoded key in a partition, oldest first."""
        return self._over_versions(
            number,
            key[:FAMILY_BYTES],
            lambda records: (record for record in records if record[0] == key),
            lambda database: [(key, database.get(key))],
        )

    def of_side(self, kept: pyarrow.compute.Expression, family: bytes, number: int) -> list[KeyVersion]:
        """The versions of the rows of a side of a join, in a column family of a partition, whose keys `kept`
        keeps. All of the side is read as it was at first, and all that changed since.
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
        """The versions of what `matching` leaves of the changes; `read` gives what there was at first."""
        partitions = self._partitions
        with partitions.pinned(partitions.version, 0) as pins:
            pin = pins[number]
            versions = [delta.version for delta in pin.lineage]
            run = versions[versions.index(_first_of_run(versions)) :] if versions else []
            start, rows = self._oldest(number, run, read)
            deltas = [delta for delta in pin.lineage if delta.version in run and delta.version >= start]
            key_versions = []
            with partitions.told([pin], sum(map(pin.delta_bytes, deltas))):
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
        """The versions of a key, whose columns are `key`, in its partition: see `State.history_rows`."""
        import pyarrow

        batches = [self._batch(key, number, one) for one in versions]
        return pyarrow.Table.from_batches(batches, self._schema)

    def _batch(self, key: Sequence[pyarrow.Array], number: int, at: KeyVersion) -> pyarrow.RecordBatch:
        """The rows of a key at a version; one, with null for each value, where it has none."""
        import pyarrow

        exists = at.found.num_rows > 0
        rows: Sequence[pyarrow.Array] = at.found.columns
        if not exists:
            nulls = [pyarrow.nulls(1, field.type) for field in self._columns.value_fields]
            rows = [*key, *nulls, pyarrow.array([number], pyarrow.int32())]
        change = (PUT if exists else REMOVED) if at.is_changed else None
        told = [at.version, at.version - 1, at.committed_ms, change]
        first = [
            pyarrow.repeat(pyarrow.scalar(one, field.type), len(rows[0]))
            for one, field in zip(told, self._schema, strict=False)
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
                pyarrow.field("committed", pyarrow.timestamp("ms", "UTC"), False),
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
        """The records whose keys an expression keeps."""
        import pyarrow

        names = [*(field.name for field in self._columns.key_fields), "place"]
        pending = iter(records)
        while chunk := list(itertools.islice(pending, ROWS)):
            keys = self._columns.keys([key for key, _ in chunk])
            table = pyarrow.Table.from_arrays([*keys, pyarrow.array(range(len(chunk)))], names)
            yield from (chunk[place] for place in table.filter(kept).column(len(keys)).to_pylist())

    def _oldest(
        self, number: int, run: Sequence[int], read: Callable[[_Database], Records]
    ) -> tuple[int, dict[bytes, bytes]]:
        """The oldest version, of the one before a run of versions and of these, that can still be made, and
        what `read` finds in it. Raises MissingError where not even the newest can.
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
                    self._partitions.told([pin], pin.size_bytes),
                    opened(pin.restore(directory)) as database,
                ):
                    return _present(dict(read(database)))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _present(rows: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in rows.items() if value is not None}


def _first_of_run(versions: list[int]) -> int:
    """Where the run of numbers begins that the last one ends; 0 without any."""
    first = versions[-1] if versions else 0
    for version in reversed(versions):
        if version < first - 1:
            break
        first = version
    return first
