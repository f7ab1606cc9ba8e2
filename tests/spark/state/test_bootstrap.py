"""A query that has never run begins with a state, and reads all of its input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import late_workers
import maven_jars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset.golden_states import in_order
from minis3 import S3Server
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from queries import session_settings
from queries.small import bootstrapped
from queries.small.census import FAR_MS, WITH_TTL, in_rows
from queries.small.flow import Flow, session_options

import state_store
from state_store.data.dataset.rewriting import importing
from state_store.data.dataset.rewriting.copying import Rewritten
from state_store.errors import ConflictError, Interrupted, MissingError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

INITIAL = [("a", 100, 1000), ("b", 7, 70), ("z", 1, 5)]


def counted(records: DataFrame) -> DataFrame:
    """Count and sum by key in a user-defined state."""
    import pandas as pd

    def count(key, frames, state):
        n, total = state.get if state.exists else (0, 0)
        for frame in frames:
            n, total = n + len(frame), total + int(frame["value"].sum())
        state.update((n, total))
        yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})

    return records.groupBy("key").applyInPandasWithState(
        count, "key string, n long, total long", "n long, total long", "update", GroupStateTimeout.NoTimeout
    )


def table(rows: list[tuple[str, int, int]] = INITIAL) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "n": n, "total": total} for key, n, total in rows])


def writer_of(flow: Flow, frames: list[int] | None = None) -> Any:
    stream = flow.spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", "1")
    writer = flow.query(stream.json(str(flow.input))).writeStream.outputMode(flow.mode)

    def collect(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if frames is not None:
            frames.append(len(rows))
        if batch:
            flow.batches.append([row.asDict() for row in rows])

    return writer.foreachBatch(collect)


def bootstrapped_in_time(writer: Any, checkpoint: str, rows: Any) -> Rewritten:
    for _ in range(late_workers.MOST):
        try:
            return state_store.bootstrap(writer, checkpoint, rows)
        except StreamingQueryException as error:
            if not late_workers.was_late(error):
                raise
    return state_store.bootstrap(writer, checkpoint, rows)


def in_store(checkpoint: str, store: str) -> list[dict]:
    with state_store.open(checkpoint, store=store) as state:
        return in_order(state.to_arrow().drop_columns("partition_id").to_pylist())


def is_of_a(row: dict) -> bool:
    return row["key"] in ("a", {"key": "a"})


def rows_of(checkpoint: Path, **version: int) -> set[tuple[str, int, int]]:
    with state_store.open(str(checkpoint), **version) as state:
        return {(row["key"], row["n"], row["total"]) for row in state.to_arrow().to_pylist()}


def test_a_stateful_function_continues_from_rows(spark, tmp_path):
    flow = Flow(spark, tmp_path, counted)
    flow.feed([("a", 1), ("a", 2), ("c", 3)])
    flow.feed([("b", 4)])
    frames: list[int] = []
    writer = writer_of(flow, frames)
    done = state_store.bootstrap(writer, str(flow.checkpoint), table())
    assert (done.version, done.rows, frames) == (1, len(INITIAL), [0])
    assert rows_of(flow.checkpoint) == set(INITIAL)
    assert sorted(path.name for path in flow.checkpoint.iterdir()) == [
        "commits",
        "metadata",
        "offsets",
        "state",
    ]
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    got = [sorted((row["key"], row["n"], row["total"]) for row in batch) for batch in flow.batches]
    assert got == [[("a", 102, 1003), ("c", 1, 3)], [("b", 8, 74)]]
    assert rows_of(flow.checkpoint) == {("a", 102, 1003), ("b", 8, 74), ("c", 1, 3), ("z", 1, 5)}
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 4
    flow.feed([("z", 2)])
    writer.start().awaitTermination()
    assert rows_of(flow.checkpoint) >= {("z", 2, 7)}
    with pytest.raises(ConflictError, match="is not empty"):
        state_store.bootstrap(writer, str(flow.checkpoint), table())


@pytest.mark.parametrize("is_frame", [True, False])
def test_executors_write_the_state_of_a_data_frame_or_of_files(spark, tmp_path, is_frame):
    flow = Flow(spark, tmp_path, counted)
    flow.feed([("a", 1), ("c", 3)])
    writer = writer_of(flow)
    if is_frame:
        frame = spark.createDataFrame(INITIAL, "key string, n int, total long").repartition(2)
        done = state_store.bootstrap(writer, str(flow.checkpoint), frame)
    else:
        pq.write_table(table(), tmp_path / "rows.parquet")
        done = state_store.bootstrap(writer, flow.checkpoint, tmp_path / "rows.parquet", spark=spark)
    assert (done.version, done.rows) == (1, len(INITIAL))
    assert rows_of(flow.checkpoint) == set(INITIAL)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(flow.checkpoint) == {("a", 101, 1001), ("b", 7, 70), ("c", 1, 3), ("z", 1, 5)}
    assert state_store.verify(flow.checkpoint, leave_result=False).ok


@pytest.mark.release("4.2", "4.3")
@pytest.mark.parametrize("named", [False, True])
def test_a_query_whose_log_has_sources_by_name_continues_from_rows(spark, tmp_path, named):
    """Format 2 of the offset log names each source; with source evolution users name them."""
    options = {
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": str(named).lower(),
    }
    flow = Flow(spark, tmp_path, counted)
    flow.feed([("a", 1), ("a", 2), ("c", 3)])
    with session_options(spark, options):
        stream = spark.readStream.schema("key string, value long")
        stream = stream.name("records") if named else stream
        writer = flow.query(stream.json(str(flow.input))).writeStream.outputMode("update")
        writer = writer.foreachBatch(lambda frame, _: frame.count())
        done = state_store.bootstrap(writer, str(flow.checkpoint), table())
        assert (done.version, done.rows) == (1, len(INITIAL))
        version, metadata, *offsets = (flow.checkpoint / "offsets/0").read_text().split("\n")
        assert (version, offsets, json.loads(metadata)["sourceMetadataInfo"]) == ("v2", [], {})
        writer.trigger(availableNow=True).start().awaitTermination()
    assert (flow.checkpoint / "offsets/1").read_text().split("\n")[2].startswith("records" if named else "0")
    assert rows_of(flow.checkpoint) == {("a", 102, 1003), ("b", 7, 70), ("c", 1, 3), ("z", 1, 5)}


def test_a_join_continues_from_one_side_of_each_source(spark, tmp_path):
    root = {side: tmp_path / side for side in ("left", "right")}
    streams = []
    for side, path in root.items():
        path.mkdir()
        stream = spark.readStream.schema("id long, key string, value long").json(str(path))
        streams.append(stream.selectExpr(*(f"{name} as {side}_{name}" for name in ("id", "key", "value"))))
    joined = streams[0].join(streams[1], F.expr("left_key = right_key"))
    found: list[tuple] = []
    writer = joined.select("left_id", "right_id").writeStream
    writer = writer.foreachBatch(lambda frame, _: found.extend(tuple(row) for row in frame.collect()))
    waiting = [{"left_id": number, "left_key": "ab"[number % 2]} for number in range(5)]
    rows = [{"field0": row["left_key"], **row} for row in waiting]
    checkpoint = str(tmp_path / "checkpoint")
    state_store.bootstrap(writer, checkpoint, {"left": pa.Table.from_pylist(rows)})
    (root["right"] / "1.json").write_text('{"id": 100, "key": "a", "value": 1}\n')
    (root["left"] / "1.json").write_text('{"id": 50, "key": "a", "value": 1}\n')
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(found) == [(0, 100), (2, 100), (4, 100), (50, 100)]
    with state_store.open(checkpoint, store="left") as state:
        assert state.count() == 6


def test_a_processor_continues_from_variables_and_timers(spark, tmp_path):
    """Some rows expire before the first batch, some after it, and others not."""
    flow = Flow(spark, tmp_path, in_rows)
    long_ago, far_ahead = 1000, FAR_MS
    flow.feed([("b", 5)])  # sets its timer again, equally far in the future
    checkpoint = str(flow.checkpoint)
    with session_options(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        writer = writer_of(flow)
        done = bootstrapped_in_time(writer, checkpoint, variables(long_ago, far_ahead))
        assert done.rows == 21  # a list is one row and its size; indexes are additional
        kept = {name: [row["value"] for row in in_store(checkpoint, name)] for name in WITH_TTL}
        assert {name: in_order(rows) for name, rows in kept.items()} == {
            "kept": [{"at": 1}, {"at": 2}],
            "keptTimes": [{"at": 1}, {"at": 2}, {"at": 3}],
            "keptDigits": [{"n": 1}, {"n": 2}],
        }
        with state_store.open(checkpoint, store="timers") as state:
            expired = state.stats(sample=None).expired
        assert (expired.rows, expired.looked_at) == (1, 2)
        late_workers.run(lambda: writer.trigger(availableNow=True).start())
    (answers,) = flow.batches
    assert {(row["key"], row["n"], row["timer"]) for row in answers} == {("b", 8, -1), ("a", -1, long_ago)}
    assert next(row["listed"] for row in answers if row["key"] == "a") == "40,3"
    assert [row["key"] for row in in_store(checkpoint, "n")] == ["b"], "the timer of a has fired"
    kept = {name: [row["value"] for row in in_store(checkpoint, name) if is_of_a(row)] for name in WITH_TTL}
    assert kept == {"kept": [], "keptTimes": [{"at": 1}, {"at": 3}], "keptDigits": [{"n": 2}]}
    assert [row["expiryTimestampMs"] > long_ago for row in in_store(checkpoint, "timers")] == [True]


def variables(long_ago: int, far_ahead: int) -> dict[str, Any]:
    """Return rows of keys a, b and c; those that expire soon do so when they are read."""
    rows = {
        "n": [{"key": key, "n": n} for key, n in (("a", 5), ("b", 7))],
        "times": [{"key": "a", "at": at} for at in (40, 3)],
        "digits": [{"key": {"key": "a"}, "userKey": {"digit": 4}, "n": 9}],
        "kept": [
            {"key": key, "value": {"at": at}, "ttlExpirationMs": ms}
            for key, at, ms in (("a", 1, None), ("b", 2, far_ahead), ("c", 3, long_ago))
        ],
        "keptTimes": [
            {"key": "a", "value": {"at": at}, "ttlExpirationMs": ms}
            for at, ms in ((1, far_ahead), (2, None), (9, long_ago), (3, far_ahead + 1))
        ],
        "keptDigits": [
            {"key": {"key": "a"}, "userKey": {"digit": n}, "value": {"n": n}, "ttlExpirationMs": ms}
            for n, ms in ((1, None), (2, far_ahead), (3, long_ago))
        ],
        "timers": [
            {"key": {"key": key}, "expiryTimestampMs": ms} for key, ms in (("a", long_ago), ("b", far_ahead))
        ],
    }
    return {name: expiring(pa.Table.from_pylist(table_rows)) for name, table_rows in rows.items()}


def expiring(table: pa.Table) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        place = table.schema.get_field_index("ttlExpirationMs")
        now_ms = int(time.time() * 1000)
        if place < 0:
            yield from table.to_batches()
        else:
            yield from table.set_column(place, "ttlExpirationMs", table[place].fill_null(now_ms)).to_batches()

    return pa.RecordBatchReader.from_batches(table.schema, batches())


@pytest.mark.tier("long")
def test_a_query_continues_from_a_state_on_s3(scala_jar, s3_server: S3Server, tmp_path):
    """The checkpoint is a URI that Spark and this Python both know."""
    options = session_settings.spark_options("incremental", 2, [scala_jar])
    options |= {f"spark.hadoop.{name}": value for name, value in s3_server.hadoop_properties.items()}
    options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, maven_jars.s3a_jars()))
    environment = {**os.environ, **s3_server.environment, "PYTHONPATH": session_settings.python_path()}
    checkpoint = "s3a://bucket/bootstrapped"
    (tmp_path / "1.json").write_text('{"key": "a"}\n{"key": "c"}\n{"key": "c"}\n')
    command = [
        sys.executable,
        "-m",
        "queries.small.bootstrapped",
        checkpoint,
        str(tmp_path),
        json.dumps(options),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    before, directories, after = json.loads(done.stdout.splitlines()[-1])
    assert before == bootstrapped.INITIAL
    assert directories == ["commits", "offsets", "state"]
    assert after == {"a": 101, "b": 7, "c": 2, "z": 1}


def test_rows_that_cannot_be_the_state_leave_nothing(spark, tmp_path):
    flow = Flow(spark, tmp_path, counted)
    flow.feed([("a", 1)])
    with pytest.raises(MissingError, match="no column 'total'"):
        state_store.bootstrap(writer_of(flow), str(flow.checkpoint), table().drop_columns("total"))
    assert [path for path in flow.checkpoint.rglob("*") if path.is_file()] == []
    stateless = Flow(spark, tmp_path / "stateless", lambda records: records, mode="append")
    with pytest.raises(OptionError, match="no stateful operator"):
        state_store.bootstrap(writer_of(stateless), str(stateless.checkpoint), table())
    writer = writer_of(flow)
    state_store.bootstrap(writer, str(flow.checkpoint), table())
    writer.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(flow.checkpoint) >= {("a", 101, 1001)}


@pytest.fixture
def interrupted_spark(spark):
    """Yield a session for a test that interrupts a call, and make it the active one again.

    The next call comes in another thread of the JVM, which has no active session: Spark would not see options
    that later tests set.
    """
    yield spark
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


@pytest.mark.parametrize("step", ["start", "batch", "rows"])
def test_an_interrupted_call_stops_its_queries_and_leaves_nothing(
    interrupted_spark, tmp_path, monkeypatch, step
):
    """Ctrl-C comes while the query starts, in its batch, and while the rows are written.

    The query would go on for ever.
    """
    flow = Flow(interrupted_spark, tmp_path, counted)
    flow.feed([("a", 1)])
    main = threading.main_thread().ident
    pressed = []

    def press() -> None:
        if not pressed:
            pressed.append(step)
            signal.pthread_kill(main, signal.SIGINT)

    def start(writer: Any) -> Any:
        query = writer.start() if step == "rows" else writer.trigger(processingTime="0 seconds").start()
        if step == "start":
            press()
        return query

    def collect(frame: DataFrame, batch: int) -> None:
        frame.count()
        if step == "batch":
            press()

    writer = writer_of(flow).foreachBatch(collect)
    write = importing.write_imported
    with monkeypatch.context() as patches:
        if step == "rows":
            patches.setattr(
                importing, "write_imported", lambda *given, **named: [press(), write(*given, **named)]
            )
        with pytest.raises(Interrupted, match="nothing is left in") as raised:
            state_store.bootstrap(writer, str(flow.checkpoint), table(), start=start)
    assert str(flow.checkpoint) in str(raised.value)
    assert interrupted_spark.streams.active == []
    assert not flow.checkpoint.exists()
    assert bootstrapped_in_time(writer, str(flow.checkpoint), table()).rows == len(INITIAL)
