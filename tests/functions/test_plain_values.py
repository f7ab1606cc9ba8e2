"""Plain values are those that PySpark makes of the same Arrow columns, and make the same columns again."""

from __future__ import annotations

import array
import collections
import copy
import datetime
import decimal
import pickle
import re
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as t
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import to_arrow_schema

from state_store.functions.checking import first_forbidden_null
from state_store.functions.group_calls import RowSchema, SessionZone, UnfitValueError, row_class, tuple_class
from state_store.functions.group_context import BadResultError

ZONE = "America/Los_Angeles"
UTC = datetime.timezone.utc
SECOND = datetime.timedelta(seconds=1)


def hours_from(*moment: int) -> st.SearchStrategy[datetime.datetime]:
    return st.integers(0, 4 * 3600).map(lambda s: datetime.datetime(*moment, tzinfo=UTC) + s * SECOND)


KINDS = [
    (t.BooleanType(), st.booleans()),
    (t.ByteType(), st.integers(-128, 127)),
    (t.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.StringType(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (t.BinaryType(), st.binary(max_size=5)),
    (t.DateType(), st.dates()),
    (t.DecimalType(12, 3), st.integers(-(10**9), 10**9).map(lambda n: decimal.Decimal(n).scaleb(-3))),
    (t.DecimalType(38, 0), st.integers(-(10**25), 10**25).map(decimal.Decimal)),
    (t.TimestampNTZType(), st.datetimes()),
    (t.TimestampType(), hours_from(2024, 11, 3, 7)),  # the clocks of Los Angeles are set back
    (t.TimestampType(), hours_from(2024, 3, 10, 8)),  # and forward
    (t.DayTimeIntervalType(), st.integers(-(10**15), 10**15).map(lambda us: datetime.timedelta(0, 0, us))),
]


@st.composite
def kinds(draw, depth: int = 2) -> tuple[Any, Any]:
    """Return a type of Spark and a strategy for its values, as Arrow takes them."""
    choice = draw(st.integers(0, len(KINDS) - 1 + (3 if depth else 0))) - len(KINDS)
    if choice < 0:
        kind, values = KINDS[choice]
        return kind, st.none() | values
    if choice == 0:
        kind, values = draw(kinds(depth - 1))
        return t.ArrayType(kind), st.none() | st.lists(values, max_size=3)
    if choice == 1:
        kind, values = draw(kinds(depth - 1))
        maps = st.dictionaries(st.text("abc", max_size=2), values, max_size=3)
        return t.MapType(t.StringType(), kind), st.none() | maps.map(lambda d: list(d.items()))
    parts = draw(st.lists(kinds(depth - 1), min_size=1, max_size=3))
    names = [f"f{i}" for i in range(len(parts))]
    struct = t.StructType([t.StructField(n, kind) for n, (kind, _) in zip(names, parts, strict=True)])
    of_parts = {n: values for n, (_, values) in zip(names, parts, strict=True)}
    return struct, st.none() | st.fixed_dictionaries(of_parts)


@st.composite
def tables(draw) -> tuple[t.StructType, pa.Table]:
    """Return a schema and a table of it, which may be a slice of a longer table."""
    columns = draw(st.lists(kinds(), min_size=1, max_size=4))
    spark = t.StructType([t.StructField(f"c{i}", kind) for i, (kind, _) in enumerate(columns)])
    rows = draw(st.lists(st.tuples(*(values for _, values in columns)), max_size=6))
    arrow = to_arrow_schema(spark, timezone=ZONE)
    table = pa.table([pa.array([r[i] for r in rows], f.type) for i, f in enumerate(arrow)], schema=arrow)
    return spark, table.slice(draw(st.integers(0, len(rows))))


@pytest.fixture(scope="module")
def here_is_the_sessions_zone():
    """PySpark's conversion shows moments in the zone of the process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", ZONE)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.tier("more")
@settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(tables())
@pytest.mark.parametrize("zone_in_arrow", [True, False])
def test_values_are_pysparks_and_come_back_as_the_same_columns(
    here_is_the_sessions_zone, zone_in_arrow, case
):
    spark, table = case
    zone = SessionZone(ZONE)
    zone._in_arrow = zone_in_arrow
    rows = RowSchema(spark, table.schema, zone)
    found = list(map(row_class(tuple(spark.names)), zip(*rows.values(table.columns), strict=True)))
    expected = ArrowTableToRowsConversion.convert(table, spark)
    assert list(map(described, found)) == list(map(described, expected))
    struct = rows.struct([value for row in found for value in rows.own(row)], "", str)
    struct.validate(full=True)
    assert struct.equals(table.to_struct_array().combine_chunks().cast(struct.type))


def described(value: Any) -> Any:
    """Return a value with the classes in it; for rows, their names."""
    if isinstance(value, Row):
        return Row, [(name, described(v)) for name, v in zip(value.__fields__, value, strict=True)]
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, dict):
        return [(described(k), described(v)) for k, v in value.items()]
    if isinstance(value, datetime.datetime):
        value = value.replace(fold=0)  # which PySpark does not keep everywhere before 4.3
    return type(value), repr(value)


@pytest.mark.parametrize("name", ["UTC", "Z", "+05:30", "GMT-8", "UTC+01:00", "Europe/Lisbon"])
def test_zones_are_read_in_all_forms_of_spark(name):
    zone = SessionZone(name)
    moments = pa.array([0, None, 1_700_000_000_000_001], pa.timestamp("us", "UTC"))
    shown = zone.datetimes(moments)
    assert shown[0] == datetime.datetime(1970, 1, 1, tzinfo=UTC).astimezone(zone.tzinfo).replace(tzinfo=None)
    assert zone.moments(shown).cast(moments.type).equals(moments)


@pytest.mark.parametrize("zone_in_arrow", [True, False])
def test_the_hour_that_comes_twice_is_told_apart_by_its_fold(zone_in_arrow):
    zone = SessionZone(ZONE)
    zone._in_arrow = zone_in_arrow
    moments = [datetime.datetime(2024, 11, 3, hour, 30, tzinfo=UTC) for hour in (7, 8, 9, 10)]
    column = pa.array(moments, pa.timestamp("us", ZONE))
    shown = zone.datetimes(column)
    assert [(moment.hour, moment.fold) for moment in shown] == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert zone.moments(shown).equals(column)


def test_skipped_hours_and_values_with_a_zone_become_the_right_moments():
    zone = SessionZone(ZONE)
    skipped = datetime.datetime(2024, 3, 10, 2, 30)  # read as before the change, as `datetime` does
    aware = datetime.datetime(2024, 3, 10, 10, 30, tzinfo=UTC)
    assert zone.moments([skipped]).cast(pa.int64()).to_pylist() == [int(aware.timestamp() * 1e6)]
    assert zone.moments([aware, skipped]).cast(pa.int64()).to_pylist() == [int(aware.timestamp() * 1e6)] * 2


FIELDS = {
    "n": t.IntegerType(),
    "x": t.DoubleType(),
    "s": t.StringType(),
    "b": t.BinaryType(),
    "d": t.DateType(),
    "t": t.TimestampType(),
    "m": t.DecimalType(6, 2),
    "l": t.ArrayType(t.IntegerType()),
    "p": t.StructType([t.StructField("a", t.IntegerType()), t.StructField("b", t.StringType())]),
    "q": t.MapType(t.StringType(), t.IntegerType()),
    "i": t.TimestampNTZType(),
    "v": t.DayTimeIntervalType(),
    "w": t.ArrayType(t.TimestampType()),
}


def column_schema(name: str, nullable: bool = True) -> RowSchema:
    spark = t.StructType([t.StructField(name, FIELDS[name], nullable)])
    return RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))


def through(name: str, value: Any) -> Any:
    """Return a value of a column after the way to Arrow and back."""
    rows = column_schema(name)
    struct = rows.struct([*rows.own((value,))], "output", lambda i: "group (k=1)")
    return rows.values(struct.flatten())[0][0]


NOON = datetime.datetime(2024, 5, 1, 12)


@pytest.mark.parametrize(
    ("name", "given_", "kept"),
    [
        ("n", np.int64(3), 3),
        ("x", np.float32(0.5), 0.5),
        ("x", 3, 3.0),
        ("x", np.int16(3), 3.0),
        ("s", np.str_("a"), "a"),
        ("b", bytearray(b"a"), b"a"),
        ("d", NOON, NOON.date()),
        ("t", pd.Timestamp(NOON), NOON),
        ("t", pd.Timestamp(NOON, tz="UTC"), NOON - datetime.timedelta(hours=7)),
        ("t", pd.NaT, None),
        ("n", pd.NA, None),
        ("v", pd.Timedelta(seconds=1), SECOND),
        ("t", np.datetime64(NOON, "ns"), NOON),
        ("t", np.datetime64(NOON.date(), "D"), NOON.replace(hour=0)),
        ("i", np.datetime64(NOON, "s"), NOON),
        ("d", np.datetime64(NOON, "ns"), NOON.date()),
        ("d", np.datetime64(NOON.date(), "D"), NOON.date()),
        ("t", np.datetime64("NaT", "ns"), None),
        ("v", np.timedelta64(10**9, "ns"), SECOND),
        ("w", np.array([NOON, None], "M8[ns]"), [NOON, None]),
        ("m", 3, decimal.Decimal("3.00")),
        ("m", decimal.Decimal("1.005"), decimal.Decimal("1.01")),
        ("m", decimal.Decimal("-1.005"), decimal.Decimal("-1.01")),
        ("l", (1, None), [1, None]),
        ("l", np.array([1, 2]), [1, 2]),
        ("l", array.array("i", [1]), [1]),
        ("p", {"b": "x"}, (None, "x")),
        ("p", [1, "x"], (1, "x")),
        ("p", Row(z=1, y="x"), (1, "x")),
        ("q", {"a": np.int32(1)}, {"a": 1}),
    ],
)
def test_values_of_related_types_are_taken(name, given_, kept):
    found = through(name, given_)
    assert found == kept and type(found) in (type(kept), row_class(("a", "b")).args[0])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n", "a", "column 'n': 'a' is of type str, not int"),
        ("n", True, "True is of type bool, not int"),
        ("n", 1.0, "1.0 is of type float, not int"),
        ("n", np.datetime64(1, "ns"), "type datetime, not int"),
        ("n", np.timedelta64(1, "ns"), "type timedelta, not int"),
        ("s", 1, "1 is of type int, not string"),
        ("s", b"a", "type bytes, not string"),
        ("d", "2024-01-01", "type str, not date"),
        ("t", 1, "type int, not timestamp"),
        ("l", {1}, r"\{1\} is of type set, not array<int>"),
        ("l", [1, "a"], r"'a' is of type str, not int \(in array<int>\)"),
        ("p", (1,), r"\(1,\) has 1 values, and the schema has 2: \['a', 'b'\]"),
        ("p", {"c": 1}, r"has 'c', and the schema has only \['a', 'b'\]"),
        ("q", {None: 1}, "has a key None"),
        ("q", [("a", 1)], "type list, not map"),
    ],
)
def test_other_kinds_of_values_are_refused_at_once(name, value, message):
    with pytest.raises(UnfitValueError, match=message):
        column_schema(name).own((value,))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n", 2**31, r"column 'n' \(int\) cannot hold 2147483648 of group \(k=1\)"),
        ("n", 2**70, "cannot hold 1180591620717411303424"),
        ("x", 2**53 + 1, "cannot hold 9007199254740993"),
        ("m", decimal.Decimal(10**5), "cannot hold Decimal"),
        ("s", "\ud800", r"cannot hold '\\ud800'"),
        ("i", NOON.replace(tzinfo=UTC), "has a time zone"),
        ("l", [2**31], r"cannot hold \[2147483648\]"),
    ],
)
def test_values_that_do_not_fit_are_named_with_their_group(name, value, message):
    rows = column_schema(name)
    with pytest.raises(BadResultError, match=message):
        rows.struct([*rows.own((None,)), *rows.own((value,))], "output", lambda i: f"group (k={i})")


def test_nulls_in_columns_without_nulls_are_refused():
    with pytest.raises(UnfitValueError, match="column 'n' is None, but the schema says NOT NULL"):
        column_schema("n", nullable=False).own((None,))
    spark = t.StructType([t.StructField("l", t.ArrayType(t.IntegerType(), containsNull=False))])
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    with pytest.raises(BadResultError, match=r"'l' has a null for row 1, but the schema says NOT NULL"):
        rows.struct([*rows.own(([1],)), *rows.own(([None],))], "output", lambda i: f"row {i}")


def test_later_changes_of_a_value_by_the_function_are_not_seen():
    spark = t.StructType([t.StructField("l", t.ArrayType(t.LongType()))])
    spark.add("m", t.MapType(t.StringType(), t.ArrayType(t.LongType()))).add("b", t.BinaryType())
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    for first in (1, None, np.int64(1)):
        numbers, lists, data = [first], {"a": [first]}, bytearray(b"a")
        own = rows.own((numbers, lists, data))
        numbers.append(2)
        lists["a"].append(2)
        lists["b"] = []
        data.extend(b"b")
        assert own == ([first], {"a": [first]}, b"a")


def test_a_map_of_scalars_is_copied():
    spark = t.StructType([t.StructField("m", t.MapType(t.LongType(), t.DoubleType()))])
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    steps = {1: 1.5}
    own = rows.own((steps,))
    steps[2] = 2.5
    assert own == ({1: 1.5},)


def test_rows_are_usual_if_all_values_are_of_the_first_classes_of_their_columns():
    spark = t.StructType([t.StructField("n", t.LongType()), t.StructField("d", t.DoubleType())])
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    assert rows.is_usual((1, 1.5))
    for row in ((True, 1.5), (1, 1), (None, 1.5), (1,), (1, 1.5, 2), [1, 1.5], Row(n=1, d=1.5)):
        assert not rows.is_usual(row)
    rows.own(Row(n=1, d=1.5))
    assert rows.is_usual(Row(n=1, d=1.5))
    assert not column_schema("l").is_usual(([1],))


def test_rows_are_checked_whatever_their_columns_are_called_and_how_many_they_are():
    names = ["row", "known", "c0", "' or True or '", "lambda", "a\nb", "", "__import__('os')"]
    names += [f"{i} and" for i in range(10_000)]
    spark = t.StructType([t.StructField(name, t.LongType()) for name in names])
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    good = tuple(range(len(names)))
    assert rows.is_usual(good) and rows.own(good) is good
    for bad in (0, 3, len(names) - 1):
        row = tuple("x" if i == bad else i for i in good)
        assert not rows.is_usual(row)
        with pytest.raises(UnfitValueError, match=re.escape(f"column {names[bad]!r}: 'x' is of type str")):
            rows.own(row)


def test_few_kinds_of_good_rows_are_remembered():
    names = [f"c{i}" for i in range(12)]
    spark = t.StructType([t.StructField(name, t.LongType()) for name in names])
    rows = RowSchema(spark, to_arrow_schema(spark, timezone=ZONE), SessionZone(ZONE))
    for number in range(1 << len(names)):
        values = tuple(None if number >> i & 1 else i for i in range(len(names)))
        row = collections.namedtuple("Another", names)(*values) if number < 1100 else values
        assert rows.own(row) == values
    assert 0 < len(rows._known_values) <= 1024
    assert 0 < len(rows._known_rows) <= 1024


@pytest.mark.parametrize("kind", [t.ArrayType(t.LongType()), t.MapType(t.LongType(), t.LongType())])
def test_an_empty_column_without_offsets_has_no_values(kind):
    """Java writes a column of no lists or maps without offsets; what lies in memory there is not read."""
    spark = t.StructType([t.StructField("c", kind)])
    schema = to_arrow_schema(spark, timezone=ZONE)
    arrow = schema.field("c").type
    foreign = pa.py_buffer(np.array([-5, 7], np.int32)).slice(0, 0)
    values = pa.array([], arrow).values  # entries, of a map
    column = pa.Array.from_buffers(arrow, 0, [None, foreign], children=[values])
    table = pa.Table.from_arrays([column], schema=schema)
    assert RowSchema(spark, schema, SessionZone(ZONE)).values(table.columns) == [[]]
    item = pa.field("element", pa.int64(), nullable=False)
    strict = pa.map_(pa.int64(), item) if pa.types.is_map(arrow) else pa.list_(item)
    assert first_forbidden_null(column, pa.field("c", strict)) is None


def test_rows_are_rows_and_named_tuples():
    row = row_class(("k", "count", "two words", "class"))(("a", 1, 2.0, None))
    assert isinstance(row, Row) and row == ("a", 1, 2.0, None)
    assert (row.k, row.count, row["two words"], row["class"]) == ("a", 1, 2.0, None)
    assert (row[1], row[-1], row[:2], row.asDict()["count"]) == (1, None, ("a", 1), 1)
    assert "k" in row and "a" not in row
    assert row_class(("a", "b"))((1, None)) == Row(a=1, b=None)
    assert repr(row_class(("a", "b"))((1, "x"))) == repr(Row(a=1, b="x")) == "Row(a=1, b='x')"
    again = pickle.loads(pickle.dumps(row))
    assert again == row and again.asDict() == row.asDict() == copy.copy(row).asDict()
    assert row._replace(k="b").k == "b"


def test_keys_are_tuples():
    key = tuple_class("Key", ("user", "a b"))(("a", 1))
    assert key.user == "a" and key[1] == 1 and "a" in key and key == ("a", 1)
    assert repr(key) == "Key(user='a', _1=1)"
