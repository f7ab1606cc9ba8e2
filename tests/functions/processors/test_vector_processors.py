"""Processors that get many groups at a time give the same with the session extension and without."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import vector_processors as processors
from pyspark.errors import StreamingQueryException
from pyspark.sql import GroupedData
from pyspark.sql.streaming import StatefulProcessor
from streams import Stream
from test_processors import BATCHED, OURS, PROCESSORS

import state_store
from state_store.functions.group_context import GroupTooLargeError
from state_store.functions.vectors import processor
from state_store.functions.vectors.processor import bind, borders, whole_groups

pytestmark = pytest.mark.tier("more")

SPARK = [pytest.mark.spark, pytest.mark.older(more=("4.2",), long=("4.0",))]
SCHEMA = "k string, v long, at timestamp"
HAS_ROWS = hasattr(GroupedData, "transformWithState")
"""True from Spark 4.1 on, where processors take rows, and can run in batches."""


def at(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1, 12, 0, second, tzinfo=datetime.timezone.utc)


BATCHES = [
    [(f"k{i % 3}", i, at(i)) for i in range(9)],
    [(f"k{i % 4}", None if i == 0 else i - 1, at(i + 10)) for i in range(8)],
]


@pytest.fixture
def play(spark, tmp_path):
    """Return a function that runs a processor over BATCHES, and returns its stream."""

    def run(processor: Any, output: str, batched: bool, rows: bool = False, **options: Any) -> Stream:
        for name, value in {PROCESSORS: str(batched).lower(), **OURS}.items():
            spark.conf.set(name, value)
        try:
            stream = Stream(spark, tmp_path / f"{batched}-{rows}", SCHEMA, watermark="at 0 seconds")
            for batch in BATCHES:
                columns = zip(*batch, strict=True)
                types = (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))
                arrays = [pa.array(c, kind) for c, kind in zip(columns, types, strict=True)]
                stream.add(pa.table(arrays, names=["k", "v", "at"]))

            def query(frame):
                grouped = frame.groupBy("k")
                method = grouped.transformWithState if rows else grouped.transformWithStateInPandas
                return method(
                    processor, output, "update", options.get("time", "eventtime"), options.get("initial")
                )

            stream.run(query, no_data_batches=options.get("time") != "processingTime")
            return stream
        finally:
            for name in (PROCESSORS, *OURS):
                spark.conf.unset(name)

    return run


def in_utc(row: tuple) -> tuple:
    """Return a row, whose moment is in the zone of this process, with the moment in UTC."""
    moment = row[3] and row[3].astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return (*row[:3], moment, *row[4:])


def shown() -> dict[int, list[tuple]]:
    """Return what `Everything` has to give, by batch."""
    total: dict[str, tuple] = {}
    texts: dict[str, list[str]] = {}
    counts: dict[str, dict[int, int]] = {}
    timers: dict[str, set[int]] = {}
    found: dict[int, list[tuple]] = {}

    def row(key: str) -> tuple:
        n, sum_, last = total.get(key, (None, None, None))
        local = None if last is None else at(last).replace(tzinfo=None)
        by_parity = [count for _, count in sorted(counts[key].items())]
        return (key, n, sum_, local, list(texts[key]), by_parity, len(timers[key]))

    for number, batch in enumerate(BATCHES):
        keys = sorted({key for key, _, _ in batch})
        for key, value, moment in batch:
            n, sum_, _ = total.get(key, (0, 0, None))
            total[key] = (n + 1, sum_ + (value or 0), moment.second)
            texts.setdefault(key, []).append(f"{-1 if value is None else value}!")
            parity = (value or 0) & 1
            counts.setdefault(key, {})[parity] = counts.get(key, {}).get(parity, 0) + 1
        for key in keys:
            timers.setdefault(key, set()).add(total[key][2] + 4)
        found[number] = sorted((row(key) for key in keys), key=repr)
    late = sorted(key for key, moments in timers.items() if min(moments) <= 17)
    for key in late:
        del total[key]
        counts[key].pop(1, None)
    found[len(BATCHES)] = sorted((row(key) for key in late), key=repr)
    return found


@pytest.mark.parametrize("rows", [False, True] if HAS_ROWS else [False])
@pytest.mark.parametrize("batched", [True, False])
class TestEverything:
    pytestmark = SPARK

    def test_state_is_that_of_a_model(self, play, batched, rows):
        stream = play(processors.Everything(), processors.OUTPUT, batched, rows)
        local = {  # rows come in the zone of this process
            batch: [
                (*r[:3], r[3] and r[3].astimezone(datetime.timezone.utc).replace(tzinfo=None), *r[4:])
                for r in rs
            ]
            for batch, rs in stream.outcome().rows.items()
        }
        assert {batch: sorted(rs, key=repr) for batch, rs in local.items()} == shown()
        assert (BATCHED in stream.plan) == (batched and HAS_ROWS)


@pytest.mark.spark
@pytest.mark.older(more=("4.2",), long=("4.0",))
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("processor", [processors.WithPandas, processors.WithPolars])
def test_frames_are_taken_and_given(play, processor, batched):
    if processor is processors.WithPolars:
        pytest.importorskip("polars")
    stream = play(processor(), processors.TOTALS, batched)
    assert stream.outcome().rows[1] == [("k0", 5), ("k1", 5), ("k2", 5), ("k3", 2)]


@pytest.mark.spark
@pytest.mark.older(more=("4.2",), long=("4.0",))
@pytest.mark.parametrize("batched", [True, False])
def test_a_duration_counts_from_the_start_of_the_batch(play, batched):
    stream = play(processors.Reminding(), processors.TOTALS, batched, time="processingTime")
    assert {n for rows in stream.rows.values() for _, n in rows} == {3600}


@pytest.mark.spark
def test_initial_state_is_handled(spark, play):
    initial = spark.createDataFrame([("k1", 100), ("k9", 7)], "k string, n long").groupBy("k")
    stream = play(processors.WithInitialState(), processors.TOTALS, True, initial=initial)
    assert stream.outcome().rows[1] == [("k0", 5), ("k1", 105), ("k2", 5), ("k3", 2)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("column", "lacks column 'n'"),
        ("type", "column 'n' is string, but the schema says int64"),
        ("rows", "rows for"),
        ("group", "which is unknown"),
        ("twice", "has two rows for group (k='"),
        ("name", "declares no state variable 'count' in init; it has: counts"),
        ("output", "the output has column 'm', which the output schema has not"),
    ],
)
def test_mistakes_are_named(play, fault, message):
    with pytest.raises(StreamingQueryException) as failure:
        play(processors.Wrong(fault), processors.TOTALS, True)
    assert message in str(failure.value)


def test_classes_that_are_no_processors_are_refused():
    with pytest.raises(TypeError, match="make it a subclass"):

        @state_store.vectorized
        class Plain:
            pass

    with pytest.raises(TypeError, match="has no method handle"):

        @state_store.vectorized
        class WithoutHandle(StatefulProcessor):
            def init(self, handle: Any) -> None:
                pass

    with pytest.raises(TypeError, match="write handle in its place"):

        @state_store.vectorized
        class ByGroup(processors.Counting):
            def handle(self, keys: Any, rows: Any, state: Any) -> None:
                pass

            def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
                pass

    class Derived(processors.Reminding):
        pass

    with pytest.raises(TypeError, match="Derived is derived from Reminding, which is marked"):
        state_store.vectorized(Derived)
    with pytest.raises(TypeError, match="Derived is derived from Reminding: only the class"):
        bind(Derived(), None)

    with pytest.raises(ValueError, match="takes nothing but frame="):
        state_store.vectorized(split_groups=True)(processors.Counting)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([[1, 1, 2, None, None, 3]], [0, 2, 3, 5]),
        ([[float("nan"), float("nan"), 1.0, None]], [0, 2, 3]),
        ([["a", "a", "b"], [1, 2, 2]], [0, 1, 2]),
        ([[[1], [1], None, [2]]], [0, 2, 3]),
        ([[None, None]], [0]),
    ],
)
def test_groups_begin_where_a_key_differs(keys, expected):
    assert borders([pa.array(key) for key in keys]).tolist() == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_no_group_is_cut_by_a_batch(size):
    keys = np.repeat(np.arange(12), np.arange(12) % 5 + 1)
    table = pa.table({"k": keys, "v": np.arange(len(keys))})
    tables = list(whole_groups(iter(table.to_batches(max_chunksize=size)), [0], 1 << 20))
    assert pa.concat_tables(tables).to_pydict() == table.to_pydict()
    ends = [t["k"][-1].as_py() for t in tables[:-1]]
    assert all(end != after["k"][0].as_py() for end, after in zip(ends, tables[1:], strict=False))


def test_a_group_of_many_batches_is_put_together_once(monkeypatch):
    joined = []
    original = pa.Table.from_batches
    table = pa.table({"k": [1] * 300 + [2], "v": range(301)})
    batches = table.to_batches(max_chunksize=1)

    class Counted:
        from_batches = staticmethod(lambda parts: joined.append(len(parts)) or original(parts))

    monkeypatch.setattr(processor.pa, "Table", Counted)
    assert [found.num_rows for found in whole_groups(iter(batches), [0], 1 << 20)] == [300, 1]
    assert joined == [300, 1]


def test_a_group_over_the_limit_is_named():
    batches = pa.table({"k": ["a"] * 10 + ["b"] * 30, "v": range(40)}).to_batches(max_chunksize=5)
    with pytest.raises(GroupTooLargeError, match=r"group \('b'\) exceed 200 bytes.*maxGroupBytes"):
        list(whole_groups(iter(batches), [0], 200))


@pytest.mark.spark
def test_the_limit_of_a_group_is_an_option(play, conf):
    conf("spark.sql.streaming.stateStore.incremental.vectorized.maxGroupBytes", "10b")
    with pytest.raises(StreamingQueryException, match=r"rows of group \('k\d'\) exceed 10 bytes"):
        play(processors.Reminding(), processors.TOTALS, True, time="processingTime")


@pytest.mark.spark
def test_the_example_of_the_guide_runs(spark, tmp_path):
    from test_guide import functions

    stream = Stream(spark, tmp_path, "user string, page string")
    stream.add(pa.table({"user": ["a", "b", "a"], "page": ["x", "y", "z"]}))
    stream.add(pa.table({"user": ["b"], "page": ["x"]}))
    for name, value in OURS.items():
        spark.conf.set(name, value)
    try:
        visits = functions("visits")["Visits"]
        stream.run(
            lambda frame: frame.groupBy("user").transformWithStateInPandas(
                visits(), "user string, n long", "update", "none"
            )
        )
    finally:
        for name in OURS:
            spark.conf.unset(name)
    assert stream.outcome().rows == {0: [("a", 2), ("b", 1)], 1: [("b", 2)]}
