"""Strategies for columns of every type that state can have."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from state_store.data.rows.types import schema_of

VARIANT = schema_of('{"fields": [{"name": "x", "type": "variant"}]}', file="test").field("x").type
SHAPE = schema_of('{"fields": [{"name": "x", "type": "geometry(SRID:ANY)"}]}', file="test").field("x").type
MOMENTS = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
LONGEST = datetime.timedelta(days=100_000_000)
UTC = datetime.timezone.utc


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Decimal]:
    bound = 10**kind.precision - 1
    return st.integers(-bound, bound).map(lambda units: Decimal(units).scaleb(-kind.scale, _CONTEXT))


_CONTEXT = __import__("decimal").Context(prec=50)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(1 << 7), (1 << 7) - 1),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.timestamp("us"): MOMENTS,
    pa.time64("ns"): st.times().map(lambda time: time.replace(tzinfo=None)),
    pa.duration("us"): st.timedeltas(-LONGEST, LONGEST),
    pa.month_day_nano_interval(): st.tuples(
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.integers(-(1 << 53), 1 << 53).map(lambda micros: micros * 1000),
    ),
    pa.null(): st.none(),
    VARIANT: st.fixed_dictionaries({"value": st.binary(max_size=9), "metadata": st.binary(max_size=9)}),
    SHAPE: st.fixed_dictionaries(
        {"srid": st.integers(-(1 << 31), (1 << 31) - 1), "wkb": st.binary(max_size=30)}
    ),
    **{
        kind: _decimals(kind)
        for kind in (pa.decimal128(5, 2), pa.decimal128(18, 0), pa.decimal128(38, 10), pa.decimal128(20, 3))
    },
}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, nulls among them."""
    return st.none() | _present(kind)


def _present(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in VALUES:
        return VALUES[kind]
    if pa.types.is_struct(kind):
        fields = {kind.field(i).name: values_of(kind.field(i).type) for i in range(kind.num_fields)}
        return st.fixed_dictionaries(fields)
    if pa.types.is_map(kind):
        pairs = st.tuples(_present(kind.key_type), values_of(kind.item_type))
        return st.lists(pairs, max_size=5, unique_by=lambda pair: repr(pair[0]))
    return st.lists(values_of(kind.value_type), max_size=9)


ATOMIC = st.sampled_from(list(VALUES))


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = "abcde"
    structs = st.lists(inner, min_size=1, max_size=4).map(
        lambda kinds: pa.struct(list(zip(names, kinds, strict=False)))
    )
    keys = inner.filter(lambda kind: not pa.types.is_null(kind))
    return structs | st.builds(pa.map_, keys, inner) | inner.map(pa.list_)


TYPES = st.recursive(ATOMIC, _nested, max_leaves=4)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A few rows of a few columns; now and then more columns than a word of the bitmap has bits."""
    kinds = draw(st.lists(TYPES, min_size=1, max_size=5))
    if draw(st.integers(0, 9)) == 0:
        kinds = (kinds * 70)[:70]
    count = draw(st.integers(0, 6))
    columns = [
        pa.array(draw(st.lists(values_of(kind), min_size=count, max_size=count)), kind) for kind in kinds
    ]
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    return pa.RecordBatch.from_arrays(columns, schema=schema)
