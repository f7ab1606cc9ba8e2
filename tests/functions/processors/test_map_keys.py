"""Keys are the same if Spark's bytes of them are, whatever Python's `==` says.

Python has 0.0 equal to -0.0, 2 to 2.0 and True to 1, and NaN not to itself; rows of Spark are compared by
their bytes.
"""

from __future__ import annotations

import datetime
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
import wire
from calls_of_state import MapState, parsed, unpickled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from state_store.functions.processors import task_state as operations
from state_store.functions.processors.task_state import RowCodec, Session
from state_store.functions.processors.variables import BatchedMap, BatchedValue

LONG = wire.schema({"n": "long"})
NAN = math.nan
DAY = datetime.date(2024, 1, 2)
STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": True, "metadata": {}}]}
LIST = {"type": "array", "elementType": "double", "containsNull": True}
ALIKE = {
    "double": [
        [0.0, -0.0, 0, np.float64(-0.0)],
        [NAN, -NAN, float("nan")],
        [2, 2.0, np.float64(2)],
        [1.0, True, None],
    ],
    "long": [[0, 1, np.int64(1), True], [2, None, -1]],
    "boolean": [[True, False, None]],
    "string": [["\u00e9", "e\u0301", "e"], ["A", "a", "\uff41", ""], ["", None]],
    "decimal(10,2)": [
        [decimal.Decimal(text) for text in ("1", "1.0", "1.00")],
        [decimal.Decimal("-0.0"), None],
    ],
    "date": [[DAY, datetime.datetime(2024, 1, 2), datetime.date(2024, 1, 3), None]],
    "struct": [[(0.0,), (-0.0,), None], [(NAN,), (float("nan"),)]],
    "array": [[[0.0], [-0.0], [], None], [[NAN], [float("nan")]]],
}
"""Values of each type, in lists of those that Python takes for equal, or a reader may."""

CASES = [
    *(((kind,), [values]) for kind, lists in ALIKE.items() for values in lists),
    (("double", "string"), [ALIKE["double"][0], ALIKE["string"][0]]),
    (("string", "double"), [ALIKE["string"][2], ALIKE["double"][1]]),
]


def schema_of(kinds: tuple[str, ...]) -> StructType:
    return wire.schema({f"c{i}": {"struct": STRUCT, "array": LIST}.get(k, k) for i, k in enumerate(kinds)})


def is_plain(kinds: tuple[str, ...]) -> bool:
    return set(kinds) <= {"double", "long", "boolean", "string"}


CALLS = ["updateValue", "getValue", "containsKey", "removeKey", "exists", "iterator", "keys", "clear", "next"]


def play(kinds, calls, store, reads_ahead: bool | None = None):
    """Return what each call on a map gives; without `reads_ahead` the map asks the store each time."""
    batched = reads_ahead is not None
    session = Session(store, RowCodec(LONG, are_keys=True), 500)
    variable = BatchedMap(session, 0, schema_of(kinds), LONG)
    given: list[object] = []

    def begin() -> None:
        variable.decide = lambda groups: None
        variable.prefetches = bool(reads_ahead)
        session.begin([(1,)])
        session.enter(0)
        session.batches = batched

    begin()
    for name, key, number in calls:
        if name == "next":
            session.flush()
            begin()
        elif name == "updateValue":
            variable.updateValue(key, (number,))
        elif name in ("getValue", "containsKey", "removeKey"):
            given.append(getattr(variable, name)(key))
        elif name in ("iterator", "keys"):
            given.append(sorted(map(repr, getattr(variable, name)())))
        else:
            given.append(getattr(variable, name)())
    session.flush()
    return given, sorted(map(repr, store.maps.get((1,), {}).items())), store.updates


