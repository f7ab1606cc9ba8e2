"""Groups, rows and frames of a processor are those that PySpark's worker makes of the same batches."""

from __future__ import annotations

import copy
import datetime
import decimal
import itertools
import operator
import os
import pickle
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row

from state_store.functions.group_context import GROUP
from state_store.functions.processors.processor_loop import FrameStream, Groups, RowBatch, row_attributes
from state_store.functions.vectors.processor import Loop

ZONE = "America/Los_Angeles"
UTC = datetime.timezone.utc


def moments():
    return st.integers(0, 10**6).map(
        lambda s: datetime.datetime(2024, 3, 9, tzinfo=UTC) + datetime.timedelta(0, s)
    )


COLUMNS = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i64": (pa.int64(), st.integers(-(2**60), 2**60)),
    "f32": (pa.float32(), st.floats(width=32)),
    "f64": (pa.float64(), st.floats()),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", ZONE), moments()),
    "span": (pa.duration("us"), st.integers(0, 10**9)),
    "money": (pa.decimal128(10, 2), st.integers(-100, 100).map(lambda n: decimal.Decimal(n).scaleb(-2))),
    "items": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=2)),
    "pair": (pa.struct([("x", pa.int32())]), st.fixed_dictionaries({"x": st.integers(0, 9)})),
    "a b": (pa.int64(), st.integers(0, 9)),
    "class": (pa.int64(), st.integers(0, 9)),
}
KEYS = {
    "text": (pa.string(), st.sampled_from(["a", "b", None])),
    "number": (pa.int64(), st.sampled_from([1, 2, None])),
    "float": (pa.float64(), st.sampled_from([1.0, float("nan"), None, 0.0, -0.0])),
}


