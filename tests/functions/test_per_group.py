"""Arguments and results of a function for one group at a time, called as the worker calls it."""

from __future__ import annotations

import datetime
import traceback

import pyarrow as pa
import pytest
import wire
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState

from state_store.functions import BadResultError, group_calls, per_group
from state_store.functions.group_context import GroupTooLargeError, Header

KEY = wire.schema({"k": "string"})
ROWS = wire.schema({"k": "string", "v": "long"})
STATE = wire.schema({"n": "long", "s": "string"})
OUTPUT = wire.schema({"k": "string", "n": "integer"})
GROUPS = [
    {"key": ("a",), "rows": [("a", 1), ("a", 2)], "state": None},
    {"key": ("b",), "rows": [("b", 3)], "state": (7, "old")},
    {"key": (None,), "rows": [(None, None)], "state": (None, None)},
]


def replies(function, groups=GROUPS, state=STATE, output=OUTPUT, split_groups=False, batches=1, **header):
    """Call a function on batches of a stream, as the worker does, and return all answers."""
    text = wire.header(KEY, ROWS, state, output, **header)
    parsed = Header.parse(text)
    stream = [wire.batch(text if not i else None, parsed, groups) for i in range(batches)]
    return [wire.answer(r) for r in per_group(split_groups=split_groups)(function)(iter(stream))]


def call(function, *args, **options):
    (reply,) = replies(function, *args, **options)
    return reply


def test_a_function_gets_key_rows_and_state():
    seen = []
    reply = call(lambda key, rows, state: seen.append((key, rows, state.exists, state.getOption)))
    assert seen == [
        (("a",), [("a", 1), ("a", 2)], False, None),
        (("b",), [("b", 3)], True, (7, "old")),
        ((None,), [(None, None)], True, (None, None)),
    ]
    key, rows, _, state = seen[1]
    assert (key.k, rows[0].v, rows[0]["k"], state.n, state.s) == ("b", 3, "b", 7, "old")
    assert isinstance(rows, list) and isinstance(rows[0], Row) and not isinstance(key, Row)
    assert reply["changes"] == {} and reply["output"] == [] and reply["done"] == 3


def test_batches_of_one_stream_are_answered_one_after_the_other():
    numbered = replies(lambda key, rows, state: state.update((len(rows), key.k)), batches=2)
    assert [sorted(r["changes"]) for r in numbered] == [[0, 1, 2], [3, 4, 5]]
    assert [r["done"] for r in numbered] == [3, 6]


def test_groups_that_timed_out_have_no_rows():
    def function(key, rows, state):
        assert rows == [] and state.hasTimedOut
        state.remove()
        return [(key.k, state.getCurrentWatermarkMs())]

    groups = [{"key": ("a",), "rows": [], "state": (1, "x"), "timeout": 5}]
    reply = call(function, groups, timeout_conf="EventTimeTimeout", timed_out=True, watermark_ms=77)
    assert reply["changes"] == {0: ("remove", -1)} and reply["output"] == [{"k": "a", "n": 77}]


EVERY_FORM = {
    "generator": lambda key, rows, state: ((key.k, r.v) for r in rows),
    "list of tuples": lambda key, rows, state: [(key.k, r.v) for r in rows],
    "lists": lambda key, rows, state: [[key.k, r.v] for r in rows],
    "dicts": lambda key, rows, state: [{"n": r.v, "k": key.k} for r in rows],
    "rows of the input": lambda key, rows, state: rows,
    "rows": lambda key, rows, state: tuple(Row(k=key.k, n=r.v) for r in rows),
    "map": lambda key, rows, state: map(tuple, rows),
}


@pytest.mark.parametrize("form", EVERY_FORM)
def test_rows_are_taken_in_all_forms(form):
    expected = [{"k": "a", "n": 1}, {"k": "a", "n": 2}, {"k": "b", "n": 3}, {"k": None, "n": None}]
    assert call(EVERY_FORM[form])["output"] == expected


def test_a_column_that_a_dict_lacks_is_null():
    assert call(lambda key, rows, state: [{"k": "x"}], GROUPS[:1])["output"] == [{"k": "x", "n": None}]


def test_a_list_may_be_used_again_for_the_next_row():
    def function(key, rows, state):
        row = [key.k, 0]
        for r in rows:
            row[1] = r.v
            yield row

    assert [r["n"] for r in call(function)["output"]] == [1, 2, 3, None]


