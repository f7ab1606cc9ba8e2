"""Compare the estimates of `state_store.estimate` for queries with their measured resources, in one run.

    python -m benchmarks.comparisons.estimates [--keys 40000] [--batches 200] [--checkpoints DIR] [--json OUT]

Two Spark queries aggregate the same files, one file a batch, with different options. The checkpoint of the
first is measured; from that alone both are estimated, the second as a what-if. Bytes and files in storage are
averages over the last batches, counted while the queries ran. Restores are those of every partition at all
versions that are retained at the end, made as a query makes them: the median.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import state_store
from state_store.data.dataset.partitions import PinnedVersion
from state_store.data.query import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = (
    {"maxDeltas": "8", "fullAfterDeltas": "40", "fullScheduleJitter": "0", "minPauseBetweenMerges": "0s"},
    {"maxDeltas": "30", "fullAfterDeltas": "60", "fullScheduleJitter": "0", "minPauseBetweenMerges": "0s"},
)
RETAIN, PARTITIONS, MAINTENANCE_S = 12, 2, 3
_POLL_S = 0.2
_DIRECTORIES = ("delta", "shared", "snapshot")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--keys", type=int, default=40_000, help="rows of the state")
    parser.add_argument("--batches", type=int, default=200, help="batches of each query")
    parser.add_argument("--writes", type=int, default=4_000, help="rows of a batch")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        help="directory of the checkpoints; on another disk than TMPDIR restores copy",
    )
    parser.add_argument("--json", type=Path, help="file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.checkpoints) as name:
        root = Path(name)
        _write_input(root / "input", arguments.keys, arguments.writes, arguments.batches)
        figures = [
            _run(root / f"query-{number}", root / "input", measurement)
            for number, measurement in enumerate(OPTIONS)
        ]
        measured = state_store.measure(str(root / "query-0"))
        result = [
            {"options": options, **_compared(measured, options, *measurement)}
            for options, measurement in zip(OPTIONS, figures, strict=True)
        ]
    print(json.dumps(result, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def _compared(
    measured: state_store.Measured,
    options: dict[str, str],
    size_bytes: float,
    files: float,
    restore_ms: float,
) -> dict[str, Any]:
    """Return the estimates as multiples of the measured values."""
    estimated = state_store.estimate(
        measured.workload, options, retain=RETAIN, maintenance_ms=MAINTENANCE_S * 1000, cost=measured.cost
    )
    return {
        "bytes": {"were": round(size_bytes), "ratio": round(estimated.stored_bytes.average / size_bytes, 2)},
        "files": {"were": round(files), "ratio": round(estimated.stored_files.average / files, 2)},
        "restore": {
            "was_ms": round(restore_ms, 1),
            "ratio": round(estimated.restore_ms.average / restore_ms, 2),
        },
    }


def _write_input(directory: Path, keys: int, writes: int, files: int) -> None:
    """Write the input: the first file has every key, the others some, low numbers more often."""
    import pyarrow
    import pyarrow.parquet

    chance = random.Random(5)
    directory.mkdir()
    for number in range(files):
        changed_keys = (
            range(keys) if not number else [int(keys * chance.random() ** 3) for _ in range(writes)]
        )
        table = pyarrow.table({"k": list(changed_keys), "v": [chance.random() for _ in changed_keys]})
        path = directory / f"{number:05}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def _run(checkpoint: Path, source: Path, options: dict[str, str]) -> tuple[float, float, float]:
    """Run a query; return average bytes and files over the last batches, and milliseconds of a restore."""
    spark = _session(options)
    events = spark.readStream.schema("k long, v double").option("maxFilesPerTrigger", 1).parquet(str(source))
    query = (
        events.groupBy("k")
        .agg({"v": "sum", "*": "count"})
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    stored_by_batch: dict[int, list[tuple[int, int]]] = defaultdict(list)
    while query.isActive:
        commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
        stored_by_batch[max(commits, default=-1)].append(_stored(checkpoint))
        time.sleep(_POLL_S)
    failed = query.exception()
    spark.stop()
    if failed is not None:
        raise SystemExit(f"the query failed: {failed}")
    late = [stored_by_batch[batch] for batch in stored_by_batch if batch > max(stored_by_batch) // 3]
    by_batch = [[statistics.mean(some) for some in zip(*samples, strict=True)] for samples in late]
    size_bytes, files = (statistics.mean(some) for some in zip(*by_batch, strict=True))
    return size_bytes, files, _restore_ms(checkpoint)


def _stored(checkpoint: Path) -> tuple[int, int]:
    sizes = []
    for path in checkpoint.glob("state/0/*/*/*"):
        if path.parent.name in _DIRECTORIES:
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:
                continue
    return sum(sizes), len(sizes)


def _restore_ms(checkpoint: Path) -> float:
    """Measure a restore of every partition at every retained version.

    The quicker of two restores counts, because the first one finds cold caches.
    """
    query = Query.open(str(checkpoint))
    newest = query.committed_batch()
    assert newest is not None
    times = []
    with tempfile.TemporaryDirectory() as scratch:
        for key, committed in query.committed().items():
            for version in range(newest + 2 - RETAIN, newest + 2):
                pin = PinnedVersion(key, query.storage(key), version, committed)
                took = []
                for _ in range(2):
                    took.append(sum(pin.restore_by_blocks(Path(scratch) / "restored").phases.values()))
                    shutil.rmtree(Path(scratch) / "restored")
                pin.release()
                times.append(min(took))
    return statistics.median(times)


def _session(options: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config(map=state_store.spark_conf(options))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(PARTITIONS))
        .config("spark.sql.streaming.minBatchesToRetain", str(RETAIN))
        .config("spark.sql.streaming.stateStore.maintenanceInterval", f"{MAINTENANCE_S}s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    main()
