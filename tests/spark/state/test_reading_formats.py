"""State of either checkpoint format, read and continued in sessions of either format."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from queries import session_settings
from queries.small.flow import Flow, session_options
from queries.small.flow import totals as flow_totals
from queries.small.forgetting import remembered

pytestmark = [pytest.mark.spark, pytest.mark.older(long=("4.2", "4.1")), pytest.mark.tier("more")]

FORMAT = session_settings.PREFIX + "checkpointFormatVersion"
BATCHES = [[(f"k{number % 3}", number + 1) for number in range(batch, batch + 4)] for batch in range(6)]
RETAINED = {"spark.sql.streaming.minBatchesToRetain": 10}


def expected(last: int) -> dict[str, int]:
    rows = [record for batch in BATCHES[: last + 1] for record in batch]
    return {key: sum(value for k, value in rows if k == key) for key, _ in rows}


def totals(rows: dict[str, dict]) -> dict[str, int]:
    return {key: row["groupState"]["total"] for key, row in rows.items()}


@pytest.fixture(scope="module")
def ran_with_2(spark, provider, tmp_path_factory) -> Flow:
    """Make a query that ran in checkpoint format 2."""
    if provider != "incremental":
        pytest.skip("what the incremental store does beyond Spark's own")
    flow = Flow(spark, tmp_path_factory.mktemp("formats"), remembered, **{FORMAT: 2}, **RETAINED)
    flow.run(*BATCHES)
    return flow


@pytest.fixture
def session_of_1(spark):
    with session_options(spark, {FORMAT: 1}):
        yield


@pytest.mark.older(more=("4.2",), long=("4.1",))
def test_a_session_of_format_1_reads_every_batch_of_format_2(ran_with_2, session_of_1):
    for batch in range(len(BATCHES)):
        assert totals(ran_with_2.state_of_keys(batchId=batch)) == expected(batch)
    assert totals(ran_with_2.state_of_keys()) == expected(len(BATCHES) - 1)


def test_it_reads_the_change_feed_and_the_metadata(spark, ran_with_2, session_of_1):
    feed = ran_with_2.state(readChangeFeed=True, changeStartBatchId=2, changeEndBatchId=4)
    assert {(row["batch_id"], row["key"]["key"], row["value"]["groupState"]["total"]) for row in feed} == {
        (batch, key, total)
        for batch in (2, 3, 4)
        for key, total in expected(batch).items()
        if key in dict(BATCHES[batch])
    }
    (row,) = spark.read.format("state-metadata").load(str(ran_with_2.checkpoint)).collect()
    assert (row.stateStoreName, row.maxBatchId) == ("default", len(BATCHES) - 1)


def test_it_rebuilds_a_batch_from_a_snapshot(ran_with_2, session_of_1):
    snapshots = (ran_with_2.checkpoint / "state/0/0/snapshot").glob("*.zip")
    start = min(int(re.match(r"\d+", path.name)[0]) for path in snapshots) - 1
    rebuilt = ran_with_2.state_of_keys(
        batchId=len(BATCHES) - 1, snapshotStartBatchId=start, snapshotPartitionId=0
    )
    assert rebuilt and totals(rebuilt).items() <= expected(len(BATCHES) - 1).items()


def test_it_reads_the_stores_of_a_join(spark, provider, tmp_path):
    def pairs(records):
        moments = records.withColumn("ts", F.timestamp_seconds("value")).withWatermark("ts", "1 hour")
        right = moments.selectExpr("key AS k", "ts AS t")
        return moments.join(right, F.expr("key = k AND ts = t")).select("key", "value")

    if provider != "incremental":
        pytest.skip("what the incremental store does beyond Spark's own")
    flow = Flow(spark, tmp_path, pairs, "append", **{FORMAT: 2})
    flow.run(*BATCHES[:3])
    wanted = {}
    for number in (2, 1):
        with session_options(spark, {FORMAT: number}):
            for side in ("left", "right"):
                rows = flow.state(joinSide=side)
                wanted.setdefault(side, sorted(map(str, rows)))
                assert sorted(map(str, rows)) == wanted[side] and len(rows) > 5
            for store in ("left-keyToNumValues", "right-keyWithIndexToValue"):
                rows = flow.state(storeName=store)
                wanted.setdefault(store, sorted(map(str, rows)))
                assert sorted(map(str, rows)) == wanted[store] and rows


def test_the_committed_attempt_of_several_is_read(ran_with_2, session_of_1, tmp_path):
    copy = ran_with_2.copied(tmp_path / "copy")
    deltas = list((copy.checkpoint / "state/0/0/delta").glob("*6_*.sst"))
    for delta in deltas:
        version, _, parent, crc = delta.stem.split("_")
        shutil.copy(
            delta, delta.with_name(f"{version}_00000000-0000-4000-8000-000000000000_{parent}_{crc}.sst")
        )
    assert deltas
    assert totals(copy.state_of_keys()) == expected(len(BATCHES) - 1)


def test_the_error_names_the_option_if_the_commit_log_has_no_ids(ran_with_2, session_of_1, tmp_path):
    copy = ran_with_2.copied(tmp_path / "copy")
    for log in (copy.checkpoint / "commits" / "5", copy.checkpoint / "commits" / ".5.crc"):
        log.unlink(missing_ok=True)
    last = copy.checkpoint / "commits" / "4"
    lines = last.read_text().splitlines()
    last.write_text(
        "v1\n" + json.dumps({"nextBatchWatermarkMs": json.loads(lines[1])["nextBatchWatermarkMs"]})
    )
    (copy.checkpoint / "commits" / ".4.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match=f"version 5 was committed in checkpoint format 2.*set {FORMAT} to 2"):
        copy.state_of_keys()


def is_pinned(spark) -> bool:
    """Return True if a query keeps its first checkpoint format in any session: from Spark 4.3 on."""
    return tuple(map(int, spark.version.split(".")[:2])) >= (4, 3)


@pytest.mark.older(more=("4.2",), long=("4.1",))
def test_a_query_of_format_1_continues_in_a_session_of_format_2(spark, provider, tmp_path):
    if provider != "incremental":
        pytest.skip("what the incremental store does beyond Spark's own")
    flow = Flow(spark, tmp_path, remembered, **{FORMAT: 1}, **RETAINED)
    flow.run(*BATCHES[:2])
    flow.options = {FORMAT: 2, **RETAINED}
    flow.run(*BATCHES[2:4])
    newest = (flow.checkpoint / "commits" / "3").read_text()
    assert newest.startswith("v1" if is_pinned(spark) else "v2")
    for number in (1, 2):
        with session_options(spark, {FORMAT: number}):
            for batch in range(4):
                assert totals(flow.state_of_keys(batchId=batch)) == expected(batch)


@pytest.mark.older(more=("4.2",), long=("4.1",))
@pytest.mark.parametrize("query", [remembered, flow_totals])
def test_a_query_of_format_2_keeps_its_format_or_is_refused_in_a_session_of_format_1(
    spark, provider, tmp_path, query
):
    """Spark 4.3 keeps the query's format. Before, the session's is impossible, and nothing is written."""
    if provider != "incremental":
        pytest.skip("what the incremental store does beyond Spark's own")
    flow = Flow(spark, tmp_path, query, **{FORMAT: 2}, **RETAINED)
    flow.run(*BATCHES[:2])
    flow.options = {FORMAT: 1, **RETAINED}
    if is_pinned(spark):
        flow.run(*BATCHES[2:4])
        assert (flow.checkpoint / "commits" / "3").read_text().startswith("v2")
        return
    before = sorted(flow.checkpoint.glob("state/0/*/delta/*"))
    with pytest.raises(StreamingQueryException, match=f"checkpoint format 2.*set {FORMAT} to 2"):
        flow.run(*BATCHES[2:4])
    assert sorted(flow.checkpoint.glob("state/0/*/delta/*")) == before
    flow.options = {FORMAT: 2, **RETAINED}
    flow.run()
    assert len(flow.batches) == 4
