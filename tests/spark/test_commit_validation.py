"""Spark's check that a foreachBatch function has let every store of the batch commit."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from queries.flow import Flow

pytestmark = [pytest.mark.spark, pytest.mark.spark42_long]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RECORDS = [(f"k{number}", number) for number in range(20)]


def told(error: BaseException | None) -> str:
    """The messages of an error of Spark and of its causes."""
    messages = []
    while error:
        messages.append(str(error))
        error = getattr(error, "_cause", None)
    return "\n".join(messages)


def test_a_batch_that_is_read_whole_passes(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(RECORDS, [], RECORDS[:3])
    assert sorted(row["n"] for row in flow.batches[2]) == [2, 2, 2]


def read_in_part(flow: Flow) -> str:
    """Runs a batch whose function looks at one partition of two; what the query fails with."""
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(RECORDS, sink=lambda frame, _: frame.limit(1).collect())
    return told(failure.value)


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
    assert "CANNOT_LOAD_STATE_STORE" in told(failure.value)
