"""Spark options of the tests: quick sessions, in which each provider merges and cleans up all the time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import quick_java

CHECK_MEMORY = "-DincrementalStateStore.checkMemory=true"
"""Option that lets the data plane refuse accesses beyond its memory."""

PROVIDER_VARIABLE = "STATE_STORE_TEST_PROVIDER"
PREFIX = "spark.sql.streaming.stateStore."
STREAMING = "org.apache.spark.sql.execution.streaming."
SPARKS = STREAMING + "state."
PROVIDERS = {
    "incremental": SPARKS + "incremental.IncrementalStateStoreProvider",
    "rocksdb": SPARKS + "RocksDBStateStoreProvider",
    "hdfs": SPARKS + "HDFSBackedStateStoreProvider",
}
_TESTS = Path(__file__).resolve().parents[1]
_ROOTS = [
    *map(str, (_TESTS, _TESTS.parent, _TESTS.parent / "functions")),
    *sorted(str(room) for room in _TESTS.iterdir() if room.is_dir()),
]


def provider_name() -> str:
    """Return the provider under test: `incremental`, or one of Spark's, to test the tests."""
    name = os.environ.get(PROVIDER_VARIABLE, "incremental")
    if name not in PROVIDERS:
        raise ValueError(f"{PROVIDER_VARIABLE} is {name!r}; it can be one of {', '.join(PROVIDERS)}")
    return name


def spark_options(provider: str, checkpoint_format: int, jars: list[Path]) -> dict[str, str]:
    """Return all options of a session with `provider`, one of `PROVIDERS`."""
    ours = _incremental() if provider == "incremental" else {}
    all_jars = [*(jar for jar in ours.get("spark.jars", "").split(",") if jar), *map(str, jars)]
    return {
        **_session(),
        **_STORES,
        **(_ROCKSDB if provider == "rocksdb" else {}),
        **ours,
        PREFIX + "providerClass": PROVIDERS[provider],
        PREFIX + "checkpointFormatVersion": str(checkpoint_format),
        **({"spark.jars": ",".join(all_jars)} if all_jars else {}),
    }


def python_path() -> str:
    """Return the PYTHONPATH of Python workers, which import the functions of the queries."""
    return os.pathsep.join(filter(None, [*_ROOTS, os.environ.get("PYTHONPATH")]))


def _session() -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": tempfile.gettempdir(),  # that of the checkpoints, so that deltas can be links
        "spark.driver.memory": "1500m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{quick_java.spark_options()} {CHECK_MEMORY}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.files.minPartitionNum": "1",  # so that the records of a batch have a known order
        "spark.sql.codegen.wholeStage": "false",
        **quick_java.CHECKPOINT_FILES,
        **quick_java.WORKERS,
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.executorEnv.PYTHONPATH": python_path(),
    }


_STORES = {
    PREFIX + "maintenanceInterval": "300ms",
    PREFIX + "minDeltasForSnapshot": "3",
    "spark.sql.streaming.minBatchesToRetain": "4",
}
_ROCKSDB = {PREFIX + "rocksdb.changelogCheckpointing.enabled": "true"}


_LISTENER = {
    "spark.sql.streaming.streamingQueryListeners": SPARKS + "incremental.PinnedProviderListener",
}
# Full checkpoints follow every second merge, and merges every second delta.
_INCREMENTAL = {"maxDeltas": 2, "minPauseBetweenMerges": "0s", "fullAfterMerges": 2, "memoryBudget": "64m"}


def _incremental() -> dict[str, str]:
    import state_store

    return {**_LISTENER, **state_store.spark_conf(_INCREMENTAL)}
