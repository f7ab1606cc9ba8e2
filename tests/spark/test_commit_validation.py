"""Spark's check that a foreachBatch function has let every store of the batch commit."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from queries.flow import Flow

pytestmark = [pytest.mark.spark, pytest.mark.spark42]

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


@pytest.mark.parametrize(
    ("checkpoint_format", "message"),
    [
        (1, "STATE_STORE_COMMIT_VALIDATION_FAILED"),
        (2, "CheckpointInfo length: 1, numPartitions: 2"),
    ],
)
def test_a_batch_that_is_read_in_part_fails_and_loses_nothing(spark, tmp_path, checkpoint_format, message):
    flow = Flow(spark, tmp_path / "flow", **{FORMAT: checkpoint_format})
    flow.run(RECORDS)
    with pytest.raises(StreamingQueryException) as failure:
        flow.run(RECORDS, sink=lambda frame, _: frame.limit(1).collect())
    assert message in told(failure.value)

    flow.run()
    assert sorted(row["n"] for row in flow.batches[-1]) == [2] * 20
    assert {key: row["count"] for key, row in flow.state_of_keys().items()} == {key: 2 for key, _ in RECORDS}
