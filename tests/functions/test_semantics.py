"""The promises of `applyInPandasWithState`, kept by marked functions on real queries."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import signal
import sys
import time
from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from sample_functions import (
    OUTPUT,
    STATE,
    chunks,
    expire,
    expire_per_group,
    fails,
    fails_per_group,
    fails_with_rows,
    first_frame_only,
    lists_and_maps,
    misaligned,
    no_frames,
    shown,
    stops,
    total,
    total_of_rows,
    total_per_group,
    wrong_columns,
)

from state_store.functions import accelerate, per_group, vectorized

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1"))]

PREFIX = "spark.sql.streaming.stateStore.incremental.vectorized."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PLAN_NODE = "VectorizedFlatMapGroupsInPandasWithState"


def batch(*rows):
    return pa.table({"k": [r[0] for r in rows], "v": pa.array([r[1] for r in rows], pa.float64())})


BATCHES = [
    batch(("a", 1), ("b", 2), (None, 3), ("a", 4)),
    batch(("a", 5), ("c", 1), ("a", 1), ("a", 2), ("a", 2), ("a", 3)),
    batch(("b", 1), ("a", 7), (None, 1)),
]


def totals(function):
    return lambda df: df.groupBy("k").applyInPandasWithState(function, OUTPUT, STATE, "update", "NoTimeout")


@pytest.mark.dear("stands for vectorised functions")
@pytest.mark.older(long=("4.2", "4.1", "4.0"))
def test_marked_function_runs_on_the_vectorised_operator(stream, conf):
    """The mark, the store and the options decide which operator runs; the progress says which did."""

    def operator(function):
        made = stream("k string, v double", BATCHES[:1])
        made.run(totals(function))
        (state,) = made.progress[-1].stateOperators
        replaced = PLAN_NODE in made.plan
        assert state.customMetrics.get("replacedOperatorTasks", 0) == (2 if replaced else 0)
        return replaced

    assert operator(vectorized(total))
    assert operator(per_group(total_of_rows))
    assert not operator(total_per_group)  # the default store is neither this one nor RocksDB
    conf(PROVIDER, ROCKSDB)
    assert operator(total_per_group)
    conf(PREFIX + "accelerate", "false")
    assert not operator(total_per_group)
    assert operator(vectorized(total))
    conf(PREFIX + "accelerate", "true")
    conf(PREFIX + "enabled", "false")
    assert not operator(total_per_group)
    assert not operator(vectorized(total))


@pytest.mark.tier("more")
def test_all_forms_continue_one_checkpoint_in_turns(stream, conf):
    """All forms take turns, and state goes on as if nothing had changed."""
    turns = [
        total_per_group,
        vectorized(total),
        accelerate(total_per_group),
        vectorized(total),
        total_per_group,
    ]
    always, rotated = stream("k string, v double", []), stream("k string, v double", [])
    for turn, function in enumerate(turns):
        for made, used in ((always, total_per_group), (rotated, function)):
            made.add(BATCHES[turn % len(BATCHES)])
            conf(PREFIX + "enabled", turn != 3)
            made.run(totals(used))
    assert rotated.outcome() == always.outcome()


@pytest.mark.tier("more")
def test_a_grouping_column_named_twice_is_as_in_sparks_operator(stream, conf):
    found = []
    for enabled in ("true", "false"):
        conf(PREFIX + "enabled", enabled)
        made = stream("k string, v double", BATCHES)
        made.run(
            lambda df: df.groupBy("k", "k").applyInPandasWithState(
                per_group(lambda key, rows, state: [(repr(tuple(key)), len(rows))]),
                "key string, n long",
                "n long",
                "update",
                "NoTimeout",
            )
        )
        found.append(made.outcome().rows)
    assert found[0] == found[1] and found[0][0][0][0].count("'") in (0, 4)


def test_the_zone_is_that_of_the_query_when_it_starts(stream, conf):
    found = []
    batch = pa.table({"k": ["a"], "t": pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC"))})
    for enabled in ("true", "false"):
        conf(PREFIX + "enabled", enabled)
        conf("spark.sql.session.timeZone", "UTC")
        made = stream("k string, t timestamp", [batch])

        def query(df):
            out = df.groupBy("k").applyInPandasWithState(
                per_group(lambda key, rows, state: state.update((datetime.datetime(2024, 1, 1, 12),))),
                "k string",
                "t timestamp",
                "update",
                "NoTimeout",
            )
            conf("spark.sql.session.timeZone", "Asia/Tokyo")
            return out

        made.run(query)
        found.append(made.outcome().deltas)
    assert found[0] == found[1]


@pytest.mark.tier("more")
@pytest.mark.parametrize("store", ["rocksdb"])
def test_stores_with_multi_get(stream, conf, store):
    conf(PROVIDER, ROCKSDB)
    conf("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    stock, ours = (stream("k string, v double", BATCHES) for _ in range(2))
    stock.run(totals(total_per_group))
    ours.run(totals(vectorized(total)))
    assert ours.outcome() == stock.outcome()
    assert ours.stored() == stock.stored() != []


def moments(*rows):
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    at = [start + datetime.timedelta(minutes=r[1]) for r in rows]
    return pa.table({"k": [r[0] for r in rows], "t": pa.array(at, pa.timestamp("us", "UTC"))})


@pytest.mark.tier("more")
def test_event_time_timeouts_and_late_rows_are_as_in_sparks_operator(stream):
    """A silent key times out at the watermark; a late row is dropped and counted; no-data batches run."""
    batches = [
        moments(("a", 0), ("b", 1)),
        moments(("b", 30), ("a", 5)),
        moments(("c", 60)),
        moments(("a", 2), ("c", 61)),
    ]
    made = {}
    for name, function in (
        ("stock", expire_per_group),
        ("vectorized", vectorized(expire)),
        ("accelerate", accelerate(expire_per_group)),
    ):
        made[name] = stream("k string, t timestamp", batches, "t 1 minute")
        made[name].run(
            lambda df, f=function: df.groupBy("k").applyInPandasWithState(
                f, "k string, n long", "n long", "append", "EventTimeTimeout"
            ),
            "append",
        )
    stock = made["stock"].outcome()
    assert [row for rows in stock.rows.values() for row in rows] == [("a", 2), ("b", 2)]
    assert sum(figures[-1] for figures in stock.figures) == 1  # the late row
    assert made["vectorized"].outcome() == stock
    assert made["accelerate"].outcome() == stock


@pytest.mark.tier("more")
@pytest.mark.parametrize("timeout", [10**20, 2**63, 2**64 - 1, 1.8e12 + 0.5, 1e30])
def test_timeouts_that_no_long_has_are_as_in_sparks_operator(stream, timeout):
    """They are longs where the JVM reads them: the low bits of an integer, the bounds for a float."""

    def of_frames(key, frames, state):
        count = sum(map(len, frames))
        if not state.hasTimedOut:
            state.update((count,))
            state.setTimeoutTimestamp(timeout)
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def of_rows(key, rows, state):
        if not state.hasTimedOut:
            state.update((len(rows),))
            state.setTimeoutTimestamp(timeout)
        return [(key[0], len(rows))]

    made = {}
    for name, function in (
        ("stock", of_frames),
        ("accelerate", accelerate(of_frames)),
        ("per_group", per_group(of_rows)),
    ):
        made[name] = stream("k string, t timestamp", [moments(("a", 0)), moments(("b", 90))], "t 1 second")
        made[name].run(
            lambda df, f=function: df.groupBy("k").applyInPandasWithState(
                f, "k string, n long", "n long", "update", "EventTimeTimeout"
            )
        )
    stock = made["stock"].outcome()
    assert made["accelerate"].outcome() == stock
    assert made["per_group"].outcome() == stock


def test_arrays_and_maps_are_kept_as_state(stream):
    """Arrays and maps as state: Spark's own Python worker fails on them."""
    schema = "k string, tags array<int>, seen map<string,int>"
    made = stream("k string, v int", [])
    for v in (3, 4, 3):
        made.add(pa.table({"k": ["a", "b"], "v": pa.array([v, v + 1], pa.int32())}))
    made.run(
        lambda df: df.groupBy("k").applyInPandasWithState(
            vectorized(lists_and_maps), schema, schema.split(", ", 1)[1], "update", "NoTimeout"
        )
    )
    assert made.rows[2][0] == ("a", [3, 4, 3], {"3": 3, "4": 4})


