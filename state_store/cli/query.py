"""The stores of a query, found from its checkpoint directory by what Spark wrote there.

Spark keeps for each stateful operator `state/<operator>/_metadata/metadata` (its name, its stores and their
number of partitions), the offset log with the pinned configuration in `offsets/<batch>`, and the commit log
in `commits/<batch>`. Reading them needs no listing of directories. Safe for any thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from state_store.checkpoint.names import VersionId
from state_store.cli.progress import Meter, MeteredStorage
from state_store.errors import DamagedError, MissingError
from state_store.files.transfer import parallel
from state_store.spark import check_pinned, pinned_conf
from state_store.storage import Storage, open_storage

DEFAULT_NAME = "default"
LISTED_AT_ONCE = 16
"""Stores whose directories are read at the same time, where nothing more is done with them."""

T = TypeVar("T")


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
    """A stateful operator; `stores` maps the name of each of its stores to its number of partitions."""

    id: int
    name: str
    stores: dict[str, int]


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
        """Raises MissingError when no stateful query has run there, OptionError when its state is in another
        store.
        """
        location = location.rstrip("/") or "/"
        storage = open_storage(location)
        operators = list(_operators(storage))
        if not operators:
            raise MissingError(
                f"{location} is not the checkpoint directory of a stateful query: it lacks "
                "state/0/_metadata/metadata. Give the directory that the query has as checkpointLocation.",
                file=f"{location}/state/0/_metadata/metadata",
            )
        query = cls(location, storage, operators)
        check_pinned(query.pinned_conf(), location)
        return query

    def pinned_conf(self) -> dict[str, str]:
        """What Spark pinned of the configuration when the query began; empty before its first batch."""
        newest = self._newest("offsets")
        return {} if newest is None else pinned_conf(_text(self._storage, f"offsets/{newest}"))

    def committed_batch(self) -> int | None:
        """The newest batch that Spark has committed; None before the first."""
        return self._newest("commits")

    def committed(self) -> dict[StoreKey, VersionId]:
        """The version of each store that Spark committed last; empty before the first commit.

        Batch `b` makes version `b` + 1. Under checkpoint format 2 the commit log has, for each operator, for
        each partition, one id a store, in the order of the stores' names in the operator's metadata; under
        format 1 the ids here are None. Raises DamagedError when the log cannot be read."""
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
                f"operator {one.id} ({one.name}): "
                + ", ".join(f"{name}, partitions 0 to {count - 1}" for name, count in one.stores.items())
                for one in self.operators
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
        meter: Meter | None = None,
    ) -> list[T]:
        """Runs `work` for every store, `at_once` at a time, and returns the results in the order of `keys`.

        `meter` hears of the files that it moves. The first error is raised, after what was begun has ended.
        """

        def one(key: StoreKey) -> T:
            storage = self.storage(key)
            try:
                return work(key, storage if meter is None else MeteredStorage(storage, meter))
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
            return
        yield _operator(number, text, path)
        number += 1


def _operator(number: int, text: str, path: str) -> Operator:
    try:
        described: dict[str, Any] = json.loads(text.splitlines()[1])
        stores = {one["storeName"]: int(one["numPartitions"]) for one in described["stateStoreInfo"]}
        return Operator(number, str(described["operatorInfo"]["operatorName"]), stores)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{path} is not Spark's operator metadata: {error!r}", file=path) from error


def _text(storage: Storage, path: str) -> str:
    return storage.read(path).decode("utf-8")
