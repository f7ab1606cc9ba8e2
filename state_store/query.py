"""The stores of a query, found from its checkpoint directory by what Spark wrote there.

Spark keeps for each stateful operator `state/<operator>/_metadata/metadata` (its name, its stores and their
number of partitions; `state/<operator>/_metadata/v2/<batch>` for operators with column families), the offset
log with the pinned configuration in `offsets/<batch>`, and the commit log in `commits/<batch>`. Reading them
needs no listing of partitions. Safe for any thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from state_store.checkpoint.names import VersionId
from state_store.errors import DamagedError, MissingError
from state_store.files.transfer import parallel
from state_store.older_python import zip
from state_store.spark import check_pinned, pinned_conf
from state_store.storage import Entry, Storage, open_storage

DEFAULT_NAME = "default"
LISTED_AT_ONCE = 16
"""Stores whose directories are read at the same time, where nothing more is done with them."""

_LIST_STATE = "ListState"
_LIMIT = "globalLimit"
"""Spark's name of the operator that counts all rows in one partition, whatever its metadata says."""

T = TypeVar("T")


class Progress(Protocol):
    """Hears of the work on many stores, as `Query.for_each` does it. Safe for any thread."""

    def expect(self, size_bytes: int) -> None:
        """A store is begun with, and this many bytes are going to be moved."""

    def metered(self, storage: Storage) -> Storage:
        """The storage in whose place one is worked with whose transfers are counted."""

    def store_done(self) -> None:
        """One more store is done."""


@dataclass(frozen=True, order=True)
class StoreKey:
    """One store of a query: Spark's operator id, partition and store name."""

    operator: int
    partition: int
    name: str = DEFAULT_NAME

    @property
    def path(self) -> str:
        """Its directory below the checkpoint directory."""
        path = f"state/{self.operator}/{self.partition}"
        return path if self.name == DEFAULT_NAME else f"{path}/{self.name}"

    def __str__(self) -> str:
        return f"{self.operator}/{self.partition}/{self.name}"


@dataclass(frozen=True)
class Operator:
    """A stateful operator; `stores` maps the name of each of its stores to its number of partitions.

    `prefix_columns` are how many columns of a store's keys come first in their encoding, by the store's name
    (0: keys have no prefix); `schema_files` Spark's files of the schemas, oldest first, where its metadata
    names them; `lists` are the column families where a key has a list of values.
    """

    id: int
    name: str
    stores: dict[str, int]
    prefix_columns: dict[str, int] = field(default_factory=dict)
    schema_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()

    @property
    def is_in_one_partition(self) -> bool:
        """Whether Spark keeps its state in one partition, however many the query has."""
        return self.name == _LIMIT


@dataclass(frozen=True)
class Filter:
    """Which stores are meant; None: all."""

    operator: int | None = None
    partition: int | None = None
    name: str | None = None

    def keeps(self, key: StoreKey) -> bool:
        return (
            self.operator in (None, key.operator)
            and self.partition in (None, key.partition)
            and self.name in (None, key.name)
        )


