"""A whole query whose checkpoints lie on a real NameNode and DataNode, through the JVM's Hadoop client."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from minihdfs import HdfsCluster
from queries.small.flow import Flow

from state_store.core.storage import open_storage

pytestmark = [pytest.mark.spark, pytest.mark.hdfs, pytest.mark.tier("more")]

OPTIONS = {
    "spark.sql.streaming.stateStore.incremental.maxDeltas": 2,
    "spark.sql.streaming.stateStore.incremental.minPauseBetweenMerges": "0s",
    "spark.sql.streaming.stateStore.incremental.localRecovery": "false",
}


def test_a_query_continues_from_hdfs(spark, hdfs_cluster: HdfsCluster, tmp_path: Path) -> None:
    flow = Flow(spark, tmp_path / "flow", **OPTIONS)
    flow.checkpoint = f"{hdfs_cluster.uri}/query"
    batches = [[(f"k{(batch * 7 + i) % 20}", i) for i in range(10)] for batch in range(6)]
    flow.run(*batches[:4])
    flow.run(*batches[4:])
    newest = {row["key"]: (row["n"], row["total"]) for rows in flow.batches for row in rows}
    counts = Counter(key for batch in batches for key, _ in batch)
    sums: Counter[str] = Counter()
    for batch in batches:
        for key, value in batch:
            sums[key] += value
    assert newest == {key: (counts[key], sums[key]) for key in counts}
    assert len(flow.state()) == len(counts)
    storage = open_storage(hdfs_cluster.webhdfs("/query/state/0/0"))
    assert storage.list_files("delta")
