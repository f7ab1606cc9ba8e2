"""Queries of one session under different options do not mix; a query's first provider is kept for good."""

from __future__ import annotations

import pytest
from queries import settings
from queries.flow import Flow

PROVIDER_CLASS = "spark.sql.streaming.stateStore.providerClass"
RETAINED = "spark.sql.streaming.minBatchesToRetain"


def batches(count: int, keys: int) -> list[list[tuple[str, int]]]:
    return [[(f"k{number % keys}", number) for number in range(batch, batch + 5)] for batch in range(count)]


def test_two_queries_with_different_options_run_at_once(spark, tmp_path):
    few = Flow(spark, tmp_path / "few", **{RETAINED: 2, "spark.sql.shuffle.partitions": 1})
    many = Flow(spark, tmp_path / "many", **{RETAINED: 50, "spark.sql.shuffle.partitions": 3})
    for flow, keys in ((few, 4), (many, 9)):
        for records in batches(10, keys):
            flow.feed(records)
    running = [flow.start() for flow in (few, many)]
    for query in running:
        query.awaitTermination()
        assert query.exception() is None

    for flow, keys, partitions in ((few, 4, 1), (many, 9, 3)):
        rows = [record for records in batches(10, keys) for record in records]
        assert {key: row["count"] for key, row in flow.state_of_keys().items()} == {
            key: sum(k == key for k, _ in rows) for key, _ in rows
        }
        assert len(list((flow.checkpoint / "state" / "0").glob("[0-9]"))) == partitions
    assert len(many.state_of_keys(batchId=1)) == 6
    with pytest.raises(Exception, match=r"STDS|batch|version"):
        few.state_of_keys(batchId=1)


def test_the_first_provider_of_a_query_is_kept(spark, provider, tmp_path):
    other = "hdfs" if provider != "hdfs" else "rocksdb"
    flow = Flow(
        spark,
        tmp_path / "flow",
        **{PROVIDER_CLASS: settings.PROVIDERS[other], settings.PREFIX + "checkpointFormatVersion": 1},
    )
    flow.run([("a", 1)])
    flow.options = {}
    query = flow.run([("a", 2)])
    assert [row["total"] for row in flow.batches[-1]] == [3]
    conf = query._jsq.lastProgress().stateOperators()[0].customMetrics().toString()
    assert ("loadedMapCacheHitCount" in conf) == (other == "hdfs")