@pytest.mark.parametrize("reads_ahead", [False, True])
@pytest.mark.parametrize(("kinds", "alike"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_a_map_with_known_values_answers_as_the_store(kinds, alike, reads_ahead):
    key = st.tuples(*map(st.sampled_from, alike))
    call = st.tuples(st.sampled_from([*CALLS[:4] * 3, *CALLS]), key, st.integers(0, 99))

    @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(call, min_size=8, max_size=30))
    def check(calls):
        schema, plain = schema_of(kinds), is_plain(kinds)
        asked = play(kinds, calls, MapState(schema, plain))
        assert play(kinds, calls, MapState(schema, plain), reads_ahead) == asked

    check()


class Sent:
    """Keeps the operations of each message."""

    def __init__(self) -> None:
        self.messages: list[list[tuple[int, list[object]]]] = []

    def call(self, name, waiting, keys, fetches):
        assert not fetches
        self.messages.append(parsed(waiting))
        return [[], []]


def test_updates_of_an_entry_in_a_group_go_as_one_with_their_number():
    store = Sent()
    session = Session(store, RowCodec(LONG, are_keys=True), 500)
    variable = BatchedMap(session, 0, LONG, LONG)
    session.begin([(1,), (2,), (1,)])
    for number in range(3):
        session.enter(number)
        for value in range(20):
            variable.updateValue((value % 2,), (value,))
    session.flush()
    updates = [arguments for code, arguments in store.messages[-1] if code == operations.MAP_UPDATES]
    assert [tuple(rest) for _, *rest in updates] == [((0,), 10, (18,)), ((1,), 10, (19,))] * 3


def test_an_update_after_another_write_is_not_moved_before_it():
    store = Sent()
    session = Session(store, RowCodec(LONG, are_keys=True), 500)
    variable = BatchedMap(session, 0, LONG, LONG)
    value = BatchedValue(session, 1, LONG)
    value.prefetches = False
    session.begin([(1,)])
    session.enter(0)
    for write in (lambda: variable.removeKey((0,)), variable.clear, lambda: variable.updateValue([0], (5,))):
        variable.updateValue((0,), (1,))
        write()
        variable.updateValue((0,), (2,))
    value.update((1,))
    value.update((2,))
    value.clear()
    value.update((3,))
    session.flush()
    codes = [(code, arguments[-1]) for code, arguments in store.messages[-1] if code != operations.KEY]
    assert codes == [
        (operations.MAP_UPDATES, (1,)),
        (operations.MAP_REMOVE, (0,)),
        (operations.MAP_UPDATES, (1,)),
        (operations.CLEAR, 0),
        (operations.MAP_UPDATES, (1,)),
        (operations.MAP_UPDATE, (5,)),
        (operations.MAP_UPDATES, (2,)),
        (operations.VALUE_UPDATES, (2,)),
        (operations.CLEAR, 1),
        (operations.VALUE_UPDATES, (3,)),
    ]


@pytest.mark.parametrize("ahead", [False, True])
def test_zeros_and_nan_are_keys_of_their_own(ahead):
    store = MapState(schema_of(("double",)), True)
    session = Session(store, RowCodec(LONG, are_keys=True), 500)
    variable = BatchedMap(session, 0, schema_of(("double",)), LONG)

    def begin() -> None:
        session.begin([(1,)])
        session.enter(0)
        if ahead:
            session.fetch(variable)

    begin()
    variable.updateValue((0.0,), (1,))
    variable.updateValue((-0.0,), (2,))
    variable.updateValue((float("nan"),), (3,))
    begin()
    assert [variable.getValue((key,)).n for key in (0.0, -0.0, float("nan"))] == [1, 2, 3]
    variable.removeKey((-0.0,))
    assert variable.getValue((-0.0,)) is None
    assert variable.getValue((0.0,)).n == 1
    variable.clear()
    variable.updateValue((float("nan"),), (4,))
    assert variable.containsKey((float("nan"),))
    assert variable.getValue((float("nan"),)).n == 4


ARROW = {
    "double": (pa.float64(), [0.0, -0.0, NAN, 2.0, None]),
    "string": (pa.string(), ["\u00e9", "e\u0301", "ab", None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "decimal(10,2)": (pa.decimal128(10, 2), [decimal.Decimal("1.00"), decimal.Decimal("0.00"), None]),
    "date": (pa.date32(), [DAY, datetime.date(2024, 1, 3), None]),
    "array": (pa.list_(pa.float64()), [[0.0], [-0.0], [NAN], [], None]),
}
groups = st.sampled_from(sorted(ARROW)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.sampled_from(ARROW[kind][1]), min_size=2, max_size=8))
)


@settings(max_examples=100, deadline=None, database=None)
@given(groups)
def test_groups_share_a_state_if_and_only_if_their_keys_are_the_same(group):
    """The worker keeps one state for the keys of a run that Spark's store has as one, and for no others."""
    kind, values = group
    schema = schema_of((kind,))
    store = MapState(schema, is_plain((kind,)))
    session = Session(store, RowCodec(schema, are_keys=True), 500)  # type: ignore[arg-type]
    keys = [(value,) for value in pa.array(values, ARROW[kind][0]).to_pylist()]
    session.begin(keys)
    encoded = [store._encoded(unpickled(session._keys.key(key))) for key in keys]
    first = {code: place for place, code in reversed(list(enumerate(encoded)))}
    same = [first[code] for code in encoded]
    slots = session._run.slots
    assert [slots.index(slot) for slot in slots] == same


def test_pyarrow_keeps_the_sign_of_zero():
    """The rows of the input have it, so the rule above is needed for keys of groups as well."""
    assert math.copysign(1, pa.array([-0.0]).to_pylist()[0]) == -1
