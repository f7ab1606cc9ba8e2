"""Rows of a table that take the place of those of a store: encoded, each in the partition where Spark looks.

Where one row of a table is more than one row of Spark's, the others are made from it:

| the state | Spark's rows |
|---|---|
| a side of a join | each row under its key and a number; how many there are of a key |
| a list of `transformWithState` | the values of a key one after the other, and how many there are |
| all others | a row |
"""

from __future__ import annotations

import itertools
import operator
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from state_store.dataset.columns import Columns, encoded_values
from state_store.dataset.keys import partitioning_columns, places_of
from state_store.dataset.views import TIME_TO_LIVE, View
from state_store.errors import OptionError
from state_store.rows.encoder import encode_keys
from state_store.rows.packed import WORD, merged_values

if TYPE_CHECKING:
    import pyarrow

Record = tuple[bytes, bytes]
"""A key without the id of its column family, and its value."""

_COUNTS_OF_SIDE = "-keyToNumValues"
_ROWS_OF_SIDE = "-keyWithIndexToValue"
_COUNTS_OF_LIST = "$rowCounter_"


@dataclass(frozen=True)
class Replacement:
    """Rows that take the place of those of a view; `others` are all views of its operator."""

    view: View
    batches: Iterable[pyarrow.RecordBatch]
    others: Mapping[str, View]

    def __post_init__(self) -> None:
        """Raises OptionError for a view whose rows cannot be given alone."""
        name, known = self.view.name, self.others
        if self.view.operator.name == "symmetricHashJoin" and not self.view.hidden:
            sides = sorted(known.keys() & {"left", "right"}) or ["none: its state has another format"]
            raise OptionError(
                f"the rows of '{name}' belong to those of other stores: they cannot be given alone, but "
                f"with them, as a side of the join: {', '.join(sides)}"
            )
        if name.startswith("$"):
            raise OptionError(f"'{name}' is Spark's own book-keeping: its rows follow from other rows")
        if TIME_TO_LIVE + name in known:
            raise OptionError(
                f"the rows of '{name}' have a time to live, of which Spark keeps an index: it cannot be given"
            )
        if self.view.schema.layout.is_ordered:
            raise OptionError(f"the keys of '{name}' order its rows: they cannot be written")

    @property
    def counts(self) -> View | None:
        """What says of each key how many rows it has, where there is such a thing."""
        schema = self.view.schema
        if self.view.hidden:
            rows = self.view.store if _ROWS_OF_SIDE in self.view.store else schema.family
            return self.others[rows.replace(_ROWS_OF_SIDE, _COUNTS_OF_SIDE)]
        return self.others.get(_COUNTS_OF_LIST + self.view.name) if self.view.is_list else None

    @property
    def families(self) -> set[tuple[str, str]]:
        """The stores and column families all of whose rows are replaced."""
        views = [self.view] if self.counts is None else [self.view, self.counts]
        return {(one.store, one.schema.family) for one in views}


class Replaced:
    """The rows of a replacement, in a file below `directory` for each of `partitions` partitions. `close`
    removes nothing. One thread at a time."""

    def __init__(self, replacement: Replacement, partitions: int, directory: Path) -> None:
        """Reads all batches. Raises MissingError for a column that lacks, OptionError for one of another
        type, FormatError for keys that cannot be encoded."""
        self.replacement = replacement
        self._opened = ExitStack()
        self._spools: list[IO[bytes]] = [
            self._opened.enter_context((directory / str(number)).open("w+b")) for number in range(partitions)
        ]
        try:
            self._spread()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._opened.close()

    def records(self, store: str, family: str, partition: int) -> Iterator[Record]:
        """Spark's rows of a column family in a partition, in no order. Raises OptionError for a key that is
        there twice."""
        view, counts = self.replacement.view, self.replacement.counts
        found = sorted(spooled(self._spools[partition]), key=operator.itemgetter(0))
        groups = [list(group) for _, group in itertools.groupby(found, operator.itemgetter(0))]
        if (view.store, view.schema.family) == (store, family):
            if view.hidden:
                yield from (record for group in groups for record in self._numbered(group))
            elif view.is_list:
                yield from ((group[0][1], merged_values([one[2] for one in group])) for group in groups)
            else:
                yield from ((long, value) for group in groups for _, long, value in _single(group))
        elif counts is not None and groups:
            keys = [group[0][0] for group in groups]
            yield from zip(keys, _numbers([len(group) for group in groups], counts), strict=True)

    def _spread(self) -> None:
        """Puts each row into the spool of its partition, with the key that it shares with others."""
        import numpy

        view, counts = self.replacement.view, self.replacement.counts
        columns, numbers = Columns(view), partitioning_columns(view)
        for batch in self.replacement.batches:
            keys, values, key_columns = columns.encode(batch)
            shared = keys
            if view.hidden:
                assert counts is not None
                shared = encode_keys(key_columns[:-1], len(keys), counts.schema.layout)
            chosen = [key_columns[number] for number in numbers]
            places = places_of(view, chosen, len(keys), len(self._spools))
            for place in numpy.unique(places).tolist():
                rows = numpy.flatnonzero(places == place).tolist()
                pickle.dump([(shared[row], keys[row], values[row]) for row in rows], self._spools[place])

    def _numbered(self, group: list[tuple[bytes, bytes, bytes]]) -> Iterator[Record]:
        """Rows of one key of a join; their numbers, so far 0, are the last word of the fixed part."""
        columns = len(self.replacement.view.schema.key)
        at = 1 + WORD * ((columns + 63) // 64 + columns - 1)
        for number, (_, key, value) in enumerate(group):
            yield key[:at] + number.to_bytes(WORD, "little") + key[at + WORD :], value


def _single(group: list[tuple[bytes, bytes, bytes]]) -> list[tuple[bytes, bytes, bytes]]:
    if len(group) > 1:
        raise OptionError(f"the rows have a key twice, which is {group[0][1].hex()} in Spark's encoding")
    return group


def _numbers(counts: list[int], view: View) -> list[bytes]:
    """Values of one column of 64-bit numbers."""
    import pyarrow

    assert view.schema.value.types == [pyarrow.int64()], view.schema.value
    return encoded_values(view, [pyarrow.array(counts, pyarrow.int64())], len(counts))


def spooled(spool: IO[bytes]) -> list[Any]:
    """What was put into a spool, list after list; it was written by this process alone, and is private to
    it."""
    end = spool.seek(0, os.SEEK_END)
    spool.seek(0)
    found: list[Any] = []
    while spool.tell() < end:
        found += pickle.load(spool)
    return found
