"""Rows of a table that take the place of those of a store: encoded, each in the partition where Spark looks.

Where one row of a table is more than one row of Spark's, the others are made from it
(`companions`); the rows of a list that have the same key are one row of Spark's.
"""

from __future__ import annotations

import itertools
import operator
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from state_store.core.compat import zip
from state_store.data.dataset.columns import FAMILY_BYTES, Columns
from state_store.data.dataset.damage import shown_key
from state_store.data.dataset.keys import partitioning_columns, places_of
from state_store.data.dataset.rewriting.companions import Companions, numbers
from state_store.data.dataset.views import View
from state_store.data.rows.encoder import encode_keys
from state_store.data.rows.packed import WORD, merged_values
from state_store.errors import OptionError

if TYPE_CHECKING:
    import pyarrow

Record = tuple[bytes, bytes]
"""A key without the id of its column family, and its value."""


@dataclass(frozen=True)
class Replacement:
    """Rows that take the place of those of a view; `others` are all views of its operator.

    What expired up to `expired_ms` (None: nothing), when Spark's last batch ran, is left out: the next one
    only looks for what has expired since.
    """

    view: View
    batches: Iterable[pyarrow.RecordBatch]
    others: Mapping[str, View]
    expired_ms: int | None = None

    def __post_init__(self) -> None:
        """Raises OptionError for a view whose rows cannot be given alone."""
        name, known = self.view.name, self.others
        if self.view.operator.name == "symmetricHashJoin" and not self.view.is_side:
            sides = sorted(known.keys() & {"left", "right"}) or ["none: its state has another format"]
            raise OptionError(
                f"the rows of '{name}' belong to those of other stores: they cannot be given alone, but "
                f"with them, as a side of the join: {', '.join(sides)}"
            )
        if name.startswith("$") and not self.view.has_timers:
            raise OptionError(f"'{name}' is Spark's own book-keeping: its rows follow from other rows")

    @cached_property
    def companions(self) -> Companions:
        """What follows from the rows. Raises FormatError as `Companions.among`."""
        return Companions.among(self.view, self.others)

    @property
    def families(self) -> set[tuple[str, str]]:
        """The stores and column families all of whose rows are replaced."""
        return {one.place for one in (self.view, *self.companions.views)}


class _Row(NamedTuple):
    """A row, encoded: the key that it has with others, its own key and value; where there is an index by
    time, the row's moment, and its key there.
    """

    shared: bytes
    key: bytes
    value: bytes
    moment_ms: int
    index_key: bytes


class Replaced:
    """The rows of a replacement, in a file below `directory` for each of `partitions` partitions. `close`
    removes nothing. One thread at a time.
    """

    def __init__(self, replacement: Replacement, partitions: int, directory: Path) -> None:
        """Reads all batches. Raises MissingError for a column that lacks, OptionError for one of another
        type, FormatError for keys that cannot be encoded.
        """
        self.replacement = replacement
        self._groups: tuple[int, list[list[_Row]]] = (-1, [])
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
        there twice.
        """
        meant, companions = (store, family), self.replacement.companions
        counts, first, index = companions.counts, companions.first_expiry, companions.index
        groups = self._grouped(partition)
        if meant == self.replacement.view.place:
            yield from self._own_records(groups)
        elif counts is not None and meant == counts.place:
            yield from _by_key(groups, [len(group) for group in groups], counts)
        elif first is not None and meant == first.place:
            firsts = [min(row.moment_ms for row in group) for group in groups]
            yield from _by_key(groups, firsts, first)
        elif index is not None and meant == index.place:
            value = companions.index_value()
            yield from (
                (min(group, key=operator.attrgetter("moment_ms")).index_key, value) for group in groups
            )

    def _grouped(self, partition: int) -> list[list[_Row]]:
        """The rows of a partition, those with one key together; kept until another partition is asked for."""
        if self._groups[0] != partition:
            found = sorted(map(_Row._make, spooled(self._spools[partition])), key=operator.itemgetter(0))
            groups = [list(group) for _, group in itertools.groupby(found, operator.itemgetter(0))]
            self._groups = (partition, groups)
        return self._groups[1]

    def _own_records(self, groups: list[list[_Row]]) -> Iterator[Record]:
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

    def _spread(self) -> None:
        """Puts each row into the spool of its partition, with the key that it shares with others."""
        import numpy

        view, companions = self.replacement.view, self.replacement.companions
        columns, chosen = Columns(view), partitioning_columns(view)
        for batch in self.replacement.batches:
            keys, values, key_columns = columns.encode(batch)
            shared = keys
            if view.is_side:
                assert companions.counts is not None
                shared = encode_keys(key_columns[:-1], len(keys), companions.counts.schema.layout)
            moments, index_keys = [0] * len(keys), [b""] * len(keys)
            lives = numpy.ones(len(keys), bool)
            if companions.index is not None:
                expiry = companions.moments(batch)
                if self.replacement.expired_ms is not None and not view.has_timers:
                    lives = expiry.to_numpy() > self.replacement.expired_ms
                moments, index_keys = expiry.to_pylist(), companions.index_keys(key_columns, expiry)
            rows = list(zip(shared, keys, values, moments, index_keys, strict=True))
            by = [key_columns[number] for number in chosen]
            places = places_of(view, by, len(keys), len(self._spools))
            for place in numpy.unique(places).tolist():
                here = numpy.flatnonzero((places == place) & lives).tolist()
                pickle.dump([rows[row] for row in here], self._spools[place])

    def _numbered(self, group: list[_Row]) -> Iterator[Record]:
        """Rows of one key of a join; their numbers, so far 0, are the last word of the fixed part."""
        columns = len(self.replacement.view.schema.key)
        at = 1 + WORD * ((columns + 63) // 64 + columns - 1)
        for number, row in enumerate(group):
            yield row.key[:at] + number.to_bytes(WORD, "little") + row.key[at + WORD :], row.value


def _by_key(groups: list[list[_Row]], found: list[int], view: View) -> Iterator[Record]:
    """A number for each key."""
    yield from zip((group[0].shared for group in groups), numbers(found, view), strict=True)


def spooled(spool: IO[bytes]) -> list[Any]:
    """What was put into a spool, list after list; it was written by this process alone, and is private to
    it.
    """
    end = spool.seek(0, os.SEEK_END)
    spool.seek(0)
    records: list[Any] = []
    while spool.tell() < end:
        records += pickle.load(spool)
    return records
