"""Results that a vectorised function may return, and the error for all others, before anything is written."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import wire

from state_store.functions import GROUP, BadResultError, Result, vectorized
from state_store.functions.checking import conform
from state_store.functions.group_context import GroupTooLargeError, Header

KEY = wire.schema({"k": "string"})
ROWS = wire.schema({"k": "string", "v": "long"})
STATE = wire.schema({"n": "long", "s": "string"})
OUTPUT = wire.schema({"k": "string", "n": "integer"})
GROUPS = [
    {"key": ("a",), "rows": [("a", 1), ("a", 2)], "state": None},
    {"key": ("b",), "rows": [("b", 3)], "state": (7, "old"), "timeout": 5},
    {"key": (None,), "rows": [(None, None)], "state": (None, None)},
]


def call(function, groups=GROUPS, marks=None, state=STATE, output=OUTPUT, **header):
    """Call a function on a batch, as the worker does, and return the answer."""
    text = wire.header(KEY, ROWS, state, output, **header)
    parsed = Header.parse(text)
    marked = vectorized(**(marks or {}))(function)
    (reply,) = marked(iter([wire.batch(text, parsed, groups)]))
    return wire.answer(reply)


def returning(**parts):
    return lambda rows, states, context: Result(**parts)


def states(n=(1, 2, 3), s=("x", "y", "z"), **more):
    return pa.table({"n": pa.array(n, pa.int64()), "s": s, **more})


class TestInput:
    def test_a_function_gets_rows_states_and_context(self):
        seen = {}

        def function(rows, states, context):
            seen.update(rows=rows.to_pydict(), states=states.to_pydict(), context=context)

        reply = call(function, watermark_ms=77, timeout_conf="EventTimeTimeout")
        assert seen["rows"] == {"k": ["a", "a", "b", None], "v": [1, 2, 3, None], GROUP: [0, 0, 1, 2]}
        assert seen["states"] == {
            "k": ["a", "b", None],
            "n": [None, 7, None],
            "s": [None, "old", None],
            "__exists": [False, True, True],
            GROUP: [0, 1, 2],
        }
        assert (seen["context"].batch_time_ms, seen["context"].watermark_ms) == (1_000_000, 77)
        assert seen["context"].timeout_conf == "EventTimeTimeout" and not seen["context"].timed_out
        assert reply["changes"] == {} and reply["output"] == [] and reply["done"] == 3

    def test_stored_timeout_is_given_when_asked_for(self):
        seen = []
        call(lambda rows, states, context: seen.append(states), marks={"stored_timeout": True})
        assert seen[0]["__timeout_ms"].to_pylist() == [None, 5, None]

    def test_a_key_column_named_like_a_state_column_gets_a_prefix(self):
        seen = []
        call(lambda r, s, c: seen.append(s.column_names), state=wire.schema({"k": "long"}), groups=[
            {"key": ("a",), "rows": [], "state": (1,)}
        ])  # fmt: skip
        assert seen[0] == ["key.k", "k", "__exists", GROUP]

    def test_pandas_frames_are_given_and_taken(self):
        seen = []

        def function(rows, states, context):
            seen.extend([rows, states])
            return Result(
                output=pd.DataFrame({"k": states["k"], "n": [1, 2, 3]}),
                state=pd.DataFrame({GROUP: [2], "n": [9], "s": ["new"]}),
                timeout=pd.Series([None, None, pd.Timestamp("1970-01-01 00:00:02")]),
            )

        reply = call(function, marks={"frame": "pandas"}, timeout_conf="EventTimeTimeout")
        assert seen[0][GROUP].tolist() == [0, 0, 1, 2] and seen[1]["n"].isna().tolist() == [True, False, True]
        assert reply["output"] == [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": None, "n": 3}]
        eight_hours_ms = 8 * 3600 * 1000  # the frame's times are in the session's zone
        assert reply["changes"] == {2: ("put", 2000 + eight_hours_ms)}
        assert reply["state"] == [{"n": 9, "s": "new"}]

    def test_a_reserved_name_in_the_rows_is_refused(self):
        text = wire.header(KEY, wire.schema({GROUP: "long"}), STATE, OUTPUT)
        groups = [{"key": ("a",), "rows": [(1,)], "state": (1, "x")}]
        with pytest.raises(BadResultError, match="rows schema has a column '__group', a reserved name"):
            list(vectorized(returning())(iter([wire.batch(text, Header.parse(text), groups)])))


class TestChanges:
    def test_states_in_the_given_order_are_taken(self):
        reply = call(returning(state=states()))
        assert reply["changes"] == {0: ("put", -1), 1: ("put", -1), 2: ("put", -1)}
        assert reply["state"] == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}, {"n": 3, "s": "z"}]

    def test_a_subset_of_states_is_taken_in_any_order(self):
        part = pa.table({GROUP: [2, 0], "n": [30, 10], "s": ["c", "a"]})
        reply = call(returning(state=part))
        assert reply["changes"] == {0: ("put", -1), 2: ("put", -1)}
        assert reply["state"] == [{"n": 10, "s": "a"}, {"n": 30, "s": "c"}]

    def test_a_table_of_states_with_a_column_replaced_is_taken(self):
        def function(rows, states, context):
            at = states.column_names.index("n")
            return Result(state=states.set_column(at, "n", pa.array([4, 5, 6])).slice(1))

        reply = call(function)
        assert reply["state"] == [{"n": 5, "s": "old"}, {"n": 6, "s": None}] and list(reply["changes"]) == [
            1,
            2,
        ]

    @pytest.mark.parametrize(
        "remove", [[1], np.array([1]), pa.array([False, True, None]), [False, True, False]]
    )
    def test_states_are_removed_by_index_or_mask(self, remove):
        assert call(returning(remove=remove))["changes"] == {1: ("remove", -1)}

    def test_timeout_alone_keeps_the_state(self):
        reply = call(returning(timeout=pa.array([None, 20, None])), timeout_conf="EventTimeTimeout")
        assert reply["changes"] == {1: ("keep", 20)} and reply["state"] == []

    def test_a_removed_state_keeps_its_new_timeout(self):
        reply = call(returning(remove=[0, 1], timeout=[None, 20, 30]), timeout_conf="EventTimeTimeout")
        assert reply["changes"] == {0: ("remove", -1), 1: ("clear", 20), 2: ("keep", 30)}

    def test_durations_count_from_the_batch(self):
        wait = pa.array([datetime.timedelta(seconds=2), None, None])
        reply = call(returning(timeout=wait), timeout_conf="ProcessingTimeTimeout")
        assert reply["changes"] == {0: ("keep", 1_002_000)}

    def test_timestamps_with_microseconds_round_down(self):
        at = pa.array([1500, None, None], pa.timestamp("us", "UTC"))
        assert call(returning(timeout=at), timeout_conf="EventTimeTimeout")["changes"] == {0: ("keep", 1)}

    def test_narrower_types_are_cast(self):
        narrow = pa.table(
            {"n": pa.array([1, 2, 3], pa.int8()), "s": pa.array(["a", "b", "a"]).dictionary_encode()}
        )
        assert call(returning(state=narrow))["state"][2] == {"n": 3, "s": "a"}


BAD = {
    "not a result": (
        lambda rows, states, context: rows,
        "returned a Table: return a state_store.Result, or None",
    ),
    "no table": (returning(state=[1, 2, 3]), "Result.state is a list: return a pyarrow.Table"),
    "wrong length": (returning(state=states().slice(1)), "Result.state has 2 rows for 3 groups"),
    "unknown group": (
        returning(state=states(**{GROUP: [0, 1, 3]})),
        "Result.state column '__group' names group 3, which is unknown: states has groups 0 to 2",
    ),
    "negative group": (returning(remove=[-1]), "Result.remove names group -1, which is unknown"),
    "null group": (returning(remove=pa.array([None], pa.int32())), "Result.remove has a null at 0"),
    "group twice": (
        returning(state=states(**{GROUP: [0, 1, 1]})),
        "Result.state has two rows for group (k='b')",
    ),
    "state column missing": (
        returning(state=pa.table({"n": [1, 2, 3]})),
        "Result.state lacks column 's' (string)",
    ),
    "state column unknown": (
        returning(state=states(x=[1, 2, 3])),
        "Result.state has column 'x', which the state",
    ),
    "column twice": (
        returning(state=pa.Table.from_arrays([pa.array([1])] * 2, names=["n", "n"])),
        "Result.state has column 'n' twice",
    ),
    "state of another type": (
        returning(state=pa.table({"n": ["1", "2", "3"], "s": ["x", "y", "z"]})),
        "column 'n' is string, but the schema says int64: cast it",
    ),
    "output column missing": (
        returning(output=pa.table({"k": ["a"]})),
        "Result.output lacks column 'n' (int32)",
    ),
    "output column unknown": (
        returning(output=pa.table({"k": ["a"], "n": [1], "m": [1]})),
        "Result.output has column 'm', which the output schema has not",
    ),
    "output value too large": (
        returning(output=pa.table({"k": ["a", "b"], "n": [1, 2**40]})),
        "Result.output: column 'n' is int64 and its value for row 1 does not fit int32",
    ),
    "updated and removed": (
        returning(state=states(), remove=[1]),
        "Result.state and Result.remove both name group (k='b')",
    ),
    "mask too short": (returning(remove=[True]), "Result.remove has 1 booleans for 3 groups"),
    "remove by name": (returning(remove=["b"]), "Result.remove is string: give group indexes"),
    "timeout without timeouts": (
        returning(timeout=[None, None, 5]),
        "Result.timeout sets a timeout for group (k=None), but the query was started with NoTimeout",
    ),
    "timeouts too few": (returning(timeout=[5]), "Result.timeout has 1 entries for 3 groups"),
    "timeout as text": (returning(timeout=["1", "2", "3"]), "Result.timeout is string: give milliseconds"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_result_is_refused(name):
    function, message = BAD[name]
    with pytest.raises(BadResultError) as error:
        call(function)
    assert message in str(error.value)
    assert str(error.value).startswith("state_store.vectorized(")


@pytest.mark.parametrize(
    ("timeout", "conf", "message"),
    [
        ([0, None, None], "EventTimeTimeout", r"is 0 ms for group \(k='a'\): a timeout must be positive"),
        (
            [None, 49, None],
            "EventTimeTimeout",
            r"49 ms for group \(k='b'\), earlier than the watermark \(50 ms\)",
        ),
        ([1_000_000, None, None], "ProcessingTimeTimeout", "not after the start of the batch"),
        (pa.array([1, None, None], pa.duration("s")), "EventTimeTimeout", "give timestamps"),
    ],
)
def test_a_bad_timeout_is_refused(timeout, conf, message):
    with pytest.raises(BadResultError, match=message):
        call(returning(timeout=timeout), timeout_conf=conf, watermark_ms=50)


def test_a_null_in_a_column_without_nulls_is_refused():
    with pytest.raises(BadResultError, match=r"column 's' has a null for group \(k='b'\), but .* NOT NULL"):
        call(
            returning(state=states(s=["x", None, "z"])),
            state=wire.schema({"n": "long", "s": "string"}, nullable=False),
        )


def test_a_forbidden_null_deep_in_a_value_is_refused():
    inner = json.loads(wire.schema({"x": "long"}, nullable=False).json())
    output = wire.schema({"a": {"type": "array", "elementType": inner, "containsNull": True}})
    bad = pa.table({"a": [[{"x": 1}], None, [None, {"x": None}]]})
    with pytest.raises(BadResultError, match=r"Result\.output: column 'a' has a null for row 2"):
        call(returning(output=bad), output=output)


def test_pandas_result_names_the_part():
    bad = pd.DataFrame({"k": ["a"], "n": ["no number"]})
    with pytest.raises(BadResultError, match=r"Result\.output: "):
        call(returning(output=bad), marks={"frame": "pandas"})


class TestGroupsInPieces:
    """A group beyond the limit: refused, or taken in several calls that see each other's state."""

    PIECES = (
        [
            {"key": ("a",), "rows": [("a", 1)], "state": (1, "a")},
            {"key": ("b",), "rows": [("b", 1)], "flags": 2},
        ],
        [{"key": ("b",), "rows": [("b", 2)], "flags": 3}],
        [{"key": ("b",), "rows": [("b", 3)], "flags": 1}, {"key": ("c",), "rows": [("c", 4)], "state": None}],
    )

    def run(self, function, **marks):
        text = wire.header(KEY, ROWS, STATE, OUTPUT, timeout_conf="EventTimeTimeout")
        parsed = Header.parse(text)
        batches = [
            wire.batch(text if i == 0 else None, parsed, groups) for i, groups in enumerate(self.PIECES)
        ]
        return [wire.answer(reply) for reply in vectorized(**marks)(function)(iter(batches))]

    def test_a_large_group_without_the_mark_is_refused(self):
        with pytest.raises(
            GroupTooLargeError, match=r"group \(k='b'\) exceed 1024 bytes.*maxGroupBytes.*split_groups"
        ):
            self.run(returning())

    def test_state_goes_from_piece_to_piece(self):
        seen = []

        def total(rows, states, context):
            seen.append(
                (states["n"].to_pylist(), states["__exists"].to_pylist(), context.continued, context.more)
            )
            sums = np.bincount(
                rows[GROUP].to_numpy(), weights=rows["v"].to_numpy(), minlength=states.num_rows
            )
            n = sums.astype(int) + states["n"].fill_null(0).to_numpy()
            return Result(
                output=pa.table({"k": states["k"], "n": n}), state=pa.table({"n": n, "s": states["k"]})
            )

        first, second, third = self.run(total, split_groups=True)
        assert seen == [
            ([1, None], [True, False], False, True),
            ([1], [True], True, True),
            ([3, None], [True, False], True, False),
        ]
        assert (first["changes"], first["done"]) == ({0: ("put", -1)}, 1)
        assert (second["changes"], second["done"], second["output"]) == ({}, 1, [{"k": "b", "n": 3}])
        assert third["changes"] == {1: ("put", -1), 2: ("put", -1)} and third["done"] == 3
        assert third["state"] == [{"n": 6, "s": "b"}, {"n": 4, "s": "c"}]

    @pytest.mark.parametrize(
        ("acts", "change"),
        [
            (("update", "leave", "leave"), ("put", -1)),
            (("update", "remove", "leave"), ("remove", -1)),
            (("remove", "leave", "update"), ("put", -1)),
            (("timeout", "leave", "leave"), ("keep", 90)),
            (("timeout", "update", "leave"), ("put", 90)),
            (("leave", "leave", "leave"), None),
        ],
    )
    def test_the_last_change_counts(self, acts, change):
        pieces = iter(acts)

        def act(rows, states, context):
            group = 1 if context.more and not context.continued else 0
            done = next(pieces)
            if done == "update":
                return Result(state=pa.table({GROUP: [group], "n": [5], "s": ["u"]}))
            if done == "remove":
                return Result(remove=[group])
            if done == "timeout":
                return Result(timeout=[90 if i == group else None for i in range(states.num_rows)])
            return None

        replies = self.run(act, split_groups=True)
        assert replies[-1]["changes"].get(1) == change
        if change == ("put", -1):
            assert replies[-1]["state"] == [{"n": 5, "s": "u"}]


def test_a_slice_of_structs_with_a_column_of_nulls_is_cast():
    inner = pa.struct([("nothing", pa.null()), ("m", pa.int32())])
    rows = [{"n": n, "inner": {"nothing": None, "m": 1}} for n in range(4)]
    given = pa.array(rows, pa.struct([("n", pa.int32()), ("inner", inner)])).slice(2)
    wanted = pa.field("s", pa.struct([("n", pa.int64()), ("inner", inner)]))
    assert conform(given, wanted, "Result.output", str).to_pylist() == rows[2:]