OF_ALL_TYPES = """
    boolean(i % 2) AS bo, cast(i AS tinyint) AS ti, cast(i AS smallint) AS si, cast(i AS int) AS it,
    i * bigint(1125899906842625) AS lo, cast(i / 7 AS float) AS fl, i / 7 AS do, repeat('é', int(i)) AS st,
    cast(repeat('x', int(i)) AS binary) AS bi, cast(i / 7 AS decimal(20, 4)) AS de,
    date_add(DATE'2024-02-27', int(i)) AS da, timestamp_micros(1699174000000001 + i * 1800000000) AS ts,
    timestamp_ntz'2024-02-29 23:59:59.5' + make_dt_interval(int(i)) AS nt,
    make_dt_interval(1, 2, 3, cast(-i / 8 AS decimal(18, 6))) AS dt,
    array(i, NULL) AS ar, map(string(i), named_struct('t', timestamp_micros(i), 'l', array('a'))) AS ma,
    named_struct('x', int(i), 'y', array(named_struct('b', binary('z'), 'd', i / 7))) AS st2
"""


def keep_last(key, frames, state):
    for frame in frames:
        before = str(state.get) if state.exists else None
        state.update((frame["x"].tolist()[-1],))
        yield pd.DataFrame({"k": [key[0]], "said": [f"{frame['x'].tolist()} {before}"]})


