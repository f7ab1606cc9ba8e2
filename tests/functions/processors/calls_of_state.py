"""A stand-in for the JVM's state of processors, which has keys as bytes and takes and gives pickles."""

from __future__ import annotations

import decimal
import pickle
import struct
from typing import Any

from pyspark.sql import types

from state_store.functions.processors import task_state as operations

ARGUMENTS = {
    operations.KEY: 1,
    operations.VALUE_GET: 1,
    operations.VALUE_UPDATE: 2,
    operations.CLEAR: 1,
    operations.LIST_APPEND: 2,
    operations.LIST_APPEND_ONE: 2,
    operations.LIST_PUT: 2,
    operations.MAP_GET: 2,
    operations.MAP_CONTAINS: 2,
    operations.MAP_UPDATE: 3,
    operations.MAP_REMOVE: 2,
    operations.EXISTS: 1,
    operations.ITERATE: 4,
    operations.VALUE_UPDATES: 3,
    operations.MAP_UPDATES: 4,
}
READS = frozenset(
    (
        operations.VALUE_GET,
        operations.MAP_GET,
        operations.MAP_CONTAINS,
        operations.EXISTS,
        operations.ITERATE,
    )
)

_NULL = b"\0"


class Given:
    """Takes operations as a task sends them, and keeps what they carry as values of Python."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.keys: list[Any] = []

    def call(self, name: str, waiting: list[Any], keys: list[Any], fetches: list[Any]) -> Any:
        """Take the operations that wait; there are no reads among them."""
        message = pickle.loads(pickle.dumps(waiting))
        for code, arguments in parsed(message):
            if code == operations.KEY:
                self.keys.append(unpickled(arguments[0]))
            elif code in (operations.LIST_PUT, operations.LIST_APPEND):
                self.values += map(unpickled, arguments[1])
            elif code in (operations.VALUE_UPDATES, operations.MAP_UPDATES):
                *before, times, value = arguments[1:]
                self.values += [*map(unpickled, before), *[unpickled(value)] * times]
            else:
                self.values += map(unpickled, arguments[1:])
        return [[], []]


class MapState:
    """A map for each grouping key, as Spark's store has it: keys are equal if their bytes are.

    Args:
        keys: the schema of the keys of the map, whose bytes are those of the types of `encoded`.
        plain: whether keys and values travel as tuples, which is the JVM's rule for plain types.
    """

    def __init__(self, keys: types.StructType, plain: bool) -> None:
        self._keys = keys
        self._plain = plain
        self.maps: dict[Any, dict[bytes, tuple[Any, Any]]] = {}
        self.updates = 0

    def call(self, name: str, waiting: list[Any], keys: list[Any], fetches: list[Any]) -> Any:
        """Do the operations that wait, in their order; return the answers of reads, and what is fetched."""
        assert name == "run"
        answers: list[Any] = []
        present: dict[bytes, tuple[Any, Any]] = {}
        for code, arguments in parsed(pickle.loads(pickle.dumps(waiting))):
            if code == operations.KEY:
                present = self._map(arguments[0])
            elif code == operations.CLEAR:
                present.clear()
            elif code == operations.ITERATE:
                entries = [present[place] for place in sorted(present)]
                part = arguments[1]
                answers.append((entries if part == 0 else [entry[part - 1] for entry in entries], False))
            elif code == operations.EXISTS:
                answers.append(bool(present))
            else:
                key = unpickled(arguments[1])
                place = self._encoded(key)
                if code in (operations.MAP_UPDATE, operations.MAP_UPDATES):
                    present[place] = (self._stored(key), self._sent(unpickled(arguments[-1])))
                    self.updates += arguments[2] if code == operations.MAP_UPDATES else 1
                elif code == operations.MAP_REMOVE:
                    present.pop(place, None)
                else:
                    value = present.get(place, (None, None))[1]
                    answers.append(value if code == operations.MAP_GET else value is not None)
        fetched = []
        for key in keys:
            assert fetches[0::3] == [operations.MAP_ENTRIES]
            entries = self._map(key)
            fetched.append(([entries[place] for place in sorted(entries)], True))
        return [answers, fetched]

    def _map(self, key: Any) -> dict[bytes, tuple[Any, Any]]:
        return self.maps.setdefault(unpickled(key), {})

    def _stored(self, key: tuple[Any, ...]) -> Any:
        """Return a key as the JVM gives it back: a plain value of another type than its column's is null."""
        if not self._plain:
            return pickle.dumps(key)
        kinds = [field.dataType for field in self._keys.fields]
        return tuple(v if encoded(v, kind) != _NULL else None for v, kind in zip(key, kinds, strict=True))

    def _sent(self, value: tuple[Any, ...]) -> Any:
        return value if self._plain else pickle.dumps(value)

    def _encoded(self, key: tuple[Any, ...]) -> bytes:
        return b"".join(encoded(v, f.dataType) for v, f in zip(key, self._keys.fields, strict=True))


def parsed(message: list[Any]) -> list[tuple[int, list[Any]]]:
    """Return the operations of a message, each with its arguments."""
    found, at = [], 0
    while at < len(message):
        count = ARGUMENTS[message[at]]
        found.append((message[at], message[at + 1 : at + 1 + count]))
        at += 1 + count
    return found


def unpickled(travelled: Any) -> tuple[Any, ...]:
    """Return a value as the JVM reads it."""
    return travelled if type(travelled) is tuple else tuple(pickle.loads(travelled))


def encoded(value: Any, kind: types.DataType) -> bytes:
    """Return the bytes of a value in a row of Spark, as far as they tell values apart.

    `EvaluatePython.makeFromJava` of Spark makes null of a number of another type.
    """
    if isinstance(kind, types.DoubleType):
        data = struct.pack(">d", value) if type(value) is float else None
    elif isinstance(kind, types.LongType):
        data = struct.pack(">q", value) if type(value) is int else None
    elif isinstance(kind, types.BooleanType):
        data = bytes([value]) if type(value) is bool else None
    elif isinstance(kind, types.StringType):
        data = None if value is None else str(value).encode()
    elif isinstance(kind, types.DecimalType):
        data = (
            None if value is None else str(decimal.Decimal(value).quantize(decimal.Decimal("0.01"))).encode()
        )
    elif isinstance(kind, types.DateType):
        data = None if value is None else struct.pack(">i", value)  # PySpark has made days of it
    elif isinstance(kind, types.StructType):
        data = None
        if value is not None:
            parts = [encoded(v, f.dataType) for v, f in zip(value, kind.fields, strict=True)]
            data = b"".join(parts)
    else:
        assert isinstance(kind, types.ArrayType)
        data = None if value is None else b"".join(encoded(item, kind.elementType) for item in value)
    return _NULL if data is None else b"\1" + struct.pack(">i", len(data)) + data
