"""Sessions of Spark on this machine, and parts of comparisons on storage that answers slowly.

Each part is a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import state_store
from benchmarks.environment import jvm
from state_store.core.settings.option import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_S = 120
_ROOT = str(Path(__file__).resolve().parents[2])
_MAINTENANCE = "spark.sql.streaming.stateStore.maintenanceInterval"
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def run_part(module: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Run a module with `--part` and the part's arguments as JSON; return the JSON of its last line.

    Raises:
        CalledProcessError: The part failed.
    """
    command = [sys.executable, "-m", module, "--part", json.dumps(part)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def add_file(directory: Path, columns: Mapping[str, Any]) -> None:
    """Add a file of Parquet to the input of a query, complete at once."""
    directory.mkdir(exist_ok=True)
    target = directory / f"{time.time_ns()}.parquet"
    pq.write_table(pa.table(dict(columns)), target.with_suffix(".tmp"))
    target.with_suffix(".tmp").rename(target)


def local(options: Mapping[str, str], cores: int = 2) -> SparkSession:
    """Return a session on cores of this machine, whose Python workers find this checkout."""
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master(f"local[{cores}]").config(map={**_LOCAL, **options}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def slow(request_ms: int, options: Mapping[str, str], full_after: int | None) -> SparkSession:
    """Return a session with one partition of state, in which `delayed://` is a slow file system.

    Args:
        request_ms: the wait of a request, as `scala/driver/DelayedFileSystem.scala` says.
        options: options of the store, without their prefix.
        full_after: the number of deltas after which a full checkpoint is made soon; None: as by default.
    """
    of_store = {PREFIX + name: value for name, value in options.items()}
    if full_after is not None:
        of_store |= {f"{PREFIX}fullAfterDeltas": str(full_after), _MAINTENANCE: "500ms"}
    return local(
        {
            **state_store.spark_conf(),
            **of_store,
            "spark.driver.extraClassPath": str(jvm.compiled()),
            "spark.hadoop.fs.delayed.impl": "statestore.benchmark.DelayedFileSystem",
            "spark.hadoop.fs.delayed.request.ms": str(request_ms),
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.streaming.numRecentProgressUpdates": "100",
        }
    )


def wait_for_snapshot(root: Path) -> None:
    """Wait until each store of the first partition of the query in `root`/checkpoint has a snapshot.

    Raises:
        TimeoutError: A store has none within two minutes.
    """
    stores = {path.parent for path in (root / "checkpoint/state/0/0").rglob("delta")}
    deadline = time.monotonic() + _PATIENCE_S
    while not stores or not all(list(store.glob("snapshot/*")) for store in stores):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no snapshot came into each of {stores} within {_PATIENCE_S} s")
        time.sleep(0.2)