def give_back(key, frames, state):
    for frame in frames:
        state.update((str(len(frame)),))
        yield frame[["k", "x"]]


POINT = "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040', 4326)"
OTHER_TYPES = [("cast(v as string)", keep_last, "k string, said string", "x char(5)")]
if not pyspark.__version__.startswith(("4.0.", "4.1.")):
    OTHER_TYPES.append((POINT, give_back, "k string, x geometry(4326)", "n string"))


@pytest.mark.tier("more")
@pytest.mark.parametrize(("column", "function", "output", "state"), OTHER_TYPES)
def test_types_that_only_sparks_operator_takes_are_left_to_it(stream, conf, column, function, output, state):
    """A query never fails where Spark's operator does not."""
    conf("spark.sql.preserveCharVarcharTypeInfo", "true")
    outcomes = []
    for form in (accelerate(function), function):

        def query(df, form=form):
            groups = df.select("k", F.expr(column).alias("x")).groupBy("k")
            return groups.applyInPandasWithState(form, output, state, "update", "NoTimeout")

        run = stream("k string, v double", [batch(("a", 1.0), ("b", 2.0), ("a", 3.0)), batch(("a", 4.0))])
        run.run(query)
        assert PLAN_NODE not in run.plan
        outcomes.append(run.outcome().rows)
    assert outcomes[0] == outcomes[1]


@pytest.mark.tier("more")
def test_values_are_those_of_collect(spark, stream, conf):
    """Values of all types, also null, in rows and states, in a night in which clocks change."""
    conf("spark.sql.session.timeZone", "America/New_York")
    typed = [part.rsplit(" AS ", 1) for part in split_columns(OF_ALL_TYPES)]
    nulls = [f"if(i % 5 = 4, NULL, {value}) AS n_{name}" for value, name in typed]
    columns = ["i % 2 AS g", "i", *(f"{value} AS {name}" for value, name in typed), *nulls]
    made = stream("i bigint", [pa.table({"i": [0, 1, 2, 3, 4]}), pa.table({"i": [6, 9]})])
    schema = made.spark.range(1).selectExpr("id AS i").selectExpr(*columns).schema
    made.run(
        lambda df: (
            df.selectExpr(*columns)
            .groupBy("g")
            .applyInPandasWithState(
                per_group(shown),
                "g long, shown string",
                type(schema)(schema.fields[2:]),
                "update",
                "NoTimeout",
            )
        )
    )
    rows = spark.createDataFrame([(i,) for i in range(10)], "i long").selectExpr(*columns)
    with local_zone("America/New_York"):
        collected = {row.i: row for row in rows.collect()}

    def state(i):
        return "State State(" + repr(collected[i])[4:].split(", ", 2)[2]

    found = [sorted(shown for _, shown in made.rows[batch]) for batch in (0, 1)]
    assert found[0] == sorted(repr(collected[i]) for i in range(5))
    assert found[1] == sorted([repr(collected[6]), repr(collected[9]), state(3), state(4)])


