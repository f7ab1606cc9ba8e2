"""Objects that a function changes after it has handed them over count as they were when it did so.

PySpark's own worker converts a row or frame of a processor before the processor goes on, and values of state
in the call. The functions below hand over and change; what is expected is worked out by that worker's rules.
"""

from __future__ import annotations

import collections
import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import wire
from calls_of_state import Given
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from state_store.functions import Result, accelerated, per_group, vectorized
from state_store.functions.group_context import Header, to_arrow_schema
from state_store.functions.processors.processor_loop import FrameOutput, Groups, RowBatch, RowOutput
from state_store.functions.processors.task_state import RowCodec, Session
from state_store.functions.processors.variables import BatchedList, BatchedMap, BatchedValue
from state_store.functions.vectors.call_state import ValueColumns
from state_store.functions.vectors.processor import Calls

LONGS = {"type": "array", "elementType": "long", "containsNull": True}
COUNTS = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
PAIR = {
    "type": "struct",
    "fields": [
        {"name": "x", "type": LONGS, "nullable": True, "metadata": {}},
        {"name": "y", "type": COUNTS, "nullable": True, "metadata": {}},
    ],
}


class Named(Row):
    """A subclass, as users make them."""


def grown_list(numbers):
    for n in range(3):
        numbers.append(n)
        yield Row(v=numbers)
    numbers.append(-1)


def grown_dict(counts):
    for n in range(3):
        counts[f"s{n}"] = n
        yield Row(v=counts)
    counts.clear()


def nested_rows(numbers):
    counts: dict[str, int] = {}
    for n in range(3):
        numbers.append(n)
        counts[str(n)] = n
        yield Row(v=Row(x=numbers, y=counts))
    numbers.clear()


def dicts_in_lists(counts):
    for n in range(3):
        counts["x"] = [n]
        yield Row(v=[counts])
        counts["x"].append(7)


def tuples_with_lists(numbers):
    """Tuples are not copied by Spark's worker, which converts them when the group ends."""
    for n in range(3):
        numbers.append(n)
        yield Row(v=(numbers, {"a": n}))


def arrays(numbers):
    for _ in range(3):
        numbers[0] += 1
        yield Row(v=numbers)
    numbers[0] += 9


def bytes_in_place(data):
    for _ in range(3):
        data[0] += 1
        yield Row(v=data)
    data[0] += 9


def subclasses(numbers):
    for n in range(3):
        numbers.append(n)
        yield Named(v=numbers)
        numbers.append(-n)


class Ordered(Row):
    """A row whose `asDict` gives another mapping than a dict."""

    def asDict(self, recursive=False):
        return collections.OrderedDict(super().asDict(recursive))


class Looked:
    """No row, and no mapping either but for what Arrow asks of one; the same one at each call."""

    def __init__(self, v):
        self.v = v

    def asDict(self, recursive=False):
        return self

    def __contains__(self, name):
        return name == "v"

    def __getitem__(self, name):
        return self.v


def other_mappings(numbers):
    for n in range(3):
        numbers.append(n)
        yield Ordered(v=numbers)
        yield Row(v=numbers)
    numbers.append(-1)


def objects_like_mappings(numbers):
    looked = Looked(numbers)
    for n in range(3):
        numbers.append(n)
        yield looked
    looked.v = None


def other_names_first(numbers):
    for n in range(3):
        numbers.append(n)
        yield Row(more=1, v=numbers)


ROWS = {
    "list": (LONGS, grown_list, list),
    "dict": (COUNTS, grown_dict, dict),
    "rows in rows": (PAIR, nested_rows, list),
    "dicts in lists": (
        {"type": "array", "elementType": {**COUNTS, "valueType": LONGS}, "containsNull": True},
        dicts_in_lists,
        dict,
    ),
    "lists in tuples": (PAIR, tuples_with_lists, list),
    "arrays": (LONGS, arrays, lambda: np.zeros(2, np.int64)),
    "bytes": ("binary", bytes_in_place, lambda: bytearray(2)),
    "subclasses": (LONGS, subclasses, list),
    "unknown columns": (LONGS, other_names_first, list),
    "other mappings": (LONGS, other_mappings, list),
    "objects like mappings": (LONGS, objects_like_mappings, list),
}


def sparks_rows(schema, groups):
    """Return the rows that `worker.py` of PySpark 4.1 to 4.3 makes of the rows of each group."""
    arrow, found = to_arrow_schema(schema, "UTC", False), []
    for group in groups:
        found += pa.RecordBatch.from_pylist([row.asDict(True) for row in group], schema=arrow).to_pylist()
    return found


