"""Spark's rows that follow from those of a view: counts, first expiries, and an index of keys by time.

| the view | counts | first expiry | index |
|---|---|---|---|
| a side of a join | `SIDE-keyToNumValues` | | |
| a list of `transformWithState` | `$rowCounter_NAME` | | |
| a list with a time to live | `$count_NAME` | `$min_NAME` | `$ttl_NAME`, by that |
| a value or a map with a time to live | | | `$ttl_NAME` |
| the timers | | | `..._timestampToKey` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_store.core.compat import zip
from state_store.data.dataset.layout.columns import encoded_keys, encoded_values
from state_store.data.dataset.layout.views import (
    EXPIRES_MS,
    KEYS_OF_TIMERS,
    ROWS_OF_SIDE,
    TIME_TO_LIVE,
    TIMER_MS,
    TIMERS_OF_KEYS,
    View,
)
from state_store.errors import FormatError, OptionError

if TYPE_CHECKING:
    import pyarrow

_COUNTS_OF_SIDE = "-keyToNumValues"
_COUNTS_OF_LIST = "$rowCounter_"
_COUNTS_OF_EXPIRING_LIST = "$count_"
_FIRST_EXPIRY = "$min_"


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
        wanted = list(index.schema.key)[1:]
        own = [column for name, column in zip(names, key, strict=True) if name != self.moment]
        if not self.view.has_timers and len(wanted) == 1:  # the index has the whole key in one column
            kind = wanted[0].type
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
