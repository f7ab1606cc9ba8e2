"""The stateful operators of a query, by Spark's metadata.

Spark keeps for each `state/<operator>/_metadata/metadata` (its name, its stores and their number of
partitions; `state/<operator>/_metadata/v2/<batch>` for operators with column families). Safe for any thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from state_store.core.storage import Storage
from state_store.errors import DamagedError, MissingError

_LIST_STATE = "ListState"
_LIMIT = "globalLimit"
"""Spark's name of the operator that counts all rows in one partition, whatever its metadata says."""


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


def operators_of(storage: Storage) -> Iterable[Operator]:
    """The stateful operators of the query in a checkpoint directory, by their numbers."""
    number = 0
    while True:
        path = f"state/{number}/_metadata/metadata"
        try:
            text = text_of(storage, path)
        except MissingError:
            batches = described_batches(storage, number)
            if not batches:
                return
            path = description_path(number, max(batches))
            text = text_of(storage, path)
        yield parsed(number, text, path)
        number += 1


def described_batches(storage: Storage, number: int) -> list[int]:
    """Since which batches there are metadata of an operator with column families."""
    listed = storage.list_files(f"state/{number}/_metadata/v2")
    return [int(entry.name) for entry in listed if entry.name.isdigit()]


def description_path(number: int, batch: int) -> str:
    """Where the metadata of an operator since that batch are."""
    return f"state/{number}/_metadata/v2/{batch}"


def parsed(number: int, text: str, path: str) -> Operator:
    """An operator as Spark's metadata of it say. Raises DamagedError, which names the path."""
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


def text_of(storage: Storage, path: str) -> str:
    """A file of Spark's. Raises MissingError."""
    return storage.read(path).decode("utf-8")