@pytest.mark.parametrize("kind", ROWS)
def test_rows_are_those_of_the_moment_of_their_yield(kind):
    spark_type, give, make = ROWS[kind]
    schema = wire.schema({"v": spark_type})
    theirs, ours = make(), make()
    expected = sparks_rows(schema, (give(theirs) for _ in range(3)))  # one object for all groups
    output = RowOutput(schema)
    sent = [batch for _ in range(3) for batch in output.add(give(ours))]
    sent += output.flush_all()
    assert [row for batch in sent for row in batch.to_pylist()] == expected
    assert len(sent) == 1


def test_rows_that_cannot_be_copied_are_refused_by_arrow():
    output = RowOutput(wire.schema({"v": "long"}))
    assert list(output.add(iter([Row(v=(n for n in range(2)))]))) == []
    with pytest.raises(pa.ArrowInvalid, match="generator"):
        list(output.flush_all())


def in_place(frame):
    for n in range(4):
        frame.loc[0, "n"] = n
        frame.iloc[0, 2] += 0.5
        frame.loc[0, "k"] = str(n)
        yield frame
    frame["n"] = -1


def replaced_columns(frame):
    for n in range(4):
        frame["n"] = n
        frame["k"] = [str(n)] * len(frame)
        yield frame


def renamed(frame):
    """The columns have other names, and one is missing, after the frame was handed over."""
    frame = frame.copy()
    yield frame
    frame.columns = ["n", "k", "x", "l"]
    del frame["l"]
    frame.insert(0, "m", 5)


def grown_cells(frame):
    for n in range(3):
        frame.loc[0, "l"].append(n)
        yield frame
    frame.loc[0, "l"].clear()


def changing_layouts(frame):
    for n in range(4):
        frame["n"] = frame["n"].astype("Int64" if n % 2 else "int64") + 1
        yield frame
        frame["x"] = 0.0


def shared_memory(frame):
    values = np.zeros((1, 1))
    made = pd.DataFrame(values, columns=["x"], copy=False)
    for name in ("k", "n", "l"):
        made[name] = None
    for n in range(3):
        values[:] = n
        yield made


CHANGED_FRAMES = [in_place, replaced_columns, renamed, grown_cells, changing_layouts, shared_memory]


def frame_header():
    names = ("assignColumnsByName", "convertToArrowArraySafely")
    return SimpleNamespace(
        time_zone="UTC",
        large_types=False,
        flag=lambda name: name.endswith(names),
        arrow=lambda schema: to_arrow_schema(schema, "UTC", False),
    )


def template():
    return pd.DataFrame({"k": ["?"], "n": [0], "x": [0.0], "l": [[0]]})


@pytest.mark.parametrize("give", CHANGED_FRAMES)
def test_frames_are_those_of_the_moment_of_their_yield(give):
    schema = wire.schema({"k": "string", "n": "long", "x": "double", "l": LONGS})
    expected = []
    theirs, ours = template(), template()
    for _ in range(2):
        for frame in give(theirs):
            expected += copy.deepcopy(frame[["k", "n", "x", "l"]].to_dict("records"))
    output = FrameOutput(schema, frame_header())
    sent = [batch for _ in range(2) for batch in output.add(give(ours))]
    sent += output.flush_all()
    assert [row for batch in sent for row in batch.to_pylist()] == expected
    assert len(expected) > 1


def test_a_large_frame_keeps_its_place_among_small_ones():
    schema = wire.schema({"n": "long"})
    output = FrameOutput(schema, frame_header())
    frames = [
        pd.DataFrame({"n": range(start, stop)}) for start, stop in ((0, 2), (2, 20_002), (20_002, 20_003))
    ]
    sent = [*output.add(iter(frames)), *output.flush_all()]
    assert [batch.num_rows for batch in sent] == [2, 20_000, 1]
    assert [n for batch in sent for n in batch.column(0).to_pylist()] == list(range(20_003))


@pytest.mark.parametrize(
    "kind", ["string", "string[pyarrow]", pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.int64()), "Int64"]
)
def test_frames_whose_columns_are_arrows_are_joined(kind):
    """PySpark's worker converts each frame alone; its conversion refuses columns of more than one chunk."""
    is_text = "string" in str(kind)
    values = ["7", None, "9"] if is_text else [7, None, 9]
    output = FrameOutput(wire.schema({"v": "string" if is_text else "long"}), frame_header())
    frames = [pd.DataFrame({"v": pd.array([value], dtype=kind)}) for value in values]
    sent = [*output.add(iter(frames)), *output.flush_all()]
    assert [row["v"] for batch in sent for row in batch.to_pylist()] == values


