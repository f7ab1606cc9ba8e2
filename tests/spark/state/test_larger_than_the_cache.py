"""A whole query whose state has many times the bytes that its executor may cache, on remote storage."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from queries.small.flow import session_options
from waiting import paths_below

from state_store.agent.lazy.file_cache import MIN_BYTES

pytestmark = [pytest.mark.spark, pytest.mark.tier("long"), pytest.mark.timeout(3000)]

OPTION = "spark.sql.streaming.stateStore.incremental."
KEYS, ROWS_A_BATCH, VALUE_BYTES = 60_000, 6000, 3200
RUNS, BATCHES = 3, 5
"""Runs of the query, and batches of each."""

STATE_BYTES = KEYS * VALUE_BYTES


def disk_bytes(directory: Path) -> int:
    """Return the bytes that files take on the disk, without their holes."""
    found = {}
    for path in paths_below(directory):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        found[status.st_ino] = status.st_blocks * 512 if path.is_file() else 0
    return sum(found.values())


def test_rows_are_right_and_the_disk_is_small(spark, tmp_path):
    """The first ten batches write each key once, the others every other key again."""
    assert STATE_BYTES > 10 * MIN_BYTES
    stored, results = tmp_path / "stored", str(tmp_path / "results")
    stored.mkdir()
    options = {
        "fs.viewfs.mounttable.remote.link./data": stored.as_uri(),  # not local, for all that Spark knows
        "spark.sql.shuffle.partitions": "2",
        OPTION + "localDiskLimit": "1",
        OPTION + "localRecovery": "false",
        OPTION + "maxDeltas": "2",
        OPTION + "minPauseBetweenMerges": "0s",
        OPTION + "tolerableFailedMerges": "0",
    }
    first_bytes: dict[int, int] = {}
    """By run, the disk that its local files take after its first batch."""

    def keep(frame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(f"{results}/batch={batch}")
        first_bytes.setdefault(run, disk_bytes(local))

    for run in range(RUNS):
        local = tmp_path / f"local-{run}"
        local.mkdir()
        with session_options(spark, {**options, OPTION + "localDir": str(local)}):
            rows = (
                spark.readStream.format("rate-micro-batch")
                .option("rowsPerBatch", ROWS_A_BATCH)
                .option("numPartitions", 2)
                .load()
            )
            keyed = rows.select(
                (F.col("value") * 7919 % KEYS).alias("key"),
                F.col("value").alias("n"),
                F.repeat(F.md5(F.col("value").cast("string")), VALUE_BYTES // 32).alias("text"),
            )
            newest = keyed.groupBy("key").agg(
                F.count("*").alias("count"), F.max_by("text", "n").alias("text")
            )
            query = (
                newest.writeStream.outputMode("update")
                .option("checkpointLocation", "viewfs://remote/data/checkpoint")
                .foreachBatch(keep)
                .start()
            )
            try:
                wanted = BATCHES * (run + 1)
                while query.isActive and (query.lastProgress or {}).get("batchId", -1) < wanted - 1:
                    query.awaitTermination(1)
                assert query.exception() is None
            finally:
                query.stop()
    given = [(value * 7919 % KEYS, value) for value in range(RUNS * BATCHES * ROWS_A_BATCH)]
    counts: dict[int, int] = {}
    last: dict[int, int] = {}
    for key, value in given:
        counts[key] = counts.get(key, 0) + 1
        last[key] = value
    start = F.substring("text", 1, 32).alias("start")
    shown = spark.read.parquet(results).where(f"batch < {RUNS * BATCHES}")
    found = shown.select("batch", "key", "count", start).orderBy("batch").collect()
    newest_rows = {row["key"]: row for row in found}
    assert {key: row["count"] for key, row in newest_rows.items()} == counts
    texts = {key: hashlib.md5(str(value).encode()).hexdigest() for key, value in last.items()}
    assert {key: row["start"] for key, row in newest_rows.items()} == texts
    assert disk_bytes(stored) > STATE_BYTES
    # The base that a run restores is cached by pages. Deltas stay until a merge, which may be slow.
    assert max(first_bytes[1], first_bytes[2]) < STATE_BYTES // 2, first_bytes
