"""Spark's check that a foreachBatch function has let every store of the batch commit."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from queries.flow import Flow

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RECORDS = [(f"k{number}", number) for number in range(20)]


def test_a_batch_that_is_read_whole_passes(spark, tmp_path):
    flow = Flow(spark, tmp_path / "flow")
    flow.run(RECORDS, [], RECORDS[:3])
    assert sorted(row["n"] for row in flow.batches[2]) == [2, 2, 2]


@pytest.mark.parametrize(
    ("checkpoint_format", "message"),
    [
        (1, "STATE_STORE_COMMIT_VALIDATION_FAILED.*Expected 2 commits but got 1"),
        (2, "CheckpointInfo length: 1"),
    ],
)
def test_a_batch_that_is_read_in_part_fails_and_loses_nothing(spark, tmp_path, checkpoint_format, message):
    flow = Flow(spark, tmp_path / "flow", **{FORMAT: checkpoint_format})
    flow.run(RECORDS)
    with pytest.raises(StreamingQueryException, match=message):
        flow.run(RECORDS, sink=lambda frame, _: frame.limit(1).collect())

    flow.run()
    assert sorted(row["n"] for row in flow.batches[-1]) == [2] * 20
    assert {key: row["count"] for key, row in flow.state_of_keys().items()} == {key: 2 for key, _ in RECORDS}