@pytest.mark.parametrize(
    ("fields", "make"),
    [
        ({"l": LONGS}, lambda part: (part,)),
        ({"l": LONGS}, lambda part: [part]),
        ({"l": LONGS}, lambda part: Row(l=part)),
        ({"n": "long"}, lambda part: part),
    ],
    ids=["list in a tuple", "list in a list", "list in a row", "list of scalars"],
)
@pytest.mark.parametrize("in_run", [True, False])
def test_states_are_those_of_the_moment_of_their_call(fields, make, in_run):
    """A value, a list put and appended to, a key and a value of a map."""
    schema, store, part = wire.schema(fields), Given(), [1]
    session = Session(store, RowCodec(wire.schema({"k": "string"}), are_keys=True), 500)  # type: ignore[arg-type]
    value, many = BatchedValue(session, 0, schema), BatchedList(session, 1, schema)
    by_key = BatchedMap(session, 2, schema, schema)
    session.begin([("a",)])
    session.enter(0)
    session.batches = in_run
    given = make(part)
    entries = [given]
    value.update(given)
    many.put(entries)
    many.appendList(entries)
    many.appendValue(given)
    by_key.updateValue(given, given)
    part[0] = 99
    entries[0] = make([98])
    entries.append(given)
    session.flush()
    assert store.values == [tuple(make([1]))] * 6


def test_a_key_keeps_its_lists_when_a_row_changes_its_own():
    batch = pa.record_batch({"k": pa.array([[1], [1], [2]]), "v": [1, 2, 3]})
    groups = Groups(RowBatch.batches(iter([batch.slice(0, 1), batch.slice(1)]), [0]))
    found = []
    for _ in groups.runs(lambda: 10):
        for key, rows in groups.groups():
            n = 0
            for row in rows:
                row.k.append(7)
                n += 1
            found.append((key, n))
    assert found == [(([1],), 2), (([2],), 1)]


KEY, OUT = wire.schema({"k": "string"}), wire.schema({"k": "string", "l": LONGS})
GROUPS = [{"key": (name,), "rows": [{"k": name, "v": n} for n in range(3)]} for name in ("a", "b")]


def stream_of(state, groups=GROUPS, **options):
    rows = wire.schema({"k": "string", "v": "long"})
    text = wire.header(KEY, rows, state, OUT, **options)
    groups = [{**g, "rows": [tuple(r.values()) for r in g["rows"]]} for g in groups]
    return text, Header.parse(text), groups


def test_rows_and_states_of_per_group_are_those_of_the_moment_they_were_given():
    state = wire.schema({"l": LONGS, "m": COUNTS})

    @per_group
    def function(key, rows, state):
        numbers, counts = [], {}
        for row in rows:
            numbers.append(row.v)
            counts[str(row.v)] = row.v
            state.update((numbers, counts))
            yield key.k, numbers
        numbers.clear()
        counts.clear()

    text, parsed, groups = stream_of(state)
    [reply] = function(iter([wire.batch(text, parsed, groups)]))
    found = wire.answer(reply)
    rows = [tuple(row.values()) for row in found["output"]]
    assert rows == [(k, list(range(n))) for k in "ab" for n in (1, 2, 3)]
    kept = [tuple(row.values()) for row in found["state"]]
    assert kept == [([0, 1, 2], [("0", 0), ("1", 1), ("2", 2)])] * 2


def test_the_state_of_an_open_group_is_no_part_of_memory_that_is_used_again():
    """The pieces of a large group see the state that the piece before left."""
    memory = np.zeros(1, np.int64)
    seen = []

    @vectorized(split_groups=True)
    def function(rows, states, context):
        seen.append(states["n"].to_pylist())
        memory[:] = len(seen) * 10
        return Result(state=pa.table({"n": pa.array(memory)}))

    text, parsed, groups = stream_of(wire.schema({"n": "long"}))
    first = [{**groups[0], "flags": 2}]
    after = [{**groups[0], "flags": 3 if n == 0 else 1} for n in range(2)]
    batches = [wire.batch(text, parsed, first), *(wire.batch(None, parsed, [group]) for group in after)]

    def one_by_one():
        for batch in batches:
            yield batch
            memory[:] = -1

    list(function(one_by_one()))
    assert seen == [[None], [10], [20]]


class Memory:
    """Numbers and lists in memory that a user's code uses again for each table or frame."""

    def __init__(self, frame: str, size: int) -> None:
        self._frame = frame
        self._numbers = np.zeros(size, np.int64)
        self._cells = [[0] for _ in range(size)]

    def table(self, n: int):
        """Return the memory as a table or frame, which is full of `n`."""
        self.fill(n)
        if self._frame == "pandas":
            return pd.DataFrame({"n": self._numbers, "l": self._cells}, copy=False)
        offsets = pa.array(np.arange(len(self._numbers) + 1, dtype=np.int32))
        numbers = pa.array(self._numbers)
        return pa.table({"n": numbers, "l": pa.ListArray.from_arrays(offsets, numbers)})

    def fill(self, n: int) -> None:
        self._numbers[:] = n
        for cell in self._cells:
            cell[0] = n


