"""A time to live that overflows in the JVM: Spark's store has nothing of what was written, at once.

Spark adds the time to live to the moment of the batch, in 64 bits: 2**63 - 1 ms, given for "for ever", makes
a moment long past.
"""

from __future__ import annotations

from typing import Any

import pytest
import wire
from calls_of_state import READS, parsed

from state_store.functions.processors import task_state as operations
from state_store.functions.processors.task_state import RowCodec, Session
from state_store.functions.processors.variables import BatchedHandle, Timers

LONG, TEXT = wire.schema({"n": "long"}), wire.schema({"s": "string"})
EMPTY = {operations.EXISTS: False, operations.MAP_CONTAINS: False, operations.ITERATE: ([], False)}


class Expired:
    """A store whose variables are always empty, as values are that have expired."""

    def __init__(self) -> None:
        self.reads = self.declared = 0

    def call(self, name: str, *message: Any) -> Any:
        """Return empty answers to reads."""
        if name == "declare":
            self.declared += 1
            return self.declared - 1
        waiting, keys, fetches = message
        answers = [EMPTY.get(code) for code, _ in parsed(waiting) if code in READS]
        self.reads += len(answers)
        empty = {operations.VALUE_GET: None}
        fetched = [empty.get(code, ([], True)) for _ in keys for code in fetches[::3]]
        return [answers, fetched]


def seen(ttl_ms: int | None, schema: Any, value: Any) -> list[Any]:
    """Return what a group reads after each of its writes, in a second run, for which state was fetched."""
    store = Expired()
    session = Session(store, RowCodec(LONG, are_keys=True), 500)  # type: ignore[arg-type]
    handle = BatchedHandle(session, Timers(session, "processingTime"))
    value_state = handle.getValueState("value", schema, ttl_ms)
    many = handle.getListState("many", schema, ttl_ms)
    by_key = handle.getMapState("by_key", LONG, schema, ttl_ms)
    found: list[Any] = []
    for _ in range(2):
        session.begin([(1,)])
        session.enter(0)
        found = [value_state.exists(), list(many.get()), by_key.exists()]
        value_state.update(value)
        found += [value_state.exists(), value_state.get()]
        for write in (many.appendValue, lambda v: many.appendList([v]), lambda v: many.put([v, v])):
            write(value)
            found += [many.exists(), list(many.get())]
        by_key.updateValue((1,), value)
        found += [by_key.containsKey((1,)), by_key.getValue((1,)), list(by_key.iterator())]
    return found


@pytest.mark.parametrize("ttl_ms", [2**63 - 1, 2**63 - 1_000_000])
@pytest.mark.parametrize(("schema", "value"), [(LONG, (5,)), (LONG, [5]), (TEXT, ("s",))])
def test_nothing_is_read_of_what_has_expired_at_once(ttl_ms, schema, value):
    assert not any(seen(ttl_ms, schema, value))


def test_other_values_are_known_in_the_group_that_wrote_them():
    assert seen(3_600_000, LONG, (5,))[3:5] == seen(None, LONG, (5,))[3:5] == [True, (5,)]