def split_columns(text: str) -> list[str]:
    """Return the columns of a SELECT, split at commas behind a name."""
    return [part.strip() for part in re.findall(r"(.+? AS \w+)(?:,|\Z)", text.strip(), re.DOTALL)]


@contextlib.contextmanager
def local_zone(name: str) -> Iterator[None]:
    """Make this the zone of the process, in which `collect()` shows moments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.tier("more")
def test_groups_larger_than_a_batch_end_as_in_sparks_operator(stream, conf):
    """Groups in several Arrow batches and, beyond the byte limit, in several calls: the same end."""
    conf("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    conf(PREFIX + "maxBatchBytes", 200)
    conf(PREFIX + "maxGroupBytes", 2000)
    rows = [("large" if i % 3 else f"k{i}", i) for i in range(600)]
    batches = [batch(*rows), batch(*rows[:50])]
    found = {}
    for name, function in {
        "stock": chunks,
        "accelerate": accelerate(chunks),
        "whole": accelerate(first_frame_only),
        "first": first_frame_only,
    }.items():
        made = stream("k string, v double", batches)
        made.run(totals(function))
        found[name] = made.outcome()
    assert found["accelerate"].rows == found["stock"].rows
    assert found["whole"] == found["first"]
    made = stream("k string, v double", batches)
    with pytest.raises(StreamingQueryException, match=r"k='large'.*exceed 2000 bytes"):
        made.run(totals(vectorized(keep_summing)))
    made.run(totals(vectorized(split_groups=True)(keep_summing)))
    assert {row[0]: row[1] for row in made.rows[0]}["k0"] == 1
    sums = {r[0][0]: r[1][0] for r in made.stored()}
    expected = [v for k, v in (rows + rows[:50]) if k == "large"]
    assert sums["large"][0] == len(expected) and sums["large"][1] == sum(expected)


def keep_summing(rows, states, context):
    import numpy as np

    from state_store.functions import GROUP, Result

    group, groups = rows[GROUP].to_numpy(), states.num_rows
    n = np.bincount(group, minlength=groups) + states["n"].fill_null(0).to_numpy()
    s = (
        np.bincount(group, weights=rows["v"].to_numpy(), minlength=groups)
        + states["s"].fill_null(0).to_numpy()
    )
    new = pa.table({"n": n, "s": s})
    return Result(output=pa.table({"k": states["k"], "n": n, "s": s}), state=new)


@pytest.mark.parametrize(
    ("function", "enabled"),
    [
        (vectorized(fails), True),
        (accelerate(fails_per_group), True),
        (per_group(fails_with_rows), True),
        (per_group(fails_with_rows), False),
    ],
    ids=["vectorized", "accelerate", "per_group", "per_group on Spark's operator"],
)
def test_user_exception_keeps_its_traceback(stream, conf, function, enabled):
    conf("spark.sql.shuffle.partitions", 1)
    conf(PREFIX + "enabled", enabled)
    made = stream("k string, v double", [batch(("a", 1)), batch(("a", 1), ("bad", 2))])
    with pytest.raises(StreamingQueryException) as error:
        made.run(totals(function))
    message = str(error.value)
    assert "KeyError: 'the key that this test made up'" in message
    assert "functions.py" in message and "# the line of the user" in message
    assert {version for _, version in made.deltas()} == {1}


@pytest.mark.tier("more")
@pytest.mark.parametrize("mark", [lambda function: function, accelerate, per_group])
def test_a_function_that_stops_is_shown_with_its_line(stream, mark):
    with pytest.raises(StreamingQueryException, match="generator raised StopIteration") as error:
        stream("k string, v double", BATCHES[:1]).run(totals(mark(stops)))
    assert "# the line of the user" in str(error.value)


def test_bad_result_writes_nothing(stream, conf):
    conf("spark.sql.shuffle.partitions", 1)
    made = stream("k string, v double", [batch(("a", 1), ("b", 1)), batch(("a", 1), ("bad", 2), ("c", 1))])
    with pytest.raises(StreamingQueryException, match=r"Result\.state has 1 rows for"):
        made.run(totals(vectorized(misaligned)))
    assert {version for _, version in made.deltas()} == {1}


ENDS = {"leave": lambda: sys.exit(1), "kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}
"""Ways in which a function ends its worker."""


def ending(function, flag, end):
    """Return a function that ends its worker as long as there is the file `flag`."""

    @functools.wraps(function)
    def called(*arguments):
        if flag.exists():
            ENDS[end]()
        return function(*arguments)

    return called


@pytest.mark.tier("more")
@pytest.mark.parametrize("end", ENDS)
def test_a_query_goes_on_after_its_worker_has_ended(stream, tmp_path, end):
    forms = {
        "stock": ending(total_per_group, tmp_path / "stock", end),
        "accelerate": accelerate(ending(total_per_group, tmp_path / "accelerate", end)),
        "per_group": per_group(ending(total_of_rows, tmp_path / "per_group", end)),
        "vectorized": vectorized(ending(total, tmp_path / "vectorized", end)),
    }
    found = {}
    for name, function in forms.items():
        made = stream("k string, v double", BATCHES[:1])
        made.run(totals(function))
        assert (PLAN_NODE in made.plan) == (name != "stock")
        for given in BATCHES[1:]:
            made.add(given)
        (tmp_path / name).touch()
        with pytest.raises(StreamingQueryException):
            made.run(totals(function))
        assert sorted(made.rows) == [0]
        (tmp_path / name).unlink()
        made.run(totals(function))
        found[name] = (made.outcome().rows, made.deltas())
    for name in forms:
        assert found[name] == found["stock"], name
    assert sorted(found["stock"][0]) == [0, 1, 2]


@pytest.mark.tier("more")
@pytest.mark.parametrize(
    ("function", "message"),
    [(wrong_columns, "RESULT_COLUMN_SCHEMA_MISMATCH"), (no_frames, "iterable of pandas.DataFrame")],
)
def test_accelerated_functions_get_sparks_errors(stream, function, message):
    for form in (function, accelerate(function)):
        with pytest.raises(StreamingQueryException) as error:
            stream("k string, v double", BATCHES[:1]).run(totals(form))
        assert message in str(error.value)


@pytest.mark.tier("more")
def test_other_pandas_functions_run_in_the_same_query(stream, conf):
    """Ordinary pandas functions before and behind the stateful operator.

    Behind Spark's own operator only after a filter whose code is generated: its rows are not of the kind that
    such a function needs.
    """
    conf("spark.sql.codegen.wholeStage", "true")

    def query(function, filtered):
        def build(df):
            @F.pandas_udf("double")
            def doubled(values: pd.Series) -> pd.Series:
                return values * 2

            counted = totals(function)(df.withColumn("v", doubled("v")))
            return (counted.where("s < 1e9") if filtered else counted).withColumn("twice", doubled("s"))

        return build

    stock, ours, direct = (stream("k string, v double", BATCHES[:2]) for _ in range(3))
    stock.run(query(total_per_group, filtered=True))
    ours.run(query(vectorized(total), filtered=True))
    direct.run(query(vectorized(total), filtered=False))
    assert ours.outcome() == stock.outcome()
    assert {n: set(rows) for n, rows in direct.rows.items()} == {
        n: set(rows) for n, rows in ours.rows.items()
    }
    assert all(row[3] == 2 * row[2] for rows in ours.rows.values() for row in rows)


def test_a_wrong_option_is_named(stream, conf):
    conf(PREFIX + "maxBatchBytes", "lots")
    with pytest.raises(Exception, match=r"vectorized\.maxBatchBytes is set to 'lots'"):
        stream("k string, v double", BATCHES[:1]).run(totals(vectorized(total)))
