"""Rows of a table that replace those of a store: encoded, each in the partition where Spark looks for it.

If a row of a table stands for several rows of Spark's, the others are derived from it. The
rows of a list that have the same key are one row of Spark's.

The derived rows are counts, first expiries, and an index of keys by time:

| the view | counts | first expiry | index |
|---|---|---|---|
| a side of a join | `SIDE-keyToNumValues` | | |
| a list of `transformWithState` | `$rowCounter_NAME` | | |
| a list with a time to live | `$count_NAME` | `$min_NAME` | `$ttl_NAME`, by that |
| a value or a map with a time to live | | | `$ttl_NAME` |
| the timers | | | `..._timestampToKey` |

On their way to new partitions rows are in a file of sorted runs. Rows are kept in memory up to a bound, and
while they are read a chunk of each run. Then those of each partition are sorted and written as a run; rows
that arrive in order become one run however many they are. Reading merges the runs of a partition as streams.
The rows are pickled, and read by the process that wrote them alone.
"""

from __future__ import annotations

import heapq
import itertools
import operator
import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip
from state_store.data.dataset.columns import (
    FAMILY_BYTES,
    Columns,
    encoded_keys,
    encoded_values,
    key_partitions,
    partitioning_columns,
)
from state_store.data.dataset.partitions import shown_key
from state_store.data.dataset.views import (
    EXPIRES_MS,
    KEYS_OF_TIMERS,
    ROWS_OF_SIDE,
    TIME_TO_LIVE,
    TIMER_MS,
    TIMERS_OF_KEYS,
    View,
)
from state_store.data.rows.encoder import encode_keys
from state_store.data.rows.types import WORD, merged_values
from state_store.errors import FormatError, OptionError

if TYPE_CHECKING:
    import pyarrow

MEMORY_BYTES = 64 << 20
"""Bytes of rows in memory, over all partitions."""

_ROW_BYTES = 150
"""Bytes of memory that a row takes beside those of its key and its value."""

_CHUNK_ROWS, _CHUNK_BYTES = 1024, 64 << 10
"""Rows that are read at a time of each run, or fewer, if they have more bytes: there may be many runs."""

_key = operator.itemgetter(0)

_COUNTS_OF_SIDE = "-keyToNumValues"
_COUNTS_OF_LIST = "$rowCounter_"
_COUNTS_OF_EXPIRING_LIST = "$count_"
_FIRST_EXPIRY = "$min_"

Record = tuple[bytes, bytes]
"""A key without the id of its column family, and its value."""


class SortedSpool:
    """The rows of several partitions: tuples, in each partition sorted by their first item, a key.

    Rows with the same key stay in the order in which they were added. `close` closes the file and removes
    nothing. One thread at a time.
    """

    def __init__(self, path: Path, partitions: Iterable[int], memory_bytes: int = MEMORY_BYTES) -> None:
        """Make the file.

        Args:
            path: a local file.
            partitions: the numbers of the partitions.
            memory_bytes: the bound of the rows in memory.
        """
        self._file = path.open("w+b")
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._waiting: dict[int, list[Any]] = {number: [] for number in partitions}
        self._runs: dict[int, list[array[int]]] = {number: [] for number in self._waiting}
        """Places of the chunks of each run."""
        self._last: dict[int, bytes] = {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, partition: int, rows: Sequence[Any], size_bytes: int) -> None:
        """Add rows, whose keys and values have this many bytes, to a partition."""
        self._waiting[partition] += rows
        self._used_bytes += size_bytes + _ROW_BYTES * len(rows)
        if self._used_bytes > self._memory_bytes:
            self._write_out()

    def merged(self, partition: int) -> Iterator[Any]:
        """Yield the rows of a partition in the order of their keys; nothing may be added meanwhile."""
        self._write_out()
        runs = [self._read(run) for run in self._runs[partition]]
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=_key)

    def runs(self, partition: int) -> int:
        """Return the number of sorted runs that a partition has in the file."""
        return len(self._runs[partition])

    def _write_out(self) -> None:
        """Write the rows in memory to the file, those of each partition as a run or the end of one."""
        if not self._used_bytes:
            return
        self._file.seek(0, 2)
        row_bytes = self._used_bytes // sum(map(len, self._waiting.values()))
        count = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // row_bytes))
        for partition, rows in self._waiting.items():
            if not rows:
                continue
            rows.sort(key=_key)
            runs = self._runs[partition]
            if not runs or _key(rows[0]) < self._last[partition]:
                runs.append(array("q"))
            for first in range(0, len(rows), count):
                runs[-1].append(self._file.tell())
                pickle.dump(rows[first : first + count], self._file)
            self._last[partition] = _key(rows[-1])
            self._waiting[partition] = []
        self._used_bytes = 0

    def _read(self, run: Sequence[int]) -> Iterator[Any]:
        for place in run:
            self._file.seek(place)
            yield from pickle.load(self._file)


def chunks(rows: Iterable[Any], count: int = _CHUNK_ROWS) -> Iterator[list[Any]]:
    """Yield rows as lists of at most `count`."""
    source = iter(rows)
    while chunk := list(itertools.islice(source, count)):
        yield chunk