OF_MEMORY = wire.schema({"n": "long", "l": LONGS})


@pytest.mark.parametrize("frame", ["arrow", "pandas"])
def test_output_and_state_of_vectorized_processors_are_those_of_the_moment_they_were_given(frame):
    """The batches are taken as Spark's worker takes them, which writes each before it asks for the next."""
    memory = Memory(frame, 2)

    @vectorized(frame=frame)
    class Handing(StatefulProcessor):
        def init(self, handle):
            pass

        def handle(self, keys, rows, state):
            for n in (1, 2):
                given = memory.table(n)
                state["value"].update(given)
                yield given
                memory.fill(-1)
            state["value"].update(memory.table(3))
            memory.fill(-1)

        def close(self):
            pass

    rows = wire.schema({"k": "string", "v": "long"})
    header = Header.parse(wire.header(KEY, rows, OF_MEMORY, OF_MEMORY))
    calls, store = Calls(Handing(), header), Given()
    session = Session(store, RowCodec(KEY, are_keys=True), 500)  # type: ignore[arg-type]
    value = BatchedValue(session, 0, OF_MEMORY)
    calls.states._variables["value"] = ValueColumns(calls.states, "value", value, OF_MEMORY)
    keys = [pa.array(["a", "b"])]
    taken = []
    for _ in range(2):
        session.begin([("a",), ("b",)])
        call = calls.states._begin(keys, session.enter, None, timed_out=False)
        given = pa.table({"k": ["a", "b"], "v": [0, 0], "__group": pa.array([0, 1], pa.int32())})
        taken += [
            tuple(row.values()) for output in calls.rows(keys, given, call) for row in output.to_pylist()
        ]
    memory.fill(-2)
    session.flush()
    assert taken == [(n, [n]) for n in (1, 1, 2, 2)] * 2
    assert store.values and {value[0] for value in store.values} <= {1, 2, 3}
    assert all(numbers == [n] for n, numbers in store.values) and store.values.count((3, [3])) == 4


@pytest.mark.parametrize("frame", ["arrow", "pandas"])
@pytest.mark.parametrize("flags", [(0, 0, 0), (2, 3, 1)], ids=["whole groups", "a group in pieces"])
def test_results_of_vectorized_functions_are_those_of_the_call_that_returned_them(frame, flags):
    """Each reply is taken before the next call, as Spark's worker does; the state of a piece waits here."""
    memory, seen = Memory(frame, 1), []

    @vectorized(frame=frame, split_groups=True)
    def function(rows, states, context):
        (before,) = states["n"] if frame == "pandas" else states["n"].to_pylist()
        seen.append(before)
        return Result(output=memory.table(len(seen)), state=memory.table(len(seen)))

    rows = wire.schema({"k": "string", "v": "long"})
    text = wire.header(KEY, rows, OF_MEMORY, OF_MEMORY)
    parsed = Header.parse(text)
    groups = [{"key": ("a",), "rows": [("a", 1)], "flags": flag} for flag in flags]
    batches = [wire.batch(None if number else text, parsed, [group]) for number, group in enumerate(groups)]

    def asked():
        for batch in batches:
            yield batch
            memory.fill(-1)

    answers = [wire.answer(reply) for reply in function(asked())]
    memory.fill(-2)
    outputs = [tuple(row.values()) for answer in answers for row in answer["output"]]
    assert outputs == [(n, [n]) for n in (1, 2, 3)]
    states = [tuple(row.values()) for answer in answers for row in answer["state"]]
    in_pieces = flags != (0, 0, 0)
    assert states == [(n, [n]) for n in ((3,) if in_pieces else (1, 2, 3))]
    assert [int(n) for n in seen[1:]] == [1, 2] if in_pieces else len(seen) == 3


def test_frames_of_unmarked_functions_are_sent_as_they_are_when_their_batch_ends():
    """Spark's own operator does so with frames changed in place and with columns replaced."""

    def function(key, frames, state):
        made = pd.DataFrame({"k": [key[0]], "l": [[1]]})
        for n in range(4):
            made["l"] = [[n]]
            yield made
        made.loc[0, "k"] = "late"

    text, parsed, groups = stream_of(wire.schema({"n": "long"}))
    replies = list(accelerated.run(function, iter([pickled(wire.batch(text, parsed, groups))])))
    rows = [tuple(row.values()) for reply in replies for row in wire.answer(reply)["output"]]
    assert rows == [("late", [3])] * 8


def pickled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with states as pickles, as functions without a mark get them."""
    place = batch.schema.get_field_index("state")
    columns = list(batch.columns)
    columns[place] = pa.nulls(batch.num_rows, pa.binary())
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
