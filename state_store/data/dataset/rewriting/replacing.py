"""Rows of a table that replace those of a store: encoded, each in the partition where Spark looks for it.

If a row of a table stands for several rows of Spark's, the others are derived from it (`derived_rows`). The
rows of a list that have the same key are one row of Spark's.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip
from state_store.data.dataset.layout.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.layout.keys import key_partitions, partitioning_columns
from state_store.data.dataset.layout.views import View
from state_store.data.dataset.reading.damage import shown_key
from state_store.data.dataset.rewriting.derived_rows import DerivedRows, numbers
from state_store.data.dataset.rewriting.sorted_spool import SortedSpool, chunks
from state_store.data.rows.encoder import encode_keys
from state_store.data.rows.packed import WORD, merged_values
from state_store.errors import OptionError

if TYPE_CHECKING:
    import pyarrow

Record = tuple[bytes, bytes]
"""A key without the id of its column family, and its value."""


@dataclass(frozen=True)
class Replacement:
    """Rows that replace those of a view.

    Attributes:
        view: the view.
        batches: the new rows.
        others: all views of its operator.
        expired_ms: rows that expired up to this time, when Spark's last batch ran, are left out, because the
            next batch only looks for rows that have expired since; None keeps all.
        frame: a DataFrame of Spark with the new rows, in the place of `batches`.
    """

    view: View
    batches: Iterable[pyarrow.RecordBatch]
    others: Mapping[str, View]
    expired_ms: int | None = None
    frame: Any = None

    def __post_init__(self) -> None:
        """Raise OptionError for a view whose rows cannot be given alone."""
        name, known = self.view.name, self.others
        if self.view.operator.name == "symmetricHashJoin" and not self.view.is_side:
            sides = sorted(known.keys() & {"left", "right"}) or ["none: its state has another format"]
            raise OptionError(
                f"the rows of '{name}' belong to those of other stores: they cannot be given alone, but "
                f"with them, as a side of the join: {', '.join(sides)}"
            )
        if self.frame is not None and self.view.is_list:
            raise OptionError(
                f"the rows of '{name}' are lists, whose order a DataFrame does not keep: give an Arrow table "
                "or Parquet files",
                option="rows",
            )
        if name.startswith("$") and not self.view.has_timers:
            raise OptionError(f"'{name}' is Spark's own book-keeping: its rows follow from other rows")

    @cached_property
    def derived(self) -> DerivedRows:
        """The views whose rows follow from these. Raises FormatError as `DerivedRows.among`."""
        return DerivedRows.among(self.view, self.others)

    @property
    def families(self) -> set[tuple[str, str]]:
        """The stores and column families all of whose rows are replaced."""
        return {view.address for view in (self.view, *self.derived.views)}

    def encoded(
        self, batch: pyarrow.RecordBatch, partitions: int
    ) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        """Yield the rows of a batch, encoded, by the number of their partition.

        Raises:
            MissingError: a column lacks.
            OptionError: a column has another type.
            FormatError: a key cannot be encoded.
        """
        import numpy

        view, derived = self.view, self.derived
        columns, chosen = Columns(view), partitioning_columns(view)
        keys, values, key_columns = columns.encode(batch)
        shared = keys
        if view.is_side:
            assert derived.counts is not None
            shared = encode_keys(key_columns[:-1], len(keys), derived.counts.schema.layout)
        moments, index_keys = [0] * len(keys), [b""] * len(keys)
        lives = numpy.ones(len(keys), bool)
        if derived.index is not None:
            expiry = derived.moments(batch)
            if self.expired_ms is not None and not view.has_timers:
                lives = expiry.to_numpy() > self.expired_ms
            moments, index_keys = expiry.to_pylist(), derived.index_keys(key_columns, expiry)
        rows = list(zip(shared, keys, values, moments, index_keys, strict=True))
        by = [key_columns[number] for number in chosen]
        targets = key_partitions(view, by, len(keys), partitions)
        for target in numpy.unique(targets).tolist():
            yield target, [rows[row] for row in numpy.flatnonzero((targets == target) & lives).tolist()]


class _Row(NamedTuple):
    """An encoded row: the key that it shares with others, its own key, and its value.

    `moment_ms` and `index_key` are its time and its key in the index by time, if there is one.
    """

    shared: bytes
    key: bytes
    value: bytes
    moment_ms: int
    index_key: bytes


class Replaced:
    """The rows of a replacement, in a file by partition. One thread at a time.

    `close` closes the file and removes nothing.
    """

    def __init__(self, replacement: Replacement, partitions: Iterable[int], directory: Path) -> None:
        """Make the file.

        Args:
            replacement: the rows; they are added by `add`.
            partitions: the numbers of the partitions.
            directory: a local directory for the file.
        """
        self.replacement = replacement
        self._spool = SortedSpool(directory / "rows", partitions)

    @classmethod
    def of_all(cls, replacement: Replacement, partitions: int, directory: Path) -> Replaced:
        """Read all batches into a file.

        Args:
            replacement: the new rows.
            partitions: the number of partitions.
            directory: a local directory for the file.

        Raises:
            MissingError: a column lacks.
            OptionError: a column has another type.
            FormatError: a key cannot be encoded.
        """
        made = cls(replacement, range(partitions), directory)
        try:
            for batch in replacement.batches:
                for target, found in replacement.encoded(batch, partitions):
                    made.add(target, found)
        except BaseException:
            made.close()
            raise
        return made

    def add(self, partition: int, found: Sequence[tuple[Any, ...]]) -> None:
        """Add rows of a partition, as `Replacement.encoded` yields them."""
        self._spool.add(partition, found, sum(len(row[0]) + len(row[1]) + len(row[2]) for row in found))

    def close(self) -> None:
        """Close the file."""
        self._spool.close()

    def records(self, store: str, family: str, partition: int) -> Iterator[Record]:
        """Yield Spark's rows of a column family in a partition, in no order.

        Raises:
            OptionError: a key occurs twice.
        """
        address, derived = (store, family), self.replacement.derived
        counts, first, index = derived.counts, derived.first_expiry, derived.index
        groups = self._groups(partition)
        if address == self.replacement.view.address:
            yield from self._own_records(groups)
        elif counts is not None and address == counts.address:
            yield from _by_key(groups, len, counts)
        elif first is not None and address == first.address:
            yield from _by_key(groups, lambda group: min(row.moment_ms for row in group), first)
        elif index is not None and address == index.address:
            value = derived.index_value()
            yield from (
                (min(group, key=operator.attrgetter("moment_ms")).index_key, value) for group in groups
            )

    def _groups(self, partition: int) -> Iterator[list[_Row]]:
        """Yield the rows of a partition, grouped by key."""
        found = map(_Row._make, self._spool.merged(partition))
        return (list(group) for _, group in itertools.groupby(found, operator.itemgetter(0)))

    def _own_records(self, groups: Iterable[list[_Row]]) -> Iterator[Record]:
        view = self.replacement.view
        for group in groups:
            if view.is_side:
                yield from self._numbered(group)
            elif view.is_list:
                yield group[0].key, merged_values([row.value for row in group])
            elif len(group) > 1:
                raise OptionError(
                    f"the rows have a key twice: {shown_key(view, bytes(FAMILY_BYTES) + group[0].key)}",
                    option="rows",
                )
            else:
                yield group[0].key, group[0].value

    def _numbered(self, group: list[_Row]) -> Iterator[Record]:
        """Yield the rows of one key of a join, numbered; the number is the last word of the fixed part."""
        columns = len(self.replacement.view.schema.key)
        at = 1 + WORD * ((columns + 63) // 64 + columns - 1)
        for number, row in enumerate(group):
            yield row.key[:at] + number.to_bytes(WORD, "little") + row.key[at + WORD :], row.value


def _by_key(
    groups: Iterable[list[_Row]], number_of: Callable[[list[_Row]], int], view: View
) -> Iterator[Record]:
    """Yield a record for each key: the shared part of its rows, and a number that follows from them."""
    for some in chunks(groups):
        found = numbers([number_of(group) for group in some], view)
        yield from zip((group[0].shared for group in some), found, strict=True)