@dataclass(frozen=True)
class DerivedRows:
    """The views whose rows Spark derives from those of `view`; None if Spark has no such view.

    Attributes:
        view: the view of the user's rows.
        counts: the number of rows of each key.
        first_expiry: the earliest expiry of each key.
        index: the keys, ordered by time.
        moment: the column of `view` by which the index is ordered.
    """

    view: View
    counts: View | None = None
    first_expiry: View | None = None
    index: View | None = None
    moment: str | None = None

    @classmethod
    def among(cls, view: View, known: Mapping[str, View]) -> DerivedRows:
        """Find the derived views of a view among all views of its operator.

        Raises:
            FormatError: a view that Spark keeps is not among them.
        """
        family = view.schema.family

        def named(name: str) -> View:
            if name not in known:
                raise FormatError(f"'{view.name}' has no '{name}', which Spark keeps with it")
            return known[name]

        if view.is_side:
            rows = view.store if ROWS_OF_SIDE in view.store else family
            return cls(view, named(rows.replace(ROWS_OF_SIDE, _COUNTS_OF_SIDE)))
        if view.has_timers:
            index = named(family.removesuffix(TIMERS_OF_KEYS) + KEYS_OF_TIMERS)
            return cls(view, index=index, moment=TIMER_MS)
        index_name = TIME_TO_LIVE + family
        if index_name in known and view.is_list:
            counts, first = (named(start + family) for start in (_COUNTS_OF_EXPIRING_LIST, _FIRST_EXPIRY))
            return cls(view, counts, first, known[index_name], EXPIRES_MS)
        if index_name in known:
            return cls(view, index=known[index_name], moment=EXPIRES_MS)
        return cls(view, known.get(_COUNTS_OF_LIST + family) if view.is_list else None)

    @property
    def views(self) -> list[View]:
        """The derived views that exist."""
        return [view for view in (self.counts, self.first_expiry, self.index) if view is not None]

    def moments(self, batch: pyarrow.RecordBatch) -> pyarrow.Array:
        """Return the time at which each row fires or expires, as int64 in ms since 1970 UTC.

        Raises:
            OptionError: a row has no time.
        """
        import pyarrow
        import pyarrow.compute

        assert self.moment is not None
        numbers = batch[self.moment].cast(pyarrow.int64())
        if numbers.null_count or (len(numbers) and pyarrow.compute.min(numbers).as_py() < 0):
            raise OptionError(
                f"column '{self.moment}' of the rows of '{self.view.name}' is null or below 0 in a row: it "
                "says when the row expires, in ms since 1970 UTC"
            )
        return pyarrow.concat_arrays([numbers])

    def index_keys(self, key: Sequence[pyarrow.Array], moments: pyarrow.Array) -> list[bytes]:
        """Return the keys of the index for rows with these columns of the key."""
        import pyarrow

        index, names = self.index, self.view.schema.key.names
        assert index is not None
        key_fields = list(index.schema.key)[1:]
        own = [column for name, column in zip(names, key, strict=True) if name != self.moment]
        if not self.view.has_timers and len(key_fields) == 1:  # the index has the whole key in one column
            kind = key_fields[0].type
            fields = [kind.field(number) for number in range(kind.num_fields)]
            own = [pyarrow.StructArray.from_arrays(own, fields=fields)]
        return encoded_keys(index, [moments, *own], len(moments))

    def index_value(self) -> bytes:
        """Return the value that every row of the index has: nulls."""
        import pyarrow

        assert self.index is not None
        nulls = [pyarrow.nulls(1, field.type) for field in self.index.schema.value]
        return encoded_values(self.index, nulls, 1)[0]


def numbers(values: Sequence[int], view: View) -> Iterator[bytes]:
    """Return values with one column of 64-bit numbers."""
    import pyarrow

    if view.schema.value.types != [pyarrow.int64()]:
        raise FormatError(f"'{view.name}' has other values than a number: {view.schema.value}")
    return iter(encoded_values(view, [pyarrow.array(values, pyarrow.int64())], len(values)))


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
        name, others = self.view.name, self.others
        if self.view.operator.name == "symmetricHashJoin" and not self.view.is_side:
            sides = sorted(others.keys() & {"left", "right"}) or ["none: its state has another format"]
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
            MissingError: a column is missing.
            OptionError: a column has another type.
            FormatError: a key cannot be encoded.
        """
        import numpy

        view, derived = self.view, self.derived
        columns, positions = Columns(view), partitioning_columns(view)
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
        by = [key_columns[number] for number in positions]
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
            MissingError: a column is missing.
            OptionError: a column has another type.
            FormatError: a key cannot be encoded.
        """
        made = cls(replacement, range(partitions), directory)
        try:
            for batch in replacement.batches:
                for target, pairs in replacement.encoded(batch, partitions):
                    made.add(target, pairs)
        except BaseException:
            made.close()
            raise
        return made

    def add(self, partition: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows of a partition, as `Replacement.encoded` yields them."""
        self._spool.add(partition, rows, sum(len(row[0]) + len(row[1]) + len(row[2]) for row in rows))

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
        rows = map(_Row._make, self._spool.merged(partition))
        return (list(group) for _, group in itertools.groupby(rows, operator.itemgetter(0)))

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
        numbers_of_groups = numbers([number_of(group) for group in some], view)
        yield from zip((group[0].shared for group in some), numbers_of_groups, strict=True)
