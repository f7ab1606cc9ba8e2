"""The checkpoint of a stopped query, written anew with another number of partitions.

The target gets Spark's logs as they are, but for the number of partitions, and the state of the version that
Spark committed last, each row in the partition in which Spark looks for its key. Older versions stay behind.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from state_store import __version__
from state_store.checkpoint.attempts import NO_APPLICATION, AttemptId
from state_store.checkpoint.metadata import ColumnFamily, DeltaMetadata
from state_store.checkpoint.names import EMPTY_PARENT, DeltaName
from state_store.dataset import logs
from state_store.dataset.columns import FAMILY_BYTES, Columns
from state_store.dataset.keys import partitioning_columns
from state_store.dataset.partitions import READING, Partitions
from state_store.dataset.views import View, views
from state_store.engine.pages import Page, Stretches
from state_store.engine.rows import rows
from state_store.engine.sst import write_delta
from state_store.errors import ConflictError, DamagedError, FormatError, MissingError, OptionError
from state_store.query import Operator, Query, StoreKey
from state_store.rows.hashing import partitions_of
from state_store.rows.keys import decode_keys
from state_store.runtime import SYSTEM, Runtime
from state_store.storage import open_storage

if TYPE_CHECKING:
    import pyarrow

_WRITER = f"incremental-state-store {__version__}"


@dataclass(frozen=True)
class Repartitioned:
    """What was written: the version, and rows and bytes of all its deltas."""

    version: int
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class Replacement:
    """Rows that take the place of those of a view."""

    view: View
    batches: Iterable[pyarrow.RecordBatch]


def repartition(checkpoint: str, target: str, partitions: int, *, runtime: Runtime = SYSTEM) -> Repartitioned:
    """Writes the checkpoint of a stopped query to `target`, which must be empty, with so many partitions.

    Start the query with the new checkpoint directory, and never again with the old one. A batch that had
    begun is run again. Needs disk for the state of a store in the directory of temporary files, and memory
    for the rows of a new partition.

    Raises MissingError where there is no state, ConflictError where the target has something, OptionError for
    a number below 1, FormatError for keys whose partition cannot be told.
    """
    if partitions < 1:
        raise OptionError(f"a query has at least 1 partition, not {partitions}")
    return rewrite(Query.open(checkpoint), target, partitions, runtime=runtime)


def rewrite(
    query: Query,
    target: str,
    partitions: int | None,
    replacement: Replacement | None = None,
    *,
    runtime: Runtime = SYSTEM,
) -> Repartitioned:
    """See `repartition` and `state_store.dataset.importing`; None: as many partitions as before."""
    batch = query.committed_batch()
    if batch is None:
        raise MissingError(f"{query.location} has no state yet: Spark has committed no batch of the query")
    source, location = open_storage(query.location), target.rstrip("/")
    storage = open_storage(location)
    if storage.list_files("offsets") or storage.list_files("commits") or storage.exists("metadata"):
        raise ConflictError(f"'{location}' is not empty: it is not written over", file=location)
    has_ids = any(version.checkpoint_id for version in query.committed().values())
    ids: dict[str, list[list[str]]] = {}
    done = Repartitioned(batch + 1, 0, 0)
    for operator in query.operators:
        before = next(iter(operator.stores.values()))
        count = before if partitions is None or operator.is_in_one_partition else partitions
        by_store: list[list[str]] = []
        for store in operator.stores:
            writer = _StoreWriter(query, operator, store, location, batch + 1, has_ids, runtime)
            is_replaced = replacement is not None and (
                replacement.view.operator.id,
                replacement.view.store,
            ) == (
                operator.id,
                store,
            )
            written, store_ids = writer.write(count, replacement if is_replaced else None)
            by_store.append(store_ids)
            done = replace(
                done, rows=done.rows + written.rows, size_bytes=done.size_bytes + written.size_bytes
            )
        ids[str(operator.id)] = [list(one) for one in zip(*by_store, strict=True)]
        logs.copy_operator(source, storage, operator, count)
    logs.copy_logs(source, storage, batch, partitions=partitions, ids=ids if has_ids else None)
    return done


class _StoreWriter:
    """One store of an operator, all partitions, from the old checkpoint to the new one."""

    def __init__(
        self,
        query: Query,
        operator: Operator,
        store: str,
        location: str,
        version: int,
        has_ids: bool,
        runtime: Runtime,
    ) -> None:
        self._query = query
        self._operator = operator
        self._store = store
        self._location = location
        self._version = version
        self._has_ids = has_ids
        self._runtime = runtime
        found = [one for one in views(query, operator).values() if one.store == store and not one.hidden]
        self._views = {one.schema.family: one for one in found}
        self._families: dict[str, ColumnFamily] = {}

    def write(self, count: int, replacement: Replacement | None) -> tuple[Repartitioned, list[str]]:
        """Writes `count` partitions; gives what there was, and the id of the version of each."""
        with tempfile.TemporaryDirectory(prefix="state-store-") as root, ExitStack() as opened:
            spools = [opened.enter_context(open(Path(root) / str(number), "w+b")) for number in range(count)]
            if replacement is None:
                self._spread(spools)
            else:
                self._spread_rows(replacement, spools)
            sizes, ids = [], []
            for number, spool in enumerate(spools):
                size, id_ = self._write_partition(number, _spooled(spool), Path(root))
                sizes.append(size)
                ids.append(id_)
        total = sum(family.keys for family in self._families.values())
        return Repartitioned(self._version, total, sum(sizes)), ids

    def _spread(self, spools: Sequence[IO[bytes]]) -> None:
        """Puts each row into the spool of its new partition."""
        any_view = next(iter(self._views.values()))
        partitions = Partitions(self._query, any_view, self._version, runtime=self._runtime)
        try:
            for number in partitions.numbers:
                base = partitions.base(number)
                for name, family in base.column_families.items():
                    new_id = self._adopted(name, family)
                    for page in rows(base.directory, READING, *_range(family)):
                        self._spread_page(
                            page, self._view(name), number, len(partitions.numbers), new_id, spools
                        )
                partitions.forget(number)
        finally:
            partitions.close()

    def _spread_page(
        self, page: Page, view: View, number: int, before: int, family: int, spools: Sequence[IO[bytes]]
    ) -> None:
        import numpy

        places = _places(view, page.keys, len(spools))
        if (_places(view, page.keys, before) != number).any():
            raise FormatError(
                f"keys of store {self._operator.id}/{number}/{self._store} are not in the partition in which "
                "Spark's hash puts them: it cannot be told where they belong"
            )
        prefix = family.to_bytes(FAMILY_BYTES, "big")
        for place in numpy.unique(places).tolist():
            part = page.taken(places == place)
            keys = [prefix + key[FAMILY_BYTES:] for key in part.keys.texts()]
            pickle.dump(list(zip(keys, part.values.texts(), strict=True)), spools[place])

    def _spread_rows(self, replacement: Replacement, spools: Sequence[IO[bytes]]) -> None:
        """Puts rows that take the place of all into the spools of their partitions."""
        import numpy

        columns = Columns(replacement.view)
        fields = list(replacement.view.schema.key)
        numbers = partitioning_columns(replacement.view)
        family, count = ColumnFamily(0, False, 0), 0
        for batch in replacement.batches:
            keys, values, key_columns = columns.encode(batch, family.id)
            count += len(keys)
            places = numpy.zeros(len(keys), numpy.int64)
            if numbers:
                chosen = [key_columns[number] for number in numbers]
                places = partitions_of(chosen, [fields[number] for number in numbers], len(spools))
            for place in numpy.unique(places).tolist():
                rows = [(keys[row], values[row]) for row in numpy.flatnonzero(places == place).tolist()]
                pickle.dump(rows, spools[place])
        self._families = {replacement.view.schema.family: replace(family, keys=count)}

    def _view(self, family: str) -> View:
        if family not in self._views:
            raise DamagedError(f"column family '{family}' of store {self._store} has no schema")
        return self._views[family]

    def _adopted(self, name: str, family: ColumnFamily) -> int:
        """The id that a column family has in the new checkpoint."""
        known = self._families.get(name)
        if known is None:
            taken = [one.id for one in self._families.values()]
            id_ = family.id if family.id not in taken else max(taken) + 1
            known = ColumnFamily(id_, family.internal, 0)
        self._families[name] = replace(known, keys=known.keys + family.keys)
        return known.id

    def _write_partition(
        self, number: int, records: list[tuple[bytes, bytes]], scratch: Path
    ) -> tuple[int, str]:
        families = {
            name: replace(family, keys=sum(key[:FAMILY_BYTES] == _range(family)[0] for key, _ in records))
            for name, family in self._families.items()
        }
        unique = self._runtime.unique(4)
        id_ = self._runtime.uuid() if self._has_ids else str(AttemptId(0, NO_APPLICATION, 0, unique))
        metadata = DeltaMetadata(
            self._version, id_, EMPTY_PARENT, len(records), len(records), 0, families, _WRITER
        )
        path = scratch / "delta.sst"
        records.sort()
        double = next((one[0] for one, other in itertools.pairwise(records) if one[0] == other[0]), None)
        if double is not None:
            raise OptionError(f"the rows have a key twice, which is {double.hex()} in Spark's encoding")
        size_bytes, crc = write_delta(path, records, metadata)
        storage = open_storage(f"{self._location}/{StoreKey(self._operator.id, number, self._store).path}")
        try:
            storage.upload(path, DeltaName(self._version, id_, EMPTY_PARENT, crc).path)
        finally:
            storage.close()
            path.unlink(missing_ok=True)
        return size_bytes, id_


def _places(view: View, keys: Stretches, partitions: int) -> Any:
    """The partition of each key."""
    import numpy

    numbers = partitioning_columns(view)
    if not numbers:
        return numpy.zeros(len(keys.starts), numpy.int64)
    fields = list(view.schema.key)
    columns = decode_keys(tuple(keys), fields, view.schema.layout, skip=FAMILY_BYTES, only=numbers)
    return partitions_of(columns, [fields[number] for number in numbers], partitions)


def _range(family: ColumnFamily) -> tuple[bytes, bytes]:
    return family.id.to_bytes(FAMILY_BYTES, "big"), (family.id + 1).to_bytes(FAMILY_BYTES, "big")


def _spooled(spool: IO[bytes]) -> list[tuple[bytes, bytes]]:
    """The rows of a spool; it is written by this process alone, and private to it."""
    end = spool.tell()
    spool.seek(0)
    found: list[tuple[bytes, bytes]] = []
    while spool.tell() < end:
        found += pickle.load(spool)
    return found
