"""The handle that a processor gets in `init`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import StructType

from state_store.functions.processors.task_state import Session
from state_store.functions.processors.variables import (
    BatchedList,
    BatchedMap,
    BatchedValue,
    Timers,
    Variable,
)

AVariable = TypeVar("AVariable", bound=Variable)


class BatchedHandle(StatefulProcessorHandle):
    """PySpark's handle, whose state variables share a session. Used by one thread."""

    def __init__(self, session: Session, timers: Timers) -> None:
        self._session = session
        self._timers = timers
        self._variables: dict[str, Variable] = {}

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: Any = None) -> BatchedValue:
        parsed = self._parsed(schema)
        index = self._declare("value", stateName, parsed, None, ttlDurationMs)
        return self._named(stateName, BatchedValue(self._session, index, parsed))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: Any = None) -> BatchedList:
        parsed = self._parsed(schema)
        index = self._declare("list", stateName, parsed, None, ttlDurationMs)
        return self._named(stateName, BatchedList(self._session, index, parsed))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None
    ) -> BatchedMap:
        keys, values = self._parsed(userKeySchema), self._parsed(valueSchema)
        index = self._declare("map", stateName, keys, values, ttlDurationMs)
        return self._named(stateName, BatchedMap(self._session, index, keys, values))

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timers.register(as_long(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timers.delete(as_long(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        return self._timers.list()

    def deleteIfExists(self, stateName: str) -> None:
        self._session.call("Error deleting state", "delete", stateName)
        deleted = self._variables.pop(stateName, None)
        if deleted is not None:  # nothing must fetch it for the next groups
            self._session.variables.remove(deleted)

    def _named(self, name: str, variable: AVariable) -> AVariable:
        self._variables[name] = variable
        return variable

    def _declare(self, kind: str, name: str, schema: StructType, values: StructType | None, ttl: Any) -> int:
        return self._session.call(
            f"Error initializing {kind} state",
            "declare",
            kind,
            name,
            schema.json(),
            None if values is None else values.json(),
            None if ttl is None else as_long(ttl),
        )

    def _parsed(self, schema: StructType | str) -> StructType:
        if not isinstance(schema, str):
            return schema
        return StructType.fromJson(
            json.loads(self._session.call("Error parsing string schema", "parse", schema))
        )


def as_long(value: Any) -> int:
    """Return `value` as the 64-bit integer that PySpark sends for it.

    Raises:
        Exception: the error of PySpark for a value that is no such integer.
    """
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    from pyspark.sql.streaming.proto import StateMessage_pb2

    return StateMessage_pb2.RegisterTimer(expiryTimestampMs=value).expiryTimestampMs
