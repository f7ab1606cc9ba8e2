"""State variables that answer from the values that a run has fetched and the writes since, and their handle.

To the processor they are PySpark's classes, with PySpark's results and errors. An iterator yields the entries
that the variable held when the first were read; further entries come in parts of the size of PySpark's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import StructType

from state_store.functions.processors import task_state as operations
from state_store.functions.processors.task_state import RowCodec, Session

MISSING: Any = 0
"""The mark of a state that is not known in the worker, as in the JVM's answers."""

_MAX_ENTRIES = 256
"""Longer lists and maps are read only when they are asked for."""


_MAX_VALUES = 4 * _MAX_ENTRIES
"""The limit of known values of a map in the worker."""

_MAX_TTL_MS = 1 << 62
"""Beyond this time to live the JVM's sum with the present moment overflows: values have expired at once."""


def _values_codec(schema: StructType, ttl_ms: int | None) -> RowCodec:
    return RowCodec(schema, come_back=ttl_ms is None or ttl_ms < _MAX_TTL_MS)


class Variable:
    """A state variable, with the known states of the keys of the run: `known[slot]`, or `MISSING`."""

    code = operations.VALUE_GET

    def __init__(self, session: Session, index: int, prefetches: bool) -> None:
        self.session = session
        self.index = index
        self.prefetches = prefetches
        self.known: dict[int, Any] = {}
        self.hits = self.misses = self.too_large = 0
        session.variables.append(self)

    def decide(self, groups: int) -> None:
        """Decide whether to fetch for the next run, by the reads of the run before, of `groups` groups."""
        if groups:
            if self.prefetches:
                self.prefetches = self.hits * 10 >= groups and self.too_large * 2 <= groups
            else:
                self.prefetches = self.misses * 4 > groups and self.too_large * 2 <= groups
        self.hits = self.misses = 0

    def fetch(self) -> tuple[int, int, int]:
        """Return the read that the JVM does for each key: code, variable, limit of entries."""
        return self.code, self.index, self.limit

    @property
    def limit(self) -> int:
        """The limit of entries of a list, a map or timers that are read in advance."""
        return min(_MAX_ENTRIES, self.session.max_state_records)

    def fill(self, fetched: list[Any]) -> None:
        """Keep the states that were fetched for each key of a new run; an empty list if none were."""
        self.known = {slot: state for slot, state in enumerate(fetched) if state is not MISSING}
        self.too_large = 0

    def fill_complete(self, fetched: list[Any]) -> None:
        """Keep lists of entries that come with a flag for complete ones."""
        present_entries = [pair for pair in enumerate(fetched) if pair[1] is not MISSING]
        self.known = {slot: entries for slot, (entries, complete) in present_entries if complete}
        self.too_large = len(fetched) - len(self.known)

    def forget(self) -> None:
        """Forget the state of the present key."""
        self.known.pop(self.session.slot, None)

    def keep(self, state: Any) -> None:
        """Keep the state of the present key, if there is a run."""
        if self.session.batches:
            self.known[self.session.slot] = state

    def found(self) -> Any:
        """Return the known state of the present key, or `MISSING`."""
        state = self.known.get(self.session.slot, MISSING) if self.session.batches else MISSING
        if state is MISSING:
            self.misses += 1
        else:
            self.hits += 1
        return state


class BatchedValue(ValueState, Variable):
    """A value."""

    def __init__(self, session: Session, index: int, schema: Any, ttl_ms: int | None = None) -> None:
        Variable.__init__(self, session, index, True)
        self._has_ttl = ttl_ms is not None
        self._codec = _values_codec(schema, ttl_ms)
        self._place = 0
        self._stamp = -1  # of the session, when a write went to that place

    def _travelled(self, failure: str) -> Any:
        state = self.found()
        if state is MISSING:
            state = self.session.read(failure, operations.VALUE_GET, self.index, 1)
            self.keep(state)
        return state

    def exists(self) -> bool:
        return self._travelled("Error checking value state exists") is not None

    def get(self) -> tuple[Any, ...] | None:
        state = self._travelled("Error getting value state")
        return None if state is None else self._codec.tuple(state)

    def update(self, newValue: Any) -> None:
        session = self.session
        if session.batches and self._codec.is_quick(newValue):
            if self._stamp == session.stamp:
                session.write_again(self._place, newValue)
            else:
                self._stamp = -1 if self._has_ttl else session.stamp
                self._place = session.write_quick(operations.VALUE_UPDATES, self.index, 1, newValue)
            self.known[session.slot] = newValue
            return
        self._stamp = -1
        sent, is_exact, is_safe, length = self._codec.sent(newValue)
        self.session.write(
            "Error updating value state", is_safe, length, operations.VALUE_UPDATE, self.index, sent
        )
        if is_exact and not length:
            self.keep(sent)
        else:
            self.forget()

    def clear(self) -> None:
        self._stamp = -1
        self.session.write("Error clearing value state", True, 0, operations.CLEAR, self.index)
        self.keep(None)


