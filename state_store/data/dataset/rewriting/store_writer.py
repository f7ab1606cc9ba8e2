"""A store of an operator, written from a checkpoint to another: in other partitions, or with other rows."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from state_store import __version__
from state_store.core.checkpoint.lineage import NO_APPLICATION, AttemptId
from state_store.core.checkpoint.names import EMPTY_PARENT, DeltaName
from state_store.core.checkpoint.stored_documents import ColumnFamily, DeltaMetadata
from state_store.core.compat import zip
from state_store.core.engine.database import write_delta
from state_store.core.engine.rows import ByteSlices, Page, rows
from state_store.core.interruption import ScratchDirectory
from state_store.core.runtime import Runtime
from state_store.core.storage import open_storage
from state_store.core.storage.durable import remove_unneeded
from state_store.data.dataset.layout.columns import FAMILY_BYTES, decoded_keys
from state_store.data.dataset.layout.keys import key_partitions, partitioning_columns
from state_store.data.dataset.layout.schemas import DEFAULT_FAMILY
from state_store.data.dataset.layout.views import View, views
from state_store.data.dataset.reading.partitions import READING, Partitions
from state_store.data.dataset.rewriting.replacing import Replaced, spooled
from state_store.data.query import Operator, Progress, Query, StoreKey
from state_store.errors import DamagedError, FormatError, MissingError

_WRITER = f"incremental-state-store {__version__}"


@dataclass(frozen=True)
class Written:
    """The rows and bytes that were written of one store, and the id of the version of each partition."""

    rows: int
    size_bytes: int
    ids: list[str]


class StoreWriter:
    """Writer of all partitions of an operator's store, from the old checkpoint to the new one."""

    def __init__(
        self,
        query: Query,
        operator: Operator,
        store: str,
        location: str,
        version: int,
        has_ids: bool,
        progress: Progress | None,
        runtime: Runtime,
    ) -> None:
        self._query = query
        self._operator = operator
        self._store = store
        self._location = location
        self._version = version
        self._has_ids = has_ids
        self._progress = progress
        self._runtime = runtime
        self._views = {
            view.schema.family: view
            for view in views(query, operator).values()
            if view.store == store and not view.is_another_name
        }
        self._families = {DEFAULT_FAMILY: ColumnFamily(0)}

    def write(self, count: int, replaced: Sequence[Replaced]) -> Written:
        """Write `count` partitions."""
        given = {
            family: replacing
            for replacing in replaced
            for store, family in replacing.replacement.families
            if store == self._store
        }
        with ScratchDirectory("state-store-") as root, ExitStack() as opened:
            spools = [opened.enter_context(open(Path(root) / str(number), "w+b")) for number in range(count)]
            if given.keys() == self._views.keys():
                self._adopt_all()
            else:
                self._spread(spools, given.keys())
            for family in given:
                self._adopted(family, ColumnFamily(len(self._families), family.startswith("$")))
            total, sizes, ids = 0, [], []
            for number, spool in enumerate(spools):
                records = spooled(spool)
                for family, replacing in given.items():
                    prefix = self._families[family].id.to_bytes(FAMILY_BYTES, "big")
                    new = replacing.records(self._store, family, number)
                    records += [(prefix + key, value) for key, value in new]
                total += len(records)
                size, id_ = self._write_partition(number, records, Path(root))
                sizes.append(size)
                ids.append(id_)
        return Written(total, sum(sizes), ids)

    def _spread(self, spools: Sequence[IO[bytes]], left_out: Collection[str]) -> None:
        """Put each row into the spool of its new partition, without those of some column families."""
        partitions = self._partitions()
        if self._progress is not None:
            partitions.follow(_Uncounted(self._progress))
        try:
            for number in partitions.numbers:
                with partitions.read(number):
                    base = partitions.base(number)
                    for name, family in base.column_families.items():
                        new_id = self._adopted(name, family)
                        if name in left_out:
                            continue
                        count = 0
                        for page in rows(base.directory, READING, *_range(family)):
                            count += len(page)
                            self._spread_page(
                                page, self._view(name), number, len(partitions.numbers), new_id, spools
                            )
                        if count != family.keys:
                            raise DamagedError(
                                f"store {partitions.key(number)} has {count} rows of column family '{name}' "
                                f"in version {partitions.version}, and says that it has {family.keys}"
                            )
        finally:
            partitions.close()

    def _adopt_all(self) -> None:
        """Keep the ids of the column families.

        If they cannot be read, any ids serve, since no row is kept.
        """
        with suppress(DamagedError, MissingError), closing(self._partitions()) as partitions:
            for number in partitions.numbers:
                for name, family in partitions.described_families(number).items():
                    self._adopted(name, family)

    def _partitions(self) -> Partitions:
        any_view = next(iter(self._views.values()))
        return Partitions(self._query, any_view, self._version, runtime=self._runtime)

    def _spread_page(
        self, page: Page, view: View, number: int, before: int, family: int, spools: Sequence[IO[bytes]]
    ) -> None:
        import numpy

        targets = numpy.full(len(page), number)
        if len(spools) != before:
            targets = _places(view, page.keys, len(spools))
            if (_places(view, page.keys, before) != number).any():
                raise FormatError(
                    f"keys of store {self._operator.id}/{number}/{self._store} are not in the partition in "
                    "which Spark's hash puts them, so their new partition is not known"
                )
        prefix = family.to_bytes(FAMILY_BYTES, "big")
        for target in numpy.unique(targets).tolist():
            part = page.take(targets == target)
            keys = [prefix + key[FAMILY_BYTES:] for key in part.keys.to_list()]
            pickle.dump(list(zip(keys, part.values.to_list(), strict=True)), spools[target])

    def _view(self, family: str) -> View:
        if family not in self._views:
            raise DamagedError(f"column family '{family}' of store {self._store} has no schema")
        return self._views[family]

    def _adopted(self, name: str, family: ColumnFamily) -> int:
        """Return the id of a column family in the new checkpoint."""
        known = self._families.get(name)
        if known is None:
            taken = [adopted.id for adopted in self._families.values()]
            id_ = family.id if family.id not in taken else max(taken) + 1
            known = self._families[name] = ColumnFamily(id_, family.internal, 0)
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
        size_bytes, crc = write_delta(path, records, metadata)
        key = StoreKey(self._operator.id, number, self._store)
        storage, delta = (
            open_storage(f"{self._location}/{key.path}"),
            DeltaName(self._version, id_, EMPTY_PARENT, crc),
        )
        progress = self._progress
        if progress is not None:
            progress.expect(size_bytes)
        try:
            (storage if progress is None else progress.metered(storage)).upload(path, delta.path)
        finally:
            storage.close()
            remove_unneeded(path)
        if progress is not None:
            progress.store_done()
        return size_bytes, id_


class _Uncounted:
    """Progress of readings: it counts bytes, but no store, because the store is still to be written."""

    def __init__(self, progress: Progress) -> None:
        self.expect = progress.expect
        self.metered = progress.metered

    def store_done(self) -> None:
        pass


def _places(view: View, keys: ByteSlices, partitions: int) -> Any:
    """Return the partition of each key."""
    columns = decoded_keys(view, tuple(keys), partitioning_columns(view))
    return key_partitions(view, columns, len(keys.starts), partitions)


def _range(family: ColumnFamily) -> tuple[bytes, bytes]:
    return family.id.to_bytes(FAMILY_BYTES, "big"), (family.id + 1).to_bytes(FAMILY_BYTES, "big")
