"""The call of the JVM program that copies stores, and its events (`jvm_bridge/scala/.../migration`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

from state_store.data.query import StoreKey
from state_store.errors import StateStoreError, from_json


class RowProgress(Protocol):
    """Receiver of the progress of the copying. Called by one thread."""

    def expect(self, rows: int) -> None:
        """Start a store of about this many rows."""

    def moved(self, rows: int) -> None:
        """Add to the rows that were copied."""

    def store_done(self) -> None:
        """Count a finished store."""


PROGRAM = "org.apache.spark.sql.execution.streaming.state.incremental.migration.Migration"
"""Name of its class."""


@dataclass(frozen=True)
class Side:
    """A side of the copy: a checkpoint directory, and the configuration that its provider gets.

    Attributes:
        location: the checkpoint directory.
        pins: the configuration in its offset log.
        conf: the configuration of the session that copies, which goes before the pins.
    """

    location: str
    pins: Mapping[str, str]
    conf: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
        return {"state": f"{self.location}/state", "pins": dict(self.pins), "conf": dict(self.conf)}


@dataclass(frozen=True)
class CopiedStore:
    """A store of an operator.

    Attributes:
        operator: Spark's number of the operator.
        name: Spark's name of the store.
        prefix_columns: columns of the key that are its prefix, if Spark's schema does not say so.
        lists: the column families whose keys have several values.
        internal: column families that are Spark's own, beside those whose names say so.
        schema_files: files that describe the families, the newest last; if empty, the store has its own file.
        partitions: the id of the version in the source, by partition.
    """

    operator: int
    name: str
    prefix_columns: int
    lists: Sequence[str]
    internal: Sequence[str]
    schema_files: Sequence[str]
    partitions: Sequence[str | None]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
        return {
            "operator": self.operator,
            "name": self.name,
            "prefix_columns": self.prefix_columns,
            "lists": [*self.lists],
            "internal": [*self.internal],
            "schema_files": [*self.schema_files],
            "partitions": [{"partition": number, "id": id_} for number, id_ in enumerate(self.partitions)],
        }


@dataclass(frozen=True)
class CopyRequest:
    """A request to copy one version of all stores, `threads` of them at a time.

    `hadoop` are settings in addition to those that the JVM finds.
    """

    version: int
    threads: int
    hadoop: Mapping[str, str]
    source: Side
    target: Side
    stores: Sequence[CopiedStore]

    def to_json(self) -> dict[str, object]:
        """Return the fields as the program reads them."""
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
    """Event: work on a store of about this many rows begins."""

    rows: int


@dataclass(frozen=True)
class RowsCopied:
    """Event: the rows of all stores that were copied so far."""

    rows: int


@dataclass(frozen=True)
class StoreDone:
    """Event: a store was copied; `checkpoint_id` is the id of its version in the target, if it has one."""

    key: StoreKey
    rows: int
    checkpoint_id: str | None


@dataclass(frozen=True)
class CopyFailed:
    """Event: the program ends with an error."""

    error: StateStoreError


CopyEvent = Union[StoreBegun, RowsCopied, StoreDone, CopyFailed]


def event_of(fields: Mapping[str, Any]) -> CopyEvent:
    """Return the event in a line of the program. Raises KeyError for a line of another program."""
    if "error" in fields:
        return CopyFailed(from_json(fields["error"]))
    if "done" in fields:
        store = fields["done"]
        key = StoreKey(store["operator"], store["partition"], store["name"])
        return StoreDone(key, store["rows"], store["id"])
    if "expected" in fields:
        return StoreBegun(fields["expected"])
    return RowsCopied(fields["rows"])
