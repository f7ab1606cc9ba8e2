"""A query by its checkpoint directory: its operators, its logs, and its stores, which are found without
listing partitions. Safe for any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from state_store.core.checkpoint.names import VersionId
from state_store.core.files.transfer import parallel
from state_store.core.storage import Entry, Storage, open_storage
from state_store.data.query.keys import Filter, StoreKey
from state_store.data.query.logs import BatchLogs
from state_store.data.query.operators import (
    Operator,
    described_batches,
    description_path,
    operators_of,
    parsed,
    text_of,
)
from state_store.data.query.progress import Progress
from state_store.errors import MissingError
from state_store.session.configuration import check_pinned

LISTED_AT_ONCE = 16
"""Stores whose directories are read at the same time, where nothing more is done with them."""

T = TypeVar("T")


def _lacking(storage: Storage) -> str:
    """Why there is no stateful query, as far as Spark's logs tell."""
    if storage.list_files("offsets"):
        return "the query there has no stateful operator, or has run no batch"
    return "it lacks state/0/_metadata/metadata"


class Query:
    """A query by its checkpoint directory: a local path or a URI that `open_storage` knows."""

    def __init__(self, location: str, storage: Storage, operators: Sequence[Operator]) -> None:
        self.location = location
        self.operators = tuple(operators)
        self.logs = BatchLogs(storage)
        self._storage = storage

    @classmethod
    def open(cls, location: str) -> Query:
        """Raises MissingError when no stateful query has run there, OptionError when its state is in
        another store.
        """
        query = cls.of_any_store(location)
        check_pinned(query.logs.pinned_conf(), query.location)
        return query

    @classmethod
    def of_any_store(cls, location: str) -> Query:
        """As `open`, whichever store has its state."""
        location = location.rstrip("/") or "/"
        storage = open_storage(location)
        operators = list(operators_of(storage))
        if not operators:
            raise MissingError(
                f"{location} is not the checkpoint directory of a stateful query: {_lacking(storage)}. Give "
                "the directory that the query has as checkpointLocation.",
                file=f"{location}/state/0/_metadata/metadata",
            )
        return cls(location, storage, operators)

    def committed_batch(self) -> int | None:
        """The newest batch that Spark has committed; None before the first."""
        return self.logs.newest_committed()

    def described_at(self, operator: Operator) -> dict[int, Operator]:
        """What Spark's metadata say of the operator since which batch, newest first: more than one where its
        column families were others once. Spark removes what no batch needs that it can go back to.
        """
        if not operator.schema_files:
            return {0: operator}
        batches = described_batches(self._storage, operator.id)
        paths = {batch: description_path(operator.id, batch) for batch in sorted(batches, reverse=True)}
        return {
            batch: parsed(operator.id, text_of(self._storage, path), path) for batch, path in paths.items()
        }

    def read(self, path: str) -> bytes:
        """A file of Spark's below the checkpoint directory. Raises MissingError."""
        return self._storage.read(path)

    def list_files(self, directory: str) -> list[Entry]:
        """The files of a directory of Spark's."""
        return self._storage.list_files(directory)

    def committed(self, batch: int | None = None) -> dict[StoreKey, VersionId]:
        """The version of each store after a committed batch (None: the last one); empty before the
        first commit. Raises MissingError for a batch that the commit log has not.

        Batch `b` makes version `b` + 1. Under checkpoint format 1 the ids here are None. Raises DamagedError
        when the log cannot be read.
        """
        if batch is None:
            batch = self.committed_batch()
        if batch is None:
            return {}
        ids = self.logs.committed_ids(batch, self.operators)
        return {key: VersionId(batch + 1, ids.get(key)) for key in self.stores()}

    def stores(self, chosen: Filter | None = None) -> list[StoreKey]:
        """The stores that `chosen` keeps, in order. Raises MissingError when it keeps none."""
        chosen = chosen or Filter()
        keys = sorted(
            StoreKey(operator.id, partition, name)
            for operator in self.operators
            for name, partitions in operator.stores.items()
            for partition in range(partitions)
        )
        kept = [key for key in keys if chosen.keeps(key)]
        if not kept:
            have = "; ".join(
                f"operator {operator.id} ({operator.name}): "
                + ", ".join(f"{name}, partitions 0 to {count - 1}" for name, count in operator.stores.items())
                for operator in self.operators
            )
            raise MissingError(f"no store of {self.location} matches; there are {have}", file=self.location)
        return kept

    def storage(self, key: StoreKey) -> Storage:
        """The storage of one store's directory; the caller closes it."""
        return open_storage(self.uri(key))

    def uri(self, key: StoreKey) -> str:
        return f"{self.location}/{key.path}"

    def for_each(
        self,
        keys: Iterable[StoreKey],
        work: Callable[[StoreKey, Storage], T],
        *,
        at_once: int = LISTED_AT_ONCE,
        meter: Progress | None = None,
    ) -> list[T]:
        """Runs `work` for every store, `at_once` at a time, and returns the results in the order of `keys`.

        `meter` hears of the files that it moves. The first error is raised, after what was begun has ended.
        """

        def one(key: StoreKey) -> T:
            storage = self.storage(key)
            try:
                return work(key, storage if meter is None else meter.metered(storage))
            finally:
                storage.close()
                if meter is not None:
                    meter.store_done()

        return parallel(at_once, one, keys)
