"""Values of all types are to functions and processors that nobody marked what they are on Spark's operators.

They come in rows, frames, keys and states, and go out. In tier `more` all types are in one query; in tier
`long` each has one of its own, and those are compared, too, for which Spark's operator has an error.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from test_frame_programs import reason
from type_programs import TYPES, Follows, FollowsFrames, follow, keep, tell

pytestmark = [
    pytest.mark.spark,
    pytest.mark.tier("more"),
    pytest.mark.older(more=("4.1",), long=("4.2", "4.0")),
]

ENABLED = "spark.sql.streaming.stateStore.incremental.vectorized.enabled"
OPTIONS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.shuffle.partitions": "1",
}
BATCHES = [
    pa.table({"k": ["a", "b", "a", "c"], "i": pa.array([1, 2, None, 4], pa.int64())}),
    pa.table({"k": ["a", "c"], "i": pa.array([5, 60], pa.int64())}),
]

ALL = list(TYPES)[: list(TYPES).index("old")]


def but(*types: str) -> list[str]:
    """Return the names of columns of `ALL` whose types begin otherwise."""
    return [name for name in ALL if not TYPES[name][0].startswith(types)]


KEYS = but("map", "array", "variant", "string")
FORMS = {
    "function": (but("string"), ()),
    "function by": (KEYS, KEYS),
    "function with state": (but("map", "array", "variant", "struct"), ()),
    "rows": ([*ALL, "old"], ()),
    "rows by": (KEYS, KEYS),
    "rows with state": (but("map", "interval", "variant", "struct"), ()),
    "frames": (ALL, ()),
}
"""By the form of a query the columns for which Spark's operator has no error, and those of its key."""


SCHEMA_UNREAD = re.compile(r"KeyError: ('keyType'|'elementType'|[0-9]+)$")
"""The errors of Spark's worker and driver for a schema that they cannot read, before there is a value."""


def ddl(names) -> str:
    return ", ".join(f"{name} {TYPES[name][0]}" for name in names)


def querying(form: str, names, keys):
    def query(df):
        df = df.select("k", *(F.expr(TYPES[name][1]).alias(name) for name in names), "i")
        groups = df.groupBy(*(keys or ["k"]))
        output = f"{ddl(names)}, said string"
        if form == "function with state":
            return groups.applyInPandasWithState(keep, "said string", ddl(names), "update", "NoTimeout")
        if form.startswith("function"):
            return groups.applyInPandasWithState(follow, output, "c long", "update", "NoTimeout")
        if form == "frames":
            return groups.transformWithStateInPandas(FollowsFrames(), output, "update", "none")
        processor = Follows(ddl(names) if form == "rows with state" else None)
        return groups.transformWithState(processor, output, "update", "none")

    return query


def played(stream, conf, query, enabled: str):
    """Return output, figures and error of a query, and its plan."""
    conf(ENABLED, enabled)
    made = stream("k string, i long", BATCHES)
    error = None
    try:
        made.run(query)
    except PySparkException as failure:  # a type may be refused when the query is made
        error = re.sub(r"\bo[0-9]+\b", "", reason(str(failure)))  # py4j's number of an object
    rows = {batch: sorted(map(shown, rows)) for batch, rows in made.rows.items()}
    return (rows, None if error else made.figures, error), made.plan


def shown(row) -> str:
    return tell(tuple(row))


def is_known(spark, name: str) -> bool:
    """Return True if this release of Spark has the type, in its own functions and in PySpark."""
    if name == "by_bytes" and spark.version.startswith("4.0."):
        return False  # `collect` fails there
    try:
        types = spark.sql(f"select {TYPES[name][1]} as x from (select 1L as i)").dtypes
        return bool(types) and bool(spark.createDataFrame([], f"x {TYPES[name][0]}").columns)
    except PySparkException:
        return False


def skip_older_processors(spark, form: str) -> None:
    if spark.version.startswith("4.0.") and not form.startswith("function"):
        pytest.skip("processors are not batched")


@pytest.mark.parametrize("form", FORMS)
def test_values_of_all_types_are_as_on_sparks_operator(spark, stream, conf, form):
    skip_older_processors(spark, form)
    for name, value in OPTIONS.items():
        conf(name, value)
    names, keys = ([name for name in part if is_known(spark, name)] for part in FORMS[form])
    assert len(names) > 8
    query = querying(form, names, keys)
    (stock, _), (ours, plan) = (played(stream, conf, query, enabled) for enabled in ("false", "true"))
    assert "Vectorized" in plan or "BatchedTransform" in plan, plan
    assert stock[2] is None
    assert ours == stock


@pytest.mark.older(more=("4.1", "4.0"))
def test_a_struct_with_one_field_name_twice_is_refused_where_sparks_operator_refuses_it(spark, stream, conf):
    for name, value in OPTIONS.items():
        conf(name, value)
    query = querying("function with state", ["twice"], ())
    (stock, _), (ours, plan) = (played(stream, conf, query, enabled) for enabled in ("false", "true"))
    assert "Vectorized" in plan or ours[2], plan
    assert (stock[2] is None) == spark.version.startswith(("4.0.", "4.1."))
    assert ours == stock


@pytest.mark.tier("long")
@pytest.mark.older(long=("4.2", "4.1", "4.0"))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TYPES)
def test_values_of_each_type_are_as_on_sparks_operator(spark, stream, conf, form, name):
    skip_older_processors(spark, form)
    for option, value in OPTIONS.items():
        conf(option, value)
    conf("spark.sql.preserveCharVarcharTypeInfo", str(name in ("fixed", "bounded")).lower())
    if not is_known(spark, name):
        pytest.skip("this Spark has no such type")
    query = querying(form, [name], [name] if form.endswith(" by") else ())
    (stock, _), (ours, _) = (played(stream, conf, query, enabled) for enabled in ("false", "true"))
    if stock[2] is not None and (ours[2] is None or SCHEMA_UNREAD.match(stock[2])):
        pytest.skip(f"Spark's operator fails for all values: {stock[2][:200]}")
    assert ours == stock
