"""A query by its checkpoint directory: its operators, its logs, and its stores. Safe for any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import refuse_incomplete
from state_store.core.settings.session import check_pinned
from state_store.core.storage import Entry, Storage, open_storage
from state_store.data.query.arguments import Location, checked_location
from state_store.data.query.identification import absence, not_committed
from state_store.data.query.logs import BatchLogs
from state_store.data.query.operators import (
    Operator,
    described_batches,
    description_path,
    operators_of,
    parsed,
    text_of,
    with_partitions,
)
from state_store.data.query.start_files import SparkFileProblem, start_problems
from state_store.data.query.store_names import Filter, StoreKey
from state_store.errors import MissingError, StorageError

LISTED_AT_ONCE = 16
"""Stores whose directories are read at a time if nothing more is done with them."""


class Query:
    """A query by its checkpoint directory: a local path or a URI that `open_storage` knows."""

    def __init__(self, location: str, storage: Storage, operators: Sequence[Operator]) -> None:
        self.location = location
        self.operators = tuple(operators)
        self.logs = BatchLogs(storage)
        self._storage = storage

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process that this is sent to read the query anew."""
        return Query.of_any_store, (self.location,)

    @classmethod
    def open(cls, location: Location) -> Query:
        """Read what Spark says of the query in a checkpoint directory.

        Raises:
            MissingError: no stateful query has committed a batch there, or what is there is incomplete.
            OptionError: another provider keeps its state, or `location` is no directory's name.
            DamagedError: Spark's metadata cannot be read.
        """
        query = cls._described(location, check_pinned)
        query.newest_batch()
        return query

    @classmethod
    def of_any_store(cls, location: Location) -> Query:
        """Do as `open`, whichever provider keeps the state, and before the first commit, too."""
        return cls._described(location, lambda _conf, _location: None)

    @classmethod
    def _described(cls, location: Location, check: Callable[[Mapping[str, str], str], None]) -> Query:
        """Return the query of a checkpoint directory; `check` gets the configuration that Spark pinned."""
        text = checked_location(location)
        storage = open_storage(text)
        query = cls.described_in(storage, text)
        check(BatchLogs(storage).pinned_conf(), text)
        if query is None:
            raise absence(storage, text)
        return query

    @classmethod
    def described_in(cls, storage: Storage, location: str) -> Query | None:
        """Return the query of a checkpoint directory, whichever provider keeps the state.

        Args:
            storage: the directory, which the query reads from now on.
            location: its path or URI.

        Returns:
            None if no stateful query has run there.

        Raises:
            MissingError: what is there is incomplete.
            DamagedError: Spark's metadata cannot be read, or contradict each other.
        """
        refuse_incomplete(storage, location)
        operators = operators_of(storage)
        if not operators:
            return None
        counts = BatchLogs(storage).partition_counts()
        return cls(location, storage, [with_partitions(operator, storage, counts) for operator in operators])

    def committed_batch(self) -> int | None:
        """Return the newest batch that Spark has committed; None before the first."""
        return self.logs.newest_committed()

    def newest_batch(self) -> int:
        """Return the newest batch that Spark has committed. Raises MissingError before the first."""
        batch = self.committed_batch()
        if batch is None:
            raise not_committed(self.location)
        return batch

    def described_at(self, operator: Operator) -> dict[int, Operator]:
        """Return the descriptions of the operator in Spark's metadata by the batch since which they hold.

        The newest comes first. There are several if its column families were others once; Spark removes the
        descriptions that no batch needs to which it can go back.
        """
        if not operator.schema_files:
            return {0: operator}
        batches = described_batches(self._storage, operator.id)
        described = {}
        for batch in sorted(batches, reverse=True):
            path = description_path(operator.id, batch)
            found = parsed(operator.id, text_of(self._storage, path), path)
            described[batch] = replace(found, stores=dict.fromkeys(found.stores, operator.partitions))
        return described

    def start_problems(self) -> list[SparkFileProblem]:
        """Return what is lost or damaged among the files that Spark reads when it starts the query again."""
        return start_problems(self._storage, self.operators)

    def read(self, path: str) -> bytes:
        """Return a file of Spark's below the checkpoint directory. Raises MissingError."""
        return self._storage.read(path)

    def list_files(self, directory: str) -> list[Entry]:
        """Return the files of a directory of Spark's."""
        return self._storage.list_files(directory)

    def unexpected_partitions(self) -> list[StoreKey]:
        """Return stores in directories of partitions that the operators do not have, in order.

        No reader takes them. It is empty where the storage cannot list directories.
        """
        found = []
        with suppress(StorageError):
            for operator in self.operators:
                names = self._storage.directories(f"state/{operator.id}")
                numbers = sorted(int(name) for name in names if name.isdigit())
                extra = [number for number in numbers if number >= operator.partitions]
                found += [StoreKey(operator.id, number, next(iter(operator.stores))) for number in extra]
        return found

    def committed(self, batch: int | None = None) -> dict[StoreKey, VersionId]:
        """Return the version of each store after a committed batch; batch `b` makes version `b` + 1.

        Args:
            batch: the batch; None: the one that was committed last.

        Returns:
            Empty before the first commit. Under checkpoint format 1 the ids are None.

        Raises:
            MissingError: the commit log does not have the batch.
            DamagedError: the log cannot be read.
        """
        if batch is None:
            batch = self.committed_batch()
        if batch is None:
            return {}
        ids = self.logs.committed_ids(batch, self.operators)
        return {key: VersionId(batch + 1, ids.get(key)) for key in self.stores()}

    def stores(self, chosen: Filter | None = None) -> list[StoreKey]:
        """Return the stores that `chosen` keeps (None: all), in order. Raises MissingError if none is."""
        chosen = chosen or Filter()
        kept = sorted(
            StoreKey(operator.id, partition, name)
            for operator in self.operators
            if chosen.operator in (None, operator.id)
            for name in _called(operator, chosen.name)
            for partition in range(operator.partitions)
            if chosen.partition in (None, partition)
        )
        if not kept:
            have = "; ".join(
                f"operator {operator.id} ({operator.name}): {', '.join(_names(operator))}, "
                + (
                    "partition 0"
                    if operator.partitions == 1
                    else f"partitions 0 to {operator.partitions - 1}"
                )
                for operator in self.operators
            )
            raise MissingError(f"no store of {self.location} matches; there are {have}", file=self.location)
        return kept

    def storage(self, key: StoreKey) -> Storage:
        """Return the storage of one store's directory; the caller closes it."""
        return open_storage(self.uri(key))

    def uri(self, key: StoreKey) -> str:
        """Return the directory of a store."""
        return f"{self.location}/{key.path}"


def _called(operator: Operator, name: str | None) -> list[str]:
    """Return the stores of an operator that have a name, belong to a side of a join, or have a variable."""
    if name is None:
        return list(operator.stores)
    if name in operator.stores:
        return [name]
    if name in operator.variables or (operator.schema_files and name in ("left", "right", "timers")):
        return list(operator.stores)
    return [store for store in operator.stores if store.startswith(f"{name}-")]


def _names(operator: Operator) -> list[str]:
    """Return the names by which the stores of an operator can be chosen, a user's own first."""
    sides = {store.partition("-")[0]: None for store in operator.stores if "-" in store}
    return [*operator.variables, *sides, *operator.stores]