class Query:
    """A query by its checkpoint directory: a local path or a URI that `open_storage` knows."""

    def __init__(self, location: str, storage: Storage, operators: Sequence[Operator]) -> None:
        self.location = location
        self.operators = tuple(operators)
        self._storage = storage

    @classmethod
    def open(cls, location: str) -> Query:
        """Raises MissingError when no stateful query has run there, OptionError when its state is in
        another store.
        """
        query = cls.of_any_store(location)
        check_pinned(query.pinned_conf(), query.location)
        return query

    @classmethod
    def of_any_store(cls, location: str) -> Query:
        """As `open`, whichever store has its state."""
        location = location.rstrip("/") or "/"
        storage = open_storage(location)
        operators = list(_operators(storage))
        if not operators:
            raise MissingError(
                f"{location} is not the checkpoint directory of a stateful query: it lacks "
                "state/0/_metadata/metadata. Give the directory that the query has as checkpointLocation.",
                file=f"{location}/state/0/_metadata/metadata",
            )
        return cls(location, storage, operators)

    def pinned_conf(self) -> dict[str, str]:
        """What Spark pinned of the configuration when the query began; empty before its first batch."""
        newest = self._newest("offsets")
        return {} if newest is None else pinned_conf(_text(self._storage, f"offsets/{newest}"))

    def planned_batch(self) -> int | None:
        """The newest batch that Spark has begun; None before the first."""
        return self._newest("offsets")

    def committed_batch(self) -> int | None:
        """The newest batch that Spark has committed; None before the first."""
        return self._newest("commits")

    def commit_times_ms(self) -> dict[int, int]:
        """When each batch of Spark's commit log was committed, by the storage's clock."""
        return {
            int(entry.name): entry.modified_ms
            for entry in self._storage.list_files("commits")
            if entry.name.isdigit()
        }

    def watermark_ms(self, batch: int) -> int | None:
        """The watermark with which a batch ran, milliseconds since 1970 UTC; 0 without one, None where Spark
        has forgotten the batch."""
        return self._time_ms(f"offsets/{batch}", "batchWatermarkMs")

    def next_watermark_ms(self, batch: int) -> int | None:
        """The watermark that a batch left to the next one; 0 and None as for `watermark_ms`."""
        return self._time_ms(f"commits/{batch}", "nextBatchWatermarkMs")

    def batch_ms(self, batch: int) -> int | None:
        """When a batch ran, which is the processing time that its rows saw; None where Spark has forgotten
        the batch, or it has not run."""
        return self._time_ms(f"offsets/{batch}", "batchTimestampMs")

    def _time_ms(self, path: str, name: str) -> int | None:
        try:
            return int(json.loads(_text(self._storage, path).splitlines()[1])[name])
        except (MissingError, IndexError, KeyError, ValueError):
            return None

    def described_at(self, operator: Operator) -> dict[int, Operator]:
        """What Spark's metadata say of the operator since which batch, newest first: more than one where its
        column families were others once. Spark removes what no batch needs that it can go back to."""
        if not operator.schema_files:
            return {0: operator}
        batches = _described_batches(self._storage, operator.id)
        paths = {batch: _description(operator.id, batch) for batch in sorted(batches, reverse=True)}
        return {
            batch: _operator(operator.id, _text(self._storage, path), path) for batch, path in paths.items()
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

        Batch `b` makes version `b` + 1. Under checkpoint format 2 the commit log has, for each operator, for
        each partition, one id a store, in the order of the stores' names in the operator's metadata; under
        format 1 the ids here are None. Raises DamagedError when the log cannot be read."""
        if batch is None:
            batch = self.committed_batch()
        if batch is None:
            return {}
        ids = self._committed_ids(batch)
        return {key: VersionId(batch + 1, ids.get(key)) for key in self.stores()}

    def _committed_ids(self, batch: int) -> dict[StoreKey, str]:
        path = f"commits/{batch}"
        lines = _text(self._storage, path).splitlines()
        found: dict[StoreKey, str] = {}
        try:
            by_operator = json.loads(lines[1]).get("stateUniqueIds") or {} if len(lines) > 1 else {}
            for operator in self.operators:
                for partition, ids in enumerate(by_operator.get(str(operator.id), [])):
                    for name, id_ in zip(operator.stores, ids, strict=False):
                        found[StoreKey(operator.id, partition, name)] = str(id_)
        except (AttributeError, TypeError, ValueError) as error:
            raise DamagedError(
                f"{path} is not an entry of Spark's commit log: {error!r}", file=path
            ) from error
        return found

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

    def _newest(self, log: str) -> int | None:
        batches = [int(entry.name) for entry in self._storage.list_files(log) if entry.name.isdigit()]
        return max(batches, default=None)


def _operators(storage: Storage) -> Iterable[Operator]:
    number = 0
    while True:
        path = f"state/{number}/_metadata/metadata"
        try:
            text = _text(storage, path)
        except MissingError:
            batches = _described_batches(storage, number)
            if not batches:
                return
            path = _description(number, max(batches))
            text = _text(storage, path)
        yield _operator(number, text, path)
        number += 1


def _described_batches(storage: Storage, number: int) -> list[int]:
    """Since which batches there are metadata of an operator with column families."""
    listed = storage.list_files(f"state/{number}/_metadata/v2")
    return [int(entry.name) for entry in listed if entry.name.isdigit()]


def _description(number: int, batch: int) -> str:
    return f"state/{number}/_metadata/v2/{batch}"


def _operator(number: int, text: str, path: str) -> Operator:
    try:
        described: dict[str, Any] = json.loads(text.splitlines()[1])
        name = str(described["operatorInfo"]["operatorName"])
        stores = {store["storeName"]: int(store["numPartitions"]) for store in described["stateStoreInfo"]}
        prefixes = {
            store["storeName"]: int(store.get("numColsPrefixKey", 0)) for store in described["stateStoreInfo"]
        }
        schemas = {
            store["storeName"]: tuple(
                f"state/{found.partition('/state/')[2]}" for found in store["stateSchemaFilePaths"]
            )
            for store in described["stateStoreInfo"]
            if store.get("stateSchemaFilePaths")
        }
        lists = frozenset(_list_variables(described.get("operatorPropertiesJson") or "{}"))
        operator = Operator(number, name, stores, prefixes, schemas, lists)
        return (
            replace(operator, stores=dict.fromkeys(stores, 1)) if operator.is_in_one_partition else operator
        )
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} is not Spark's operator metadata: {error!r}", file=path) from error


def _list_variables(properties: str) -> Iterable[str]:
    """The names of the variables that are lists, of an operator with state variables."""
    for listed in json.loads(properties).get("stateVariables", []):
        variable = json.loads(listed) if isinstance(listed, str) else listed
        if _LIST_STATE in str(variable["stateVariableType"]):
            yield str(variable["stateName"])


def _text(storage: Storage, path: str) -> str:
    return storage.read(path).decode("utf-8")
