"""Frames cut out of a batch are those that PySpark makes of each group's rows alone, dtypes included."""

from __future__ import annotations

import datetime
import decimal
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import wire
from frame_programs import described
from hypothesis import given, settings
from hypothesis import strategies as st

from state_store.functions import accelerated, frames
from state_store.functions.checking import readable
from state_store.functions.group_context import Header

KINDS = {
    "byte": st.integers(-128, 127),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.sampled_from([0.0, -1.5, float("inf")]),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(max_size=3),
    "binary": st.binary(max_size=3),
    "date": st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1)),
    "timestamp": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)),
    "timestamp_ntz": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)),
    "decimal(10,2)": st.integers(-(10**8), 10**8).map(lambda i: decimal.Decimal(i).scaleb(-2)),
    "array": st.lists(st.none() | st.integers(0, 9), max_size=3),
    "struct": st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}),
}
NESTED = {
    "array": {"type": "array", "elementType": "integer", "containsNull": True},
    "struct": {
        "type": "struct",
        "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}],
    },
}


@st.composite
def groups(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | KINDS[kind] for kind in kinds))
    full = st.tuples(*(KINDS[kind] for kind in kinds))
    rows = st.lists(row, min_size=1, max_size=4) | st.lists(full, min_size=1, max_size=4)
    return kinds, draw(st.lists(rows, min_size=1, max_size=6))


@pytest.mark.tier("more")
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(groups())
def test_a_cut_frame_equals_the_conversion_of_its_group_alone(case):
    kinds, rows = case
    schema = wire.schema({f"c{i}": NESTED.get(kind, kind) for i, kind in enumerate(kinds)})
    header = Header.parse(wire.header(schema, schema, wire.schema({"s": "long"}), schema))
    batch = wire.batch("x", header, [{"key": group[0], "rows": group} for group in rows])
    cut = accelerated.cut(batch, header)
    for i, group in enumerate(rows):
        columns = [pa.array([r[c] for r in group], f.type) for c, f in enumerate(header.row_schema)]
        alone = frames.pandas_series(pa.table(columns, schema=header.row_schema), header)
        pd.testing.assert_frame_equal(cut.frame(i), pd.concat(alone, axis=1))
        assert described(cut.frame(i)) == described(pd.concat(alone, axis=1))
        own = [pa.array([group[0][c]], f.type) for c, f in enumerate(header.row_schema)]
        expected = frames.pandas_series(pa.table(own, schema=header.row_schema), header)
        for got, series in zip(cut.keys()[i], expected, strict=True):
            assert isinstance(got, type(series[0])) and same(got, series[0])


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if a is None or b is None or a != a:
        return (a is None or a != a) and (b is None or b != b)
    return a == b


def test_the_frame_of_a_group_without_rows_has_its_columns():
    schema = wire.schema({"k": "string", "v": "long"})
    header = Header.parse(
        wire.header(wire.schema({"k": "string"}), schema, wire.schema({"s": "long"}), schema)
    )
    batch = wire.batch("x", header, [{"key": ("a",), "rows": []}])
    frame = accelerated.cut(batch, header).frame(0)
    assert (
        frame.columns.tolist() == ["k", "v"] and len(frame) == 0 and set(frame.dtypes.map(str)) == {"object"}
    )


def written_by_java(kind: pa.DataType, length: int) -> pa.Array:
    """Return a column of empty lists as Java writes them: one without lists has no offsets."""
    if not pa.types.is_list(kind):
        return pa.array([], kind)
    offsets = pa.py_buffer(bytes(4 * (length + 1)) if length else b"")
    values = written_by_java(kind.value_type, 0)
    return pa.Array.from_buffers(kind, length, [None, offsets], children=[values])


def offset_bytes(array: pa.Array) -> list[int]:
    """Return the sizes of the offsets of a column of lists and of the lists in it."""
    return [array.buffers()[1].size, *offset_bytes(array.values)] if pa.types.is_list(array.type) else []


@pytest.mark.parametrize("length", [0, 2])
def test_columns_without_lists_get_offsets_before_arrow_reads_them(length):
    """Arrow's functions read the offsets of an empty column too: a worker that had none ended in a fault."""
    column = written_by_java(pa.list_(pa.list_(pa.int32())), length)
    assert 0 in offset_bytes(column)
    assert min(offset_bytes(readable(column))) >= 4
    assert readable(column).to_pylist() == [[]] * length
    full = pa.array([[[1]], [[2]]])
    assert readable(full) is full


def test_a_frame_of_a_group_has_lists_without_elements():
    kind = {"type": "array", "elementType": {"type": "array", "elementType": "integer", "containsNull": True}}
    schema = wire.schema({"a": {**kind, "containsNull": True}})
    header = Header.parse(wire.header(schema, schema, wire.schema({"s": "long"}), schema))
    batch = wire.batch("x", header, [{"key": ([],), "rows": [([],), ([],)]}])
    lists = pa.StructArray.from_arrays([written_by_java(pa.list_(pa.list_(pa.int32())), 2)], names=["0"])
    rows = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), lists)
    cut = accelerated.cut(batch.set_column(5, "rows", rows), header)
    assert cut.frame(0)["a"].map(list).tolist() == [[], []]


@pytest.mark.filterwarnings("error")
def test_frames_may_be_changed_in_place():
    schema = wire.schema({"k": "string", "v": "long"})
    header = Header.parse(
        wire.header(wire.schema({"k": "string"}), schema, wire.schema({"s": "long"}), schema)
    )
    rows = [{"key": (k,), "rows": [(k, 1), (k, 2)]} for k in "ab"]
    cut = accelerated.cut(wire.batch("x", header, rows), header)
    frame = cut.frame(0)
    frame["v"].to_numpy()[:] = 1
    frame["v"] = frame["v"] + 1
    frame.loc[0, "v"] = 9
    frame.columns.name, frame.index.name = "of this frame", "of this frame"
    other = cut.frame(1)
    assert frame["v"].tolist() == [9, 2] and other["v"].tolist() == [1, 2]
    assert (other.columns.name, other.index.name) == (None, None)


@pytest.mark.older(more=("4.2", "4.1"))
def test_integers_become_decimals_if_spark_says_so():
    """Spark 4.0 has no option for it: Arrow makes no decimal of three digits of an integer there."""
    text = json.loads(wire.header(*[wire.schema({"c": "decimal(3,1)"})] * 4))
    text["runner"]["spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"] = "true"
    header = Header.parse(json.dumps(text))
    struct = frames.pandas_struct([pd.DataFrame({"c": [1, 2]})], header.output, header)
    assert struct.field("c").to_pylist() == [decimal.Decimal("1.0"), decimal.Decimal("2.0")]


WITHOUT_VIEWS = """
import pyarrow.types
del pyarrow.types.is_string_view, pyarrow.types.is_binary_view
import state_store.functions.accelerated, state_store.functions.processors.processor_loop
"""


@pytest.mark.tier("more")
def test_functions_are_loaded_with_a_pyarrow_that_has_no_views():
    """Spark 4.0 takes PyArrow from release 11 on, and 4.1 from release 15 on."""
    subprocess.run([sys.executable, "-c", WITHOUT_VIEWS], check=True, timeout=300)
