"""Spark's check that every store of a batch has committed, and sinks that prevent it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from queries.small.flow import Flow, session_options

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RECORDS = [(f"k{number}", number) for number in range(20)]


def messages_of(error: BaseException | None) -> str:
    """Return the messages of a Spark error and its causes."""
    messages = []
    while error:
        messages.append(str(error))
        error = getattr(error, "_cause", None)
    return "\n".join(messages)


def test_a_batch_that_is_read_completely_passes(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(RECORDS, [], RECORDS[:3])
    assert sorted(row["n"] for row in flow.batches[2]) == [2, 2, 2]


def read_in_part(flow: Flow) -> str:
    """Run a batch whose function reads one partition of two; return the error of the query."""
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(RECORDS, sink=lambda frame, _: frame.limit(1).collect())
    return messages_of(failure.value)


def test_a_batch_that_is_read_in_part_fails_and_loses_nothing(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **{FORMAT: 2})
    flow.run(RECORDS)
    assert "CheckpointInfo length: 1, numPartitions: 2" in read_in_part(flow)
    flow.run()
    assert sorted(row["n"] for row in flow.batches[-1]) == [2] * 20
    assert {key: row["count"] for key, row in flow.state_of_keys().items()} == {key: 2 for key, _ in RECORDS}


def test_with_format_1_such_a_batch_fails_after_spark_has_committed_it(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow", **{FORMAT: 1})
    flow.run(RECORDS)
    assert "STATE_STORE_COMMIT_VALIDATION_FAILED" in read_in_part(flow)
    assert (flow.checkpoint / "commits" / "1").exists()
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(RECORDS)
    assert "CANNOT_LOAD_STATE_STORE" in messages_of(failure.value)


def into_files(flow: Flow, output: Path) -> None:
    """Run the first of each key into Spark's file sink, to the end of the input."""
    stream = flow.spark.readStream.schema("key string, value long").option("maxFilesPerTrigger", "1")
    with session_options(flow.spark, flow.options):
        writer = stream.json(str(flow.input)).dropDuplicates(["key"]).writeStream.format("json")
        writer = writer.option("checkpointLocation", str(flow.checkpoint)).trigger(availableNow=True)
        writer.start(str(output)).awaitTermination()


def forget(log: Path, batch: int) -> None:
    for name in (f"{batch}", f".{batch}.crc"):
        (log / name).unlink(missing_ok=True)


def test_a_batch_that_only_the_file_sink_has_fails_and_runs_again_without_its_log(spark, tmp_path):
    """The sink does not run the batch again, so no store commits, and format 2 misses the identifiers."""
    flow, output = Flow(spark, tmp_path / "flow", **{FORMAT: 2}), tmp_path / "output"
    flow.feed(RECORDS)
    flow.feed([("another", 1)])
    into_files(flow, output)
    forget(flow.checkpoint / "commits", 1)  # as if the driver was killed there
    with pytest.raises(StreamingQueryException) as failure:
        into_files(flow, output)
    assert "CheckpointInfo length: 0, numPartitions: 2" in messages_of(failure.value)
    forget(output / "_spark_metadata", 1)
    into_files(flow, output)
    keys = [row["key"] for row in spark.read.json(str(output)).collect()]
    assert sorted(keys) == sorted({"another", *(key for key, _ in RECORDS)})