class Entries:
    """An iterator over a list, a map or timers, as PySpark's: it reads when its first entry is asked for."""

    def __init__(
        self,
        session: Session,
        read_known: Callable[[], Any],
        index: int,
        part: int,
        convert: Callable[[Any], Any] | None,
    ) -> None:
        self._session = session
        self._known = read_known
        self._index = index
        self._part = part
        self._convert = convert
        self._group = -1
        self._id = 0
        self._entries: Iterator[Any] = iter(())
        self._more = True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for entry in self._entries:
            return entry
        if not self._more:
            raise StopIteration
        self._read()
        return next(self._entries)

    def _read(self) -> None:
        entries = self._known() if self._id == 0 else MISSING
        more = False
        if entries is MISSING:
            session = self._session
            if self._group != session.group:
                self._group, self._id = session.group, session.new_iterator()
            entries, more = session.read(
                "Error reading state",
                operations.ITERATE,
                self._index,
                self._part,
                self._id,
                session.max_state_records,
            )
        if not entries:
            raise StopIteration  # a later call asks again, as PySpark's iterators do
        self._entries = iter(entries) if self._convert is None else map(self._convert, entries)
        self._more = more


class BatchedList(ListState, Variable):
    """A list of values."""

    code = operations.LIST_GET

    def __init__(self, session: Session, index: int, schema: Any, ttl_ms: int | None = None) -> None:
        Variable.__init__(self, session, index, False)
        self._codec = _values_codec(schema, ttl_ms)

    fill = Variable.fill_complete

    def exists(self) -> bool:
        state = self.found()
        if state is MISSING:
            return self.session.read("Error checking value state exists", operations.EXISTS, self.index)
        return len(state) > 0

    def get(self) -> Iterator[tuple[Any, ...]]:
        return Entries(self.session, self.found, self.index, 0, self._codec.of_iterators)

    def put(self, newState: Any) -> None:
        self._write(operations.LIST_PUT, newState)

    def appendList(self, newState: Any) -> None:
        self._write(operations.LIST_APPEND, newState)

    def appendValue(self, newState: Any) -> None:
        sent, is_exact, is_safe, length = self._codec.sent(newState)
        self.session.write(
            "Error updating value state", is_safe, length, operations.LIST_APPEND_ONE, self.index, sent
        )
        self._note([sent], is_exact and not length)

    def _write(self, code: int, values: Any) -> None:
        all_sent, all_exact, all_safe, length = [], True, True, 0
        is_quick = self._codec.is_quick
        for value in values:
            if is_quick(value):
                all_sent.append(value)
                continue
            sent, is_exact, is_safe, size = self._codec.sent(value)
            all_sent.append(sent)
            all_exact = all_exact and is_exact
            all_safe = all_safe and is_safe
            length += size
        # An empty list goes at once, since Spark may refuse it.
        self.session.write(
            "Error updating value state", all_safe and bool(all_sent), length, code, self.index, all_sent
        )
        if code == operations.LIST_PUT:
            if all_exact and not length and 0 < len(all_sent) <= self.limit:
                self.keep(all_sent)
            else:
                self.forget()
        else:
            self._note(all_sent, all_exact and not length)

    def _note(self, appended: list[Any], is_exact: bool) -> None:
        state = self.known.get(self.session.slot, MISSING) if self.session.batches else MISSING
        if state is not MISSING:
            if is_exact and len(state) + len(appended) <= self.limit:
                self.keep(state + appended)
            else:
                self.forget()

    def clear(self) -> None:
        self.session.write("Error clearing value state", True, 0, operations.CLEAR, self.index)
        self.keep([])


class _Map:
    """The known part of the map of a key.

    `values` has values by key, `None` for a key that is not in the map. `complete`: it has all keys.
    `in_order`: it has them in Spark's order, since nothing was written after they were read. `places` has
    the places of writes that wait, by key, if `stamp` is the session's.
    """

    __slots__ = ("complete", "in_order", "places", "stamp", "values")

    def __init__(self, values: dict[Any, Any], complete: bool, in_order: bool) -> None:
        self.values = values
        self.complete = complete
        self.in_order = in_order
        self.places: dict[Any, int] = {}
        self.stamp = -1


