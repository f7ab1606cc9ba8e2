"""A query by its checkpoint directory: its operators, its logs, and its stores. Safe for any thread.

A directory that is not the checkpoint of a stateful query is judged first: its name, and what to do. Every
command and function that takes a checkpoint gets its sentence here. The directory is listed once; more is
read only of directories that look like parts of a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from state_store.core.checkpoint.names import VersionId
from state_store.core.checkpoint.stored_documents import refuse_incomplete
from state_store.core.settings.session import check_pinned
from state_store.core.storage import Entry, Storage, open_storage
from state_store.core.storage.local import LocalStorage
from state_store.data.query.arguments import Location, absolute, checked_location
from state_store.data.query.logs import BatchLogs, SparkFileProblem, start_problems
from state_store.data.query.operators import (
    Filter,
    Operator,
    StoreKey,
    described_batches,
    description_path,
    grouping_columns,
    operators_of,
    parsed,
    text_of,
    with_partitions,
)
from state_store.errors import MissingError, StateStoreError

DESCRIPTION = "state/0/_metadata/metadata"
"""Spark's description of the first stateful operator, which makes a directory the checkpoint of one."""

_GIVE = "Give the directory that the query has as checkpointLocation"
_PARTS = frozenset({"commits", "metadata", "offsets", "sources", "state"})
"""The names in the checkpoint directory of a query."""

_FLINK = re.compile(r"(chk|savepoint)-[0-9a-f-]+")
_COLUMN_VALUE = re.compile(r"[^=/]+=[^/]*")
_PARQUET = (".parquet", ".parq")
_SEARCHED = 50
"""Directories that are looked into for checkpoints, at most."""

_SHOWN = 5

LISTED_AT_ONCE = 16
"""Stores whose directories are read at a time if nothing more is done with them."""


def not_committed(location: str) -> MissingError:
    """Return the error of a query without a version of its state."""
    return MissingError(
        f"{location} has no state yet: the query has not committed a batch yet. Try again when it has.",
        file=f"{location}/commits",
    )


def absence(storage: Storage, location: str) -> MissingError:
    """Return the error that says what a directory is instead of a stateful query's checkpoint.

    Args:
        storage: the directory, in which Spark does not describe a stateful operator.
        location: its path or URI.

    Raises:
        DamagedError: it is a query's, and Spark's logs are lost.
    """
    if isinstance(storage, LocalStorage) and not storage.directory.is_dir():
        kind = "is a file" if storage.directory.is_file() else "does not exist"
        return _error(location, f"the directory {location} {kind}", _GIVE)
    files = root_files(storage, location)
    directories = storage.directories()
    if "metadata" in files or "offsets" in directories or storage.list_files("offsets"):
        return _of_a_query(storage, location, directories)
    if not files and not directories:
        empty = f"the directory {location} is empty"
        if not isinstance(storage, LocalStorage):
            empty += ", or does not exist"
        return _error(location, empty, f"No query has started there, or another is meant. {_GIVE}")
    above = _checkpoint_above(storage, location)
    if above is not None:
        return _error(location, f"{location} is a part of the checkpoint directory {above}", f"Give {above}")
    named = _named(files, directories)
    if named is not None:
        kind, advice = named
        return _error(location, f"{location} is {kind}, not the checkpoint directory of a query", advice)
    below = [name for name in directories[:_SEARCHED] if name[0] not in "._" and _is_query(storage, name)]
    if below:
        more = "" if len(below) <= _SHOWN else f" and {len(below) - _SHOWN} more"
        listed = ", ".join(f"{location}/{name}" for name in below[:_SHOWN])
        return _error(
            location, f"{location} has the checkpoint directories {listed}{more}", "Give one of them"
        )
    return _error(
        location,
        f"{location} is not the checkpoint directory of a stateful query: it lacks {DESCRIPTION}",
        _GIVE,
    )


def root_files(storage: Storage, location: str) -> list[str]:
    """Return the names of the files directly in the directory of a storage, which is at `location`.

    At the root of a bucket, which has no directory above it, only Spark's `metadata` is looked for.
    """
    if isinstance(storage, LocalStorage):
        if not storage.directory.exists():
            return []
        return sorted(path.name for path in storage.directory.iterdir() if path.is_file())
    parent, _, name = location.rpartition("/")
    if not parent or parent.endswith("/"):
        return ["metadata"] if storage.exists("metadata") else []
    above = open_storage(parent)
    try:
        return [entry.name for entry in above.list_files(name)]
    finally:
        above.close()


def _error(location: str, fact: str, advice: str) -> MissingError:
    return MissingError(f"{fact}. {advice}.", file=f"{location}/{DESCRIPTION}")


