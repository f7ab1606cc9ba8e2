"""Copies of slow tasks: both commit the version of their store, and the rows of one of them count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.cluster import Cluster

import state_store

pytestmark = [pytest.mark.spark, pytest.mark.tier("more"), pytest.mark.timeout(1500)]

BATCHES, KEYS = 4, 20

APPLICATION = """
import json, os, sys, time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import quick_java
import state_store

root, master, checkpoint_format = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
batches, keys = map(int, sys.argv[4:])
options = {
    **state_store.spark_conf({"maxDeltas": 2, "minPauseBetweenMerges": "0s"}),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": checkpoint_format,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": quick_java.spark_options(),
    "spark.executor.extraJavaOptions": quick_java.spark_options(),
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.locality.wait": "0",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
}
spark = SparkSession.builder.master(master).config(map=options).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
place, waits_s = root / "seen", 120
place.mkdir()


def awaited(path):
    until = time.monotonic() + waits_s
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.02)


def slow(batch):
    def work(rows):
        # All rows are read first, so that the store of each attempt has committed when it waits.
        yield from list(rows)
        task = TaskContext.get()
        if task.partitionId() == 1:
            (place / f"{batch}-{task.attemptNumber()}").touch()
            if task.attemptNumber() == 0:
                awaited(place / f"{batch}-1")
            elif batch % 2:
                awaited(place / f"{batch}-never")  # until the first has won, and this one is killed
    return work


def keep(frame, batch):
    marked = frame.mapInArrow(slow(batch), frame.schema)
    marked.write.mode("overwrite").parquet(f"{root}/results/batch={batch}")


source = root / "input"
source.mkdir()
for number in range(batches):
    rows = [{"key": key % keys, "value": number * 1000 + key} for key in range(2 * keys)]
    (source / f"{number}.json").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    os.utime(source / f"{number}.json", (1_700_000_000 + number,) * 2)
stream = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).json(str(source))
totals = stream.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))
writer = totals.writeStream.outputMode("update").option("checkpointLocation", str(root / "checkpoint"))
query = writer.trigger(availableNow=True).foreachBatch(keep).start()
assert query.awaitTermination(1200)
results = [row.asDict() for row in spark.read.parquet(f"{root}/results").collect()]
print("FOUND", json.dumps({"seen": sorted(path.name for path in place.iterdir()), "results": results}))
spark.stop()
"""


@pytest.mark.parametrize("checkpoint_format", ["1", "2"])
def test_rows_count_once_although_two_copies_of_a_task_commit(tmp_path: Path, checkpoint_format: str) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        arguments = [tmp_path, cluster.url, checkpoint_format, str(BATCHES), str(KEYS)]
        command = [sys.executable, "-c", APPLICATION, *arguments]
        done = subprocess.run(
            command, env=cluster.environment(), capture_output=True, text=True, timeout=1300, check=False
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("FOUND "))
    assert {f"{batch}-1" for batch in range(BATCHES)} <= set(found["seen"]), "no second copies ran"
    expected = [
        {
            "batch": batch,
            "key": key,
            "n": 2 * (batch + 1),
            "total": sum(number * 2000 + 2 * key + KEYS for number in range(batch + 1)),
        }
        for batch in range(BATCHES)
        for key in range(KEYS)
    ]
    assert sorted(found["results"], key=lambda row: (row["batch"], row["key"])) == [
        {name: row[name] for name in found["results"][0]} for row in expected
    ]
    state = state_store.show(tmp_path / "checkpoint").to_pylist()
    last = [row for row in expected if row["batch"] == BATCHES - 1]
    assert sorted((row["key"], row["count"]) for row in state) == [(row["key"], row["n"]) for row in last]
    assert state_store.verify(tmp_path / "checkpoint", leave_result=False).ok