@st.composite
def streams(draw):
    """Return batches and their key offsets: a key column, or two, before the columns of data."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3, unique=True))
    kinds = [*(KEYS[key] for key in keys), *(COLUMNS[name] for name in names)]
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 6))
        columns = []
        for number, (kind, values) in enumerate(kinds):
            nullable = values if number < len(keys) or draw(st.booleans()) else st.none() | values
            columns.append(pa.array([draw(nullable) for _ in range(rows)], kind))
        batches.append(pa.RecordBatch.from_arrays(columns, names=[f"key_{key}" for key in keys] + names))
    return batches, list(range(len(keys)))


def header(offsets, max_records=10_000, max_bytes=64 << 20):
    return SimpleNamespace(
        key_offsets=offsets,
        first_value=len(offsets),
        max_records=max_records,
        max_bytes=max_bytes,
        time_zone=ZONE,
        runner={},
        large_types=False,
        flag=lambda name: False,
    )


def pysparks_frames(batches, offsets, max_records, max_bytes):
    """Do what `worker.py` of PySpark 4.3 does for SQL_TRANSFORM_WITH_STATE_PANDAS_UDF."""
    from pyspark.sql.conversion import ArrowBatchTransformer  # which older releases have not

    total_bytes = total_rows = 0
    average = 0.0

    def rows():
        nonlocal total_bytes, total_rows, average
        for batch in batches:
            if max_bytes != 2**31 - 1 and batch.num_rows > 0:
                total_bytes += sum(b.size for c in batch.columns for b in c.buffers() if b is not None)
                total_rows += batch.num_rows
                average = total_bytes / total_rows
            series = ArrowBatchTransformer.to_pandas(batch, timezone=ZONE, prefer_int_ext_dtype=False)
            for row in pd.concat(series, axis=1).itertuples(index=False):
                yield tuple(row[o] for o in offsets), row

    def chunks():
        for key, group in itertools.groupby(rows(), key=lambda pair: pair[0]):
            held = []
            for _, row in group:
                held.append(row)
                if len(held) >= max_records or len(held) * average >= max_bytes:
                    yield key, pd.DataFrame(held)
                    held = []
            if held:
                yield key, pd.DataFrame(held)

    for key, group in itertools.groupby(chunks(), key=lambda pair: pair[0]):
        yield key, [frame.iloc[:, list(range(len(offsets), frame.shape[1]))] for _, frame in group]


def ours(batches):
    """Return key and what the processor gets of each group, all of it read."""
    groups = Groups(batches)
    found, ahead = [], []
    for keys in groups.runs(lambda: 2):
        assert ahead in ([], keys)
        ahead = groups.keys_ahead(2)
        seen = [(key, list(rows)) for key, rows in groups.groups()]
        assert repr([key for key, _ in seen]) == repr(keys)
        found += seen
    assert ahead == []
    return found


PATIENT = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


@PATIENT
@given(
    stream=streams(), max_records=st.sampled_from([1, 2, 10_000]), max_bytes=st.sampled_from([40, 64 << 20])
)
@pytest.mark.tier("more")
def test_frames_are_pysparks(stream, max_records, max_bytes):
    batches, offsets = stream
    given_header = header(offsets, max_records, max_bytes)
    made = ours(FrameStream(given_header).batches(iter(batches)))
    expected = list(pysparks_frames(batches, offsets, max_records, max_bytes))
    assert repr([key for key, _ in made]) == repr([key for key, _ in expected])
    for (_, frames), (_, wanted) in zip(made, expected, strict=True):
        assert len(frames) == len(wanted)
        for frame, want in zip(frames, wanted, strict=True):
            pd.testing.assert_frame_equal(frame, want, check_index_type="equiv")
            assert list(map(type, frame.columns)) == list(map(type, want.columns))


@PATIENT
@given(stream=streams())
def test_rows_are_pysparks(stream):
    batches, offsets = stream
    made = ours(RowBatch.batches(iter(batches), offsets))

    def rows():
        for batch in batches:
            make = Row(*batch.schema.names)
            for index in range(batch.num_rows):
                values = [batch.column(i)[index].as_py() for i in range(batch.num_columns)]
                yield tuple(values[o] for o in offsets), make(*values)

    expected = [(k, [r for _, r in g]) for k, g in itertools.groupby(rows(), key=lambda pair: pair[0])]
    assert repr(made) == repr(expected)
    for (_, group), (_, wanted) in zip(made, expected, strict=True):
        for row, want in zip(group, wanted, strict=True):
            assert type(row) is Row and row.__fields__ == want.__fields__
            assert repr(row.asDict(True)) == repr(want.asDict(True))


NAMES = [
    "k",
    "v",
    "count",
    "index",
    "asDict",
    "a b",
    "class",
    "it's",
    "\\",
    "__fields__",
    "__len__",
    "_1",
    "ü",
]


@pytest.mark.parametrize("names", [NAMES, ["k", "v", "k"], [f"c{i}" for i in range(30)]])
def test_names_of_a_row_mean_what_they_mean_in_pyspark(names):
    batch = pa.RecordBatch.from_arrays([pa.array([i]) for i in range(len(names))], names=names)
    groups = Groups(RowBatch.batches(iter([batch]), [0]))
    (row,) = (row for _ in groups.runs(lambda: 1000) for _, rows in groups.groups() for row in rows)
    assert len(vars(row)) <= 17  # of wide rows none is an attribute, because each takes memory
    spark = Row(*names)(*range(len(names)))
    for each in (row, copy.deepcopy(row), pickle.loads(pickle.dumps(row))):
        assert (each, each.asDict(), repr(each)) == (spark, spark.asDict(), repr(spark))
        for name in [*names, "missing", "__missing__"]:
            for get in (getattr, operator.getitem):
                assert asked(get, each, name) == asked(get, spark, name)
    with pytest.raises(PySparkRuntimeError, match="READ_ONLY"):
        row.v = 1


@pytest.mark.parametrize("names", [["k", "y", "x"], ["x", "x", "k"], ["a", "b", "count"], ["x"], []])
def test_a_row_whose_names_are_set_is_pysparks(names):
    batch = pa.record_batch({"k": ["a"], "x": [1], "y": [2.0]})
    row, spark = next(RowBatch(batch, [0]).group(0)), Row("k", "x", "y")("a", 1, 2.0)
    assert row.x == spark.x
    row.__fields__ = spark.__fields__ = names
    assert (vars(row), repr(row), "x" in row) == (vars(spark), repr(spark), "x" in spark)
    for name in ["k", "x", "y", "a", "b", "count"]:
        assert asked(getattr, row, name) == asked(getattr, spark, name)


HOSTILE = [
    "a'",
    '"',
    '"""',
    "a\nb",
    "\r\x00",
    "{x}",
    "%s",
    "#",
    "v1",
    "fields",
    "\\N{BULLET}",
    "\ud800",
    "\u2028",
    "# coding: utf-7",
    "': __import__('os').environ.update(NAME_RAN='1'), '",
    "__import__('os').environ.update(NAME_RAN='1')",
]
"""Names of columns that would mean something else if they were a part of Python's text."""