def test_a_state_is_taken_when_its_group_has_ended():
    """A function that keeps a state and changes it later changes nothing, as in Spark's worker."""
    kept = []

    def function(key, rows, state):
        for other in kept:
            other.update((99, "late"))
            other.remove()
        kept.append(state)
        state.update((len(rows), "in time"))

    reply = call(function)
    assert [change for change, _ in reply["changes"].values()] == ["put"] * 3
    assert [(state["n"], state["s"]) for state in reply["state"]] == [
        (2, "in time"),
        (1, "in time"),
        (1, "in time"),
    ]


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (("a", 1), "a row of group .*'a' is of type str, not a row.*Yield rows, or return a list of them"),
        ("text", "returned a str: yield rows"),
        ({"k": "a", "n": 1}, "returned a dict: yield rows"),
        (5, "returned a int: yield rows"),
        ([("a",)], r"\('a',\) has 1 values, and the schema has 2: \['k', 'n'\]"),
        ([("a", "b")], "column 'n': 'b' is of type str, not int"),
        ([("a", 2**31)], r"output: column 'n' \(int\) cannot hold 2147483648 of group \(k='a'\)"),
        ([{"key": 1}], "has 'key', and the schema has only"),
    ],
)
def test_a_result_that_is_no_row_is_an_error_that_names_the_group(given_, message):
    with pytest.raises(BadResultError, match=message) as error:
        call(lambda key, rows, state: given_)
    assert str(error.value).startswith("state_store.per_group(<lambda>): ")


def test_a_single_named_tuple_is_no_list_of_rows():
    with pytest.raises(BadResultError, match="returned a Key: yield rows"):
        call(lambda key, rows, state: key)


def lines_of(function, error=BadResultError) -> str:
    with pytest.raises(error) as raised:
        call(function)
    return "".join(traceback.format_exception(raised.value))


def test_errors_show_the_line_that_made_them():
    def yields(key, rows, state):
        yield key.k, 1
        yield key.k, "x"  # the line that yields

    def updates(key, rows, state):
        state.update((1,))  # the line that updates

    def fails(key, rows, state):
        if key.k == "b":
            raise KeyError("made up")  # the line that fails

    assert "# the line that yields" in lines_of(yields)
    assert "# the line that updates" in lines_of(updates)
    text = lines_of(fails, KeyError)
    assert "# the line that fails" in text and "made up" in text
    if hasattr(KeyError, "add_note"):
        assert "state_store.per_group(fails) was called for group (k='b')." in text


def test_a_generator_that_swallows_the_error_gets_it_all_the_same():
    def function(key, rows, state):
        try:
            yield "no row"
        except BadResultError:
            yield key.k, 1

    with pytest.raises(BadResultError, match="'no row' is of type str"):
        call(function)


class TestStates:
    @pytest.mark.parametrize(
        "value", [(5, "x"), [5, "x"], {"s": "x", "n": 5}, Row(n=5, s="x"), iter((5, "x"))]
    )
    def test_an_update_is_stored(self, value):
        def function(key, rows, state):
            state.update(value)
            assert state.exists and state.get == (5, "x") and state.get.s == "x"

        reply = call(function, GROUPS[:1])
        assert reply["changes"] == {0: ("put", -1)} and reply["state"] == [{"n": 5, "s": "x"}]

    def test_a_state_with_one_field_replaced_is_taken(self):
        reply = call(lambda key, rows, state: state.update(state.get._replace(n=8)), GROUPS[1:2])
        assert reply["state"] == [{"n": 8, "s": "old"}]

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ((1,), "the new state of group .k='a'.: .1,. has 1 values"),
            (("x", "x"), "column 'n': 'x' is of type str, not bigint"),
            (
                (2**70, "x"),
                r"state: column 'n' \(bigint\) cannot hold 1180591620717411303424 of group \(k='a'\)",
            ),
        ],
    )
    def test_states_that_do_not_fit_are_refused(self, value, message):
        with pytest.raises(BadResultError, match=message):
            call(lambda key, rows, state: state.update(value))

    def test_datetimes_are_in_the_sessions_zone(self):
        at_ms = 1_700_000_000_000
        local = datetime.datetime(2023, 11, 14, 14, 13, 20)  # in Los Angeles
        for value in (at_ms, local, local.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-8)))):
            reply = call(
                lambda k, r, state, v=value: state.setTimeoutTimestamp(v), timeout_conf="EventTimeTimeout"
            )
            assert reply["changes"][0] == ("keep", at_ms)


# A step is a method of GroupState with its arguments, or a property.
STEPS = st.lists(
    st.sampled_from(
        [
            ("exists", None),
            ("get", None),
            ("getOption", None),
            ("hasTimedOut", None),
            ("oldTimeoutTimestamp", None),
            ("update", ((1, "a"),)),
            ("update", ((None, None),)),
            ("update", (None,)),
            ("remove", ()),
            ("setTimeoutDuration", (500,)),
            ("setTimeoutDuration", (0,)),
            ("setTimeoutDuration", (-5,)),
            ("setTimeoutDuration", ("1 hour",)),
            ("setTimeoutTimestamp", (2_000_000,)),
            ("setTimeoutTimestamp", (2_000_000.9,)),
            ("setTimeoutTimestamp", (76,)),
            ("setTimeoutTimestamp", (0,)),
            ("setTimeoutTimestamp", (datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),)),
            ("getCurrentWatermarkMs", ()),
            ("getCurrentProcessingTimeMs", ()),
        ]
    ),
    max_size=8,
)