class BatchedMap(MapState, Variable):
    """A map from values to values.

    A processor calls it for each row, so a call stays within one function as long as the map is known.
    """

    code = operations.MAP_ENTRIES

    def __init__(
        self, session: Session, index: int, key_schema: Any, value_schema: Any, ttl_ms: int | None = None
    ) -> None:
        Variable.__init__(self, session, index, False)
        self._has_ttl = ttl_ms is not None
        self._keys = RowCodec(key_schema, are_keys=True)
        self._values = _values_codec(value_schema, ttl_ms)
        is_plain = self._keys.of_iterators is None and self._values.of_iterators is None
        self._of_iterators = None if is_plain else self._pair
        self._row = self._values.row
        self._is_quick_key, self._is_quick_value = self._keys.is_quick, self._values.is_quick
        self._last_key = object()  # the key that was quick last: a tuple of scalars, which stays so
        self._state: _Map | None = None  # the known part of the present map, while the stamp is the session's
        self._stamp = -1

    def fill(self, fetched: list[Any]) -> None:
        self.fill_complete(fetched)
        is_kept = self._keys.is_kept
        self.known = {
            slot: _Map(dict(entries), True, True)
            for slot, entries in self.known.items()
            if self._keys.all_kept or all(is_kept(key) for key, _ in entries)
        }
        self._stamp = -1

    def keep(self, state: _Map) -> None:
        super().keep(state)
        self._stamp = -1

    def _known_part(self) -> _Map | None:
        """Return the known part of the present key's map, and remember it until the next group or message."""
        session = self.session
        if not session.batches:
            return None
        self._state, self._stamp = self.known.get(session.slot), session.stamp
        return self._state

    def _present(self) -> _Map:
        """Return the known part of the present key's map; outside of a run an empty part that is not kept."""
        state = self._known_part()
        if state is None:
            state = _Map({}, False, False)
            self.keep(state)
        return state

    def _value(self, key: Any, code: int, failure: str) -> Any:
        if self._is_quick_key(key):
            sent = self._last_key = key
        else:
            sent, is_exact, _, _ = self._keys.sent(key)
            if not is_exact:
                self.misses += 1
                return self.session.read(failure, code, self.index, sent)
        state = self._present()
        value = state.values.get(sent, MISSING)
        if value is not MISSING or state.complete:
            self.hits += 1
            value = None if value is MISSING else value
            return value if code == operations.MAP_GET else value is not None
        self.misses += 1
        value = self.session.read(failure, code, self.index, sent)
        if code == operations.MAP_GET and len(state.values) < _MAX_VALUES:
            state.values[sent] = value
        return value

    def exists(self) -> bool:
        state = self._present()
        if state.complete and state.in_order:
            self.hits += 1
            return len(state.values) > 0
        self.misses += 1
        return self.session.read("Error checking map state exists", operations.EXISTS, self.index)

    def getValue(self, key: Any) -> Any:
        state = self._state if self._stamp == self.session.stamp else self._known_part()
        value = state.values.get(key) if state is not None and key is self._last_key else None
        if value is not None:
            self.hits += 1
        else:
            value = self._value(key, operations.MAP_GET, "Error getting value")
        return None if value is None else self._row(value)

    def containsKey(self, key: Any) -> bool:
        state = self._state if self._stamp == self.session.stamp else self._known_part()
        if state is not None and (key is self._last_key or self._is_quick_key(key)):
            self._last_key = key
            value = state.values.get(key)
            if value is not None or state.complete:
                self.hits += 1
                return value is not None
        return self._value(key, operations.MAP_CONTAINS, "Error checking if map state contains key")

    def updateValue(self, key: Any, value: Any) -> None:
        session = self.session
        if session.batches and (key is self._last_key or self._is_quick_key(key)):
            self._last_key = key
            if self._is_quick_value(value):
                self._update_quick(key, value)
                return
        sent_key, is_exact_key, is_safe_key, key_length = self._keys.sent(key)
        sent, is_exact, is_safe, length = self._values.sent(value)
        session.write(
            "Error updating map state value",
            is_safe and is_safe_key,
            length + key_length,
            operations.MAP_UPDATE,
            self.index,
            sent_key,
            sent,
        )
        is_kept = is_exact and not length and not key_length
        self._note(sent_key, is_exact_key, sent if is_kept else MISSING)

    def _update_quick(self, key: Any, value: Any) -> None:
        """Write a value; one that waits for the same key is replaced, as nothing was read since.

        With a time to live none is: Spark counts an update only if it changes something.
        """
        session = self.session
        state = (self._state if self._stamp == session.stamp else None) or self._present()
        if state.stamp != session.stamp:
            state.stamp, state.places = session.stamp, {}
        place = state.places.get(key)
        if place is None:
            place = session.write_quick(operations.MAP_UPDATES, self.index, key, 1, value)
            if not self._has_ttl:
                state.places[key] = place
        else:
            session.write_again(place, value)
        state.in_order = False
        if len(state.values) < _MAX_VALUES:
            state.values[key] = value
        else:
            self._keep(state, key, True, MISSING)

    def removeKey(self, key: Any) -> None:
        sent, is_exact, is_safe, length = self._keys.sent(key)
        self.session.write(
            "Error removing key from map state", is_safe, length, operations.MAP_REMOVE, self.index, sent
        )
        self._note(sent, is_exact, None)

    def _note(self, key: Any, is_exact_key: bool, value: Any) -> None:
        """Keep `value` for `key`: `None` for a removed key, `MISSING` for a value that may change."""
        state = self._present()
        state.in_order = False
        state.stamp = -1
        self._keep(state, key, is_exact_key, value)

    @staticmethod
    def _keep(state: _Map, key: Any, is_exact_key: bool, value: Any) -> None:
        if is_exact_key and value is not MISSING and len(state.values) < _MAX_VALUES:
            state.values[key] = value
        elif is_exact_key:
            state.values.pop(key, None)
            state.complete = False
        else:
            state.values.clear()
            state.complete = False

    def _entries(self) -> Any:
        state = self._present()
        if state.complete and state.in_order:
            self.hits += 1
            return list(state.values.items())
        self.misses += 1
        return MISSING

    def _part(self, place: int) -> Any:
        entries = self._entries()
        return entries if entries is MISSING else [entry[place] for entry in entries]

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return Entries(self.session, self._entries, self.index, 0, self._of_iterators)

    def _pair(self, entry: tuple[Any, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return self._keys.tuple(entry[0]), self._values.tuple(entry[1])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return Entries(self.session, lambda: self._part(0), self.index, 1, self._keys.of_iterators)

    def values(self) -> Iterator[tuple[Any, ...]]:
        return Entries(self.session, lambda: self._part(1), self.index, 2, self._values.of_iterators)

    def clear(self) -> None:
        self.session.write("Error clearing map state", True, 0, operations.CLEAR, self.index)
        self.keep(_Map({}, True, True))


class Timers(Variable):
    """The timers of a key, which all variables of a processor share."""

    code = operations.TIMER_LIST

    def __init__(self, session: Session, time_mode: str) -> None:
        super().__init__(session, -1, False)
        self._has_timers = time_mode.lower() != "none"

    fill = Variable.fill_complete

    def list(self) -> Iterator[int]:
        """Return an iterator over the moments of the timers, in ms."""
        return Entries(self.session, self.found, -1, 0, None)

    def register(self, moment_ms: int) -> None:
        """Register a timer."""
        self._change("Error register timer", operations.TIMER_REGISTER, moment_ms)

    def delete(self, moment_ms: int) -> None:
        """Delete a timer."""
        self._change("Error deleting timer", operations.TIMER_DELETE, moment_ms)

    def _change(self, failure: str, code: int, moment_ms: int) -> None:
        self.session.write(failure, self._has_timers, 0, code, moment_ms)
        self.forget()


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
        return self._named(stateName, BatchedValue(self._session, index, parsed, ttlDurationMs))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: Any = None) -> BatchedList:
        parsed = self._parsed(schema)
        index = self._declare("list", stateName, parsed, None, ttlDurationMs)
        return self._named(stateName, BatchedList(self._session, index, parsed, ttlDurationMs))

    def getMapState(
        self, stateName: str, userKeySchema: Any, valueSchema: Any, ttlDurationMs: Any = None
    ) -> BatchedMap:
        keys, values = self._parsed(userKeySchema), self._parsed(valueSchema)
        index = self._declare("map", stateName, keys, values, ttlDurationMs)
        return self._named(stateName, BatchedMap(self._session, index, keys, values, ttlDurationMs))

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
        Exception: the error of PySpark for a value that is not such an integer.
    """
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    from pyspark.sql.streaming.proto import StateMessage_pb2

    return StateMessage_pb2.RegisterTimer(expiryTimestampMs=value).expiryTimestampMs
