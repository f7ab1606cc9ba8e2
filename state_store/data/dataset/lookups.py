"""What one key has in a version of a store, and in those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.history import History, KeyVersion
from state_store.data.dataset.keys import Key, key_bytes, key_columns, key_filter, partition_of
from state_store.data.dataset.partitions import Partitions, opened
from state_store.errors import MissingError

if TYPE_CHECKING:
    import pyarrow


class Lookups:
    """Looks for keys in some partitions at their version. Methods raise OptionError for a key of other
    columns or types, and MissingError where its partition was not opened.
    """

    def __init__(
        self,
        partitions: Partitions,
        columns: Columns,
        scan: Callable[[int], Iterator[pyarrow.RecordBatch]],
    ) -> None:
        """`scan` reads all rows of a partition."""
        self._partitions = partitions
        self._columns = columns
        self._view = columns.view
        self._scan = scan

    def rows(self, key: Key) -> pyarrow.Table:
        """See `State.rows_of`."""
        import pyarrow

        columns = key_columns(self._view, key)
        rows = self._of_side if self._view.is_side else self._of_key
        for number in self._partitions_of(columns):
            found = [batch for batch in rows(columns, number) if batch.num_rows]
            if found:
                return pyarrow.Table.from_batches(found)
        return self._columns.schema.empty_table()

    def versions(self, key: Key) -> list[KeyVersion]:
        """See `State.history`."""
        return self._versions(key_columns(self._view, key))[1]

    def history(self, key: Key, *, every: bool) -> pyarrow.Table:
        """See `State.history_rows`."""
        columns = key_columns(self._view, key)
        number, versions = self._versions(columns)
        kept = [one for one in versions if every or one.is_changed]
        return self._history.table(columns, number, kept)

    @property
    def _history(self) -> History:
        return History(self._partitions, self._columns)

    def _partitions_of(self, columns: list[pyarrow.Array]) -> Sequence[int]:
        """The partitions that a key may be in."""
        numbers = self._partitions.numbers
        partition = partition_of(self._view, columns)
        if partition is not None and partition not in numbers:
            raise MissingError(f"the key is in partition {partition}, which was not opened")
        return numbers if partition is None else (partition,)

    def _of_key(self, columns: list[pyarrow.Array], number: int) -> Iterator[pyarrow.RecordBatch]:
        """The rows of an encoded key in a partition."""
        with self._partitions.brought(number) as base:
            family = base.column_families.get(self._view.schema.family)
            if family is None:
                return
            encoded = key_bytes(self._view, columns, family.id)
            with opened(base) as database:
                value = database.get(encoded)
        if value is not None:
            yield self._columns.decode([encoded], [value], number)

    def _of_side(self, columns: list[pyarrow.Array], number: int) -> Iterator[pyarrow.RecordBatch]:
        """The rows that wait with a key in a partition, which is read as a whole."""
        kept = key_filter(self._view, columns)
        yield from (batch.filter(kept) for batch in self._scan(number))

    def _versions(self, columns: list[pyarrow.Array]) -> tuple[int, list[KeyVersion]]:
        """The versions of a key, and the partition that has it, or may have it."""
        found = [(number, self._versions_in(number, columns)) for number in self._partitions_of(columns)]
        return next((one for one in found if any(at.found.num_rows for at in one[1])), found[0])

    def _versions_in(self, number: int, columns: list[pyarrow.Array]) -> list[KeyVersion]:
        family = self._partitions.family_id(number)
        if family is None:
            return []
        if self._view.is_side:
            kept = key_filter(self._view, columns)
            return self._history.of_side(kept, family.to_bytes(FAMILY_BYTES, "big"), number)
        return self._history.of_key(key_bytes(self._view, columns, family), number)
