"""What the JVM program that copies stores is asked, and what it tells: `jvm_bridge/scala/.../migration`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from state_store.data.query import StoreKey
from state_store.errors import StateStoreError, from_json

PROGRAM = "org.apache.spark.sql.execution.streaming.state.incremental.migration.Migration"
"""Its class."""


@dataclass(frozen=True)
class Side:
    """One of the two state stores: where its checkpoint is, and the configuration that its provider gets."""

    location: str
    conf: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        return {"state": f"{self.location}/state", "conf": dict(self.conf)}


@dataclass(frozen=True)
class CopiedStore:
    """A store of an operator; `partitions` are the ids of its versions in the source, by partition.

    `prefix_columns` of the key are its prefix, where Spark's schema does not say so. `lists` are the column
    families whose keys have several values, `internal` those that Spark keeps for itself beside the ones
    whose names say so. `schema_files` describe them, the newest last; none: the store has a file of its own.
    """

    operator: int
    name: str
    prefix_columns: int
    lists: Sequence[str]
    internal: Sequence[str]
    schema_files: Sequence[str]
    partitions: Sequence[str | None]

    def to_json(self) -> dict[str, object]:
        return {
            "operator": self.operator,
            "name": self.name,
            "prefix_columns": self.prefix_columns,
            "lists": [*self.lists],
            "internal": [*self.internal],
            "schema_files": [*self.schema_files],
            "partitions": [{"partition": number, "id": one} for number, one in enumerate(self.partitions)],
        }


@dataclass(frozen=True)
class CopyRequest:
    """What to copy: the version of that number of all stores, `threads` of them at the same time. `hadoop`
    are settings beside those that the JVM finds.
    """

    version: int
    threads: int
    hadoop: Mapping[str, str]
    source: Side
    target: Side
    stores: Sequence[CopiedStore]

    def to_json(self) -> dict[str, object]:
        return {
            "version": self.version,
            "threads": self.threads,
            "hadoop": dict(self.hadoop),
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "stores": [store.to_json() for store in self.stores],
        }


@dataclass(frozen=True)
class StoreBegun:
    """A store is begun with, which has about this many rows."""

    rows: int


@dataclass(frozen=True)
class RowsCopied:
    """This many rows were copied so far, of all stores."""

    rows: int


@dataclass(frozen=True)
class StoreDone:
    """A store was copied; `checkpoint_id` is that of its version in the target, where it has one."""

    key: StoreKey
    rows: int
    checkpoint_id: str | None


@dataclass(frozen=True)
class CopyFailed:
    """The program ends with that."""

    error: StateStoreError


CopyEvent = Union[StoreBegun, RowsCopied, StoreDone, CopyFailed]


def event_of(fields: Mapping[str, Any]) -> CopyEvent:
    """One line that the program told. Raises KeyError for one of another program."""
    if "error" in fields:
        return CopyFailed(from_json(fields["error"]))
    if "done" in fields:
        store = fields["done"]
        key = StoreKey(store["operator"], store["partition"], store["name"])
        return StoreDone(key, store["rows"], store["id"])
    if "expected" in fields:
        return StoreBegun(fields["expected"])
    return RowsCopied(fields["rows"])