def _of_a_query(storage: Storage, location: str, directories: list[str]) -> MissingError:
    """Return the error of a query of which Spark describes no stateful operator."""
    if BatchLogs(storage).newest_committed() is None:
        return not_committed(location)
    if "state" in directories and any(name.isdigit() for name in storage.directories("state/0")):
        return _error(
            location,
            f"{location} has state of operator 0, but Spark's description of it, '{DESCRIPTION}', is "
            "missing, so that no tool can read its state",
            "The query goes on, and writes the file again when it starts; or put it back from a copy "
            "of the checkpoint",
        )
    return _error(
        location,
        f"{location} is the checkpoint of a query that has no stateful operator, so it keeps no state",
        "Give that of a query with an aggregation, a join, a deduplication or a function with state",
    )


def _named(files: list[str], directories: list[str]) -> tuple[str, str] | None:
    """Return what a directory is by the names in it, and what to do; None if they say nothing."""
    names = {*files, *directories}
    of_query = f"{_GIVE}, which is not that of its sink"
    if "_delta_log" in names:
        return "a Delta table", of_query
    if ".hoodie" in names:
        return "a Hudi table", of_query
    if {"metadata", "data"} <= {*directories}:
        return "an Iceberg table", of_query
    if "_spark_metadata" in names:
        return "the output of a query's file sink", of_query
    if "_metadata" in files or any(_FLINK.fullmatch(name) for name in directories):
        return "a checkpoint of Flink", "Flink's State Processor API reads it; no tool of this store does"
    if "CURRENT" in files and any(name.startswith("MANIFEST-") for name in files):
        return "a RocksDB database", _GIVE
    is_split = bool(directories) and all(
        _COLUMN_VALUE.fullmatch(name) for name in directories if name[0] not in "._"
    )
    if is_split or any(name.endswith(_PARQUET) for name in files):
        return ("a table in directories by column" if is_split else "a directory of Parquet files"), (
            f"{of_query}; `import` takes such rows after the checkpoint"
        )
    return None


def _is_query(storage: Storage, directory: str) -> bool:
    return storage.exists(f"{directory}/metadata") or bool(storage.list_files(f"{directory}/offsets"))


def _checkpoint_above(storage: Storage, location: str) -> str | None:
    """Return the checkpoint directory that has a directory as `state`, `offsets` or below these."""
    path = str(storage.directory.absolute()) if isinstance(storage, LocalStorage) else location
    for above in _above(path):
        with suppress(StateStoreError):
            parent = open_storage(above)
            try:
                if parent.exists("metadata") or parent.list_files("offsets"):
                    return above
            finally:
                parent.close()
    return None


def _above(path: str) -> Iterator[str]:
    """Yield the directories above a path that may be checkpoints, by the names below them, nearest first."""
    parts = path.split("/")
    for place in range(len(parts) - 1, 0, -1):
        above = "/".join(parts[:place])
        if parts[place] in _PARTS and above.rstrip("/") and not above.endswith(":/"):
            yield above


class Query:
    """A query by its checkpoint directory: a local path or a URI that `open_storage` knows."""

    def __init__(self, location: str, storage: Storage, operators: Sequence[Operator]) -> None:
        self.location = location
        self.operators = tuple(operators)
        self.logs = BatchLogs(storage)
        self._storage = storage

    def __reduce__(self) -> tuple[Any, ...]:
        """Let another process that this is sent to read the query anew."""
        return Query.of_any_store, (absolute(self.location),)

    @classmethod
    def open(cls, location: Location) -> Query:
        """Read what Spark says of the query in a checkpoint directory.

        Raises:
            MissingError: no stateful query has committed a batch there, or what is there is incomplete.
            OptionError: another provider keeps its state, or `location` is not a directory's name.
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
            then = parsed(operator.id, text_of(self._storage, path), path)
            described[batch] = replace(then, stores=dict.fromkeys(then.stores, operator.partitions))
        return described

    def title(self, operator: Operator) -> str:
        """Return an operator's name for people, with its grouping columns if Spark's schema tells them."""
        return operator.title(grouping_columns(operator, self._storage))

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

        No reader takes them.
        """
        keys = []
        for operator in self.operators:
            names = self._storage.directories(f"state/{operator.id}")
            numbers = sorted(int(name) for name in names if name.isdigit())
            extra = [number for number in numbers if number >= operator.partitions]
            keys += [StoreKey(operator.id, number, next(iter(operator.stores))) for number in extra]
        return keys

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

    def stores(self, selection: Filter | None = None) -> list[StoreKey]:
        """Return the stores that `selection` keeps (None: all), in order. Raises MissingError if none is."""
        selection = selection or Filter()
        keys = sorted(
            StoreKey(operator.id, partition, name)
            for operator in self.operators
            if selection.operator in (None, operator.id)
            for name in _called(operator, selection.name)
            for partition in range(operator.partitions)
            if selection.partition in (None, partition)
        )
        if not keys:
            have = "; ".join(
                f"operator {operator.id} ({operator.words}): {', '.join(_names(operator))}, "
                + (
                    "partition 0"
                    if operator.partitions == 1
                    else f"partitions 0 to {operator.partitions - 1}"
                )
                for operator in self.operators
            )
            raise MissingError(f"no store of {self.location} matches; there are {have}", file=self.location)
        return keys

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
