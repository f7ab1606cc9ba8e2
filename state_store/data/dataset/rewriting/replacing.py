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

All of it is done by columns, in Arrow batches of encoded rows (`Replacement.schema`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from state_store.core.engine.rows import ByteSlices
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
from state_store.data.rows.batches import KEY, VALUE, SortedSpool, Targets, binaries, first_of_keys, pairs
from state_store.data.rows.encoder import encode_keys
from state_store.data.rows.types import WORD, merged_values
from state_store.errors import FormatError, OptionError

if TYPE_CHECKING:
    import pyarrow

ENCODED_BYTES = 4 << 20
"""Bytes of rows that are encoded at once, which takes several times their memory."""

_COUNTS_OF_SIDE = "-keyToNumValues"
_COUNTS_OF_LIST = "$rowCounter_"
_COUNTS_OF_EXPIRING_LIST = "$count_"
_FIRST_EXPIRY = "$min_"

_OWN_KEY, _MOMENT, _INDEX_KEY = "own_key", "moment_ms", "index_key"
"""Columns of encoded rows beside the key that rows share, and the value."""


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
    def among(cls, view: View, views: Mapping[str, View]) -> DerivedRows:
        """Find the derived views of a view among all views of its operator.

        Raises:
            FormatError: a view that Spark keeps is not among them.
        """
        family = view.schema.family

        def named(name: str) -> View:
            if name not in views:
                raise FormatError(f"'{view.name}' has no '{name}', which Spark keeps with it")
            return views[name]

        if view.is_side:
            rows = view.store if ROWS_OF_SIDE in view.store else family
            return cls(view, named(rows.replace(ROWS_OF_SIDE, _COUNTS_OF_SIDE)))
        if view.has_timers:
            index = named(family.removesuffix(TIMERS_OF_KEYS) + KEYS_OF_TIMERS)
            return cls(view, index=index, moment=TIMER_MS)
        index_name = TIME_TO_LIVE + family
        if index_name in views and view.is_list:
            counts, first = (named(start + family) for start in (_COUNTS_OF_EXPIRING_LIST, _FIRST_EXPIRY))
            return cls(view, counts, first, views[index_name], EXPIRES_MS)
        if index_name in views:
            return cls(view, index=views[index_name], moment=EXPIRES_MS)
        return cls(view, views.get(_COUNTS_OF_LIST + family) if view.is_list else None)

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

    def index_keys(self, key: Sequence[pyarrow.Array], moments: pyarrow.Array) -> pyarrow.Array:
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
        return bytes(encoded_values(self.index, nulls, 1)[0].as_py())


def numbers(values: Any, view: View) -> pyarrow.Array:
    """Return values with one column of 64-bit numbers, which are given as a numpy array."""
    import pyarrow

    if view.schema.value.types != [pyarrow.int64()]:
        raise FormatError(f"'{view.name}' has other values than a number: {view.schema.value}")
    return encoded_values(view, [pyarrow.array(values, pyarrow.int64())], len(values))


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

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns of encoded rows.

        They are the key that rows share with others, the value, and where they differ from those the row's
        own key, or its time and its key in the index by time.
        """
        import pyarrow

        own = [(_OWN_KEY, pyarrow.large_binary())] if self.view.is_side else []
        by_time = [(_MOMENT, pyarrow.int64()), (_INDEX_KEY, pyarrow.large_binary())]
        texts = [(KEY, pyarrow.large_binary()), (VALUE, pyarrow.large_binary())]
        return pyarrow.schema([*texts, *own, *(by_time if self.derived.index is not None else [])])

    def encoded(self, batch: pyarrow.RecordBatch, partitions: int) -> tuple[pyarrow.RecordBatch, Any]:
        """Return the rows of a batch, encoded, and the number of the partition of each, a numpy array.

        Raises:
            MissingError: a column is missing.
            OptionError: a column has another type.
            FormatError: a key cannot be encoded.
        """
        import pyarrow

        view, derived = self.view, self.derived
        keys, values, key_columns = Columns(view).encode(batch)
        columns, lives = [keys, values], None
        if view.is_side:
            assert derived.counts is not None
            shared = encode_keys(key_columns[:-1], len(keys), derived.counts.schema.layout)
            columns = [shared, values, keys]
        if derived.index is not None:
            moments = derived.moments(batch)
            columns += [moments, derived.index_keys(key_columns, moments)]
            if self.expired_ms is not None and not view.has_timers:
                lives = moments.to_numpy() > self.expired_ms
        by = [key_columns[number] for number in partitioning_columns(view)]
        targets = key_partitions(view, by, len(keys), partitions)
        rows = pyarrow.RecordBatch.from_arrays(columns, schema=self.schema)
        return (rows, targets) if lives is None else (rows.filter(pyarrow.array(lives)), targets[lives])


class Replaced:
    """The rows of a replacement, in a file by partition. One thread at a time.

    `close` closes the file and removes nothing.
    """

    def __init__(self, replacement: Replacement, directory: Path) -> None:
        """Make the file.

        Args:
            replacement: the rows; they are added by `add`.
            directory: a local directory for the file.
        """
        self.replacement = replacement
        self._spool = SortedSpool(directory / "rows")

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
        new_rows = cls(replacement, directory)
        try:
            for batch in replacement.batches:
                new_rows.add(*replacement.encoded(batch, partitions))
        except BaseException:
            new_rows.close()
            raise
        return new_rows

    def add(self, rows: pyarrow.RecordBatch, targets: Targets) -> None:
        """Add rows, as `Replacement.encoded` returns them, to a partition, or each to its own."""
        self._spool.add(rows, targets)

    def close(self) -> None:
        """Close the file."""
        self._spool.close()

    @property
    def is_direct(self) -> bool:
        """True if Spark has no other rows than those that were added, and `records` yields them in order."""
        replacement = self.replacement
        return not (replacement.view.is_side or replacement.view.is_list or replacement.derived.views)

    def size(self, partition: int) -> tuple[int, int]:
        """Return the number of the rows that were added to a partition, and their bytes."""
        return self._spool.rows[partition], self._spool.sizes[partition]

    def records(self, store: str, family: str, partition: int) -> Iterator[pyarrow.RecordBatch]:
        """Yield Spark's rows of a column family in a partition, in no order, as keys and values.

        Raises:
            OptionError: a key occurs twice.
        """
        address, derived = (store, family), self.replacement.derived
        counts, first, index = derived.counts, derived.first_expiry, derived.index
        for batch in self._spool.merged(partition):  # which has all rows of its keys
            groups = _Groups.of(batch)
            if address == self.replacement.view.address:
                yield self._own_records(batch, groups)
            elif counts is not None and address == counts.address:
                yield pairs(groups.keys(), numbers(groups.sizes, counts))
            elif first is not None and address == first.address:
                yield pairs(groups.keys(), numbers(groups.least(batch[_MOMENT])[0], first))
            elif index is not None and address == index.address:
                _, places = groups.least(batch[_MOMENT])
                yield pairs(batch[_INDEX_KEY].take(places), binaries([derived.index_value()] * len(places)))

    def _own_records(self, batch: pyarrow.RecordBatch, groups: _Groups) -> pyarrow.RecordBatch:
        view = self.replacement.view
        if view.is_side:
            return pairs(self._numbered(batch[_OWN_KEY], groups), batch[VALUE])
        if view.is_list:
            values, ends = batch[VALUE].to_pylist(), (groups.firsts + groups.sizes).tolist()
            bounds = zip(groups.firsts.tolist(), ends, strict=True)
            lists = [merged_values(values[first:end]) for first, end in bounds]
            return pairs(groups.keys(), binaries(lists))
        twice = (groups.sizes > 1).nonzero()[0]
        if len(twice):
            key = groups.keys()[int(twice[0])].as_py()
            raise OptionError(
                f"the rows have a key twice: {shown_key(view, bytes(FAMILY_BYTES) + key)}", option="rows"
            )
        return pairs(batch[KEY], batch[VALUE])

    def _numbered(self, keys: pyarrow.Array, groups: _Groups) -> pyarrow.Array:
        """Return the keys of a join's rows with their numbers, each the last word of the fixed part."""
        import numpy
        import pyarrow

        columns = len(self.replacement.view.schema.key)
        at = 1 + WORD * ((columns + 63) // 64 + columns - 1)
        own = ByteSlices.of(keys)
        data = own.data.copy()
        within = numpy.arange(len(keys)) - numpy.repeat(groups.firsts, groups.sizes)
        places = (own.starts + at)[:, None] + numpy.arange(WORD)
        data[places] = within.astype("<i8").view(numpy.uint8).reshape(-1, WORD)
        bounds = numpy.append(own.starts, len(data))
        return pyarrow.Array.from_buffers(
            keys.type, len(keys), [None, pyarrow.py_buffer(bounds), pyarrow.py_buffer(data)]
        )


@dataclass(frozen=True)
class _Groups:
    """The rows of each key in a batch that is in the order of keys: the place of the first, their number."""

    batch: pyarrow.RecordBatch
    firsts: Any
    sizes: Any

    @classmethod
    def of(cls, batch: pyarrow.RecordBatch) -> _Groups:
        import numpy

        firsts = first_of_keys(batch)
        return cls(batch, firsts, numpy.diff(firsts, append=len(batch)))

    def keys(self) -> pyarrow.Array:
        """Return the key of each group."""
        import pyarrow

        return self.batch[KEY].take(pyarrow.array(self.firsts))

    def least(self, column: pyarrow.Array) -> tuple[Any, Any]:
        """Return the least number of each group, and the place of the first row that has it."""
        import numpy

        every = column.to_numpy(zero_copy_only=False)
        least = numpy.minimum.reduceat(every, self.firsts)
        places = numpy.flatnonzero(every == numpy.repeat(least, self.sizes))
        return least, places[numpy.searchsorted(places, self.firsts)]
