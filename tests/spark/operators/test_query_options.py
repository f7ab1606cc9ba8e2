"""Options of queries in one session stay separate; a query keeps its first provider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException
from queries import session_settings
from queries.small.flow import Flow

from state_store.errors import OptionError
from state_store.session.configuration import check_checkpoint

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

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


@pytest.fixture
def pinned(spark, provider, tmp_path) -> Flow:
    """Make a query that ran its first batch with another provider than the session's."""
    other = session_settings.PROVIDERS["hdfs" if provider != "hdfs" else "rocksdb"]
    options = {PROVIDER_CLASS: other, session_settings.PREFIX + "checkpointFormatVersion": 1}
    flow = Flow(spark, tmp_path / "flow", **options)
    flow.run([("a", 1)])
    # Spark 4.2 does not pin the format with the provider, and refuses format 2 for its HDFS-backed store.
    flow.options = {session_settings.PREFIX + "checkpointFormatVersion": 1}
    return flow


@pytest.mark.older(more=("4.2",), long=("4.1",))
def test_the_first_provider_of_a_query_is_kept(pinned, provider):
    query = pinned.run([("a", 2)])
    assert [row["total"] for row in pinned.batches[-1]] == [3]
    metrics = query.lastProgress.stateOperators[0].customMetrics
    assert ("loadedMapCacheHitCount" in metrics) == (provider != "hdfs")


def test_a_checkpoint_of_another_provider_is_reported(pinned, provider):
    if provider == "hdfs":
        pytest.skip("needs a checkpoint of a provider that is not the session's")
    with pytest.raises(OptionError, match="HDFSBackedStateStoreProvider") as refusal:
        check_checkpoint(pinned.checkpoint)
    assert str(pinned.checkpoint) in str(refusal.value)


def test_the_log_warns_if_a_query_keeps_its_first_provider(spark, pinned, provider):
    if provider != "incremental":
        pytest.skip("said by the incremental store")
    with logged(spark) as log:
        pinned.run([("a", 2)])
    assert "does NOT use" in log.toString()
    assert "HDFSBackedStateStoreProvider" in log.toString()
    assert str(pinned.checkpoint) in log.toString()


@contextmanager
def logged(spark) -> Iterator:
    """Yield a Java StringWriter that gets the JVM's log meanwhile."""
    log4j = spark._jvm.org.apache.logging.log4j
    root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    writer = spark._jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, writer, "test", False, True)
    appender.start()
    root.addAppender(appender, None, None)
    try:
        yield writer
    finally:
        root.removeAppender("test")


def test_a_misspelt_option_fails_the_query_at_its_start(spark, provider, tmp_path):
    if provider != "incremental":
        pytest.skip("an option of the incremental store")
    flow = Flow(spark, tmp_path / "flow", **{session_settings.PREFIX + "incremental.maxDelta": 5})
    with pytest.raises(StreamingQueryException, match=r"incremental\.maxDelta\b.*incremental\.maxDeltas\b"):
        flow.run([("a", 1)])
    flow.options = {session_settings.PREFIX + "incremental.maxDeltas": "many"}
    with pytest.raises(StreamingQueryException, match=r"incremental\.maxDeltas is set to 'many'"):
        flow.run()


@pytest.mark.parametrize("checkpoint_format", [2, pytest.param(1, marks=pytest.mark.tier("long"))])
def test_a_query_that_unloads_its_stores_after_each_batch_merges_and_cleans_up(
    spark, provider, tmp_path, checkpoint_format
):
    """Spark closes each provider after its batch: merges that died with their provider were never made."""
    if provider != "incremental":
        pytest.skip("counts files of the incremental store")
    count, retained = 24, 3
    flow = Flow(
        spark,
        tmp_path / "flow",
        **{
            session_settings.PREFIX + "unloadOnCommit": "true",
            session_settings.PREFIX + "checkpointFormatVersion": checkpoint_format,
            session_settings.PREFIX + "incremental.maxDeltas": 5,
            RETAINED: retained,
            "spark.sql.shuffle.partitions": 2,
        },
    )
    query = flow.run(*batches(count, 7))
    metrics = [progress.stateOperators[0].customMetrics for progress in query.recentProgress]
    assert sum(batch["incrementalRestoreCount"] for batch in metrics) >= count, (
        "each batch opens its stores anew"
    )
    records = [record for batch in batches(count, 7) for record in batch]
    assert {key: row["count"] for key, row in flow.state_of_keys().items()} == {
        key: sum(k == key for k, _ in records) for key, _ in records
    }
    for partition in (flow.checkpoint / "state" / "0").glob("[0-9]*"):
        assert list(partition.glob("**/snapshot/*")), f"no merge of {partition}"
        assert len(list(partition.glob("**/delta/*"))) < count / 2, f"nothing of {partition} was cleaned up"


def test_queries_with_different_merge_policies_do_not_mix(spark, provider, tmp_path):
    if provider != "incremental":
        pytest.skip("options of the incremental store")
    prefix = session_settings.PREFIX + "incremental."
    never = {prefix + "maxDeltas": 1000, prefix + "restoreObjective": 0, prefix + "fullAfterMerges": 0}
    merged = Flow(spark, tmp_path / "merged", **{prefix + "maxDeltas": 1})
    plain = Flow(spark, tmp_path / "plain", **never)
    for flow in (merged, plain):
        for records in batches(8, 5):
            flow.feed(records)
    for query in [merged.start(), plain.start()]:
        query.awaitTermination()
        assert query.exception() is None
    snapshots = {
        flow: list((flow.checkpoint / "state").glob("0/*/snapshot/*.zip")) for flow in (merged, plain)
    }
    assert snapshots[merged]
    assert not snapshots[plain]
    assert merged.state_of_keys() == plain.state_of_keys()
