"""A query that has never run begins with a state, and reads all of its input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import maven_jars
import pyarrow as pa
import pytest
from minis3 import S3Server
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from queries import bootstrapped, settings
from queries.flow import Flow

import state_store
from state_store.errors import ConflictError, MissingError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.spark42_long]

INITIAL = [("a", 100, 1000), ("b", 7, 70), ("z", 1, 5)]


def counted(records: DataFrame) -> DataFrame:
    """Counts and sums of each key in a state of the user's own."""
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


def rows_of(checkpoint: Path, **version: int) -> set[tuple[str, int, int]]:
    with state_store.open(str(checkpoint), **version) as state:
        return {(row["key"], row["n"], row["total"]) for row in state.to_arrow().to_pylist()}


def test_a_stateful_function_goes_on_from_rows(spark, tmp_path):
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


def test_a_join_goes_on_from_one_side_of_each_source(spark, tmp_path):
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
    waiting = [{"left_id": number, "left_key": "ab"[number % 2], "left_value": 0} for number in range(5)]
    rows = [{"field0": row["left_key"], **row} for row in waiting]
    checkpoint = str(tmp_path / "checkpoint")
    state_store.bootstrap(writer, checkpoint, {"left": pa.Table.from_pylist(rows)})
    (root["right"] / "1.json").write_text('{"id": 100, "key": "a", "value": 1}\n')
    (root["left"] / "1.json").write_text('{"id": 50, "key": "a", "value": 1}\n')
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(found) == [(0, 100), (2, 100), (4, 100), (50, 100)]
    with state_store.open(checkpoint, store="left") as state:
        assert state.count() == 6


@pytest.mark.long
def test_a_state_on_s3(scala_jar, s3_server: S3Server, tmp_path):
    """By a URI that Spark and this Python both know."""
    options = settings.spark_options("incremental", 2, [scala_jar])
    options |= {f"spark.hadoop.{name}": value for name, value in s3_server.hadoop_properties.items()}
    options["spark.driver.extraClassPath"] = os.pathsep.join(map(str, maven_jars.s3a_jars()))
    environment = {**os.environ, **s3_server.environment, "PYTHONPATH": settings.python_path()}
    checkpoint = "s3a://bucket/bootstrapped"
    (tmp_path / "1.json").write_text('{"key": "a"}\n{"key": "c"}\n{"key": "c"}\n')
    command = [sys.executable, "-m", "queries.bootstrapped", checkpoint, str(tmp_path), json.dumps(options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    before, directories, after = json.loads(done.stdout.splitlines()[-1])
    assert before == bootstrapped.INITIAL
    assert directories == ["commits", "offsets", "state"]
    assert after == {"a": 101, "b": 7, "c": 2, "z": 1}


def test_what_cannot_be_the_state_leaves_nothing(spark, tmp_path):
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
