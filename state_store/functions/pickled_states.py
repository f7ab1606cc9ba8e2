"""States of groups as `GroupState` has them, from pickles that the JVM writes and to pickles that it reads.

Conversions are PySpark's. The JVM pickles the states of a run of groups as one value (`PickledStates` there),
so the schema of the state is written and parsed once a run. The value of a state is converted when its group
is called, as by PySpark, so that one that Python has no value for is an error of that group. Only if there
are structs in a state, a run is converted at once.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from state_store.functions.group_context import NO_TIMESTAMP, Header

_PLAIN = frozenset((int, float, str, bool, bytes, Decimal, type(None)))
"""Types whose values cloudpickle writes as pickle does."""


class StateReader:
    """A maker of PySpark's `GroupState`s for the groups of a stream."""

    def __init__(self, header: Header) -> None:
        from pyspark.sql.streaming.state import GroupState

        self._class = GroupState
        self._without_state = GroupState(
            optionalValue=None,
            batchProcessingTimeMs=header.batch_time_ms,
            eventTimeWatermarkMs=header.watermark_ms,
            timeoutConf=header.timeout_conf,
            hasTimedOut=header.timed_out,
            watermarkPresent=header.watermark_present,
            defined=False,
            updated=False,
            removed=False,
            timeoutTimestamp=NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=header.state,
        ).__dict__
        self._run = _run_at_once if any(map(_has_struct, header.state_schema.types)) else _run_by_group

    def read(self, column: pa.Array) -> Iterator[Any]:
        """Yield the state of each group of a batch: a value holds the states of its group and the next."""
        run: Iterator[Callable[[], Any] | None] = iter(())
        for cell in column.to_pylist():
            if cell is not None:
                run = self._run(cell)
            value = next(run, None)
            state = self._class.__new__(self._class)
            fields = state.__dict__
            fields.update(self._without_state)
            if value is not None:
                fields["_value"] = value
                fields["_defined"] = True
            yield state


def _has_struct(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_struct(kind.key_type) or _has_struct(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_struct(kind.value_type)
    return pa.types.is_struct(kind)


def _run_at_once(value: bytes) -> Iterator[Any]:
    return iter(_Unpickler(io.BytesIO(value), encoding="bytes").load()[0])


def _run_by_group(value: bytes) -> Iterator[Any]:
    _, (states,) = _UnpicklerOfParts(io.BytesIO(value), encoding="bytes").load()
    for state in states:
        if state is None:
            yield None
        else:
            kind, parts = state
            yield kind.fromInternal(parts)


class _Unpickler(pickle.Unpickler):
    """PySpark's way to read a pickle, which parses a schema that it has seen no second time."""

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        return _parsed if name == "_parse_datatype_json_string" else value


class _UnpicklerOfParts(_Unpickler):
    """An unpickler that leaves rows as their types and the values that PySpark would convert."""

    def find_class(self, module: str, name: str) -> Any:
        value = super().find_class(module, name)
        return _parts_of if name == "_create_row_inbound_converter" else value


@functools.lru_cache(maxsize=8)
def _parsed(schema: str) -> Any:
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(schema)


def _parts_of(kind: Any) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    return lambda *parts: (kind, parts)


class StateWriter:
    """A writer of the values of updated states as PySpark pickles them."""

    def __init__(self, header: Header) -> None:
        from pyspark.serializers import CPickleSerializer, pickle_protocol

        self._to_internal = header.state.toInternal
        self._dumps = CPickleSerializer().dumps
        self._protocol = pickle_protocol

    def pickled(self, value: Any) -> bytes:
        """Return the pickle of the value of an updated state."""
        internal = self._to_internal(value)
        if type(internal) is tuple and _PLAIN.issuperset(map(type, internal)):
            return pickle.dumps(internal, self._protocol)
        return self._dumps(internal)