@PATIENT
@given(names=st.lists(st.sampled_from([*NAMES, *HOSTILE]) | st.text(max_size=5), min_size=1, max_size=16))
def test_no_name_of_a_column_is_run_as_code(names):
    attributes = row_attributes.__wrapped__(tuple(names))(*range(len(names)))
    spark = Row(*names)(*range(len(names)))
    assert attributes.pop("__fields__") == spark.__fields__
    quick = {name for name in names if not hasattr(Row, name) and not name.startswith("__")}
    assert attributes == {name: getattr(spark, name) for name in quick}
    assert "NAME_RAN" not in os.environ


def test_rows_may_have_ten_thousand_columns():
    names = [f"c{i}" for i in range(10_000)]
    batch = pa.RecordBatch.from_arrays([pa.array([i, -i]) for i in range(len(names))], names=names)
    groups = Groups(RowBatch.batches(iter([batch]), [0]))
    rows = [row for _ in groups.runs(lambda: 1000) for _, rows in groups.groups() for row in rows]
    assert rows == [tuple(range(10_000)), tuple(-i for i in range(10_000))]
    assert [row.c9999 for row in rows] == [9999, -9999] and rows[1].__fields__ == tuple(names)


def asked(get, row, name):
    """Return what a row gives for a name, or its error; methods by their names alone."""
    try:
        value = get(row, name)
    except Exception as error:
        return type(error), str(error)
    return value.__name__ if callable(value) and name != "__fields__" else value


def test_rows_that_are_not_read_are_passed_over():
    batches = [pa.RecordBatch.from_pydict({"k": [1, 1, 2], "v": [1, 2, 3]})] * 2
    batches.append(pa.RecordBatch.from_pydict({"k": [2, 2, 2], "v": [4, 5, 6]}))
    batches.append(pa.RecordBatch.from_pydict({"k": [2, 3], "v": [7, 8]}))
    groups = Groups(RowBatch.batches(iter(batches), [0]))
    first = [next(rows).v for _ in groups.runs(lambda: 1000) for _, rows in groups.groups()]
    assert first == [1, 3, 1, 3, 8]


def test_a_group_of_many_batches_is_read_as_it_comes():
    taken = 0

    def batches():
        nonlocal taken
        for _ in range(50):
            taken += 1
            yield pa.RecordBatch.from_pydict({"k": [1] * 10, "v": list(range(10))})

    groups = Groups(RowBatch.batches(batches(), [0]))
    for _ in groups.runs(lambda: 1000):
        assert groups.keys_ahead(1000) == []
        for _, rows in groups.groups():
            for number, _ in enumerate(rows):
                assert taken <= number // 10 + 2
    assert taken == 50


def test_the_keys_of_the_next_run_are_known_where_a_group_goes_on_in_the_next_batch_too():
    batches = [pa.RecordBatch.from_pydict({"k": keys}) for keys in ([1, 2, 3], [3, 4], [4], [5, 6])]
    groups = Groups(RowBatch.batches(iter(batches), [0]))
    runs = []
    for keys in groups.runs(lambda: 2):
        runs.append((keys, groups.keys_ahead(2)))
        for _, rows in groups.groups():
            list(rows)
    keys = [[(1,), (2,)], [(3,)], [(4,)], [(5,), (6,)]]
    assert runs == list(zip(keys, [keys[1], keys[2], [], []], strict=True))


def test_rows_for_a_processor_of_vectors_get_the_types_of_the_query_and_keep_their_groups():
    loop = object.__new__(Loop)
    loop._query = SimpleNamespace(row_schema=pa.schema([("k", pa.string()), ("v", pa.int64())]))
    rows = pa.table({"k": ["a", "b"], "v": pa.array([1, 2], pa.int32()), GROUP: pa.array([0, 1], pa.int32())})
    typed = loop._rows_as_query(rows)
    assert typed.schema.types == [pa.string(), pa.int64(), pa.int32()]
    assert typed.to_pydict() == {"k": ["a", "b"], "v": [1, 2], GROUP: [0, 1]}