def played(state, steps) -> list:
    seen = []
    for name, arguments in steps:
        try:
            found = getattr(state, name)
            seen.append(found if arguments is None else found(*arguments))
        except Exception as error:
            seen.append((type(error), str(error)))
    return seen


@settings(max_examples=150, deadline=None, database=None)
@given(
    steps=STEPS,
    stored=st.sampled_from([None, (7, "old"), (None, None)]),
    timeout_conf=st.sampled_from(["NoTimeout", "ProcessingTimeTimeout", "EventTimeTimeout"]),
    watermark_ms=st.sampled_from([None, 77]),
    timed_out=st.booleans(),
)
def test_every_sequence_of_calls_is_answered_as_sparks_group_state_does(
    steps, stored, timeout_conf, watermark_ms, timed_out
):
    spark = GroupState(
        optionalValue=None if stored is None else Row(*stored),
        batchProcessingTimeMs=1_000_000,
        eventTimeWatermarkMs=-1 if watermark_ms is None else watermark_ms,
        timeoutConf=timeout_conf,
        hasTimedOut=timed_out,
        watermarkPresent=watermark_ms is not None,
        defined=stored is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,
        keyAsUnsafe=b"",
        valueSchema=STATE,
    )
    expected = played(spark, steps)
    found = []
    groups = [{"key": ("a",), "rows": [], "state": stored}]
    options = {"timeout_conf": timeout_conf, "watermark_ms": watermark_ms, "timed_out": timed_out}
    reply = call(lambda key, rows, state: found.extend(played(state, steps)), groups, **options)
    assert found == expected
    timeout = int(spark._timeout_timestamp)
    if spark._removed:
        change = ("remove" if timeout == -1 else "clear", timeout)
    elif spark._updated:
        change = ("put", timeout)
    else:
        change = ("keep", timeout)
    assert reply["changes"] == ({} if change == ("keep", -1) else {0: change})
    assert [tuple(s.values()) for s in reply["state"]] == (
        [tuple(spark._value)] if change[0] == "put" else []
    )


def test_much_output_leaves_before_its_groups_are_done(monkeypatch):
    monkeypatch.setattr(group_calls, "_MAX_OUTPUT_ROWS", 4)

    def function(key, rows, state):
        state.update((1, "x"))
        for i in range(3):
            yield key.k, i

    answers = replies(function)
    assert [len(a["output"]) for a in answers] == [4, 4, 1]
    assert [a["done"] for a in answers] == [0, 0, 3]
    assert [len(a["changes"]) for a in answers] == [0, 0, 3]
    assert [r["n"] for a in answers for r in a["output"]] == [0, 1, 2] * 3


def pieces():
    return [
        {"key": ("a",), "rows": [("a", 1)], "state": (10, "x"), "flags": 2},
        {"key": ("a",), "rows": [("a", 2)], "state": None, "flags": 3},
        {"key": ("a",), "rows": [("a", 3)], "state": None, "flags": 1},
    ]


def test_a_group_in_pieces_is_refused_unless_the_function_takes_it_so():
    def function(key, rows, state):
        state.update(((state.get.n if state.exists else 0) + sum(r.v for r in rows), "x"))
        yield key.k, state.get.n

    text = wire.header(KEY, ROWS, STATE, OUTPUT)
    parsed = Header.parse(text)

    def stream():
        for i, group in enumerate(pieces()):
            yield wire.batch(None if i else text, parsed, [group])

    with pytest.raises(GroupTooLargeError, match="exceed 1024 bytes"):
        list(per_group(function)(stream()))
    answers = [wire.answer(a) for a in per_group(split_groups=True)(function)(stream())]
    assert [a["output"][0]["n"] for a in answers] == [11, 13, 16]
    assert [a["changes"] for a in answers] == [{}, {}, {0: ("put", -1)}]
    assert answers[-1]["state"] == [{"n": 16, "s": "x"}]


def test_columns_whose_names_are_no_identifiers_are_found_by_name():
    odd = wire.schema({"two words": "string", "class": "long"})
    text = wire.header(KEY, odd, STATE, OUTPUT)
    group = {"key": ("a",), "rows": [("x", 1)], "state": None}
    function = per_group(lambda key, rows, state: [(rows[0]["two words"], rows[0]["class"])])
    (reply,) = function(iter([wire.batch(text, Header.parse(text), [group])]))
    assert wire.answer(reply)["output"] == [{"k": "x", "n": 1}]
    assert isinstance(reply, pa.RecordBatch)
